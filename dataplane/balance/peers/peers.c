// SPDX-License-Identifier: Apache-2.0
#include "peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <rte_ring.h>

#include "model.h"
#include "saved.h"
#include "strict.h"
#include "sync_members.h"
#include "synced.h"
#include "table_map.h"

#define COPIES     700  /* max sessions that a worker copies per millisecond */
#define INBOX      1024 /* parts */
#define INBOX_POLL 64   /* max parts dequeued per poll */
#define CLAIM_STEP 4096 /* records that a worker scans for replicas per poll */
/* A worker that forwards packets, and does not sleep, reads its socket at this interval. */
#define RECEIVE_NS    UINT64_C(1000000)
#define LEAVE_NS      UINT64_C(100000000)
#define LEAVE_STEP_US 100
#define MARKS         ((size_t)SY_SLOTS * SESSION_RECORDS_MAX)

static const char *const refusal_name[] = {
#define X(id, name, help) name,
        PEERS_REFUSALS(X)
#undef X
};
static const char *const refusal_help[] = {
#define X(id, name, help) help,
        PEERS_REFUSALS(X)
#undef X
};

const char *peers_refusal_name(enum peers_refusal reason)
{
	return refusal_name[reason];
}

const char *peers_refusal_help(enum peers_refusal reason)
{
	return refusal_help[reason];
}

/* ---- parts for other workers ----------------------------------------------------------------- */

struct passed {
	struct sync_part part;
	uint32_t epoch; /* of the peer's incarnation, when it came */
	uint8_t node;
	uint8_t bytes[];
};

static unsigned owner_of(void *context, unsigned slot)
{
	const struct peers *p = context;
	return slot == SYNC_DICTIONARY ? 0 : sy_slot_worker(p->b->rt, (uint8_t)slot);
}

static void part_pass(void *context, unsigned worker, uint8_t node, const struct sync_part *part)
{
	struct peers *p = context;
	struct passed *m = malloc(sizeof(*m) + part->len);
	if (!m) /* the peer retransmits it */
		return;
	m->part = *part;
	m->node = node;
	m->epoch = SY_READ(sync_node_peer(p->node, node)->epoch);
	memcpy(m->bytes, part->bytes, part->len);
	if (rte_ring_enqueue(p->worker[worker].inbox, m) < 0) {
		free(m);
		return;
	}
	sy_worker_wake(sy_worker_at(p->b->rt, worker));
}

static bool inbox_poll(struct peers *p, struct sy_worker *w)
{
	struct passed *m;
	unsigned n = 0;
	while (n < INBOX_POLL && rte_ring_dequeue(p->worker[w->id].inbox, (void **)&m) == 0) {
		m->part.bytes = m->bytes;
		if (m->epoch == SY_READ(sync_node_peer(p->node, m->node)->epoch))
			sync_lane_part(p->node, w->id, m->node, &m->part, w->now_ns);
		free(m);
		n++;
	}
	return n > 0;
}

/* ---- a worker's poll ------------------------------------------------------------------------- */

/* When a peer has become the master, requests copies of slots with refused puts: this backup now
 * stores sessions that it refused before as its own. */
static void masters_follow(struct peers *p, struct sy_worker *w)
{
	struct peers_worker *pw = &p->worker[w->id];
	uint32_t masters = 0;
	for (uint8_t node = 1; node < SYNC_NODES; node++)
		masters |=
		        (uint32_t)(p->options.peer[node].port &&
		                   SY_READ(sync_node_peer(p->node, node)->role) == SYNC_ROLE_MASTER)
		        << node;
	if (masters & ~pw->masters && pw->role == SYNC_ROLE_BACKUP)
		sync_node_request_copies(p->node, w->id, true);
	pw->masters = masters;
}

/* In an ECMP group: when a node has come back, requests copies of slots in which sessions were
 * taken over from it, as it may have them. */
static void returns_follow(struct peers *p, struct sy_worker *w)
{
	struct peers_worker *pw = &p->worker[w->id];
	const uint32_t alive = sync_node_alive(p->node);
	if (alive & ~pw->alive && p->options.is_ecmp)
		sync_node_request_copies(p->node, w->id, true);
	pw->alive = alive;
}

static void role_follow(struct peers *p, struct sy_worker *w)
{
	struct peers_worker *pw = &p->worker[w->id];
	const uint8_t role = SY_READ(p->role);
	if (pw->role != role) {
		pw->role = role;
		pw->claim_at = role == SYNC_ROLE_MASTER ? 0 : SY_SLOTS;
		if (role == SYNC_ROLE_BACKUP) /* a master refuses its peers' puts */
			sync_node_request_copies(p->node, w->id, false);
	}
	for (uint32_t scanned = 0; scanned < CLAIM_STEP && pw->claim_at < SY_SLOTS;
	     pw->claim_at++) {
		if (owner_of(p, pw->claim_at) != w->id)
			continue;
		peers_claim(w, pw->claim_at);
		scanned += 1 + p->b->table[pw->claim_at]->top;
	}
}

/* After a change of own ids, requests copies of slots with refused puts: their servers or local
 * addresses may be configured now. */
static void names_follow(struct peers *p, struct sy_worker *w)
{
	struct peers_worker *pw = &p->worker[w->id];
	const uint32_t resolved = __atomic_load_n(&p->names.resolved, __ATOMIC_ACQUIRE);
	if (pw->names_resolved == resolved)
		return;
	pw->names_resolved = resolved;
	sync_node_request_copies(p->node, w->id, true);
}

/* After a full table has grown, requests a copy of its slot if puts were refused. */
static void tables_follow(struct peers *p, struct sy_worker *w)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		if (!p->full_at[slot] || owner_of(p, slot) != w->id ||
		    session_capacity(p->b->table[slot]) == p->full_at[slot])
			continue;
		p->full_at[slot] = 0;
		sync_node_request_copy(p->node, w->id, slot, true);
	}
}

bool peers_poll(struct sy_worker *w)
{
	const struct sy_balance *b = w->app;
	struct peers *p = b->peers;
	struct balance_worker *bw = balance_worker_of(w);
	if (SY_LIKELY(!p))
		return false;
	bool work = inbox_poll(p, w), more = false;
	const bool readable = sy_worker_is_readable(w), due = w->now_ns >= bw->sync_ns;
	if (SY_LIKELY(!due && !work && !readable && w->now_ns < p->worker[w->id].receive_ns))
		return false;
	p->worker[w->id].receive_ns = w->now_ns + RECEIVE_NS;
	work |= peers_receive(p, w, &more);
	if (!work && !due)
		return false;
	if (SY_UNLIKELY(w->id == 0 && !p->started_ns))
		__atomic_store_n(&p->started_ns, w->now_ns, __ATOMIC_RELAXED);
	more |= w->id == 0 && names_poll(p->b, &p->names);
	names_follow(p, w);
	tables_follow(p, w);
	role_follow(p, w);
	masters_follow(p, w);
	returns_follow(p, w);
	bw->sync_ns = sync_lane_poll(p->node, w->id, w->now_ns);
	if (SY_UNLIKELY(bw->strict->count))
		strict_poll(w);
	if (SY_UNLIKELY(more || p->worker[w->id].claim_at < SY_SLOTS)) {
		bw->sync_ns = w->now_ns;
		return true;
	}
	return work;
}

uint64_t peers_wake_ns(const struct sy_worker *w)
{
	const struct sy_balance *b = w->app;
	return SY_LIKELY(!b->peers) ? UINT64_MAX : b->worker[w->id].sync_ns;
}

bool peers_leave_step(struct sy_balance *b, uint64_t since_ns, uint64_t now_ns)
{
	struct peers *p = b->peers;
	if (sync_node_is_acknowledged(p->node, now_ns) || now_ns - since_ns >= LEAVE_NS) {
		if (p->options.is_ecmp)
			sync_node_leave(p->node, now_ns);
		return true;
	}
	for (unsigned i = 0; i < b->workers; i++) {
		struct sy_worker *w = sy_worker_at(b->rt, i);
		w->now_ns = now_ns;
		b->worker[i].sync_ns = now_ns; /* at once */
		peers_poll(w);
	}
	return false;
}

void peers_leave(struct sy_balance *b)
{
	const uint64_t since = sy_clock_ns();
	while (b->peers && !peers_leave_step(b, since, sy_clock_ns()))
		usleep(LEAVE_STEP_US);
}

bool peers_is_idle(const struct sy_worker *w)
{
	const struct sy_balance *b = w->app;
	return SY_LIKELY(!b->peers) || rte_ring_empty(b->peers->worker[w->id].inbox);
}

/* ---- creation, end --------------------------------------------------------------------------- */

static uint32_t peers_mask(const struct sy_peers_options *o)
{
	uint32_t mask = 0;
	for (unsigned node = 1; node < SYNC_NODES; node++)
		mask |= (uint32_t)(o->peer[node].port != 0) << node;
	return mask;
}

/* Derives the key of identities from the slot key. Returns a hash of the slot key for hellos, which
 * compare it. */
static uint64_t key_derive(struct peers *p)
{
	const struct sy_slot_key *key = session_store_slot_key(p->b->ctl->store);
	uint64_t h = sy_hash_mix(key->k[0] ^ UINT64_C(0x9e3779b97f4a7c15),
	                         key->k[1] ^ UINT64_C(0xd6e8feb86659fd93));
	for (unsigned i = 0; i < SY_ARRAY_LEN(p->key.k); i++)
		p->key.k[i] = h = sy_hash_mix(h ^ key->k[i % 2], UINT64_C(0xbf58476d1ce4e5b9) + i);
	return sy_hash_mix(h, UINT64_C(0x94d049bb133111eb));
}

/* Derives the secrets of cookies. */
static bool cookies_derive(struct peers *p, const struct sync_secret secret[SYNC_SECRETS])
{
	while (p->cookies < SYNC_SECRETS && secret[p->cookies].len) {
		struct sy_siphash_key *key = &p->cookie[p->cookies++];
		if (!sync_secret_derive(&secret[p->cookies - 1], "steelyard cookies 1",
		                        (uint8_t *)key, sizeof(*key)))
			return false;
	}
	return true;
}

/* The public header cannot include the protocol's headers. */
_Static_assert(sizeof(((struct sy_peers_options *)0)->secret) ==
                               sizeof(((struct sync_node_options *)0)->secret) &&
                       offsetof(struct sy_peers_secret, bytes) ==
                               offsetof(struct sync_secret, bytes) &&
                       SY_PEERS_NODES == SYNC_NODES,
               "options are the node's");

static bool node_create(struct peers *p)
{
	struct sync_node_options o = {
	        .node = p->options.node,
	        .slot_key = key_derive(p),
	        .peers = peers_mask(&p->options),
	        .workers = p->b->workers,
	        .copies = COPIES,
	        .source = peers_source(p),
	        .sink = peers_sink(p),
	        .context = p,
	        .owner = owner_of,
	        .pass = part_pass,
	        .send = peers_send,
	        .stored = peers_stored,
	        .relayed = p->options.is_ecmp ? peers_relayed : NULL,
	};
	gethostname(o.name, sizeof(o.name) - 1);
	memcpy(o.secret, p->options.secret, sizeof(o.secret));
	if (cookies_derive(p, o.secret))
		p->node = sync_node_create(&o, sy_clock_ns());
	sy_secret_wipe(o.secret, sizeof(o.secret));
	sy_secret_wipe(p->options.secret, sizeof(p->options.secret));
	return p->node;
}

static bool workers_create(struct peers *p)
{
	char name[RTE_RING_NAMESIZE];
	for (unsigned w = 0; w < p->b->workers; w++) {
		struct peers_worker *pw = &p->worker[w];
		snprintf(name, sizeof(name), "sy_peers_%u", w);
		pw->inbox = rte_ring_create(name, INBOX, SOCKET_ID_ANY, RING_F_SC_DEQ);
		if (!pw->inbox)
			return false;
	}
	return true;
}

int peers_create(struct sy_balance *b, struct sy_error *err)
{
	const struct sy_peers_options *o = &b->options.peers;
	if (!o->node)
		return 0;
	struct peers *p = aligned_alloc(SY_CACHE_LINE, sizeof(*p));
	if (!p)
		return sy_fail(err, ENOMEM, "no memory for session synchronisation");
	memset(p, 0, sizeof(*p));
	p->b = b;
	p->options = *o;
	sy_secret_wipe(b->options.peers.secret, sizeof(b->options.peers.secret));
	for (unsigned w = 0; w < SY_MAX_WORKERS; w++) {
		p->worker[w].fd = -1;
		p->worker[w].claim_at = SY_SLOTS;
	}
	b->peers = p;
	b->sync_mark = table_map(MARKS, 1);
	b->away_state = o->is_ecmp ? table_map(MARKS, 1) : NULL;
	if (!b->sync_mark || !b->away_state != !o->is_ecmp ||
	    names_create(&p->names, b, b->ctl->store, b->options.max_servers, peers_mask(o)) < 0 ||
	    !workers_create(p) || !node_create(p)) {
		peers_destroy(b);
		return sy_fail(err, ENOMEM, "no memory for session synchronisation");
	}
	b->sync = p->node;
	b->ctl->standby = true; /* until this node becomes the master */
	role_resume(b);
	return 0;
}

void peers_destroy(struct sy_balance *b)
{
	struct peers *p = b->peers;
	struct passed *m;
	if (!p)
		return;
	peers_sockets_close(p);
	for (unsigned w = 0; w < SY_MAX_WORKERS && p->worker[w].inbox; w++) {
		while (rte_ring_dequeue(p->worker[w].inbox, (void **)&m) == 0)
			free(m);
		rte_ring_free(p->worker[w].inbox);
	}
	sync_node_destroy(p->node);
	names_destroy(&p->names);
	sy_secret_wipe(p->cookie, sizeof(p->cookie));
	table_unmap(b->sync_mark, MARKS, 1);
	table_unmap(b->away_state, MARKS, 1);
	free(p);
	b->peers = NULL;
	b->sync = NULL;
	b->sync_mark = NULL;
	b->away_state = NULL;
}

int peers_open(struct sy_balance *b, struct sy_error *err)
{
	return b->peers ? peers_sockets_open(b->peers, err) : 0;
}

void peers_close(struct sy_balance *b)
{
	if (b->peers)
		peers_sockets_close(b->peers);
}

/* Epochs of cookies follow the real-time clock: the monotonic one differs between hosts. */
static void cookie_clock_set(struct sy_balance *b)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	const uint64_t real_ns =
	        (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
	__atomic_store_n(&b->cookie_clock_ns, real_ns - sy_clock_ns(), __ATOMIC_RELAXED);
}

/* Replaces the random secret of cookies, which is this node's alone. */
static void cookies_share(struct sy_balance *b)
{
	const struct peers *p = b->peers;
	memcpy(b->secret, p->cookie, sizeof(b->secret));
	b->secrets = p->cookies;
	cookie_clock_set(b);
}

void peers_adopted(struct sy_balance *b)
{
	if (!b->peers)
		return;
	cookies_share(b);
	role_adopted(b);
}

void peers_tick(struct sy_balance *b)
{
	if (!b->peers)
		return;
	names_tick(b, &b->peers->names);
	role_tick(b);
	cookie_clock_set(b);
}
