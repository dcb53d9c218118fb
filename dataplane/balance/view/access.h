// SPDX-License-Identifier: Apache-2.0
/*
 * Access lists: which clients may begin sessions (docs/design/0027-access-lists.md). The control
 * thread builds and publishes them; workers evaluate them once per new session.
 */
#ifndef ACCESS_H
#define ACCESS_H

#include "balance.h"

struct rte_acl_ctx;
struct address_ranges;

#define ACCESS_LISTS    256u   /* max lists */
#define ACCESS_RULES    1024u  /* max rules of a list */
#define ACCESS_COUNTERS 16384u /* max rules of all lists, and one more per list */
#define ACCESS_TESTS    8u     /* a list with at most this many conditions does without rte_acl */
/* Max rules of a list with the action count: each is a category of rte_acl. */
#define ACCESS_COUNTING 15u

enum access_action { ACCESS_ALLOW, ACCESS_DROP, ACCESS_RESET, ACCESS_COUNT };

/* A new session as a key for rte_acl, the same for both families. Network order. */
struct access_key {
	uint8_t proto;
	uint8_t zero[3];
	uint32_t sets; /* bitmap: sets that the client is in */
	uint16_t sport, dport;
	uint32_t client[4]; /* IPv4: only the first */
};
_Static_assert(sizeof(struct access_key) == 28, "groups of four bytes, as rte_acl needs them");

struct access_rule {
	uint32_t counter;   /* index of its match counter */
	uint32_t log_every; /* log one in this many matches; 0: none */
	uint8_t action;     /* enum access_action */
};

/* A condition of a list that does without rte_acl. */
struct access_test {
	uint32_t sets; /* bitmap; 0: any */
	uint16_t rule;
	uint8_t proto;    /* 0: any */
	uint8_t category; /* of a rule that counts; 0: the rule decides */
};

#define ACCESS_NO_COUNTER UINT32_MAX

/* Immutable; replaced under RCU. */
struct access_list {
	uint16_t id;
	uint8_t otherwise;  /* enum access_action if no rule decides */
	uint8_t categories; /* of rte_acl: 1, or the next multiple of 4 */
	bool linear;        /* evaluated by test[], rule by rule */
	bool protocols;     /* some test[] names a protocol */
	bool logs;          /* some rule logs */
	bool ends;          /* ends existing sessions that it refuses */
	/* The counter of the rule that accepts all clients in no set, whatever they send, if no
	 * other rule counts or logs these. ACCESS_NO_COUNTER: none. */
	uint32_t outsiders;
	uint16_t rules, tests;
	uint32_t sets;    /* bitmap of the sets that its rules name; host order */
	uint32_t counter; /* of sessions that no rule decides */
	uint16_t counting[ACCESS_COUNTING + 1]; /* rule by category */
	uint16_t counting_logs;                 /* bitmap of the categories that log */
	struct access_test test[ACCESS_TESTS];
	struct rte_acl_ctx *acl[2]; /* [0]: IPv6, [1]: IPv4; NULL: no rule of that family */
	struct access_rule rule[];
};

/* All lists: immutable, swapped as a whole under RCU. */
struct access {
	const struct address_ranges *ranges;          /* NULL: no sets */
	const struct access_list *global;             /* for all services; NULL: none */
	const struct access_list *list[ACCESS_LISTS]; /* by id */
	bool ends[ACCESS_LISTS];                      /* by id: .ends, and all its sets have data */
};

/* A match to log. Writer: worker; reader: control thread. */
struct access_record {
	struct sy_tuple client;
	uint16_t list, rule;
	uint8_t action;
};

#define ACCESS_RECORDS 256u /* a power of two */

/* Per worker: counters, and a ring of matches to log. */
struct access_worker {
	uint64_t hits[ACCESS_COUNTERS]; /* by counter. Readers: relaxed */
	uint64_t ended[ACCESS_LISTS]; /* sessions, by the list that ended them. Readers: relaxed */
	struct rate_limit log_rate;
	uint32_t written, read; /* modulo 2^32. Writers: worker, control thread */
	struct access_record record[ACCESS_RECORDS];
};

/* The key of a client's first packet. sets: bitmap, host order. */
struct access_key access_key_of(const struct sy_tuple *client, uint32_t sets);

/* New sessions that are checked together. */
struct access_query {
	unsigned count;
	uint64_t members; /* bitmap: clients that are in a set */
	uint8_t proto[SY_BURST];
	uint32_t sets[SY_BURST];                /* bitmap: the sets that the client is in */
	const struct sy_addr *client[SY_BURST]; /* .src of a struct sy_tuple: of the first packet */
};

/* Results of a list. */
struct access_answer {
	uint16_t rule[SY_BURST]; /* index of the deciding rule; list->rules: none */
	/* The rules that counted it, one bit per category. Set only with hits, and if
	 * list->counting_logs is not 0. */
	uint16_t counted[SY_BURST];
};

/* Evaluates a list. Returns a bitmap of the sessions that it refuses. hits: match counters; NULL:
 * do not count. */
uint64_t access_list_evaluate(const struct access_list *list, const struct access_query *query,
                              uint64_t *hits, struct access_answer *answer);

/* The action of a rule from access_answer. */
static inline enum access_action access_list_action(const struct access_list *l, uint16_t rule)
{
	return (enum access_action)(rule < l->rules ? l->rule[rule].action : l->otherwise);
}

#endif
