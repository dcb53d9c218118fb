// SPDX-License-Identifier: Apache-2.0
/*
 * Access lists: who may begin a session (docs/design/0027-access-lists.md). The control thread
 * builds and publishes them; workers ask them once for each new session.
 */
#ifndef ACCESS_H
#define ACCESS_H

#include "balance.h"

struct rte_acl_ctx;
struct address_ranges;

#define ACCESS_LISTS    256u   /* at most */
#define ACCESS_RULES    1024u  /* of a list, at most */
#define ACCESS_COUNTERS 16384u /* of the rules of all lists, and one more per list */
#define ACCESS_TESTS    8u     /* a list of so few conditions needs no rte_acl */
/* Rules of a list with the action count: each is a category of rte_acl. */
#define ACCESS_COUNTING 15u

enum access_action { ACCESS_ALLOW, ACCESS_DROP, ACCESS_RESET, ACCESS_COUNT };

/* A new session as rte_acl's rules see it, one form for both families. Network order. */
struct access_key {
	uint8_t proto;
	uint8_t zero[3];
	uint32_t sets; /* of which the client is a member: one bit each */
	uint16_t sport, dport;
	uint32_t client[4]; /* IPv4: the first alone */
};
_Static_assert(sizeof(struct access_key) == 28, "groups of four bytes, as rte_acl needs them");

struct access_rule {
	uint32_t counter;   /* index of its count of matches */
	uint32_t log_every; /* one of so many matches is logged; 0: none */
	uint8_t action;     /* enum access_action */
};

/* A condition of a list without rte_acl. */
struct access_test {
	uint32_t sets; /* a bit each; 0: any */
	uint16_t rule;
	uint8_t proto;    /* 0: any */
	uint8_t category; /* of the rule, if it counts; 0: it decides */
};

#define ACCESS_ASKED UINT32_MAX

/* Immutable; replaced under RCU. */
struct access_list {
	uint16_t id;
	uint8_t otherwise;  /* enum access_action: when no rule decides */
	uint8_t categories; /* of rte_acl: 1, or the next multiple of 4 */
	bool linear;        /* evaluated by test[], rule by rule */
	bool protocols;     /* one of these names a protocol */
	bool logs;          /* a rule of it does */
	bool ends;          /* sessions that it no longer accepts, also those that exist */
	/* The counter of the rule that accepts all clients which are in no set, whatever they send;
	 * no other is to count or log them. ACCESS_ASKED: there is none. */
	uint32_t outsiders;
	uint16_t rules, tests;
	uint32_t sets;                          /* that its rules name, a bit each; host order */
	uint32_t counter;                       /* of sessions that no rule decides */
	uint16_t counting[ACCESS_COUNTING + 1]; /* by category: the rule */
	uint16_t counting_logs;                 /* which of them log: a bit for each category */
	struct access_test test[ACCESS_TESTS];
	struct rte_acl_ctx *acl[2]; /* [0]: IPv6, [1]: IPv4; NULL: no rule of the family */
	struct access_rule rule[];
};

/* All lists: immutable, swapped as a whole under RCU. */
struct access {
	const struct address_ranges *ranges;          /* NULL: no sets */
	const struct access_list *global;             /* for all services; NULL: none */
	const struct access_list *list[ACCESS_LISTS]; /* by id */
	bool ends[ACCESS_LISTS]; /* by id: it does, and all its sets are there */
};

/* A match to be logged. Writer: worker; reader: control thread. */
struct access_record {
	struct sy_tuple client;
	uint16_t list, rule;
	uint8_t action;
};

#define ACCESS_RECORDS 256u /* a power of two */

/* A worker's part: counts, and a ring of matches to be logged. */
struct access_worker {
	uint64_t hits[ACCESS_COUNTERS]; /* by counter. Readers: relaxed */
	uint64_t ended[ACCESS_LISTS]; /* sessions, by the list that ended them. Readers: relaxed */
	struct rate_limit log_rate;
	uint32_t written, read; /* modulo 2^32. Writers: worker, control thread */
	struct access_record record[ACCESS_RECORDS];
};

/* The key of a client's first packet. sets: a bit each, host order. */
struct access_key access_key_of(const struct sy_tuple *client, uint32_t sets);

/* New sessions that are checked together. */
struct access_query {
	unsigned count;
	uint64_t members; /* clients that are in a set: a bit each */
	uint8_t proto[SY_BURST];
	uint32_t sets[SY_BURST];                /* of which the client is a member: a bit each */
	const struct sy_addr *client[SY_BURST]; /* .src of a struct sy_tuple: of the first packet */
};

/* What a list says of them. */
struct access_answer {
	uint16_t rule[SY_BURST]; /* index of the rule that decides; list->rules: none does */
	/* The rules that counted it, a bit for each category. Set only if hits were counted, and
	 * list->counting_logs is not 0. */
	uint16_t counted[SY_BURST];
};

/* Asks a list; returns the sessions that it refuses, a bit each. hits: counts matches, by counter;
 * NULL: not counted. */
uint64_t access_list_evaluate(const struct access_list *list, const struct access_query *query,
                              uint64_t *hits, struct access_answer *answer);

/* The action of a rule that access_list_evaluate() named. */
static inline enum access_action access_list_action(const struct access_list *l, uint16_t rule)
{
	return (enum access_action)(rule < l->rules ? l->rule[rule].action : l->otherwise);
}

#endif
