/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between registry and agent, which are of one build: one per message of a SOCK_SEQPACKET
 * socket.
 *
 *   registry ─▶ struct order, with a descriptor of the object ─▶ agent
 *   registry ◀─ struct answer, cut to its entries ◀───────────── agent
 */
#ifndef HOOK_ORDER_H
#define HOOK_ORDER_H

#include <sy_hook_agent.h>

enum order_type {
	ORDER_LOAD = 1, /* sets code, parameters and places if the order has any */
	ORDER_REMOVE,
	ORDER_REPORT,
	ORDER_CONNECTIONS,      /* first batch */
	ORDER_CONNECTIONS_MORE, /* next batch */
};

enum {
	ORDER_NEW = 1,   /* the name must not exist */
	ORDER_SWAP = 2,  /* the name must exist */
	ORDER_ONLY = 4,  /* remove the hook from all other places */
	ORDER_CHECK = 8, /* dry run */
};

struct order {
	uint32_t sequence, type;
	char name[SY_HOOK_NAME];
	uint32_t number;     /* for a new name */
	uint32_t must;       /* bitmap of the above */
	uint32_t kind;       /* of new code */
	uint32_t object_len; /* 0: no new code */
	uint32_t params;     /* bitmap of those to set */
	uint64_t param[SY_HOOK_PARAMS];
	uint32_t places;
	struct sy_hook_place place[SY_HOOK_PLACES];
};

struct answer_hook {
	struct sy_hook_info info;
	uint32_t number;
	uint32_t places; /* bitmap of answer.place */
};

struct answer {
	uint32_t sequence;
	int32_t rc;
	char text[sizeof(((struct sy_error *)0)->text)];
	uint32_t places, hooks;
	uint32_t idle; /* bitmap of places without a listener */
	struct sy_hook_tally tally;
	struct sy_hook_place place[SY_HOOK_PLACES];
	uint32_t connections; /* excludes hooks */
	uint32_t more;        /* 1: there are further connections */
	union {
		struct answer_hook hook[SY_HOOKS];
		struct sy_hook_connection connection[SY_HOOK_CONNECTIONS];
	};
};
#define ANSWER_HEAD offsetof(struct answer, hook)

static inline size_t answer_bytes(const struct answer *a)
{
	return ANSWER_HEAD + a->hooks * sizeof(*a->hook) + a->connections * sizeof(*a->connection);
}

#endif
