// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that wait: shared by runner_lock.c, waiter.c and wait_sleep.c. All is locked, unless a
 * comment says otherwise.
 */
#ifndef PRELOAD_WAITER_H
#define PRELOAD_WAITER_H

#include <semaphore.h>

#include "preload.h"

/* A waiter and what its thread waits for. */
struct link {
	struct waiter *waiter;
	struct object *object; /* NULL: its last descriptor is closed */
	struct link *next, **at;
	bool exclusive; /* one event wakes one such thread */
};

struct waiter {
	int fd;           /* an eventfd; -1: the process has no more */
	sem_t sem;        /* waiters are not freed: posted without the lock, as is `fd` */
	bool lit;         /* `fd` is readable, or about to be */
	bool asleep;      /* its thread has released the lock to sleep */
	bool parked;      /* at `sem` */
	bool interrupted; /* there, by a handler that has not returned; a longjmp() never does */
	bool leads;       /* at the gate, too */
	bool posted;      /* an event since it last looked */
	bool queued;      /* in `posts` */
	bool waking;      /* posted in its sleep: counts in runner.waking */
	bool entered;     /* a call waits */
	bool handed;      /* another thread has ended its wait: to be woken */
	bool drained;     /* its thread has read `fd` without the lock */
	unsigned call;    /* its number */
	unsigned alone;   /* returns without another thread's */
	unsigned quick;   /* how often it was away for less than QUICK_NS, up to QUICK_MAX */
	unsigned links, capacity;
	struct link *link;
	struct pollfd *polled;
	nfds_t polled_capacity;
	uint64_t returned; /* `returned` when its last call ended */
	uint64_t left_ns;  /* and when that was */
	struct handoff *handoff;
	struct waiter *next, *previous, *post, *all, *free;
};

struct waiters {
	pthread_mutex_t lock; /* held for microseconds: a thread that spins needs no system call */
	struct waiter *sleepers, *posts, *all, *free;
	struct waiter *leader;    /* NULL: also while no thread sleeps as the leader */
	uint64_t leader_until_ns; /* its own time-out */
	uint64_t returned;        /* calls that have slept and ended */
};

struct waiting_thread {
	struct waiter *waiter;
	volatile bool inside; /* has the lock, or is about to acquire it, or has just released it */
	bool sleeping; /* is in a sleep, or in a handler that has interrupted it, or has left it */
	int cancel;    /* the program's cancel state, while it has the lock */
};

#pragma GCC visibility push(hidden)
extern struct waiters waiters;
extern __thread struct waiting_thread self;
#pragma GCC visibility pop

/* A handler that runs from here on does not acquire the lock. */
bool lock_begin(int *cancel);
void lock_end(int cancel);

/* Its call waits no longer. returns: to the program, for as long as before. */
void waiter_end(struct waiter *w, bool returns);
/* Its thread runs again. */
void waiter_set_awake(struct waiter *w);
bool waiter_can_lead(const struct waiter *w);
/* One that sleeps already is woken, to sleep as the leader. */
void waiter_lead(struct waiter *w);
void waiters_reset(void);

#endif
