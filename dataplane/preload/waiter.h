// SPDX-License-Identifier: Apache-2.0
/* Waiting threads: shared by runner_lock.c, waiter.c and wait_sleep.c. All is locked, unless a
 * comment says otherwise. */
#ifndef PRELOAD_WAITER_H
#define PRELOAD_WAITER_H

#include <semaphore.h>

#include "preload.h"

/* Connects a waiter with an object that its thread waits for. */
struct link {
	struct waiter *waiter;
	struct object *object; /* NULL: the object is closed */
	struct link *next, **at;
	bool exclusive; /* an event wakes only one such thread */
};

struct waiter {
	int fd;           /* an eventfd; -1: no descriptor was free */
	sem_t sem;        /* posted without the lock, as is `fd`: waiters are never freed */
	bool lit;         /* `fd` is readable, or about to be */
	bool asleep;      /* its thread has released the lock to sleep */
	bool parked;      /* at `sem` */
	bool interrupted; /* at `sem`, by a handler that runs, or has left by longjmp() */
	bool leads;       /* sleeps as the leader */
	bool posted;      /* an event has come since its last check */
	bool queued;      /* in `posts` */
	bool waking;      /* posted while asleep: counted in runner.waking */
	bool entered;     /* a call waits */
	bool handed;      /* another thread has completed its handoff and is about to wake it */
	bool drained;     /* its thread has read `fd` without the lock */
	unsigned call;    /* its number */
	unsigned alone;   /* consecutive returns of this thread, none of others between */
	unsigned quick;   /* its recent absences shorter than QUICK_NS, up to QUICK_MAX */
	unsigned links, capacity;
	struct link *link;
	struct pollfd *polled;
	nfds_t polled_capacity;
	uint64_t returned; /* the value of waiters.returned when its last call ended */
	uint64_t left_ns;  /* when its last call ended */
	struct handoff *handoff;
	struct waiter *next, *previous, *post, *all, *free;
};

struct waiters {
	pthread_mutex_t lock; /* held for microseconds: spinning avoids system calls */
	struct waiter *sleepers, *posts, *all, *free;
	struct waiter *leader;    /* NULL: also while no thread sleeps as the leader */
	uint64_t leader_until_ns; /* the end of its sleep */
	uint64_t returned;        /* calls that have slept and ended */
};

struct waiting_thread {
	struct waiter *waiter;
	volatile bool inside; /* has the lock, is about to acquire it, or has just released it */
	bool sleeping;        /* in a sleep, or in a handler that interrupted it, or has left it */
	int cancel;           /* the program's cancel state, while it has the lock */
};

#pragma GCC visibility push(hidden)
extern struct waiters waiters;
extern __thread struct waiting_thread self;
#pragma GCC visibility pop

/* Handlers that run from here on do not acquire the lock. */
bool lock_begin(int *cancel);
void lock_end(int cancel);

/* Ends the wait of its call. returns: the thread returns to the program, probably for as short a
 * time as before. */
void waiter_end(struct waiter *w, bool returns);
/* Its thread has returned from its sleep. */
void waiter_set_awake(struct waiter *w);
bool waiter_can_lead(const struct waiter *w);
/* Makes it the leader. A waiter that sleeps is woken, to sleep as the leader. */
void waiter_lead(struct waiter *w);
void waiters_reset(void);

#endif
