/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook registry: what `steelyard hook` talks to, in the process that is the parent of stacks, or
 * has them (docs/design/0046-hook-control.md). It checks a hook, keeps it for stacks that come
 * later, and orders all stacks to take it. A thread of its own serves the socket; all calls here
 * may come from any thread.
 */
#ifndef SY_HOOK_REGISTRY_H
#define SY_HOOK_REGISTRY_H

#include <sy_hook_agent.h>

#define SY_HOOK_REGISTRY_DIR    "/run/steelyard/stack"
#define SY_HOOK_REGISTRY_NAME   64 /* of its socket, without ".sock" */
#define SY_HOOK_REGISTRY_STACKS 128
#define SY_HOOK_OBJECT_MAX      (1 << 20) /* bytes of an ELF object */

/* A change, as a user asks for it. */
struct sy_hook_change {
	char name[SY_HOOK_NAME];
	const void *object; /* NULL: only parameters are set */
	size_t object_len;
	bool swap;      /* the name has to be there; otherwise it must not */
	uint8_t params; /* a bit for each that is set */
	uint64_t param[SY_HOOK_PARAMS];
	struct sy_hook_place place[SY_HOOK_PLACES];
	unsigned places;
};

struct sy_hook_count {
	unsigned stacks; /* that have done it */
	unsigned silent; /* that have not answered in time; they do it at their next turn */
	uint32_t silent_pid[SY_HOOK_REGISTRY_STACKS]; /* whose these are */
	/* Of a hook that has been loaded or set: its places where nobody listens, in any stack. */
	struct sy_hook_place idle[SY_HOOK_PLACES];
	unsigned idles;
};

/* What a stack's count at this place is; `now`: it is no sum since the start. */
struct sy_hook_number {
	const char *name, *help;
	bool now;
};

/* Who has the stacks, for reports. The tables stay the caller's, for as long as the registry. */
struct sy_hook_registry_owner {
	const char *program;    /* copied, as is: */
	const char *interfaces; /* with commas */
	const struct sy_hook_number *number;
	unsigned numbers;         /* SY_HOOK_COUNTS at most */
	const char *const *state; /* of connections */
	unsigned states;
};

struct sy_hook_registry;

int sy_hook_registry_open(struct sy_hook_registry **out, struct sy_error *err);
void sy_hook_registry_close(struct sy_hook_registry *d);

/* A stack begins: it gets all that was ordered. pid: for messages. Returns its number at the
 * registry, or a negative errno; the channel's descriptors are the caller's to hand over, and to
 * close. */
int sy_hook_registry_join(struct sy_hook_registry *d, int pid, struct sy_hook_channel *channel);
void sy_hook_registry_leave(struct sy_hook_registry *d, int number);

/* Returns 0, or why the change is refused: -EINVAL, -EEXIST, -ENOENT, -ENOSPC, -ENOMEM; -EBUSY: a
 * stack reads no orders, and as many as may be wait for it. Then no stack has changed. */
int sy_hook_registry_load(struct sy_hook_registry *d, const struct sy_hook_change *change,
                          struct sy_hook_count *count, struct sy_error *err);
int sy_hook_registry_remove(struct sy_hook_registry *d, const char *name,
                            struct sy_hook_count *count, struct sy_error *err);

/* A hook of all stacks, with the sum of their counts. */
struct sy_hook_report {
	struct sy_hook_info info;
	unsigned number, stacks;
	struct sy_hook_place place[SY_HOOK_PLACES];
	unsigned places;
	uint32_t idle; /* a bit for each place where nobody listens, in any stack */
};
/* What an operator should know of the stacks, and only their owner knows: shown until another text
 * for this place comes, or an empty one. */
#define SY_HOOK_NOTES     4
#define SY_HOOK_NOTE_TEXT 256
void sy_hook_registry_note(struct sy_hook_registry *d, unsigned place, const char *text);

/* What one stack has counted. */
struct sy_hook_stack {
	unsigned number; /* at the registry, as sy_hook_registry_join() gives it */
	int pid;
	struct sy_hook_tally tally;
};
/* Fills up to `most`, of different names, and one of `stack` for each that answers, by number:
 * count->stacks. Stacks without an answer that counts are count->silent. Returns how many hooks
 * there are. */
unsigned sy_hook_registry_report(struct sy_hook_registry *d, struct sy_hook_report *report,
                                 unsigned most, struct sy_hook_stack stack[SY_HOOK_REGISTRY_STACKS],
                                 struct sy_hook_count *count);

enum sy_hook_walk {
	SY_HOOK_WALK_ALL,
	SY_HOOK_WALK_ENOUGH, /* `take` wanted no more */
	SY_HOOK_WALK_LATE,   /* it took longer than 5 s */
};
/* Calls `take` for connections of all stacks, several times for one stack. count->silent: stacks
 * whose connections are missing, all or some, as they did not answer in time. */
typedef bool sy_hook_connections_take(void *ctx, const struct sy_hook_stack *stack,
                                      const struct sy_hook_connection *c, unsigned count);
enum sy_hook_walk sy_hook_registry_connections(struct sy_hook_registry *d,
                                               sy_hook_connections_take *take, void *ctx,
                                               struct sy_hook_count *count);

/*
 * Serves SY_HOOK_REGISTRY_DIR/name.sock, or `name` itself if it has a slash, for root and this
 * process's user, by a thread that takes no signals. Returns 0, -EADDRINUSE: another process serves
 * it, or what making it gives.
 */
int sy_hook_registry_serve(struct sy_hook_registry *d, const char *name,
                           const struct sy_hook_registry_owner *owner, struct sy_error *err);

#endif
