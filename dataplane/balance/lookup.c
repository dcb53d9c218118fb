// SPDX-License-Identifier: Apache-2.0
/* look up: tags, records, verification; established packets go to the fast path. */
#include "balance.h"

/* May this packet take the fast path? Only what changes no state may. */
static inline bool lookup_is_fast(const struct session *s, enum session_direction from,
                                  uint8_t tcp_flags)
{
	switch (s->state) {
	case SESSION_ESTABLISHED:
		return !((tcp_flags & (SY_TCP_SYN | SY_TCP_FIN | SY_TCP_RST)) |
		         (s->flags & SESSION_UNTOLD));
	case SESSION_UDP_BOTH_WAYS:
		return true;
	case SESSION_UDP_ONE_WAY:
		return from == SESSION_CLIENT;
	default:
		return false;
	}
}

void sy_lookup_stage(struct sy_worker *w, struct sy_burst *burst)
{
	struct sy_balance *b = w->app;

	for (unsigned i = 0; i < burst->count; i++)
		if (burst->next[i] == SY_NEXT_LOOKUP)
			session_prefetch_record(b->table[burst->slot[i]], burst->hash[i]);

	for (unsigned i = 0; i < burst->count; i++) {
		if (burst->next[i] != SY_NEXT_LOOKUP)
			continue;
		const struct session_table *t = b->table[burst->slot[i]];
		const struct match_context ctx = {b, t, &burst->view[i].tuple};
		enum session_direction from = burst->direction[i];
		uint32_t record = session_find(t, burst->hash[i], match_session, &ctx, &from);
		burst->session[i] = record;
		burst->next[i] = SY_NEXT_SLOW;
		if (record == SESSION_NONE)
			continue;
		burst->direction[i] = from;
		const struct session *s = session_at(t, record);
		if (lookup_is_fast(s, from, burst->view[i].tcp_flags) && !session_is_dead(b, s) &&
		    !session_is_lost(b, s, from))
			burst->next[i] = SY_NEXT_FAST;
	}
}
