// SPDX-License-Identifier: Apache-2.0
/* The session tables as a struct sync_source: describes this node's sessions to the peer. */
#include "peers.h"

#include "away.h"
#include "pressure.h"
#include "sync_session.h"
#include "synced.h"

struct sy_worker *peers_worker_of(const struct peers *p, unsigned slot)
{
	return sy_worker_at(p->b->rt, sy_slot_worker(p->b->rt, (uint8_t)slot));
}

/* ---- identity -------------------------------------------------------------------------------- */

bool peers_is_by_local(uint8_t mode)
{
	return mode == MODE_FNAT;
}

uint64_t peers_identity(const struct peers *p, const struct names_server *server,
                        const struct sy_addr *local, const struct session hot[2],
                        const struct session_cold *cold)
{
	struct sy_tuple t = {.src = hot->client, .sport = hot->client_port, .proto = server->proto};
	if (peers_is_by_local(server->mode)) {
		t.src = server->addr;
		t.sport = server->port ? server->port : cold->vport;
		t.dst = *local;
		t.dport = hot->local_port;
		return sy_hash_tuple(&p->key, &t);
	}
	if (server->mode == MODE_SNAT) {
		t.dst = hot[1].client;
		t.dport = hot[1].client_port;
		return sy_hash_tuple(&p->key, &t);
	}
	t.dst = server->vip;
	t.dport = server->vport && !server->last_port ? server->vport : cold->vport;
	/* include the server: the client may have reused the tuple with another one */
	return sy_hash_mix(sy_hash_tuple(&p->key, &t) ^ server->addr.d[0],
	                   server->addr.d[1] ^ p->key.k[0]);
}

static const struct sy_addr *local_of(const struct sy_balance *b, const struct session *s)
{
	return s->local == LOCAL_NONE ? NULL : &b->local[s->local];
}

uint64_t peers_identity_at(const struct peers *p, unsigned slot, uint32_t record)
{
	const struct session_table *t = p->b->table[slot];
	const struct session *s = session_at(t, record);
	const struct names_server name = names_of(&p->b->endpoint[s->server]);
	return peers_identity(p, &name, local_of(p->b, s), s, session_cold_at(t, record));
}

/* ---- description ----------------------------------------------------------------------------- */

/* Returns true if the session is to be replicated now. Answers of a one-way service are not
 * visible: there a UDP session is replicated once its client has sent repeatedly. now: of
 * balance_seconds(). */
static bool is_due(const struct sy_balance *b, const struct session *s,
                   const struct session_cold *cold, uint32_t now, bool known)
{
	const uint32_t begun = 1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT |
	                       1u << SESSION_CLOSING | 1u << SESSION_TIME_WAIT |
	                       1u << SESSION_UDP_BOTH_WAYS | 1u << SESSION_RESET_BY_CLIENT |
	                       1u << SESSION_RESET_BY_SERVER;
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	if (session_is_one_packet(s) || s->state == SESSION_AWAY)
		return false;
	if (known)
		return true;
	if (!service || service->policy.sync == SYNC_OFF)
		return false;
	if (synced_at_creation(b, service, e))
		return s->state != SESSION_OPENING;
	if (session_age(cold, now) < service->policy.sync_older_than)
		return false;
	return begun >> s->state & 1 || (service->one_way && s->state == SESSION_UDP_ONE_WAY &&
	                                 pressure_is_repeated(s, cold));
}

/* Fills *out from the record, and stores the hash of the session's identity. */
static void describe(const struct peers *p, unsigned slot, uint32_t record,
                     struct sync_session *out, uint64_t *hash)
{
	const struct sy_balance *b = p->b;
	const struct session_table *t = b->table[slot];
	const struct session *s = session_at(t, record);
	const struct session_cold *cold = session_cold_at(t, record);
	const struct names_server name = names_of(&b->endpoint[s->server]);
	const struct sy_addr *local = local_of(b, s);
	const uint32_t now = balance_seconds(peers_worker_of(p, slot));
	*out = (struct sync_session){
	        .hot = {*s},
	        .cold = {*cold},
	        .meaning = names_meaning(&name, local),
	        .idle_s = session_idle(s, (uint16_t)now),
	        .age_s = session_age(cold, now),
	        .is_pair = session_is_pair(t, record),
	        .has_client = true,
	};
	*hash = peers_identity(p, &name, local, s, cold);
	out->hot[0].flags = synced_flags(s, name.proto);
	if (out->is_pair) {
		out->hot[1] = s[1];
		out->cold[1] = cold[1];
	}
}

static bool source_describe(void *context, unsigned slot, uint32_t record, bool known,
                            uint8_t entry[static SYNC_ENTRY], uint64_t *hash)
{
	struct peers *p = context;
	struct sync_session session;
	if (slot == SYNC_DICTIONARY)
		return names_describe(&p->names, record, entry, hash);
	const struct session *s = session_at(p->b->table[slot], record);
	const struct endpoint *e = &p->b->endpoint[s->server];
	const uint32_t now = balance_seconds(peers_worker_of(p, slot));
	if (s->state == SESSION_FREE || s->state == SESSION_PAIR_RECORD ||
	    !is_due(p->b, s, session_cold_at(p->b->table[slot], record), now, known))
		return false;
	describe(p, slot, record, &session, hash);
	session.known = known;
	session.from_master = SY_READ(p->role) == SYNC_ROLE_MASTER;
	session.unused = group_is_ecmp(p->b) &&
	                 session_is_unused(p->b, peers_worker_of(p, slot), slot, record, s);
	sync_session_write(&session, known && !session.is_pair ? SYNC_CHANGE : SYNC_PUT,
	                   peers_is_by_local(e->mode), entry);
	return true;
}

static void source_describe_end(void *context, unsigned slot, uint32_t record, bool transferred,
                                uint8_t entry[static SYNC_ENTRY], uint64_t *hash)
{
	struct peers *p = context;
	struct sync_session session;
	if (slot == SYNC_DICTIONARY) {
		names_describe_end(record, entry, hash);
		return;
	}
	describe(p, slot, record, &session, hash);
	session.transferred = transferred;
	sync_session_write(&session, SYNC_DELETE,
	                   peers_is_by_local(p->b->endpoint[session.hot[0].server].mode), entry);
}

static uint32_t source_next(void *context, unsigned slot, uint32_t record)
{
	struct peers *p = context;
	return slot == SYNC_DICTIONARY ? names_next(&p->names, record)
	                               : session_next(p->b->table[slot], &record);
}

static uint8_t *source_marks(void *context, unsigned slot, uint8_t peer, uint32_t *count)
{
	struct peers *p = context;
	/* records from the table's top on were never used */
	*count = slot == SYNC_DICTIONARY ? p->names.count : p->b->table[slot]->top;
	return slot == SYNC_DICTIONARY ? p->names.peer[peer]->mark : session_mark_at(p->b, slot, 0);
}

struct sync_source peers_source(struct peers *p)
{
	return (struct sync_source){
	        .context = p,
	        .describe = source_describe,
	        .describe_end = source_describe_end,
	        .next = source_next,
	        .marks = source_marks,
	};
}
