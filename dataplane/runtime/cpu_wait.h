/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a thread has been runnable without a CPU, and whether that is much. A worker that
 * shares its CPU with others must not poll in vain: it takes the time from the servers, clients and
 * agents that its next packets come from. Used by worker.c and phase.c.
 */
#ifndef SY_CPU_WAIT_H
#define SY_CPU_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* One thread's; written by that thread. */
struct cpu_wait {
	int fd;                             /* −1: the kernel does not count */
	uint64_t waited_ns, at_ns;          /* at the last cpu_wait_note(); sy_clock_ns() */
	uint64_t recent_wait, recent_total; /* ns, older ones fade */
	bool shared;                        /* others use the CPU, too */
};

/* Opens the calling thread's counter; −1 if there is none. Close it as a file. */
int cpu_wait_open(void);
/* Nanoseconds in which that thread was runnable and did not run; 0 if the kernel does not count. */
uint64_t cpu_wait_ns(int fd);
/* Notes the counter's value at a time; sets `shared`. Call it regularly: an eighth of what it knows
 * is the last period. */
void cpu_wait_note(struct cpu_wait *c, uint64_t waited_ns, uint64_t now_ns);

#endif
