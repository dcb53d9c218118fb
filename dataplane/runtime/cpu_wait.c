// SPDX-License-Identifier: Apache-2.0
#include "cpu_wait.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* A CPU counts as shared from 1/16 of the time spent waiting for it, until that falls to 1/32. */
#define SHARED_FROM  16
#define SHARED_UNTIL 32

int cpu_wait_open(void)
{
	return open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

uint64_t cpu_wait_ns(int fd)
{
	char text[96];
	uint64_t run, waited = 0;
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	return sscanf(text, "%" SCNu64 " %" SCNu64, &run, &waited) == 2 ? waited : 0;
}

void cpu_wait_note(struct cpu_wait *c, uint64_t waited_ns, uint64_t now_ns)
{
	/* a counter that could not be read is 0 */
	uint64_t waited = waited_ns > c->waited_ns ? waited_ns - c->waited_ns : 0;
	uint64_t total = now_ns - c->at_ns;
	c->waited_ns += waited;
	c->at_ns = now_ns;
	c->recent_wait += waited - c->recent_wait / 8;
	c->recent_total += total - c->recent_total / 8;
	__atomic_store_n(&c->shared,
	                 c->recent_wait * (c->shared ? SHARED_UNTIL : SHARED_FROM) >
	                         c->recent_total,
	                 __ATOMIC_RELAXED);
}
