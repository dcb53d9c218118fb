/* SPDX-License-Identifier: Apache-2.0 */
/* State of the registry: stored hooks, and the stacks that must load them. */
#ifndef HOOK_REGISTRY_H
#define HOOK_REGISTRY_H

#include <pthread.h>

#include <sy_hook_registry.h>

#include "order.h"

#define ANSWER_WAIT_MS 2000 /* stacks poll far more often */
#define ANSWER_WALK_MS 5000 /* to list the connections of all stacks */
/* Per further batch: a slow stack must not use up the time of others. */
#define ANSWER_WALK_WAIT_MS 200
#define MAX_MISSED          64 /* queued orders per stack; beyond, changes are refused */

/* A stored hook: stacks that register later load it. */
struct registry_hook {
	char name[SY_HOOK_NAME];  /* empty: free */
	struct sy_hook_info info; /* as verification found it */
	int object;               /* sealed memfd */
	uint32_t object_len;
	uint32_t params; /* bitmap of those that were set; values are in info */
	struct sy_hook_place place[SY_HOOK_PLACES];
	uint32_t places;
};

/* An order that did not fit into the socket of a stack that does not read. */
struct registry_missed {
	struct registry_missed *next;
	struct order order;
	int object; /* -1: none */
};

struct registry_stack {
	int socket; /* -1: free */
	int pid;
	bool gone; /* unregistered while a request awaits its answer */
	bool awaited;
	bool late;   /* did not answer the last order */
	bool walked; /* guarded by `change`: all its connections were listed */
	int32_t rc;  /* of its last answer */
	struct registry_missed *missed, *missed_last; /* queue */
	unsigned misses;                              /* length of the queue */
};

struct sy_hook_registry {
	pthread_mutex_t change; /* serialises changes; also guards `report`, `answer`, `text` */
	pthread_mutex_t lock;   /* guards the rest; not locked while waiting for stacks */
	struct registry_hook hook[SY_HOOKS];   /* hook[i] has number SY_HOOKS - i; an application
	                                          numbers its own hooks from 1 */
	struct registry_hook plan[SY_HOOKS];   /* guarded by `change`: becomes `hook` with the next
	                                          order; equal to it between changes */
	struct registry_hook before[SY_HOOKS]; /* guarded by `change`: for rollback */
	struct registry_stack stack[SY_HOOK_REGISTRY_STACKS];
	bool waiting;
	unsigned walk_ms;
	bool follows; /* guarded by `change`: not the first order of this change; do not wait again
	                 for late stacks */
	uint32_t sequence;
	int doorbell; /* memfd of one page that all stacks map */
	uint32_t *rings;
	struct answer answer;
	char text[sizeof(((struct answer *)0)->text)]; /* of the first refusal */
	int32_t refused;

	/* registry_serve.c */
	pthread_t server;
	int listener, stop; /* stop: eventfd */
	int client;         /* the connected client, or -1; guarded by `lock`, like `ending` */
	bool ending;        /* no further client is served */
	char path[108];
	struct sy_hook_registry_owner owner; /* its program and interfaces point to the next two */
	char program[64], interfaces[512];
	char note[SY_HOOK_NOTES][SY_HOOK_NOTE_TEXT]; /* guarded by `lock` */
};

/* Copies text for a terminal: bytes other than printable ASCII become '?'. */
void text_copy_printable(char *to, const char *from, size_t size);

/* Applies `plan`, sends the order to all stacks and waits for answers. A stack that registers
 * meanwhile gets either the order or its result. fn, if not NULL, is called for each answer as it
 * arrives. */
typedef void answer_take_fn(void *ctx, unsigned number, const struct answer *a);
void registry_order(struct sy_hook_registry *d, struct order *o, int object,
                    struct sy_hook_count *count, answer_take_fn *take, void *ctx);
/* Sends an order to the stacks that did not refuse the last one of registry_order(). */
void registry_undo(struct sy_hook_registry *d, struct order *o, int object);
/* Builds the order that loads this hook. */
void registry_hook_order(const struct registry_hook *h, unsigned i, struct order *o);

/* Fails with -EBUSY if a stack's backlog is full: a further change would leave it different from
 * the others. */
int registry_backlog_check(struct sy_hook_registry *d, struct sy_error *err);
/* Sends queued orders to stacks whose sockets have space again. */
void registry_catch_up(struct sy_hook_registry *d);
/* Call with `lock` locked. */
static inline bool stack_has_missed(const struct registry_stack *s)
{
	return s->socket >= 0 && s->missed;
}

void registry_serve_end(struct sy_hook_registry *d);

#endif
