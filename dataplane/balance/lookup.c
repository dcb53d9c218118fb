// SPDX-License-Identifier: Apache-2.0
/* look up: tags, records, verification; established packets go to the fast path. */
#include "balance.h"

/* By enum session_direction, a bit a state: its packets may take the fast path. */
static const uint32_t fast_states[] = {
        [SESSION_CLIENT] =
                1u << SESSION_ESTABLISHED | 1u << SESSION_UDP_BOTH_WAYS | 1u << SESSION_UDP_ONE_WAY,
        [SESSION_SERVER] = 1u << SESSION_ESTABLISHED | 1u << SESSION_UDP_BOTH_WAYS,
};

/* May this packet take the fast path? Only what is plain and changes no state may. */
static inline bool lookup_is_fast(const struct sy_balance *b, const struct session *s,
                                  enum session_direction from, const struct sy_burst *burst,
                                  unsigned i)
{
	const struct endpoint *e = &b->endpoint[s->server];
	return burst->plain[i] && fast_states[from] >> s->state & 1 &&
	       !(burst->view[i].tcp_flags & (SY_TCP_SYN | SY_TCP_FIN | SY_TCP_RST)) &&
	       !(s->flags & SESSION_UNTOLD) &&
	       /* of dead and lost sessions none of these is 0 */
	       !(SY_READ(e->dead) | SY_READ(e->down) | SY_READ(b->local_removed[s->local]));
}

void sy_lookup_stage(struct sy_worker *w, struct sy_burst *burst)
{
	struct sy_balance *b = w->app;

	/* Their buckets are here. */
	for (unsigned i = 0; i < burst->count; i++)
		if (SY_LIKELY(burst->next[i] == SY_NEXT_LOOKUP))
			burst->session[i] = session_guess(b->table[burst->slot[i]], burst->hash[i]);

	/* One in six lies in its other bucket. */
	for (unsigned i = 0; i < burst->count; i++)
		if (burst->session[i] == SESSION_NONE && burst->next[i] == SY_NEXT_LOOKUP)
			burst->session[i] =
			        session_guess_other(b->table[burst->slot[i]], burst->hash[i]);

	/* Their records are here. */
	for (unsigned i = 0; i < burst->count; i++) {
		if (burst->next[i] != SY_NEXT_LOOKUP)
			continue;
		const struct session_table *t = b->table[burst->slot[i]];
		const struct match_context ctx = {b, t, &burst->view[i].tuple};
		enum session_direction from = burst->direction[i];
		uint32_t record = session_find_guessed(t, burst->session[i], burst->hash[i],
		                                       match_session, &ctx, &from);
		burst->session[i] = record;
		burst->next[i] = SY_NEXT_SLOW;
		if (SY_UNLIKELY(record == SESSION_NONE))
			continue;
		burst->direction[i] = from;
		if (SY_LIKELY(lookup_is_fast(b, session_at(t, record), from, burst, i)))
			burst->next[i] = SY_NEXT_FAST;
	}
}
