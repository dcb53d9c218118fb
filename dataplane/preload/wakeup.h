// SPDX-License-Identifier: Apache-2.0
/* Between the threads that sleep (waiter.c) and what wakes them (wakeup.c). All is locked, but for
 * what says otherwise. */
#ifndef PRELOAD_WAKEUP_H
#define PRELOAD_WAKEUP_H

#include <poll.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

/* The first queue's socket lies in the leader's own ppoll(): through an epoll instance each packet
 * would cost more. */
#define WAKEUP_FDS 2

/* For a leader; others get entries that ppoll() passes over. */
void wakeup_fill(struct pollfd p[WAKEUP_FDS], bool leads);
/* Wakes the leader then, or earlier. */
void wakeup_timer_set(uint64_t due_ns);

/* A leader has left for some microseconds: the helper thread watches the gate. */
void watchdog_start(void);
/* Is the helper thread to be woken for that, by the semaphore? Once. */
bool watchdog_needs_wakeup(void);
sem_t *watchdog_semaphore(void);
/* A child process. */
void watchdog_reset(void);

/* No thread sleeps at the gate, but some elsewhere. Also without the lock: it may have changed. */
bool leader_is_away(void);
/* Another thread leads, if there is one. */
void leader_replace(void);
void leader_forget(void);

#endif
