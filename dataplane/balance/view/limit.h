// SPDX-License-Identifier: Apache-2.0
/*
 * Limits as the packet path sees them (docs/design/0033-limits-in-the-path.md). The control thread
 * publishes them; workers take from their buckets.
 *
 *     server ──▶ chain: ids of its limits ──▶ limit: rate, whom it concerns ──▶ bucket
 *
 * A limit that is put again gets another rate, and keeps its bucket.
 */
#ifndef LIMIT_H
#define LIMIT_H

#include <sy_limit_table.h>

#include "balance.h"

#define LIMITS       65536u /* at most; ids have 16 bits */
#define LIMIT_NAMED  8u     /* limits that name the same service, VIP or server, at most */
#define LIMIT_CHAIN  (4 * LIMIT_NAMED)
#define LIMIT_WITHIN 64u /* prefixes of a limit by clients, at most */

/* Bits of endpoint.limited: packets of the sender's side, as 1 << enum session_direction; and new
 * sessions. */
#define LIMITED_SESSIONS 4u
/* And whose packets go through the event device, likewise. */
#define LIMITED_QUEUED(from) (16u << (from))
/* Its packets need the number of their service: some port is shaped. */
#define LIMITED_SHAPED 8u
/* Packets of clients get the DSCP of their service. */
#define LIMITED_DSCP 64u

enum limit_unit { LIMIT_BYTES, LIMIT_PACKETS, LIMIT_SESSIONS };

/* The clients that have buckets of their own. */
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
	struct limit_clients *clients; /* NULL: one bucket for all */
	uint32_t line;                 /* numbers the rates of all limits as they come, from 1 */
	uint16_t id;
	uint8_t engine : 3; /* enum sy_limit_engine; SY_LIMIT_ATOMIC: its packets go through the
	                       event device */
	uint8_t unit : 2;   /* enum limit_unit */
	uint8_t sides : 2;  /* whose packets, as in endpoint.limited */
	uint8_t marks : 1;  /* packets above it get the DSCP; else they are dropped */
	uint8_t dscp;
	uint8_t header; /* LIMIT_BYTES: bytes that a packet counts besides its own */
	uint8_t least;  /* LIMIT_BYTES: that it counts at least */
	uint16_t zero;
	uint32_t first_line; /* of its bucket */
	struct sy_balance *balance;
	uint32_t width; /* control thread: about how many servers it concerns */
	bool ends;      /* control thread: its id is free once no worker holds it */
} __attribute__((aligned(SY_CACHE_LINE)));
_Static_assert(offsetof(struct limit, balance) <= SY_CACHE_LINE, "a packet reads one line");

/* When did a packet take from the bucket without going through the device? */
enum limit_beside {
	LIMIT_BESIDE_NONE, /* not for a second at least */
	LIMIT_BESIDE_NOW,  /* since the last limits_tick() */
	LIMIT_BESIDE_LATELY,
};

/* A limit's bucket; it does not share its line. With SY_LIMIT_ATOMIC, who has received a packet
 * from the device uses it alone, unless others may do so too. Readers of both: workers, relaxed. */
struct limit_bucket {
	struct sy_limit limit;
	uint8_t by_chains;  /* not all chains that have the limit have the same lead. Writer:
	                       control thread */
	uint8_t by_workers; /* enum limit_beside. Writers: workers (LIMIT_BESIDE_NOW), and the
	                       control thread by compare-and-swap (limits_tick()) */
} __attribute__((aligned(SY_CACHE_LINE)));

/* What one worker has seen of a limit. Writer: the worker; readers of counts: relaxed. */
struct limit_share {
	struct sy_limit_counts passed, above, unlimited;
	uint64_t local;      /* of its bucket: see sy_limit_charge() */
	uint32_t line;       /* of the limit that it used last */
	uint32_t first_line; /* likewise */
};
_Static_assert(sizeof(struct limit_share) == SY_CACHE_LINE, "one line a limit and worker");

/* The limits that a server's packets meet: immutable, shared by servers, retired under RCU. Those
 * that drop come first, so that what they refuse leaves the others alone; each group by id. */
struct limit_chain {
	uint8_t drops, sessions, marks; /* in this order in id[] */
	uint8_t sides;                  /* of all of them: endpoint.limited */
	uint16_t lead; /* of those that ask for the event device, the widest: its id is the flow's
	                  number */
	void *model;   /* control thread */
	uint16_t id[];
};

static inline unsigned limit_chain_count(const struct limit_chain *c)
{
	return c->drops + c->sessions + c->marks;
}

/* A client's network as a key of the limit's table; false: the limit does not concern it. */
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

/* Units that a packet of `len` bytes of IP takes. */
static inline uint64_t limit_cost(const struct limit *l, uint16_t len)
{
	if (l->unit != LIMIT_BYTES)
		return 1;
	uint32_t cost = (uint32_t)len + l->header;
	return cost > l->least ? cost : l->least;
}

#endif
