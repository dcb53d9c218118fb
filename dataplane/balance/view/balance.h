// SPDX-License-Identifier: Apache-2.0
/*
 * The balancer's internals: the objects that sessions and stages refer to. Writers and readers: the
 * control thread writes everything reachable from struct sy_balance except its workers. Workers
 * read it, under RCU where a pointer says so. Each struct balance_worker is written by its worker;
 * others read its counters with relaxed loads.
 */
#ifndef BALANCE_H
#define BALANCE_H

#include <sy_balance.h>

#include "burst_state.h"
#include "endpoint.h"
#include "originated_rate.h"
#include "scheduler.h"
#include "service_counts.h"
#include "session.h"

struct rte_hash;

#define OVERLOAD_WHOLE 1024u

/* Which part of the new sessions begin on a worker, by what speaks for them: path/overload.c. */
enum overload_kind { OVERLOAD_UNKNOWN, OVERLOAD_REPEATED, OVERLOAD_KINDS };
struct overload {
	uint32_t share[OVERLOAD_KINDS]; /* of OVERLOAD_WHOLE, which is all, at at_ns */
	uint64_t at_ns;                 /* when one was cut last */
	/* Packets of late that would begin sessions: all, of the service that has most, and of the
	 * services that have few. */
	uint32_t window; /* of time, of the counts */
	uint32_t all, largest, few;
};

/* A worker's keys for cookies, by the lowest bit of their epoch. */
struct cookie_keys {
	uint64_t epoch; /* the current one */
	struct sy_siphash_key key[2];
};

enum { REFUSED_SACK = 1, REFUSED_TIMESTAMPS = 2 };
#define REFUSED_SECONDS 600
#define REFUSED_TRIALS  64

/* By what an unavailable service, or a port without one, answers. */
enum unavailable_kind { UNAVAILABLE_BY_RESET, UNAVAILABLE_BY_ICMP, UNAVAILABLE_KINDS };

/* What one worker has seen of a service's handshakes. Writer: that worker; readers: relaxed. */
struct service_load {
	uint64_t established; /* TCP handshakes that were completed */
	uint32_t embryonic;   /* live sessions that are: session_state_is_embryonic() */
	/* Options that its servers have refused, and that are not offered. A connection to which
	 * they are offered again may have to be reset, so REFUSED_SECONDS later one SYN a second
	 * is; after REFUSED_TRIALS such connections without a refusal all are. */
	uint32_t trial_at; /* the second from which a SYN may be the next one */
	uint8_t refused;   /* REFUSED_* */
	uint8_t trials;    /* since the last refusal */
	/* Packets of late that would begin sessions, while the worker was behind: path/overload.c.
	 */
	uint32_t attempts_window, attempts;
	/* Packets and sessions that client_limits have refused. */
	uint64_t client_refused;
	/* Packets answered because the service was unavailable: path/unavailable.c. */
	uint64_t unavailable[UNAVAILABLE_KINDS];
} __attribute__((aligned(SY_CACHE_LINE)));

/* Which of the options that a SYN has are withheld from it; now: seconds. */
static inline uint8_t load_withholds(struct service_load *load, uint8_t options, uint32_t now)
{
	uint8_t withheld = load->refused & options;
	if (SY_LIKELY(!withheld) || (int32_t)(now - load->trial_at) < 0)
		return withheld;
	load->trial_at = now + 1;
	return 0;
}

/* A server has answered a SYN with the options `offered` by a SYN-ACK with the options `accepted`.
 */
static inline void load_learn(struct service_load *load, uint8_t offered, uint8_t accepted,
                              uint32_t now)
{
	uint8_t refused = offered & (uint8_t)~accepted;
	if (SY_UNLIKELY(refused)) {
		load->refused |= refused;
		load->trials = 0;
		load->trial_at = now + REFUSED_SECONDS;
	} else if (SY_UNLIKELY(offered & load->refused) && ++load->trials >= REFUSED_TRIALS) {
		load->refused = 0;
		load->trials = 0;
	}
}

struct limit;
struct limit_bucket;
struct limit_chain;
struct limit_share;

/* What the packet path reads of limits: limit.h. */
struct limits {
	const struct limit **limit;       /* [LIMITS] by id; RCU; NULL: none */
	struct limit_bucket *bucket;      /* [LIMITS] by id */
	const struct limit_chain **chain; /* [max_servers]; RCU; NULL: none */
};

struct balance_worker {
	struct server_share *share; /* by server id */
	struct scheduler_state scheduler;
	struct service_counts *counts; /* by service id */
	struct service_drops *drops;   /* likewise: path/service_drop.h */
	uint64_t slot_packets[SY_SLOTS];
	uint64_t swept_ns;       /* when the last sweep slice ended */
	uint64_t passes;         /* whole sweeps over all slots. readers: acquire */
	uint64_t pass_ns;        /* when the current pass began */
	unsigned sweep_slot;     /* the sweep's current slot */
	uint32_t swept_created;  /* `created` when the sweep last ran for creations */
	uint32_t created, ended; /* sessions so far, modulo 2^32 */
	uint32_t embryonic;      /* the sum of load[].embryonic */
	/* Packets answered because a VIP has no service on their port. Readers: relaxed. */
	uint64_t unknown_ports[UNAVAILABLE_KINDS];
	struct burst_state burst;
	uint16_t ipv4_id;                    /* of the last IPv4 header that we made */
	struct fragments *fragments;         /* fragment.h */
	struct remote *remote;               /* remote.h; NULL: packets are steered */
	struct originated_rates originated;  /* of the packets that we originate */
	struct opening_queue *opening_queue; /* opening_queue.h */
	struct overload overload;
	struct repeats *repeats; /* repeat.h */
	struct delays *delays;   /* delay.h */
	struct losses *losses;   /* loss.h */
	struct cookie_keys cookies;
	struct service_load *load;    /* by service id */
	struct access_worker *access; /* access.h */
	struct limit_share *limited;  /* by id of the limit: limit.h */
	/* No other worker asks the limits of the packet that this one has received from it. */
	bool alone;
	/* By slot: the value of access_generation in the sweep's current pass, and in its last one.
	 */
	uint32_t rechecking[SY_SLOTS], rechecked[SY_SLOTS];
} __attribute__((aligned(SY_CACHE_LINE)));

struct control_plane;
struct address_set; /* see address_set.h */
struct snat;        /* which hosts are inside, and their rules: snat.h */
struct access;      /* who may begin a session: access.h */
struct access_worker;
struct client_rates;  /* client_rate.h */
struct client_counts; /* client_count.h */
struct validated;     /* clients of DR and IPIP that are known: validated.h */
struct event_stage;   /* event_stage.h */
struct persist;       /* which server a client prefix is bound to: persist.c */

#define CLIENT_MTUS 4096 /* clients whose path MTU is remembered, at most */

/* What the packet path reads. */
struct sy_balance {
	/* Keys that the session file keeps: pages of their own, which core dumps leave out. */
	struct sy_hash_key key __attribute__((aligned(SY_PAGE))); /* of the session index */
	struct sy_siphash_key secret; /* of cookies; valid once adopted */

	struct sy_balance_options options __attribute__((aligned(SY_PAGE)));
	struct sy_runtime *rt;
	struct session_table *table[SY_SLOTS]; /* by slot; valid once adopted */
	const struct session_index *index;     /* by slot: all that look-ups read */
	uint64_t originated_flag;              /* path/originated_alloc.h */

	struct endpoint *endpoint; /* [max_servers] */
	uint32_t *server_active;   /* [max_servers]: live sessions. Writers: workers, load_*() */
	uint32_t *service_active;  /* [max_services]: likewise */
	/* [max_servers]: how long it takes to answer a SYN, ns, smoothed; 0: not known. Writers and
	 * readers: workers, relaxed. delay.h */
	uint32_t *server_delay;
	struct persist *persist;           /* shared by all workers */
	struct validated *validated;       /* shared by all workers */
	struct client_rates *client_rates; /* likewise */
	/* likewise; NULL until a service has had a limit of its clients' sessions. RCU */
	struct client_counts *client_counts;
	const struct service **service;        /* [max_services], RCU; NULL: none */
	struct rte_hash *directory;            /* see directory.c; lock-free, RCU */
	const struct address_set *address_set; /* RCU */
	const struct address_set *own_sources; /* RCU: from which no session may begin */
	const struct snat *snat;               /* RCU; NULL: there are no rules */
	const struct access *access;           /* RCU; NULL: there are no access lists */
	struct limits limits;
	const struct event_stage *stage; /* RCU; NULL: not open. event_stage.h */
	/* Raised after a change by which existing sessions may end: the next sweeps ask about all
	 * of them. Writer: control thread; readers: acquire */
	uint32_t access_generation;
	struct sy_addr local[MAX_LOCALS + 1];  /* by id; set before a session names it */
	uint8_t local_removed[MAX_LOCALS + 1]; /* by id: its sessions end. Readers: relaxed */
	const struct local_set *locals[2];     /* [0]: IPv6, [1]: IPv4; RCU */
	/* [max_services]: balance_seconds() of the last answer by a cookie or challenge. Writers
	 * and readers: workers, relaxed */
	uint32_t *cookies_at;
	/* [max_services]: DEFENCE_AUTO has switched it on. Writer: control thread; readers: relaxed
	 */
	uint8_t *defends;
	/* balance_seconds() when this process began to watch; 0: not yet. As `defends` */
	uint32_t watches_since;
	uint32_t reset_unknown_services; /* TCP services with RESETS_UNKNOWN. Readers: relaxed */

	/* Writers and readers: workers, relaxed. See client_mtu.c */
	uint32_t client_mtu_noted; /* balance_seconds() of the last one; 0: never */
	uint64_t client_mtu[CLIENT_MTUS] __attribute__((aligned(SY_CACHE_LINE)));

	unsigned workers;
	struct balance_worker worker[SY_MAX_WORKERS];

	struct control_plane *ctl; /* for the control thread only: config/control_plane.h */
};

/* The key of a service; hashed and compared as bytes. */
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

/* Seconds on the sessions' clock; a tick is the low 16 bits. */
static inline uint32_t balance_seconds(const struct sy_worker *w)
{
	return (uint32_t)(w->now_ns / 1000000000u);
}

/* NULL: the service is gone. */
static inline const struct service *endpoint_service(const struct sy_balance *b,
                                                     const struct endpoint *e)
{
	return e->service == SERVICE_NONE ? NULL : SY_RCU_READ(b->service[e->service]);
}

/* The control thread's current time on the sessions' clock: worker 0's last round. */
static inline uint64_t balance_now(const struct sy_balance *b)
{
	return __atomic_load_n(&b->worker[0].swept_ns, __ATOMIC_RELAXED);
}

#include "session_match.h" /* a session's tuples, states and packet match, inline */

/* Seconds during which both ends of a session that ends are probed and their packets answered,
 * whatever happened to its server. */
#define RESET_BOTH_SECONDS 3

/* ---- endpoint.c ------------------------------------------------------------------------------ */

/* Fills in transmit mode and overhead from the other fields. */
void endpoint_set_transmit_mode(struct endpoint *e);

/* ---- directory.c: which service a tuple belongs to ------------------------------------------- */

int directory_create(struct sy_balance *b, struct sy_error *err);
void directory_destroy(struct sy_balance *b);
/* The service of a client's packet, NULL: none. Any thread, under RCU. */
const struct service *directory_find(const struct sy_balance *b, const struct sy_tuple *client);
/* Maps the key to this service. This and directory_remove(): control thread. */
int directory_add(struct sy_balance *b, const struct service_key *key, uint32_t id);
/* Removes the key, unless it maps to another service now. */
void directory_remove(struct sy_balance *b, const struct service_key *key, uint32_t id);

/* ---- places on servers ----------------------------------------------------------------------- */

#define SERVER_NONE UINT32_MAX

/* Takes one of `limit` places (UINT32_MAX: no limit); false: all are taken. Exact over all
 * workers. */
static inline bool load_acquire(uint32_t *active, uint32_t limit)
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

/* Gives a session's place back: the session has ended, or was not created. */
static inline void load_release(struct sy_balance *b, uint32_t server)
{
	uint32_t service = b->endpoint[server].service;
	__atomic_fetch_sub(&b->server_active[server], 1, __ATOMIC_RELAXED);
	if (SY_LIKELY(service != SERVICE_NONE))
		__atomic_fetch_sub(&b->service_active[service], 1, __ATOMIC_RELAXED);
}

/* ---- persist.c: client prefixes and their servers -------------------------------------------- */

struct persist *persist_create(void);
void persist_destroy(struct persist *p);
/* The eligible server that the client's prefix is bound to, SERVER_NONE: any. now: seconds. */
uint32_t persist_find(struct sy_balance *b, const struct service *s, const struct sy_addr *client,
                      uint32_t now);
/* Binds the prefix to `server` instead of `refused` (it is full; SERVER_NONE: none). Returns the
 * server that it is bound to: another worker may have bound it first. */
uint32_t persist_bind(struct sy_balance *b, const struct service *s, const struct sy_addr *client,
                      uint32_t server, uint32_t refused, uint32_t now);
/* Clears some expired entries, so that no entry gets older than its 16-bit second can express.
 * Called by the control thread every RETIRE_PERIOD_MS. */
void persist_tick(struct sy_balance *b);

#endif
