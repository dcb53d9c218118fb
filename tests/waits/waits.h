// SPDX-License-Identifier: Apache-2.0
/* Threads that wait for sockets, with a peer that echoes. */
#ifndef WAITS_H
#define WAITS_H

#include <stdbool.h>
#include <stddef.h>

/* A way to wait until a socket is readable, and to read `len` bytes. Returns how many; -1: errno.
 */
struct kind {
	const char *name;
	long (*wait)(int fd, char *bytes, size_t len);
};
#define KINDS 12
extern const struct kind kinds[KINDS];

/* Returns a connection to the peer, whose order is its first line. */
int dial(const char *order);
/* Sends bytes and waits for them in this way. */
void ask(int fd, const struct kind *k, char byte);
/* Exits unless the condition holds. */
void check(bool holds, const char *what);
void start(void *(*run)(void *), void *arg);
void join_all(void);

void signals_interrupt(void); /* a handler uses sockets, wherever it interrupts */
void signals_jump(void);      /* a handler leaves by siglongjmp() */

#endif
