// SPDX-License-Identifier: Apache-2.0
/* Ends sessions: at a packet (slow.c), by expiry (sweep.c), or to free a record or a local port
 * (evict.c, create.c). */
#include "end.h"

#include "away.h"
#include "client_sessions.h"
#include "opening_queue.h"
#include "pressure.h"
#include "reset.h"
#include "strict.h"
#include "synced.h"

uint64_t session_client_hash(const struct session *s, uint64_t tuple_hash, uint64_t server_hash)
{
	return session_is_one_packet(s) ? sy_hash_mix(server_hash, UINT64_C(0x9fb21c651e98df25))
	                                : tuple_hash;
}

struct session_hashes session_get_hashes(const struct sy_balance *b, const struct session *s,
                                         const struct session_cold *cold)
{
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_tuple client = session_client_tuple(s, cold, e);
	const struct sy_tuple server = session_server_tuple(b, s, cold, e);
	uint64_t server_hash =
	        endpoint_is_one_way(e) ? SESSION_ONE_WAY : sy_hash_tuple(&b->key, &server);
	return (struct session_hashes){
	        session_client_hash(s, sy_hash_tuple(&b->key, &client), server_hash), server_hash};
}

static void end_hashed(struct sy_worker *w, struct session_table *t, uint32_t record,
                       const struct session_hashes *h)
{
	struct session *s = session_at(t, record);
	struct balance_worker *bw = balance_worker_of(w);
	const struct sy_balance *b = w->app;
	const bool counts = session_counts(b, t->slot, record);
	if (SY_LIKELY(!session_is_replica(b, t->slot, record)))
		reset_time_wait(w, s, session_cold_at(t, record));
	synced_end(w, t->slot, record);
	if (SY_UNLIKELY(s->state == SESSION_OPENING))
		opening_queue_drop(w, t->slot, record);
	if (SY_UNLIKELY(bw->strict->count))
		strict_forget(w, t->slot, record);
	pressure_end(w, t, record);
	if (SY_UNLIKELY(SY_RCU_READ(b->client_counts) != NULL))
		client_sessions_end(w, t, record);
	SY_COUNT(bw->share[s->server].traffic.ended, 1);
	bw->ended++;
	if (SY_LIKELY(counts))
		load_release(w->app, s->server);
	session_remove(t, record, h->client, h->server);
}

void session_end(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	const struct session_hashes h =
	        session_get_hashes(w->app, session_at(t, record), session_cold_at(t, record));
	end_hashed(w, t, record, &h);
}

void sessions_end(struct sy_worker *w, struct session_table *t, const uint32_t *record,
                  unsigned count)
{
	struct session_hashes h[SESSIONS_END];
	for (unsigned i = 0; i < count; i++)
		__builtin_prefetch(session_cold_at(t, record[i]), 1);
	for (unsigned i = 0; i < count; i++)
		h[i] = session_get_hashes(w->app, session_at(t, record[i]),
		                          session_cold_at(t, record[i]));
	for (unsigned i = 0; i < count; i++) {
		session_prefetch_bucket(t->index, h[i].client);
		session_prefetch_bucket(t->index, h[i].server);
	}
	for (unsigned i = 0; i < count; i++)
		end_hashed(w, t, record[i], &h[i]);
}
