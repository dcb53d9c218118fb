/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between registry and agent, which are of one build: over a SOCK_SEQPACKET socket, one message
 * each.
 *
 *   registry ─▶ struct order, with the object's descriptor if it has one ─▶ agent
 *   registry ◀─ struct answer, as long as its hooks are many ◀──────────── agent
 */
#ifndef HOOK_ORDER_H
#define HOOK_ORDER_H

#include <sy_hook_agent.h>

enum order_type {
	ORDER_LOAD = 1, /* new code, parameters and places: what of them is there */
	ORDER_REMOVE,
	ORDER_REPORT,
	ORDER_CONNECTIONS,      /* the first ones */
	ORDER_CONNECTIONS_MORE, /* those behind the last answer's */
};

enum {
	ORDER_NEW = 1,  /* the name must not be there */
	ORDER_SWAP = 2, /* it must be */
	ORDER_ONLY = 4, /* it leaves places that are not named */
	ORDER_ASK = 8,  /* nothing is to be done: would it be? */
};

struct order {
	uint32_t sequence, type;
	char name[SY_HOOK_NAME];
	uint32_t number;     /* that a new name gets */
	uint32_t must;       /* ORDER_* */
	uint32_t kind;       /* of new code */
	uint32_t object_len; /* 0: no new code */
	uint32_t params;     /* a bit for each that is set */
	uint64_t param[SY_HOOK_PARAMS];
	uint32_t places;
	struct sy_hook_place place[SY_HOOK_PLACES];
};

struct answer_hook {
	struct sy_hook_info info;
	uint32_t number;
	uint32_t places; /* a bit for each of the answer's */
};

struct answer {
	uint32_t sequence;
	int32_t rc;
	char text[sizeof(((struct sy_error *)0)->text)];
	uint32_t places, hooks;
	uint32_t idle; /* a bit for each place where nobody listens */
	struct sy_hook_tally tally;
	struct sy_hook_place place[SY_HOOK_PLACES];
	uint32_t connections; /* if there are any, there are no hooks */
	uint32_t more;        /* 1: connections are left */
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
