// SPDX-License-Identifier: Apache-2.0
/* The stack's sockets in epoll instances: shared by epoll_ctl.c and epoll_wait.c. */
#ifndef PRELOAD_EPOLL_SET_H
#define PRELOAD_EPOLL_SET_H

#include "preload.h"

struct watch {
	struct sock *sock;
	struct set *set;
	int fd;
	bool queued;
	uint8_t level; /* of the queue that it is in */
	uint32_t events;
	epoll_data_t data;
	struct watch *next;           /* of the socket */
	struct watch *after, *before; /* in the queue */
};

/* The watches of one level that may be ready. Without hooks all are of SY_USUAL. */
struct watch_level {
	struct watch *first, *last;
	unsigned passed; /* waits that returned other levels' events while it was not empty, since
	                  * it was last reported */
};

struct set {
	struct object o;
	int fd;
	struct watch_level level[SY_PRIORITIES];
	uint64_t kernel_ns; /* when the kernel was last polled */
	int wakeup;         /* nested: readable while a watch may be ready; -1: not nested */
	struct set *next;
};

/* Its address marks the library's own descriptors in a program's epoll instance. */
extern char own_mark;

void watch_queue(struct watch *w);
void watch_unqueue(struct watch *w);

#endif
