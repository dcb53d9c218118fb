// SPDX-License-Identifier: Apache-2.0
/*
 * The balancer's inside: the objects that sessions and stages refer to.
 *
 * Writers and readers: everything reachable from struct sy_balance is written by the interaction
 * thread; workers read it, under RCU where a pointer says so. struct balance_worker is its worker's
 * own; others read its counters with relaxed loads.
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
struct birth {
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
	struct rate_limit icmp, resets, doubts, kills; /* rate limits of our own packets */
	uint64_t swept_ns;                             /* when the last sweep slice ended */
	uint64_t passes;              /* whole sweeps over all slots. readers: acquire */
	uint64_t pass_ns;             /* when the one under way began */
	unsigned sweep_slot;          /* where the sweep stands */
	uint32_t swept_born;          /* births that the sweep has been led on for */
	uint32_t born, ended;         /* sessions so far, modulo 2^32 */
	uint64_t births_due;          /* bit per packet of the burst under way */
	struct birth birth[SY_BURST]; /* of those */
	uint16_t ipv4_id;             /* of the last IPv4 header that was made anew */
	struct fragments *fragments;  /* fragment.h */
	struct foreign *foreign;      /* foreign.h; NULL: packets are handed over */
} __attribute__((aligned(SY_CACHE_LINE)));

struct ours;    /* which addresses are ours: ours.h */
struct snat;    /* which hosts are inside, and what they get: snat.h */
struct model;   /* the configuration as accepted: model.h */
struct control; /* the control socket's side: control.h */
struct persist; /* which server a client prefix goes to: persist.c */

/* See journal.c. */
struct journal {
	int fd;          /* −1: none */
	uint64_t size;   /* of whole entries, with its header */
	bool broken;     /* an entry is missing: nothing is added until the next snapshot */
	bool complained; /* about what could not be written */
};

/* See names.c. */
struct names {
	bool settled;        /* the dictionary follows the configuration from now on */
	uint32_t *claimable; /* servers' ids with a meaning, by meaning; until names_settle() */
	uint32_t claimables;
	bool local_found[SESSION_LOCALS]; /* as in struct endpoint */
};

/* What became of an earlier process's sessions. */
struct adoption {
	struct session_found found;
	uint64_t duration_ns;
	uint64_t count[SESSION_VERDICT_COUNT];
};

/* A host that answered for an address when it was taken. */
struct neighbour_found {
	struct sy_addr addr;
	uint8_t mac[6];
	uint64_t at_ns; /* 0: none yet */
};
/* A format and its values; text: room for an address. */
#define NEIGHBOUR_FOUND                                                                            \
	"%s was answered for by another host (%02x:%02x:%02x:%02x:%02x:%02x) when it was taken: "  \
	"two hosts that have it take each other's packets; make sure that the other one lets go "  \
	"of it"
#define NEIGHBOUR_FOUND_VALUES(f, text)                                                            \
	sy_addr_format(&(f)->addr, text), (f)->mac[0], (f)->mac[1], (f)->mac[2], (f)->mac[3],      \
	        (f)->mac[4], (f)->mac[5]

#define CLIENT_MTUS 4096 /* clients whose path's MTU is remembered, at most */

struct sy_balance {
	struct sy_balance_options options;
	struct sy_runtime *rt;
	struct session_store *store;           /* NULL once it is sealed: for a successor */
	struct session_table *table[SY_SLOTS]; /* once adopted */
	struct session_space space;            /* likewise */
	struct sy_hash_key key;                /* of the session index */

	struct endpoint *endpoint; /* [max_servers] */
	uint32_t *server_active;   /* [max_servers]: live sessions. Writers: workers, load_*() */
	uint32_t *service_active;  /* [max_services]: likewise */
	struct persist *persist;   /* shared by all workers */
	const struct service **service;        /* [max_services], RCU; NULL: none */
	struct rte_hash *directory;            /* see directory.c; lock-free, RCU */
	const struct ours *ours;               /* RCU */
	const struct snat *snat;               /* RCU; NULL: there are no rules */
	struct sy_addr local[MAX_LOCALS + 1];  /* by id; set before a session names it */
	uint8_t local_removed[MAX_LOCALS + 1]; /* by id: its sessions end. readers: relaxed */
	const struct local_set *locals[2];     /* [0]: IPv6, [1]: IPv4; RCU */
	uint32_t tellers; /* TCP services with RESETS_UNKNOWN. Readers: relaxed */

	/* Writers and readers: workers, relaxed. See client_mtu.c */
	uint32_t client_mtu_noted; /* balance_seconds() of the last one; 0: never */
	uint64_t client_mtu[CLIENT_MTUS] __attribute__((aligned(SY_CACHE_LINE)));

	unsigned workers;
	struct balance_worker worker[SY_MAX_WORKERS];

	/* Interaction thread only. */
	struct model *model;
	struct control *control;
	struct shelf *shelf;        /* tables that services share */
	struct retired *retired;    /* ids that sessions may still name, oldest first */
	bool owner;                 /* store and state directory are ours, not a predecessor's */
	bool served;                /* the control socket has been opened */
	bool unsaved;               /* the last snapshot is not of the accepted configuration */
	bool save_failed;           /* the last attempt at one */
	struct sy_error save_error; /* why */
	struct neighbour_found neighbour_found; /* the last one */
	bool hold;                              /* none is made */
	uint64_t saved_ns;                      /* when one last was */
	struct journal journal;
	int state_lock; /* on the state directory, −1: not ours */
	struct names names;
	struct adoption adoption;
	uint64_t alive_ns;             /* when the store was told last that we live */
	uint64_t sealed_live;          /* sessions when the store was sealed */
	struct sy_balance_totals gone; /* of servers whose ids are free again */
	uint32_t path_generation;      /* of the routes that endpoints' paths stand for */
	struct {
		uint8_t at;             /* the slot that is looked at next */
		unsigned left, leaving; /* regions that tables left; of which until passes */
		uint64_t passes[SY_MAX_WORKERS];
		uint64_t again_ns; /* not before: memory was missing */
		uint64_t grown;    /* tables so far */
	} growth;                  /* see grow.c */
	struct {
		bool pending;
		bool renewed; /* no session names a path that is older than generation */
		uint32_t generation;
		uint64_t passes[SY_MAX_WORKERS];
	} path_sweep; /* see retire.c */
	uint64_t started_unix_s;
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

/* What the interaction thread takes for now, on the sessions' clock: worker 0's last round. */
static inline uint64_t balance_now(const struct sy_balance *b)
{
	return __atomic_load_n(&b->worker[0].swept_ns, __ATOMIC_RELAXED);
}

#include "session_match.h" /* a session's tuples, states and verification, inline */

/* ---- forward.c: what fast and slow path share
 * ----------------------------------------------------- */

/* Rewrites packet i for its session and sends it on to transmit; counts it. TTL and MTU have been
 * checked. */
void forward_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s);
/* Puts a packet, *v of it, into its session's tunnel; false: there is no room for its header. flow:
 * a hash of its flow. */
bool forward_tunnel(struct sy_worker *w, struct rte_mbuf *m, const struct sy_view *v,
                    const struct session *s, const struct endpoint *e, uint32_t flow);
/* The path packet i of session s leaves by, looked up anew if stale. An FNAT session whose client's
 * path is narrow keeps none, so that no packet to it takes the fast path. */
uint16_t forward_path(struct sy_worker *w, struct session *s, uint8_t direction);

/* ---- client_mtu.c: narrow paths to clients (docs/design/0020-path-mtu.md) ------------------- */

/* Below this an error about an FNAT server's packet is kept from the server. */
#define CLIENT_MTU_FLOOR 1280
/* Nobody can make us send fragments that are smaller (RFC 791 3.1: all hosts take these). */
#define CLIENT_MTU_LEAST 576
/* Seconds that one is remembered (RFC 1191 6.3). */
#define CLIENT_MTU_S 600

/* A router says that the path to this IPv4 client has this MTU. */
void client_mtu_note(struct sy_worker *w, const struct sy_addr *client, uint16_t mtu);
/* The MTU of the path to this client, where one was noted; else 0. */
uint16_t client_mtu_find(struct sy_worker *w, const struct sy_addr *client);

/* ---- oversize.c: packets that do not fit their path
 * (docs/design/0012-fragments.md) ---------------------- */

/* Bytes that packet *v from this side gains on its way. */
int oversize_growth(const struct endpoint *e, const struct sy_view *v, enum session_direction from);
/* May a packet from this side, which does not fit, leave in fragments? Else its sender is told. */
bool oversize_may_fragment(const struct endpoint *e, const uint8_t *frame, const struct sy_view *v,
                           enum session_direction from);
/* Forwards packet i of session s in fragments of at most mtu bytes of IP packet, which routers may
 * fragment further. */
void oversize_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s,
                      uint16_t mtu);

/* ---- translate.c: clients of one family, servers of the other ------------------------------- */

/* Fills in form and growth, when all else is. */
void endpoint_form(struct endpoint *e);
/* Turns packet i into the other family; false: it was dropped. */
bool forward_translate(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                       const struct session *s, const struct endpoint *e);

/* ---- directory.c: which service a tuple belongs to
 * -------------------------------------------------------- */

int directory_create(struct sy_balance *b, struct sy_error *err);
void directory_destroy(struct sy_balance *b);
/* The service that a client's packet asks for, NULL: none. Any thread, under RCU. */
const struct service *directory_find(const struct sy_balance *b, const struct sy_tuple *client);
/* From now on the key means this service. Both: interaction thread. */
int directory_add(struct sy_balance *b, const struct service_key *key, uint32_t id);
/* Without effect if it has come to mean another. */
void directory_remove(struct sy_balance *b, const struct service_key *key, uint32_t id);

/* ---- tell.c: servers are told their clients' addresses
 * (docs/design/0014-client-address.md) ----------------- */

/* A client's SYN, packet i. If it (again) begins the connection: notes what its server is to be
 * told, and from where on. If the server decides that, the SYN brings no data before a header. */
void tell_begin(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s);
/* A client's packet whose server may not know yet: tells it, in at most `room` bytes of IP packet.
 * False: the packet was dropped. */
bool tell_server(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s,
                 uint32_t room);
/* A server's packet while that may be so: does it know now? Hides from the client that less than
 * the header may have been acknowledged. Returns the flags that the session's state may follow. */
uint8_t tell_hear(struct session *s, const struct session_cold *cold, uint8_t *frame,
                  const struct sy_view *v);
/* Moves the numbers of a SESSION_SHIFTED session's packet to the other side's. */
void tell_shift(struct sy_burst *burst, unsigned i, const struct session_cold *cold);

/* How many bytes of the client's stream its server counts and the client does not. */
static inline uint32_t session_shift(const struct session *s, const struct session_cold *cold)
{
	return s->flags & SESSION_SHIFTED ? cold->inserted : 0;
}

/* ---- create.c
 * ---------------------------------------------------------------------------------------- */

/* Of the burst's packets that have no session, at[0] to at[count − 1], those that will begin some:
 * finds their servers, and lets the memory that the sessions will take come closer, for all at a
 * time. Their places are taken: session_create() must follow for each of births_due. */
void create_prepare(struct sy_worker *w, struct sy_burst *burst, const uint8_t *at, unsigned count);

/* May packet i, of no session, begin one? NONE, or why not. */
enum sy_drop create_check(struct sy_burst *burst, unsigned i);

/* Schedules and creates a session for packet i, from a client. Returns its record, or SESSION_NONE
 * and the reason. */
uint32_t session_create(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        enum sy_drop *reason);
/* What a session is filed under. */
struct session_hashes {
	uint64_t client, server;
};
struct session_hashes session_get_hashes(const struct sy_balance *b, const struct session *s,
                                         const struct session_cold *cold);
/* Ends a session: index, record, counters; and its server's TIME_WAIT. */
void session_end(struct sy_worker *w, struct session_table *t, uint32_t record);
/* The same for many of a table, their cache misses side by side. At most SESSIONS_END of them. */
void sessions_end(struct sy_worker *w, struct session_table *t, const uint32_t *record,
                  unsigned count);
#define SESSIONS_END 32

/* ---- sweep.c
 * ---------------------------------------------------------------------------------------- */

/* Sweeps on in proportion to the sessions that began, as rounds alone could not keep up with many:
 * behind a burst, when nothing refers to a record. */
void sweep_for_births(struct sy_worker *w);

/* ---- reset.c: resets of our own ----------------------------------------------------------------
 */

/* Of a session that ends, or whose tuple begins anew: if its server closed first and remembers the
 * tuple (TIME_WAIT), it is told to forget it, so that no later client is taken for this one. */
void reset_time_wait(struct sy_worker *w, struct session *s, const struct session_cold *cold);
/* What probes of this session acknowledge. */
uint32_t reset_secret(const struct sy_balance *b, const struct session *s);
/* A reset that may be forged, from this side, is being forwarded: asks who is said to have sent it,
 * unless too many are asked; the session's state says so. */
void reset_doubt(struct sy_worker *w, struct session *s, enum session_direction from);
/* Asks once more, as the first answer may be lost or suppressed (RFC 5961 7). */
void reset_doubt_again(struct sy_worker *w, struct session *s);
/* Packet i has no session, and its sender is told so if its checksum is right. */
void reset_unknown(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* A TCP session of ends that would wait for each other. */
bool kill_is_due(const struct endpoint *e, const struct session *s);
/* It ends, and both ends shall know: they are asked to say something, which is answered by a reset.
 * heard: the side that need not be asked, as it just spoke; SESSION_NEITHER. */
#define SESSION_NEITHER 2
void kill_begin(struct sy_worker *w, struct session *s, unsigned heard);
/* Asks once more who was not heard: the question or its answer was lost, or there were too many. */
void kill_ask(struct sy_worker *w, struct session *s);
/* How long it is asked, and its ends' packets are answered: whatever became of its server. */
#define KILL_SECONDS 3
/* Packet i is of a session that ends (record burst->session[i]). Returns true if it may begin a new
 * one, and then the session has ended; false: it was answered and dropped. */
bool kill_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- icmp.c ---------------------------------------------------------------------------------- */

/* A buffer for a packet of our own; NULL: there is none, which has been counted. */
struct rte_mbuf *own_packet(struct sy_worker *w);
/* Sends what such a buffer was filled with out of a port, to the MAC in it; len 0: there is nothing
 * to say, and the buffer is freed. */
void own_packet_answer(struct sy_worker *w, struct rte_mbuf *m, uint32_t len, uint16_t port);
/* Tells the sender of packet i what became of it, as the address it was sent to. */
void icmp_tell_sender(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                      enum sy_icmp_error kind, uint16_t mtu);
/* Hands packet i, which is ICMP, over to the worker that owns its slot, if it is another; drops an
 * error that quotes nothing of ours. */
void icmp_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Handles packet i, which is ICMP and was sent to an address of ours, or to a client about a packet
 * to a NAT server. */
void icmp_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- icmp_error.c ---------------------------------------------------------------------------- */

/* Does it quote a packet to a NAT server, or to an inside host of SNAT? It was sent to that
 * packet's sender then, for whom we are the way back. */
bool icmp_is_about_server(const struct sy_balance *b, const uint8_t *frame,
                          const struct sy_view *v);
/* The same two for errors. */
void icmp_error_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i);
void icmp_error_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- tcp_state.c
 * -------------------------------------------------------------------------------------- */

enum tcp_verdict {
	TCP_FORWARD,
	TCP_REOPEN, /* a new connection under an old tuple: end the session, create another */
	TCP_AGAIN,  /* likewise, but the server may hold on to the old one: tcp_state_again() if it
	             * takes new connections, so that it meets the tuple it knows; or else REOPEN */
	TCP_ASK,   /* forward: the server, unless it is down, tells whether it is over; or REOPEN */
	TCP_DOUBT, /* forward a reset that may be forged: reset_doubt() */
	TCP_DROP,  /* BAD_TCP_STATE */
};

/* Moves the session's state by a packet seen in the middle (RFC 9293 3.3.2). seq, ack in host
 * order; len: payload bytes; secret: of a reset, what a probe acknowledged, hence the number of one
 * that answers it. */
enum tcp_verdict tcp_state_advance(struct session *s, struct session_cold *cold,
                                   enum session_direction from, uint8_t flags, uint32_t seq,
                                   uint32_t ack, uint32_t len, uint32_t secret);
/* The same for a session of which only the client's packets are seen. */
enum tcp_verdict tcp_state_one_way(struct session *s, struct session_cold *cold, uint8_t flags,
                                   uint32_t seq, uint32_t len, uint32_t secret);
/* After TCP_AGAIN: the same session and server, from the beginning. */
void tcp_state_again(struct session *s);
const char *session_state_name(enum session_state state);

/* ---- adopt.c
 * ------------------------------------------------------------------------------------------- */

/* Lets go of a store that was not sealed: as a crash would, so that its sessions can be adopted. */
void adopt_close(struct sy_balance *b);

/* ---- service.c: services as published
 * --------------------------------------------------------------------- */

struct model_service;

/* A service as it stands in the model, to be built; NULL: no memory. */
struct service *service_create(struct sy_balance *b, const struct model_service *s);
/* Makes its pools; called again while it returns 1, with new *budget (see scheduler.h). 0: done; a
 * negative errno: failed. */
int service_build(struct service *s, int64_t *budget);
/* Both at once, whatever it takes; NULL: no memory. */
struct service *service_make(struct sy_balance *b, const struct model_service *s);
/* s may be NULL. */
void service_free(void *service);
/* Swaps it in and retires what it replaces; now NULL: takes the service away. */
void service_swap(struct sy_balance *b, uint32_t id, struct service *now);
/* Of a service that is about to be published, which before did not exist if `fresh`: servers that
 * return begin their slow start; endpoints learn who takes new sessions. */
void service_note_servers(struct sy_balance *b, struct model_service *s, bool fresh);
/* Slow start goes on, unless a transaction is under way. Every RETIRE_PERIOD_MS. */
void service_tick(struct sy_balance *b);

/* ---- schedule.c
 * -------------------------------------------------------------------------------------- */

#define SERVER_NONE UINT32_MAX

/* Chooses a server for a new session of this client and takes its place, which session_end() or
 * load_give() gives back. Returns NONE, NO_SERVER or CONNECTION_LIMIT. */
enum sy_drop schedule(struct sy_worker *w, const struct service *service,
                      const struct sy_tuple *client, uint32_t *server);

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
 * RETIRE_PERIOD_MS, interaction thread. */
void persist_tick(struct sy_balance *b);

#endif
