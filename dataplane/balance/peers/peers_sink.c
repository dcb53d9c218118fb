// SPDX-License-Identifier: Apache-2.0
/*
 * The session tables as a struct sync_sink: stores peers' sessions as replicas.
 *
 *   look up     the record with the session's identity or one of its tuples
 *   put         update the session's record; or end other sessions with its tuples, and insert it
 *   conflict    with a session served here: a master keeps its own, a backup transfers it
 *
 * Called by the slot's worker.
 */
#include "peers.h"

#include "away.h"
#include "client_sessions.h"
#include "end.h"
#include "opening_queue.h"
#include "pressure.h"
#include "session_fits.h"
#include "sync_session.h"
#include "synced.h"

/* An entry that is being applied. */
struct incoming {
	struct peers *p;
	struct sy_worker *w;
	struct session_table *t;
	unsigned node;
	struct sync_session in;         /* first the sender's ids, then this node's */
	struct sync_session given;      /* in an ECMP group: with the sender's ids */
	struct sy_tuple client, server; /* of arriving packets; server.proto 0: one-way session */
};

static enum sync_result refuse(const struct incoming *i, enum peers_refusal reason)
{
	SY_COUNT(i->p->worker[i->w->id].refused[reason], 1);
	return SYNC_REFUSED;
}

/* The master of a pair stores no replicas: it serves. */
static bool is_master(const struct peers *p)
{
	return SY_READ(p->role) == SYNC_ROLE_MASTER && !p->options.is_ecmp;
}

/* Does this node serve the session? After a restart it is unknown who serves one that is away. */
static bool is_own(const struct incoming *i, uint32_t record)
{
	return !(*session_mark_at(i->p->b, i->t->slot, record) & SYNC_OWNER) &&
	       !session_is_away(session_at(i->t, record));
}

/* In an ECMP group, the state of a replica is kept beside its record. */
static void state_set(const struct incoming *i, uint32_t record, uint8_t state)
{
	struct session *s = session_at(i->t, record);
	if (group_is_ecmp(i->p->b))
		*away_state_at(i->p->b, i->t->slot, record) = state;
	s->state = group_is_ecmp(i->p->b) ? (uint8_t)SESSION_AWAY : state;
}

/* ---- ids, tuples ----------------------------------------------------------------------------- */

/* Returns true if this node's ids still mean this server and address: ids may have been reassigned
 * since the dictionary translated them. */
static bool own_ids_fit(const struct sy_balance *b, const struct names_server *name,
                        const struct sy_addr *addr, uint32_t own, uint32_t local)
{
	if (own != NAMES_NONE) {
		const struct names_server mine = names_of(&b->endpoint[own]);
		if (memcmp(&mine, name, sizeof(mine)) != 0)
			return false;
	}
	return !addr || local == NAMES_NONE || sy_addr_equal(addr, &b->local[local]);
}

/* Translates the sender's ids to this node's, *own and *local (NAMES_NONE: it has no such server or
 * address), and sets *hash. Returns DONE; or LATER if an id has no meaning yet, or another one than
 * the entry's. */
static enum sync_result translate(struct incoming *i, uint32_t *own, uint32_t *local,
                                  uint64_t *hash)
{
	const struct names *n = &i->p->names;
	struct session *s = &i->in.hot[0];
	const bool has_local = s->local != LOCAL_NONE;
	const struct names_server *name = names_server(n, i->node, s->server);
	const struct sy_addr *addr = has_local ? names_local(n, i->node, s->local) : NULL;
	if (!name || (has_local && !addr) || names_meaning(name, addr) != i->in.meaning)
		return SYNC_LATER;
	if (peers_is_by_local(name->mode) ? !addr : !i->in.has_client)
		return SYNC_INVALID;
	if (name->mode == MODE_SNAT && !i->in.is_pair)
		return SYNC_INVALID;
	*hash = peers_identity(i->p, name, addr, i->in.hot, i->in.cold);
	*own = names_own_server(n, i->node, s->server);
	*local = has_local ? names_own_local(n, i->node, s->local) : LOCAL_NONE;
	return own_ids_fit(i->p->b, name, addr, *own, *local) ? SYNC_DONE : SYNC_LATER;
}

/* Sets the tuples of a session whose ids are this node's. */
static void tuples_set(struct incoming *i)
{
	const struct sy_balance *b = i->p->b;
	const struct session *s = &i->in.hot[0];
	const struct endpoint *e = &b->endpoint[s->server];
	i->client = session_client_tuple(s, i->in.cold, e);
	i->server = endpoint_is_one_way(e) ? (struct sy_tuple){0}
	                                   : session_server_tuple(b, s, i->in.cold, e);
}

static uint32_t tuple_find(const struct incoming *i, const struct sy_tuple *tuple,
                           enum session_direction side)
{
	const struct sy_balance *b = i->p->b;
	const struct match_context ctx = {b, i->t, tuple};
	enum session_direction found;
	uint32_t record = session_find(i->t->index, sy_hash_tuple(&b->key, tuple), match_session,
	                               &ctx, &found);
	return record != SESSION_NONE && found == side ? record : SESSION_NONE;
}

/* Returns the record with the session's identity. */
static uint32_t identity_find(const struct incoming *i)
{
	const bool by_local = peers_is_by_local(i->p->b->endpoint[i->in.hot[0].server].mode);
	return by_local ? tuple_find(i, &i->server, SESSION_SERVER)
	                : tuple_find(i, &i->client, SESSION_CLIENT);
}

/* Stores the record with the session's identity and returns its mark (sync_log.h); NULL: there is
 * no record. */
static uint8_t *identity_mark(const struct incoming *i, uint32_t *record)
{
	*record = identity_find(i);
	return *record == SESSION_NONE ? NULL : session_mark_at(i->p->b, i->t->slot, *record);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Keeps SESSION_WATCHED as this node has it: each node measures losses by itself. */
static void flags_set(struct session *s, uint8_t flags, uint8_t proto)
{
	const uint8_t watched = proto == SY_PROTO_TCP ? s->flags & SESSION_WATCHED : 0;
	s->flags = flags | watched;
}

static void session_update(const struct incoming *i, uint32_t record)
{
	struct session *s = session_at(i->t, record);
	struct session_cold *cold = session_cold_at(i->t, record);
	const struct sync_session *in = &i->in;
	const struct sy_balance *b = i->p->b;
	const bool embryonic = session_state_is_embryonic(s->state);
	const bool opening = s->state == SESSION_OPENING;
	state_set(i, record, in->hot[0].state);
	flags_set(s, in->hot[0].flags, b->endpoint[s->server].proto);
	session_touch(s, s->seen, (uint16_t)(balance_seconds(i->w) - in->idle_s));
	cold->inserted = in->cold[0].inserted;
	cold->text = in->cold[0].text;
	cold->syn_seen = in->cold[0].syn_seen;
	memcpy(cold->fin_seq, in->cold[0].fin_seq, sizeof(cold->fin_seq));
	if (in->is_pair && session_is_pair(i->t, record)) {
		struct session_cold *pair = cold + 1;
		memcpy(pair, &in->cold[1], offsetof(struct session_cold, commit));
		pair->vport = in->cold[1].vport;
	}
	if (SY_UNLIKELY(opening && s->state != SESSION_OPENING))
		opening_queue_drop(i->w, i->t->slot, record);
	pressure_change(i->w, i->t, record, embryonic);
	if (SY_UNLIKELY(SY_RCU_READ(b->client_counts) != NULL))
		client_sessions_recount(i->w, i->t, record);
}

static void session_set_delta(const struct incoming *i, struct session *s)
{
	const struct sy_balance *b = i->p->b;
	const struct endpoint *e = &b->endpoint[s->server];
	struct sy_rewrite r;
	if (e->mode == MODE_SNAT) {
		const struct sy_tuple to = {b->local[s->local], s[1].client, s->local_port,
		                            s[1].client_port, e->proto};
		sy_rewrite_prepare(&i->client, &to, &r);
		s->delta = r.l4_delta;
	} else if (!endpoint_is_one_way(e)) {
		s->delta = session_compute_delta(b, s, i->in.cold, e, &i->client);
	}
}

/* Inserts a new record. */
static uint32_t session_add(struct incoming *i)
{
	struct sy_balance *b = i->p->b;
	struct balance_worker *bw = balance_worker_of(i->w);
	struct session *s = i->in.hot;
	struct session_cold *cold = i->in.cold;
	const uint32_t now = balance_seconds(i->w);
	const uint8_t state = s->state;
	s->path = s[1].path = SY_PATH_NONE; /* the first packet looks it up */
	s->seen = (uint16_t)(now - i->in.idle_s);
	cold->created = (now - i->in.age_s) & SESSION_CREATED_MASK;
	session_set_delta(i, s);
	const uint64_t server_hash =
	        i->server.proto ? sy_hash_tuple(&b->key, &i->server) : SESSION_ONE_WAY;
	const uint64_t client_hash =
	        session_client_hash(s, sy_hash_tuple(&b->key, &i->client), server_hash);
	const uint32_t record =
	        i->in.is_pair ? session_insert_pair(i->t, s, cold, client_hash, server_hash)
	                      : session_insert(i->t, s, cold, client_hash, server_hash);
	if (record == SESSION_NONE)
		return record;
	state_set(i, record, state);
	if (session_state_is_embryonic(session_at(i->t, record)->state))
		pressure_begin(i->w, i->t, record);
	/* The forwarder counts current sessions as created − ended. Decrement `ended`, as for
	 * adopted sessions: an increment of `created` would report a replica as a new session. */
	SY_COUNT(bw->share[s->server].traffic.ended, UINT64_MAX);
	load_force(b, s->server);
	if (SY_UNLIKELY(SY_RCU_READ(b->client_counts) != NULL))
		client_sessions_recount(i->w, i->t, record);
	return record;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Sets SYNC_KEPT. Returns DONE if the sum of the sender's sessions included the record already,
 * otherwise NEW. */
static enum sync_result mark_keep(uint8_t *mark)
{
	const bool kept = *mark & SYNC_KEPT;
	*mark |= SYNC_KEPT;
	return kept ? SYNC_DONE : SYNC_NEW;
}

/* Keeps a session that this master serves. If the peer received a later packet of it, both were
 * masters for a while: adopt the later state. */
static void session_defend(struct incoming *i, uint32_t record)
{
	const uint16_t now = (uint16_t)balance_seconds(i->w);
	if (i->in.idle_s >= session_idle(session_at(i->t, record), now))
		return;
	session_update(i, record);
	synced_change(i->w, i->t->slot, record);
}

static enum sync_result session_delete(struct incoming *i)
{
	uint32_t record;
	uint8_t *mark = identity_mark(i, &record);
	if (!mark || (*mark & SYNC_OWNER) != i->node)
		return SYNC_MISSING;
	const bool kept = *mark & SYNC_KEPT;
	*mark &= (uint8_t)~SYNC_KEPT; /* the caller updates the sum */
	if (i->in.transferred && group_is_ecmp(i->p->b)) {
		*mark = 0;              /* away, owner unknown: whoever has it will put it */
	} else if (i->in.transferred) { /* both transferred it to each other: serve it again */
		*mark = 0;
		synced_change(i->w, i->t->slot, record);
	} else {
		session_end(i->w, i->t, record);
	}
	return kept ? SYNC_DONE : SYNC_NEW;
}

/* One-packet sessions are not replicated: their index hashes differ. */
static bool is_one_packet(const struct incoming *i)
{
	return i->p->b->endpoint[i->in.hot[0].server].proto == SY_PROTO_UDP &&
	       i->in.hot[0].flags & SESSION_ONE_PACKET;
}

/* Returns true if a session of this kind can have the entry's state. */
static bool change_fits(const struct incoming *i, uint32_t record)
{
	const struct session *s = session_at(i->t, record);
	struct session as[2] = {*s};
	if (session_is_pair(i->t, record))
		as[1] = s[1];
	as->state = i->in.hot[0].state;
	as->flags = i->in.hot[0].flags;
	return !is_one_packet(i) && session_fits(i->p->b, as, session_cold_at(i->t, record));
}

static enum sync_result session_change(struct incoming *i)
{
	uint32_t record;
	uint8_t *mark = identity_mark(i, &record);
	if (!mark)
		return SYNC_MISSING;
	if (!change_fits(i, record)) {
		refuse(i, PEERS_REFUSED_MALFORMED);
		return SYNC_MISSING;
	}
	if ((*mark & SYNC_OWNER) == i->node) {
		session_update(i, record);
		return mark_keep(mark);
	}
	if (!(*mark & SYNC_OWNER) && is_master(i->p))
		session_defend(i, record);
	return SYNC_MISSING;
}

/* Returns true if this node transfers its own session to the sender. Of two backups that both have
 * a session, the one with the lower number keeps it; of two nodes of an ECMP group, the one with
 * the later packet does, and of equals likewise. A take-over looks like a packet, but is none. */
static bool is_transferred(const struct incoming *i, uint32_t record)
{
	const bool lower = i->node < i->p->options.node;
	if (!i->p->options.is_ecmp)
		return !is_master(i->p) && (i->in.from_master || lower);
	const struct session *s = session_at(i->t, record);
	const uint16_t idle = session_idle(s, (uint16_t)balance_seconds(i->w));
	if (i->in.unused != session_is_unused(i->p->b, i->w, i->t->slot, record, s))
		return !i->in.unused;
	return i->in.idle_s < idle || (i->in.idle_s == idle && lower);
}

/* Another node of the ECMP group serves the session that the sender has put. The refusal is in no
 * sum, so copies repeat the put until the sender has transferred the session. */
static enum sync_result put_refuse_owned(struct incoming *i, uint32_t record, uint8_t owner)
{
	const struct session *s = session_at(i->t, record);
	const struct sy_balance *b = i->p->b;
	uint8_t entry[SYNC_ENTRY];
	i->given.idle_s = session_idle(s, (uint16_t)balance_seconds(i->w));
	i->given.unused = session_is_unused(b, i->w, i->t->slot, record, s);
	sync_session_write(&i->given, SYNC_PUT, peers_is_by_local(b->endpoint[s->server].mode),
	                   entry);
	sync_lane_owned(i->p->node, i->w->id, (uint8_t)i->node, i->t->slot, owner, entry);
	return SYNC_MISSING;
}

static enum sync_result put_refuse_own(struct incoming *i, uint32_t record)
{
	refuse(i, PEERS_REFUSED_OWN);
	return group_is_ecmp(i->p->b) ? put_refuse_owned(i, record, i->p->options.node)
	                              : SYNC_REFUSED;
}

#define OWNER_LATER 5 /* seconds */

/* Does another living node of the ECMP group serve the replica, and keep it? Two nodes serve a
 * session if one of them was silent for a moment. This node, to which both put it, decides: for the
 * one that it knows already, unless the other one has used the session clearly later. */
static bool is_of_other(const struct incoming *i, uint32_t record)
{
	const uint8_t owner = *session_mark_at(i->p->b, i->t->slot, record) & SYNC_OWNER;
	const uint16_t now = (uint16_t)balance_seconds(i->w);
	return group_is_ecmp(i->p->b) && owner && owner != i->node &&
	       sync_node_is_alive(i->p->node, owner, i->w->now_ns) &&
	       (i->in.unused ||
	        i->in.idle_s + OWNER_LATER >= session_idle(session_at(i->t, record), now));
}

/* Ends another session that has one of the tuples. Returns false if this node keeps it: it serves
 * the session, or another living node does. */
static bool rival_end(struct incoming *i, uint32_t record)
{
	if (record == SESSION_NONE)
		return true;
	if (is_own(i, record) ? !is_transferred(i, record) : is_of_other(i, record))
		return false;
	session_end(i->w, i->t, record);
	return true;
}

/* Returns true if the record is the same session, not an earlier one with the same tuples. */
static bool is_same(const struct incoming *i, uint32_t record)
{
	const struct session *s = session_at(i->t, record), *in = i->in.hot;
	const bool pair = session_is_pair(i->t, record);
	return s->server == in->server && s->local == in->local &&
	       s->local_port == in->local_port && pair == i->in.is_pair &&
	       (!pair || (sy_addr_equal(&s[1].client, &in[1].client) &&
	                  s[1].client_port == in[1].client_port));
}

static enum sync_result put_checked(struct incoming *i)
{
	struct sy_balance *b = i->p->b;
	const unsigned slot = i->t->slot;
	const uint32_t by_client = tuple_find(i, &i->client, SESSION_CLIENT);
	const uint32_t by_server =
	        i->server.proto ? tuple_find(i, &i->server, SESSION_SERVER) : by_client;
	uint32_t record = by_client;
	if (by_client != SESSION_NONE && by_client == by_server && is_same(i, record)) {
		uint8_t *mark = session_mark_at(b, slot, record);
		if (is_own(i, record) && !is_transferred(i, record)) {
			if (is_master(i->p))
				session_defend(i, record);
			return put_refuse_own(i, record);
		}
		if (is_of_other(i, record))
			return put_refuse_owned(i, record, *mark & SYNC_OWNER);
		const bool counted = session_counts(b, slot, record);
		if (session_is_away(session_at(i->t, record)) && !(*mark & SYNC_OWNER))
			*mark = (uint8_t)i->node;
		else if ((*mark & SYNC_OWNER) != i->node)
			sync_node_transfer(b->sync, slot, record, (uint8_t)i->node);
		session_update(i, record);
		session_recount(b, slot, record, counted);
		return mark_keep(mark);
	}
	if (!rival_end(i, by_client) || (by_server != by_client && !rival_end(i, by_server)))
		return refuse(i, PEERS_REFUSED_OWN);
	record = session_add(i);
	if (record == SESSION_NONE) {
		i->p->full_at[slot] = session_capacity(i->t);
		__atomic_store_n(&i->t->refused, i->t->refused + 1,
		                 __ATOMIC_RELAXED); /* makes the table grow */
		return refuse(i, PEERS_REFUSED_FULL);
	}
	if (is_master(i->p)) { /* serve it: a backup began it, or this node has lost it */
		synced_change(i->w, slot, record);
		return SYNC_REFUSED; /* not stored as a replica */
	}
	*session_mark_at(b, slot, record) = (uint8_t)(i->node | SYNC_KEPT);
	session_recount(b, slot, record, true);
	return SYNC_NEW;
}

/* Can the entry, whose ids are this node's, be a session of its server? */
static bool incoming_fits(struct incoming *i)
{
	i->in.hot[1].state = i->in.is_pair ? SESSION_PAIR_RECORD : SESSION_FREE;
	return session_fits(i->p->b, i->in.hot, i->in.cold);
}

static enum sync_result session_put(struct incoming *i)
{
	const struct sy_balance *b = i->p->b;
	struct session *s = i->in.hot;
	const struct endpoint *e = &b->endpoint[s->server];
	if (is_one_packet(i) || !incoming_fits(i) ||
	    sy_slot_of(&s->client, s->client_port) != i->t->slot ||
	    (i->server.proto && sy_slot_of(&i->server.dst, i->server.dport) != i->t->slot))
		return refuse(i, PEERS_REFUSED_MALFORMED);
	if (SY_READ(e->removed) || !endpoint_service(b, e))
		return refuse(i, PEERS_REFUSED_SERVER);
	if (s->local != LOCAL_NONE && SY_READ(b->local_removed[s->local]))
		return refuse(i, PEERS_REFUSED_LOCAL);
	return put_checked(i);
}

static enum sync_result session_apply(struct incoming *i, const uint8_t *entry, uint64_t *hash)
{
	const uint8_t kind = ((const struct sync_entry_head *)entry)->kind;
	uint32_t own, local;
	if (!sync_session_read(entry, &i->in))
		return SYNC_INVALID;
	if (group_is_ecmp(i->p->b))
		i->given = i->in;
	const enum sync_result result = translate(i, &own, &local, hash);
	if (result != SYNC_DONE)
		return result;
	if (own == NAMES_NONE || local == NAMES_NONE) {
		if (kind != SYNC_PUT)
			return SYNC_MISSING;
		return refuse(i, own == NAMES_NONE ? PEERS_REFUSED_SERVER : PEERS_REFUSED_LOCAL);
	}
	if (i->p->b->endpoint[own].proto == SY_PROTO_TCP)
		i->in.hot[0].flags &= (uint8_t)~SESSION_WATCHED;
	i->in.hot[0].server = own & 0xffffff;
	i->in.hot[0].local = (uint8_t)local;
	tuples_set(i);
	switch (kind) {
	case SYNC_PUT:
		return session_put(i);
	case SYNC_CHANGE:
		return session_change(i);
	default:
		return session_delete(i);
	}
}

static enum sync_result sink_apply(void *context, unsigned node, unsigned slot,
                                   const uint8_t *entry, uint64_t *hash)
{
	struct peers *p = context;
	if (slot == SYNC_DICTIONARY)
		return names_apply(&p->names, node, entry, hash);
	struct incoming i = {
	        .p = p, .w = peers_worker_of(p, slot), .t = p->b->table[slot], .node = node};
	const enum sync_result result = session_apply(&i, entry, hash);
	if (result == SYNC_INVALID)
		refuse(&i, PEERS_REFUSED_MALFORMED);
	/* A repeated put that is refused again: it is in the sum of refused ones already. */
	return result == SYNC_REFUSED && i.in.known ? SYNC_MISSING : result;
}

/* The entry's ids are this node's. */
static void sink_owned(void *context, unsigned owner, unsigned slot, const uint8_t *entry,
                       bool decided)
{
	struct peers *p = context;
	struct sy_balance *b = p->b;
	if (slot == SYNC_DICTIONARY || !group_is_ecmp(b))
		return;
	struct incoming i = {
	        .p = p, .w = peers_worker_of(p, slot), .t = b->table[slot], .node = owner};
	if (!sync_session_read(entry, &i.in) || i.in.hot[0].server >= b->options.max_servers ||
	    !i.in.has_client || !incoming_fits(&i))
		return;
	tuples_set(&i);
	const uint32_t record = identity_find(&i);
	if (record == SESSION_NONE || !is_own(&i, record) ||
	    !(decided ? sync_node_is_alive(p->node, (uint8_t)owner, i.w->now_ns)
	              : is_transferred(&i, record)))
		return;
	const struct session *s = session_at(i.t, record);
	const bool embryonic = session_state_is_embryonic(s->state);
	const uint8_t state = s->state;
	sync_node_transfer(b->sync, slot, record, (uint8_t)owner);
	state_set(&i, record, state);
	session_recount(b, slot, record, true);
	pressure_change(i.w, i.t, record, embryonic);
	synced_poll_soon(i.w);
}

/* ---- copies, sums, claims -------------------------------------------------------------------- */

static void sink_copy_begin(void *context, unsigned node, unsigned slot)
{
	struct peers *p = context;
	if (slot == SYNC_DICTIONARY) {
		names_copy_begin(&p->names, node);
		return;
	}
	uint8_t *mark = session_mark_at(p->b, slot, 0);
	for (uint32_t i = 0; i < p->b->table[slot]->top; i++)
		if ((mark[i] & SYNC_OWNER) == node)
			mark[i] &= (uint8_t)~SYNC_KEPT;
}

static void sink_copy_end(void *context, unsigned node, unsigned slot)
{
	struct peers *p = context;
	if (slot == SYNC_DICTIONARY) {
		names_copy_end(&p->names, node);
		return;
	}
	uint8_t *mark = session_mark_at(p->b, slot, 0);
	const uint32_t epoch = SY_READ(sync_node_peer(p->node, (uint8_t)node)->epoch);
	const bool restarted = group_is_ecmp(p->b) && p->copied_epoch[node][slot] != epoch;
	p->copied_epoch[node][slot] = epoch;
	for (uint32_t i = 0; i < p->b->table[slot]->top; i++) {
		if ((mark[i] & (SYNC_OWNER | SYNC_KEPT)) != node)
			continue;
		if (restarted) /* it has lost them: this node takes them over */
			mark[i] = 0;
		else
			session_end(peers_worker_of(p, slot), p->b->table[slot], i);
	}
}

struct sync_sink peers_sink(struct peers *p)
{
	return (struct sync_sink){
	        .context = p,
	        .apply = sink_apply,
	        .owned = sink_owned,
	        .copy_begin = sink_copy_begin,
	        .copy_end = sink_copy_end,
	};
}

/* Turns a replica into an own session. Sets its last use to now, so that it does not expire early.
 */
static void replica_claim(struct sy_worker *w, unsigned slot, uint32_t record)
{
	struct sy_balance *b = w->app;
	struct session *s = session_at(b->table[slot], record);
	*session_mark_at(b, slot, record) = 0;
	session_touch(s, s->seen, (uint16_t)balance_seconds(w));
	synced_change(w, slot, record);
}

/* Returns true if the node has just started as a backup: it does not serve the sessions that this
 * node keeps for it, and may have lost them. */
static bool is_resigned(const struct peers *p, uint8_t node, unsigned slot)
{
	const struct sync_peer *peer = sync_node_peer(p->node, node);
	return sync_node_replica(p->node, node, slot)->epoch != SY_READ(peer->epoch) &&
	       SY_READ(peer->role) == SYNC_ROLE_BACKUP;
}

struct sync_sum peers_stored(void *peers, uint8_t node, unsigned slot)
{
	struct peers *p = peers;
	struct sync_sum sum = {0};
	if (slot == SYNC_DICTIONARY)
		return names_stored(&p->names, node);
	uint8_t *mark = session_mark_at(p->b, slot, 0);
	const bool claim = is_resigned(p, node, slot);
	for (uint32_t i = 0; i < p->b->table[slot]->top; i++) {
		if ((mark[i] & SYNC_OWNER) != node)
			continue;
		if (claim) {
			replica_claim(peers_worker_of(p, slot), slot, i);
			continue;
		}
		mark[i] |= SYNC_KEPT;
		sync_sum_add(&sum, peers_identity_at(p, slot, i));
	}
	return sum;
}

void peers_claim(struct sy_worker *w, unsigned slot)
{
	struct sy_balance *b = w->app;
	const struct session_table *t = b->table[slot];
	uint8_t *mark = session_mark_at(b, slot, 0);
	sync_node_claim(b->sync, slot);
	for (uint32_t i = 0; i < t->top; i++) {
		if (mark[i] & SYNC_OWNER)
			replica_claim(w, slot, i);
	}
}
