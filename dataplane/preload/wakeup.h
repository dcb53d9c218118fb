// SPDX-License-Identifier: Apache-2.0
/* What wakes sleeping threads: packets, a timer, the watchdog (wakeup.c). All is locked, unless a
 * comment says otherwise. */
#ifndef PRELOAD_WAKEUP_H
#define PRELOAD_WAKEUP_H

#include <poll.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

/* The first queue's socket is in the leader's own ppoll(): through an epoll instance each packet
 * would cost more. */
#define WAKEUP_FDS 2

/* Fills in the descriptors of a leader; for other threads, entries that ppoll() ignores. */
void wakeup_fill(struct pollfd p[WAKEUP_FDS], bool leads);
/* Wakes the leader at `due_ns`, or earlier. */
void wakeup_timer_set(uint64_t due_ns);

/* Call when a leader has returned to the program, probably for microseconds: the helper thread
 * checks that a leader comes back. */
void watchdog_start(void);
/* Returns true once after watchdog_start(): the caller then wakes the helper thread. */
bool watchdog_needs_wakeup(void);
sem_t *watchdog_semaphore(void);
/* In a child process. */
void watchdog_reset(void);

/* Returns whether threads sleep, but none as the leader. Without the lock the result may be
 * outdated. */
bool leader_is_away(void);
/* Makes another sleeping thread the leader, if there is one. */
void leader_replace(void);
void leader_forget(void);

#endif
