// SPDX-License-Identifier: Apache-2.0
/*
 * The balancer's internals: the objects that sessions and stages refer to. The control thread
 * writes everything reachable from struct sy_balance except its workers. Workers read it, under RCU
 * where a pointer says so. Each struct balance_worker is written by its worker; other threads read
 * its counters with relaxed loads.
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

/* Overload: shares of new sessions that a worker accepts, by class of attempts: path/overload.c. */
enum overload_kind { OVERLOAD_UNKNOWN, OVERLOAD_REPEATED, OVERLOAD_KINDS };
struct overload {
	uint32_t share[OVERLOAD_KINDS]; /* of OVERLOAD_WHOLE, at at_ns */
	uint64_t at_ns;                 /* when a share was last cut */
	/* Recent attempts to begin sessions: all, of the service with most, and of services with
	 * few. */
	uint32_t window; /* time window of the counts */
	uint32_t all, largest, few;
};

#define COOKIE_SECRETS 2

/* A worker's keys for cookies, by secret and the lowest bit of their epoch. */
struct cookie_keys {
	uint64_t epoch; /* current epoch */
	struct sy_siphash_key key[COOKIE_SECRETS][2];
};

enum { REFUSED_SACK = 1, REFUSED_TIMESTAMPS = 2 };
#define REFUSED_SECONDS 600
#define REFUSED_TRIALS  64

/* How an unavailable service, or a port without service, answers. */
enum unavailable_kind { UNAVAILABLE_BY_RESET, UNAVAILABLE_BY_ICMP, UNAVAILABLE_KINDS };

/* A service's handshakes at one worker. Writer: that worker; readers: relaxed. */
struct service_load {
	uint64_t established; /* completed TCP handshakes */
	uint32_t embryonic;   /* live embryonic sessions */
	/* TCP options that the servers refused, and which are withheld from SYNs. A connection that
	 * is offered them and refused may have to be reset, so after REFUSED_SECONDS only one SYN
	 * per second offers them; after REFUSED_TRIALS trials without refusal, all SYNs do. */
	uint32_t trial_at; /* the second of the next trial */
	uint8_t refused;   /* REFUSED_* */
	uint8_t trials;    /* trials since the last refusal */
	/* Recent attempts to begin sessions while the worker was behind: path/overload.c. */
	uint32_t attempts_window, attempts;
	/* Packets and sessions refused by client_limits. */
	uint64_t client_refused;
	/* Packets answered because the service is unavailable: path/unavailable.c. */
	uint64_t unavailable[UNAVAILABLE_KINDS];
} __attribute__((aligned(SY_CACHE_LINE)));

/* Returns those of the SYN's options that the servers are known to refuse; they are not negotiated.
 * now: seconds. */
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

/* Limits as the packet path reads them: limit.h. */
struct limits {
	const struct limit **limit;       /* [LIMITS] by id; RCU; NULL: none */
	struct limit_bucket *bucket;      /* [LIMITS] by id */
	const struct limit_chain **chain; /* [max_servers]; RCU; NULL: none */
};

struct balance_worker {
	struct server_share *share; /* by server id */
	struct scheduler_state scheduler;
	struct service_counts *counts; /* by service id */
	struct service_drops *drops;   /* by service id: path/service_drop.h */
	uint64_t slot_packets[SY_SLOTS];
	uint64_t swept_ns;       /* end of the last sweep slice */
	uint64_t passes;         /* complete sweeps of all slots. Readers: acquire */
	uint64_t pass_ns;        /* begin of the current sweep */
	unsigned sweep_slot;     /* slot that the sweep visits */
	uint32_t swept_created;  /* `created` at the last sweep for creations */
	uint32_t created, ended; /* total sessions, modulo 2^32 */
	uint32_t embryonic;      /* sum of load[].embryonic */
	/* Packets answered because a VIP has no service on their port. Readers: relaxed. */
	uint64_t unknown_ports[UNAVAILABLE_KINDS];
	struct burst_state burst;
	uint16_t ipv4_id;                    /* id of the last originated IPv4 header */
	struct fragments *fragments;         /* fragment_table.h */
	struct remote *remote;               /* remote.h; NULL: all packets are steered */
	struct originated_rates originated;  /* rate limits of originated packets */
	struct opening_queue *opening_queue; /* opening_queue.h */
	struct strict *strict;               /* strict.h */
	struct overload overload;
	struct rate_limit relayed; /* packets that were relayed in vain: path/packet_relay.c */
	uint64_t sync_ns;          /* when peers_poll() is to run again: view/synced.h */
	struct repeats *repeats;   /* repeat.h */
	struct delays *delays;     /* delay.h */
	struct losses *losses;     /* loss.h */
	struct cookie_keys cookies;
	struct service_load *load;    /* by service id */
	struct access_worker *access; /* access.h */
	struct limit_share *limited;  /* by id of the limit: limit.h */
	/* No other worker charges the limits of the packet in hand: the event device schedules its
	 * flow here. */
	bool alone;
	/* By slot: the value of access_generation at the start of the current sweep, and of the
	 * last complete one. */
	uint32_t rechecking[SY_SLOTS], rechecked[SY_SLOTS];
} __attribute__((aligned(SY_CACHE_LINE)));

struct control_plane;
struct address_set; /* see address_set.h */
struct snat;        /* inside hosts and their rules: snat.h */
struct access;      /* access lists: access.h */
struct access_worker;
struct client_rates;  /* client_rate.h */
struct client_counts; /* client_count.h */
struct validated;     /* validated clients of DR and IPIP: validated.h */
struct event_stage;   /* event_stage.h */
struct persist;       /* bindings of client prefixes to servers: persist.c */
struct sync_node;     /* session synchronisation: sync/sync_node.h */
struct peers;         /* its end at this balancer: peers/peers.h */

#define CLIENT_MTUS 4096 /* max clients whose path MTU is stored */

/* The balancer as the packet path reads it. */
struct sy_balance {
	/* Keys that the session file stores: pages of their own, which core dumps exclude. */
	struct sy_hash_key key __attribute__((aligned(SY_PAGE))); /* of the session index */
	/* Of cookies; valid once adopted. [0] makes them; `secrets` of them are accepted. */
	struct sy_siphash_key secret[COOKIE_SECRETS];
	unsigned secrets;

	struct sy_balance_options options __attribute__((aligned(SY_PAGE)));
	struct sy_runtime *rt;
	struct session_table *table[SY_SLOTS]; /* by slot; valid once adopted */
	const struct session_index *index;     /* by slot: all that look-ups read */
	uint64_t originated_flag; /* mbuf flag of originated packets: path/originated.h */
	struct sync_node *sync;   /* NULL: there are no peers. Set before workers run */
	/* By session_mark_at(): marks of sync_log.h. Writer and reader: the slot's owner */
	uint8_t *sync_mark;
	struct peers *peers; /* with `sync` */
	/* By away_state_at(), in an ECMP group; NULL: none. As sync_mark */
	uint8_t *away_state;
	int relay_field;       /* mbuf field with the struct sync_relay of a relayed packet */
	uint64_t strict_flag;  /* mbuf flag of packets that waited for a peer: path/strict.h */
	uint64_t relayed_flag; /* mbuf flag of relayed packets: path/packet_relay.h */

	struct endpoint *endpoint; /* [max_servers] */
	uint32_t *server_active;   /* [max_servers]: live sessions. Writers: workers, load_acquire()
	                              and load_release() */
	uint32_t *service_active;  /* [max_services]: likewise */
	/* [max_servers]: smoothed time until the answer to a SYN, ns; 0: unknown. Writers and
	 * readers: workers, relaxed. delay.h */
	uint32_t *server_delay;
	struct persist *persist;           /* shared by all workers */
	struct validated *validated;       /* shared by all workers */
	struct client_rates *client_rates; /* likewise */
	/* likewise; RCU; NULL until a service limits its clients' sessions */
	struct client_counts *client_counts;
	const struct service **service;        /* [max_services], RCU; NULL: none */
	struct rte_hash *directory;            /* see directory.c; lock-free, RCU */
	const struct address_set *address_set; /* RCU */
	const struct address_set *own_sources; /* RCU: sources that may not begin sessions */
	/* [MAX_LOCALS] by id: 1 if new sessions here use the local or pool address. Writer: the
	 * control thread, which then increments the version; reader: worker 0, relaxed */
	uint8_t local_is_own[MAX_LOCALS];
	uint32_t locals_version;
	const struct snat *snat;     /* RCU; NULL: no rules */
	const struct access *access; /* RCU; NULL: no access lists */
	struct limits limits;
	const struct event_stage *stage; /* RCU; NULL: not open. event_stage.h */
	/* Incremented after a change that may end existing sessions: the next sweep evaluates the
	 * lists for all of them. Writer: control thread; readers: acquire */
	uint32_t access_generation;
	struct sy_addr local[MAX_LOCALS + 1];  /* by id; set before any session has that id */
	uint8_t local_removed[MAX_LOCALS + 1]; /* by id: end its sessions. Readers: relaxed */
	const struct local_set *locals[2];     /* [0]: IPv6, [1]: IPv4; RCU */
	/* [max_services]: balance_seconds() of the last cookie or challenge. Writers and readers:
	 * workers, relaxed */
	uint32_t *cookies_at;
	/* [max_services]: switched on by DEFENCE_AUTO. Writer: control thread; readers: relaxed */
	uint8_t *defends;
	/* balance_seconds() at which attack detection of this process started, and at which this
	 * node became the master; 0: not yet. As `defends` */
	uint32_t watches_since, serves_since;
	/* What to add to a worker's time for epochs of cookies: with peers, the difference from the
	 * real-time clock, which all nodes have. As `defends` */
	uint64_t cookie_clock_ns;
	uint32_t reset_unknown_services; /* TCP services with RESETS_UNKNOWN. Readers: relaxed */

	/* Writers and readers: workers, relaxed. See client_mtu.c */
	uint32_t client_mtu_noted; /* balance_seconds() of the last client_mtu_note(); 0: never */
	uint64_t client_mtu[CLIENT_MTUS] __attribute__((aligned(SY_CACHE_LINE)));

	unsigned workers;
	struct balance_worker worker[SY_MAX_WORKERS];

	struct control_plane *ctl; /* private to the control thread: config/control_plane.h */
};

/* The key of a service: hashed and compared as bytes. */
struct service_key {
	struct sy_addr vip;
	uint16_t vport; /* network order; 0: all ports */
	uint16_t proto;
	uint16_t last_port; /* last port of the range that begins with vport; 0: a single port */
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

/* Seconds of the sessions' clock; a tick is the low 16 bits. */
static inline uint32_t balance_seconds(const struct sy_worker *w)
{
	return (uint32_t)(w->now_ns / 1000000000u);
}

/* Returns NULL if the service is gone. */
static inline const struct service *endpoint_service(const struct sy_balance *b,
                                                     const struct endpoint *e)
{
	return e->service == SERVICE_NONE ? NULL : SY_RCU_READ(b->service[e->service]);
}

/* The control thread's estimate of the sessions' clock: worker 0's last round. */
static inline uint64_t balance_now(const struct sy_balance *b)
{
	return __atomic_load_n(&b->worker[0].swept_ns, __ATOMIC_RELAXED);
}

#include "session_match.h" /* inline: a session's tuples and states, and packet matching */

/* Seconds during which both ends of a session that ends are probed and answered. */
#define RESET_BOTH_SECONDS 3

/* ---- endpoint.c ------------------------------------------------------------------------------ */

/* Sets transmit_mode and overhead from the other fields. */
void endpoint_set_transmit_mode(struct endpoint *e);

/* ---- directory.c: which service a tuple belongs to ------------------------------------------- */

int directory_create(struct sy_balance *b, struct sy_error *err);
void directory_destroy(struct sy_balance *b);
/* The service of a client's packet; NULL: none. Any thread, under RCU. */
const struct service *directory_find(const struct sy_balance *b, const struct sy_tuple *client);
/* Maps the key to this service. This and directory_remove(): control thread. */
int directory_add(struct sy_balance *b, const struct service_key *key, uint32_t id);
/* Removes the key, unless it maps to another service by now. */
void directory_remove(struct sy_balance *b, const struct service_key *key, uint32_t id);

/* ---- session counts of servers and services -------------------------------------------------- */

#define SERVER_NONE UINT32_MAX

/* Adds a session to a counter with this limit (UINT32_MAX: none). Returns false at the limit. Exact
 * over all workers. */
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

/* Adds a session, whatever the limits. */
static inline void load_force(struct sy_balance *b, uint32_t server)
{
	uint32_t service = b->endpoint[server].service;
	load_acquire(&b->server_active[server], UINT32_MAX);
	if (SY_LIKELY(service != SERVICE_NONE))
		load_acquire(&b->service_active[service], UINT32_MAX);
}

/* Subtracts a session that has ended or was not created. */
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
/* The eligible server to which the client's prefix is bound; SERVER_NONE: unbound. now: seconds. */
uint32_t persist_find(struct sy_balance *b, const struct service *s, const struct sy_addr *client,
                      uint32_t now);
/* Binds the prefix to `server` in place of `refused` (a full server; SERVER_NONE: none). Returns
 * the server that it is bound to, which another worker may have chosen. */
uint32_t persist_bind(struct sy_balance *b, const struct service *s, const struct sy_addr *client,
                      uint32_t server, uint32_t refused, uint32_t now);
/* Clears some expired entries, so that their 16-bit seconds do not wrap. Called by the control
 * thread every RETIRE_PERIOD_MS. */
void persist_tick(struct sy_balance *b);

#endif
