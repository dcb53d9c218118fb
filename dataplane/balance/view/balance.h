// SPDX-License-Identifier: Apache-2.0
/*
 * The balancer's inside: the objects that sessions and stages refer to.
 *
 * Writers and readers: everything reachable from struct sy_balance, but its workers, is written by
 * the control thread; workers read it, under RCU where a pointer says so. struct balance_worker
 * is its worker's own; others read its counters with relaxed loads.
 */
#ifndef BALANCE_H
#define BALANCE_H

#include <sy_balance.h>

#include "endpoint.h"
#include "scheduler.h"
#include "session.h"

struct rte_hash;

/* A rate limit, as time saved up. */
struct rate_limit {
	uint64_t saved_ns, last_ns;
};

/* Whether one more may be sent: each costs so much time, and at most `burst` of them are saved up.
 */
static inline bool rate_take(struct rate_limit *k, uint64_t now_ns, uint64_t cost_ns,
                             uint64_t burst)
{
	uint64_t saved = k->saved_ns + (now_ns - k->last_ns);
	k->last_ns = now_ns;
	if (saved > burst * cost_ns)
		saved = burst * cost_ns;
	bool allowed = saved >= cost_ns;
	k->saved_ns = allowed ? saved - cost_ns : saved;
	return allowed;
}

/* The search for a new session's local port, and what tells whether one is taken. */
struct port_search {
	struct session_port_search search;
	const struct sy_balance *balance;
	const struct session_table *table;
};

/* A session that a packet will begin, as far as create_prepare() has come. */
struct creation {
	const struct service *service;
	uint32_t server;         /* whose place is taken */
	uint32_t reason;         /* enum sy_drop; NONE, or why it has none */
	struct port_search port; /* of FNAT, as far as it has come */
};

struct balance_worker {
	struct server_share *share; /* by server id */
	struct scheduler_state scheduler;
	uint64_t *refused; /* by service id: its packets that could begin no session */
	uint64_t slot_packets[SY_SLOTS];
	struct rate_limit icmp, resets, challenges,
	        reset_both_rate;            /* rate limits of our own packets */
	uint64_t swept_ns;                  /* when the last sweep slice ended */
	uint64_t passes;                    /* whole sweeps over all slots. readers: acquire */
	uint64_t pass_ns;                   /* when the one under way began */
	unsigned sweep_slot;                /* where the sweep stands */
	uint32_t swept_created;             /* creations that the sweep has been led on for */
	uint32_t created, ended;            /* sessions so far, modulo 2^32 */
	uint64_t creations_pending;         /* bit per packet of the burst under way */
	struct creation creation[SY_BURST]; /* of those */
	uint16_t ipv4_id;                   /* of the last IPv4 header that was made again */
	struct fragments *fragments;        /* fragment.h */
	struct remote *remote;              /* foreign.h; NULL: packets are handed over */
} __attribute__((aligned(SY_CACHE_LINE)));

struct control_plane;
struct address_set; /* which addresses are ours: address_set.h */
struct snat;        /* which hosts are inside, and what they get: snat.h */
struct persist;     /* which server a client prefix goes to: persist.c */

#define CLIENT_MTUS 4096 /* clients whose path's MTU is remembered, at most */

/* What the packet path reads. */
struct sy_balance {
	struct sy_balance_options options;
	struct sy_runtime *rt;
	struct session_table *table[SY_SLOTS]; /* once adopted */
	struct session_space space;            /* likewise */
	struct sy_hash_key key;                /* of the session index */

	struct endpoint *endpoint; /* [max_servers] */
	uint32_t *server_active;   /* [max_servers]: live sessions. Writers: workers, load_*() */
	uint32_t *service_active;  /* [max_services]: likewise */
	struct persist *persist;   /* shared by all workers */
	const struct service **service;        /* [max_services], RCU; NULL: none */
	struct rte_hash *directory;            /* see directory.c; lock-free, RCU */
	const struct address_set *address_set; /* RCU */
	const struct snat *snat;               /* RCU; NULL: there are no rules */
	struct sy_addr local[MAX_LOCALS + 1];  /* by id; set before a session names it */
	uint8_t local_removed[MAX_LOCALS + 1]; /* by id: its sessions end. readers: relaxed */
	const struct local_set *locals[2];     /* [0]: IPv6, [1]: IPv4; RCU */
	uint32_t reset_unknown_services; /* TCP services with RESETS_UNKNOWN. Readers: relaxed */

	/* Writers and readers: workers, relaxed. See client_mtu.c */
	uint32_t client_mtu_noted; /* balance_seconds() of the last one; 0: never */
	uint64_t client_mtu[CLIENT_MTUS] __attribute__((aligned(SY_CACHE_LINE)));

	unsigned workers;
	struct balance_worker worker[SY_MAX_WORKERS];

	struct control_plane *ctl; /* the control thread's alone: config/control_plane.h */
};

/* What names a service; hashed and compared as bytes. */
struct service_key {
	struct sy_addr vip;
	uint16_t vport; /* network order; 0: all ports */
	uint16_t proto;
	uint16_t last_port; /* of a range that begins with vport; 0: that port alone */
	uint16_t zero;
};
_Static_assert(sizeof(struct service_key) == 24, "no padding");

static inline bool key_is_range(const struct service_key *key)
{
	return key->vport == 0 || key->last_port != 0;
}

static inline struct balance_worker *balance_worker_of(struct sy_worker *w)
{
	struct sy_balance *b = w->app;
	return &b->worker[w->id];
}

/* Seconds on the sessions' clock; a tick is its low 16 bits. */
static inline uint32_t balance_seconds(const struct sy_worker *w)
{
	return (uint32_t)(w->now_ns / 1000000000u);
}

/* NULL: it has gone. */
static inline const struct service *endpoint_service(const struct sy_balance *b,
                                                     const struct endpoint *e)
{
	return e->service == SERVICE_NONE ? NULL : SY_RCU_READ(b->service[e->service]);
}

/* What the control thread takes for now, on the sessions' clock: worker 0's last round. */
static inline uint64_t balance_now(const struct sy_balance *b)
{
	return __atomic_load_n(&b->worker[0].swept_ns, __ATOMIC_RELAXED);
}

#include "session_match.h" /* a session's tuples, states and verification, inline */

/* How long the ends of a session that ends are asked, and their packets answered: whatever became
 * of its server. */
#define KILL_SECONDS 3

/* ---- endpoint.c ------------------------------------------------------------------------------ */

/* Fills in form and overhead, when all else is. */
void endpoint_form(struct endpoint *e);

/* ---- directory.c: which service a tuple belongs to
 * -------------------------------------------------------- */

int directory_create(struct sy_balance *b, struct sy_error *err);
void directory_destroy(struct sy_balance *b);
/* The service that a client's packet asks for, NULL: none. Any thread, under RCU. */
const struct service *directory_find(const struct sy_balance *b, const struct sy_tuple *client);
/* From now on the key means this service. Both: control thread. */
int directory_add(struct sy_balance *b, const struct service_key *key, uint32_t id);
/* Without effect if it has come to mean another. */
void directory_remove(struct sy_balance *b, const struct service_key *key, uint32_t id);

/* ---- servers' places
 * ------------------------------------------------------------------------------ */

#define SERVER_NONE UINT32_MAX

/* One place of `limit` (UINT32_MAX: no limit); false: all are taken. Exact over all workers. */
static inline bool load_take(uint32_t *active, uint32_t limit)
{
	if (limit == UINT32_MAX) {
		__atomic_fetch_add(active, 1, __ATOMIC_RELAXED);
		return true;
	}
	uint32_t now = __atomic_load_n(active, __ATOMIC_RELAXED);
	do {
		if (now >= limit)
			return false;
	} while (!__atomic_compare_exchange_n(active, &now, now + 1, true, __ATOMIC_RELAXED,
	                                      __ATOMIC_RELAXED));
	return true;
}

/* A session of this server has ended, or did not come to be. */
static inline void load_give(struct sy_balance *b, uint32_t server)
{
	uint32_t service = b->endpoint[server].service;
	__atomic_fetch_sub(&b->server_active[server], 1, __ATOMIC_RELAXED);
	if (SY_LIKELY(service != SERVICE_NONE))
		__atomic_fetch_sub(&b->service_active[service], 1, __ATOMIC_RELAXED);
}

/* ---- persist.c: client prefixes and their servers
 * --------------------------------------------------------- */

struct persist *persist_create(void);
void persist_destroy(struct persist *p);
/* The eligible server that the client's prefix goes to, SERVER_NONE: any. now: seconds. */
uint32_t persist_find(struct sy_balance *b, const struct service *s, const struct sy_addr *client,
                      uint32_t now);
/* From now on the prefix goes to `server`, and not to `refused` (it is full; SERVER_NONE: nobody).
 * Returns the server that it does go to: another worker may have been first. */
uint32_t persist_bind(struct sy_balance *b, const struct service *s, const struct sy_addr *client,
                      uint32_t server, uint32_t refused, uint32_t now);
/* Clears some of what has ended, so that no entry is older than its 16-bit second can tell. Every
 * RETIRE_PERIOD_MS, control thread. */
void persist_tick(struct sy_balance *b);

#endif
