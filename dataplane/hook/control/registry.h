/* SPDX-License-Identifier: Apache-2.0 */
/* The registry's state: what was ordered, and who is to do it. */
#ifndef HOOK_REGISTRY_H
#define HOOK_REGISTRY_H

#include <pthread.h>

#include <sy_hook_registry.h>

#include "order.h"

#define ANSWER_WAIT_MS 2000 /* for answers: a stack takes its turn long before that */
#define ANSWER_WALK_MS 5000 /* for the connections of all stacks */
/* For more of them: a slow stack may not take the time of others. */
#define ANSWER_WALK_WAIT_MS 200
#define MAX_MISSED          64 /* orders that a stack may have missed, before a change is refused */

/* What was ordered: a stack that comes later gets it. */
struct registry_hook {
	char name[SY_HOOK_NAME];  /* empty: free */
	struct sy_hook_info info; /* as the check found it */
	int object;               /* a sealed file in memory */
	uint32_t object_len;
	uint32_t params; /* those that were set; info has their values */
	struct sy_hook_place place[SY_HOOK_PLACES];
	uint32_t places;
};

/* An order for which a stack's socket had no room, as it has read none for long. */
struct registry_missed {
	struct registry_missed *next;
	struct order order;
	int object; /* -1: none */
};

struct registry_stack {
	int socket; /* -1: free */
	int pid;
	bool gone; /* its process has left while somebody waits for its answer */
	bool awaited;
	bool late;   /* it has not answered the last order */
	bool walked; /* guarded by `change`: it has no more connections to tell of */
	int32_t rc;  /* of its last answer */
	struct registry_missed *missed, *missed_last; /* the first one, and the last one */
	unsigned misses;                              /* how many they are */
};

struct sy_hook_registry {
	pthread_mutex_t change; /* one at a time; also guards `report`, `answer`, `text` */
	pthread_mutex_t lock;   /* the rest; never held while waiting for a stack */
	struct registry_hook hook[SY_HOOKS]; /* hook[i] has number SY_HOOKS - i: an application's
	                                    own ones come from below */
	struct registry_hook plan[SY_HOOKS]; /* guarded by `change`: what holds from the next order
	                                     on; between changes it is `hook` */
	struct registry_hook before[SY_HOOKS]; /* guarded by `change`, to undo it */
	struct registry_stack stack[SY_HOOK_REGISTRY_STACKS];
	bool waiting;
	unsigned walk_ms;
	bool follows; /* guarded by `change`: the order is one of a change that has begun; who was
	               * late is not waited for again */
	uint32_t sequence;
	int doorbell; /* a page that all stacks see */
	uint32_t *rung;
	struct answer answer;
	char text[sizeof(((struct answer *)0)->text)]; /* the first refusal */
	int32_t refused;

	/* registry_serve.c */
	pthread_t server;
	int listener, stop; /* stop: an eventfd */
	int user;           /* who is being served; -1: nobody. Guarded by `lock`, as `ending` */
	bool ending;        /* nobody is served from now on */
	char path[108];
	struct sy_hook_registry_owner owner; /* its program and interfaces are copies, here: */
	char program[64], interfaces[512];
	char note[SY_HOOK_NOTES][SY_HOOK_NOTE_TEXT]; /* guarded by `lock` */
};

/* Text that goes to users' terminals: all but printable ASCII becomes '?'. */
void text_copy_printable(char *to, const char *from, size_t room);

/* Orders all stacks, and waits. What is planned holds from then on: a stack that joins gets either
 * the order, or what it led to. take: called for each answer, of the stack of this number, in the
 * order in which they come; may be NULL. */
typedef void answer_take_fn(void *ctx, unsigned number, const struct answer *a);
void registry_order(struct sy_hook_registry *d, struct order *o, int object,
                    struct sy_hook_count *count, answer_take_fn *take, void *ctx);
/* Orders those that have not refused the last order of registry_order(). */
void registry_undo(struct sy_hook_registry *d, struct order *o, int object);
/* The order that leads to this. */
void registry_hook_order(const struct registry_hook *h, unsigned i, struct order *o);

/* Before a change. -EBUSY: a stack has read nothing for so long that no more orders are kept for
 * it; then nothing may change, or it would never be as the others are. */
int registry_backlog_check(struct sy_hook_registry *d, struct sy_error *err);
/* Stacks that have missed orders get those for which there is room now. */
void registry_catch_up(struct sy_hook_registry *d);
/* Has it missed some? Under the lock. */
static inline bool stack_has_missed(const struct registry_stack *s)
{
	return s->socket >= 0 && s->missed;
}

void registry_serve_end(struct sy_hook_registry *d);

#endif
