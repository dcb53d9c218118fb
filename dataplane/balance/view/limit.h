// SPDX-License-Identifier: Apache-2.0
/*
 * Limits as the packet path reads them (docs/design/0033-limits-in-the-path.md). The control thread
 * publishes them; workers charge their buckets.
 *
 * server ──▶ chain: ids of its limits ──▶ limit: rate, packets it applies to ──▶ bucket
 *
 * A limit that is replaced gets a new rate and keeps its bucket.
 */
#ifndef LIMIT_H
#define LIMIT_H

#include <sy_limit_table.h>

#include "balance.h"

#define LIMITS       65536u /* max limits; ids have 16 bits */
#define LIMIT_NAMED  8u     /* max limits that name the same service, VIP or server */
#define LIMIT_CHAIN  (4 * LIMIT_NAMED)
#define LIMIT_WITHIN 64u /* max prefixes of a per-client limit */

/* Bits of endpoint.limited: 1 << enum session_direction for packets of that side; new sessions. */
#define LIMITED_SESSIONS 4u
/* Packets of that side take the event device. */
#define LIMITED_QUEUED(from) (16u << (from))
/* Packets need the id of their service: some port is shaped. */
#define LIMITED_SHAPED 8u
/* Clients' packets get the DSCP of their service. */
#define LIMITED_DSCP 64u

enum limit_unit { LIMIT_BYTES, LIMIT_PACKETS, LIMIT_SESSIONS };

/* Which clients have buckets of their own. */
struct limit_clients {
	struct sy_limit_table *table;
	struct sy_limit_key mask[2]; /* of a client's network; [0]: IPv6, [1]: IPv4 */
	uint8_t within;              /* prefixes; 0: all clients */
	struct limit_prefix {
		struct sy_limit_key network, mask;
		bool v4;
	} prefix[];
};

/* Immutable; swapped under RCU. */
struct limit {
	struct sy_limit_rate rate;
	struct limit_clients *clients; /* NULL: one bucket for all clients */
	uint32_t line;                 /* sequence number over all rates of all limits, from 1 */
	uint16_t id;
	uint8_t engine : 3; /* enum sy_limit_engine; SY_LIMIT_ATOMIC: by the event device */
	uint8_t unit : 2;   /* enum limit_unit */
	uint8_t sides : 2;  /* directions, as in endpoint.limited */
	uint8_t marks : 1;  /* set the DSCP of packets above it, instead of dropping them */
	uint8_t dscp;
	uint8_t header; /* LIMIT_BYTES: bytes added to each packet's size */
	uint8_t min;    /* LIMIT_BYTES: min size of a packet */
	uint16_t zero;
	uint32_t first_line; /* line of the bucket's first rate */
	struct sy_balance *balance;
	uint32_t width; /* control thread: estimate of the number of servers it applies to */
	bool ends;      /* control thread: its id is free once no worker uses it */
} __attribute__((aligned(SY_CACHE_LINE)));
_Static_assert(offsetof(struct limit, balance) <= SY_CACHE_LINE, "a packet reads one line");

/* When was the bucket charged by packets that bypassed the device? */
enum limit_beside {
	LIMIT_BESIDE_NONE, /* not for at least a second */
	LIMIT_BESIDE_NOW,  /* since the last limits_tick() */
	LIMIT_BESIDE_LATELY,
};

/* A limit's bucket, on a cache line of its own. With SY_LIMIT_ATOMIC the worker that has received a
 * packet from the device uses it exclusively, unless by_chains or by_workers is set. Readers of
 * both: workers, relaxed. */
struct limit_bucket {
	struct sy_limit limit;
	uint8_t by_chains;  /* not all chains with the limit have the same lead. Writer: control
	                       thread */
	uint8_t by_workers; /* enum limit_beside. Writers: workers (LIMIT_BESIDE_NOW), and the
	                       control thread by compare-and-swap (limits_tick()) */
} __attribute__((aligned(SY_CACHE_LINE)));

/* A limit's state at one worker. Writer: the worker; readers of counts: relaxed. */
struct limit_share {
	struct sy_limit_counts passed, above, unlimited;
	uint64_t local;      /* units of the bucket that the worker holds: see sy_limit_charge() */
	uint32_t line;       /* line of the limit used last */
	uint32_t first_line; /* likewise */
};
_Static_assert(sizeof(struct limit_share) == SY_CACHE_LINE, "one line a limit and worker");

/* The limits of a server: immutable, shared by servers, retired under RCU. Those that drop come
 * first, so that a refused packet is not charged elsewhere; each group is sorted by id. */
struct limit_chain {
	uint8_t drops, sessions, marks; /* numbers of each kind, in this order in id[] */
	uint8_t sides;                  /* directions of all limits: endpoint.limited */
	uint16_t lead; /* the widest limit that needs the event device: its id is the flow's number
	                */
	void *model;   /* control thread */
	uint16_t id[];
};

static inline unsigned limit_chain_count(const struct limit_chain *c)
{
	return c->drops + c->sessions + c->marks;
}

/* The key of a client's network in the limit's table. Returns false if the limit does not apply to
 * it. */
static inline bool limit_client_key(const struct limit_clients *c, const struct sy_addr *client,
                                    struct sy_limit_key *key)
{
	const bool v4 = sy_addr_is_v4(client);
	bool within = c->within == 0;
	for (unsigned i = 0; i < c->within && !within; i++) {
		const struct limit_prefix *p = &c->prefix[i];
		within = p->v4 == v4 && (client->d[0] & p->mask.d[0]) == p->network.d[0] &&
		         (client->d[1] & p->mask.d[1]) == p->network.d[1];
	}
	key->d[0] = client->d[0] & c->mask[v4].d[0];
	key->d[1] = client->d[1] & c->mask[v4].d[1];
	return within;
}

/* Units that a packet of `len` bytes of IP costs. */
static inline uint64_t limit_cost(const struct limit *l, uint16_t len)
{
	if (l->unit != LIMIT_BYTES)
		return 1;
	uint32_t cost = (uint32_t)len + l->header;
	return cost > l->min ? cost : l->min;
}

#endif
