/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook registry: the server of `steelyard hook`, in the process that runs the stacks or is their
 * parent (docs/design/0046-hook-control.md). It verifies a hook, stores it for stacks that start
 * later, and orders all stacks to load it. A thread of its own serves the socket; any thread may
 * call these functions.
 */
#ifndef SY_HOOK_REGISTRY_H
#define SY_HOOK_REGISTRY_H

#include <sy_hook_agent.h>

#define SY_HOOK_REGISTRY_DIR    "/run/steelyard/stack"
#define SY_HOOK_REGISTRY_NAME   64 /* of the socket, without ".sock" */
#define SY_HOOK_REGISTRY_STACKS 128
#define SY_HOOK_OBJECT_MAX      (1 << 20) /* bytes */

/* A change requested by a user. */
struct sy_hook_change {
	char name[SY_HOOK_NAME];
	const void *object; /* NULL: set parameters only */
	size_t object_len;
	bool swap;      /* the name must exist; otherwise it must not */
	uint8_t params; /* bitmap of parameters to set */
	uint64_t param[SY_HOOK_PARAMS];
	struct sy_hook_place place[SY_HOOK_PLACES];
	unsigned places;
};

struct sy_hook_count {
	unsigned stacks; /* applied the change */
	unsigned silent; /* did not answer in time; they apply the change at their next poll
	                    iteration */
	uint32_t silent_pid[SY_HOOK_REGISTRY_STACKS]; /* their processes */
	/* Places of the changed hook that have no listener in any stack. */
	struct sy_hook_place idle[SY_HOOK_PLACES];
	unsigned idles;
};

/* Describes one element of sy_hook_tally.count. */
struct sy_hook_number {
	const char *name, *help;
	bool now; /* a gauge; otherwise a counter */
};

/* Describes the owner of the stacks, for reports. The tables must outlive the registry. */
struct sy_hook_registry_owner {
	const char *program;    /* copied, like interfaces */
	const char *interfaces; /* comma-separated */
	const struct sy_hook_number *number;
	unsigned numbers;         /* SY_HOOK_COUNTS at most */
	const char *const *state; /* names of connection states */
	unsigned states;
};

struct sy_hook_registry;

int sy_hook_registry_open(struct sy_hook_registry **out, struct sy_error *err);
void sy_hook_registry_close(struct sy_hook_registry *d);

/* Registers a stack and sends it all stored hooks. pid is for messages. Returns the stack's number
 * or a negative errno. The caller passes the channel's descriptors to the stack and closes them. */
int sy_hook_registry_join(struct sy_hook_registry *d, int pid, struct sy_hook_channel *channel);
void sy_hook_registry_leave(struct sy_hook_registry *d, int number);

/* Fails, without changing any stack, with -EINVAL, -EEXIST, -ENOENT, -ENOSPC, -ENOMEM, or -EBUSY if
 * a stack does not read its commands and its backlog is full. */
int sy_hook_registry_load(struct sy_hook_registry *d, const struct sy_hook_change *change,
                          struct sy_hook_count *count, struct sy_error *err);
int sy_hook_registry_remove(struct sy_hook_registry *d, const char *name,
                            struct sy_hook_count *count, struct sy_error *err);

/* A hook with its counters summed over all stacks. */
struct sy_hook_report {
	struct sy_hook_info info;
	unsigned number, stacks;
	struct sy_hook_place place[SY_HOOK_PLACES];
	unsigned places;
	uint32_t idle; /* bitmap of places without a listener in any stack */
};
/* Sets a message for operators, shown in listings until it is replaced. An empty text removes it.
 */
#define SY_HOOK_NOTES     4
#define SY_HOOK_NOTE_TEXT 256
void sy_hook_registry_note(struct sy_hook_registry *d, unsigned place, const char *text);

/* Counters of one stack. */
struct sy_hook_stack {
	unsigned number; /* as sy_hook_registry_join() returned it */
	int pid;
	struct sy_hook_tally tally;
};
/* Fills up to `max` hooks with distinct names, and one `stack` for each that answers, by number
 * (count->stacks). count->silent has stacks without a valid answer. Returns the number of hooks. */
unsigned sy_hook_registry_report(struct sy_hook_registry *d, struct sy_hook_report *report,
                                 unsigned max, struct sy_hook_stack stack[SY_HOOK_REGISTRY_STACKS],
                                 struct sy_hook_count *count);

enum sy_hook_walk {
	SY_HOOK_WALK_ALL,
	SY_HOOK_WALK_ENOUGH, /* the callback returned false */
	SY_HOOK_WALK_LATE,   /* stopped after 5 s */
};
/* Calls fn with the connections of all stacks, several times per stack. count->silent has stacks
 * whose connections are missing or incomplete because they did not answer in time. */
typedef bool sy_hook_connections_fn(void *ctx, const struct sy_hook_stack *stack,
                                    const struct sy_hook_connection *c, unsigned count);
enum sy_hook_walk sy_hook_registry_connections(struct sy_hook_registry *d,
                                               sy_hook_connections_fn *take, void *ctx,
                                               struct sy_hook_count *count);

/*
 * Serves SY_HOOK_REGISTRY_DIR/name.sock, or the path `name` if it contains a slash, by a thread
 * that blocks all signals. Only root and this process's user may connect. Fails with -EADDRINUSE if
 * another process serves the path, or the error of creating it.
 */
int sy_hook_registry_serve(struct sy_hook_registry *d, const char *name,
                           const struct sy_hook_registry_owner *owner, struct sy_error *err);

#endif
