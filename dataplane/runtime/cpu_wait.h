/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long a thread has been runnable without a CPU. A worker that shares its CPU must not
 * busy-poll: it would take the time from the servers, clients and agents that send its next
 * packets. Used by worker.c and phase.c.
 */
#ifndef SY_CPU_WAIT_H
#define SY_CPU_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* One thread's state, private to it. */
struct cpu_wait {
	int fd;                             /* −1: the kernel does not count */
	uint64_t waited_ns, at_ns;          /* at the last cpu_wait_note(); sy_clock_ns() */
	uint64_t recent_wait, recent_total; /* decaying sums, ns */
	bool shared;                        /* other threads use the CPU too */
};

/* Opens the calling thread's counter; −1 if there is none. Close it like a file. */
int cpu_wait_open(void);
/* Nanoseconds for which that thread was runnable but did not run; 0 if the kernel does not
 * count. */
uint64_t cpu_wait_ns(int fd);
/* Adds the counter's value at a time; sets `shared`. Call it regularly: the last period has a
 * weight of 1/8. */
void cpu_wait_note(struct cpu_wait *c, uint64_t waited_ns, uint64_t now_ns);

#endif
