// SPDX-License-Identifier: Apache-2.0
/* look up: tags; the records that they point to are on their way when the next stage asks. */
#include "balance.h"

void sy_lookup_stage(struct sy_worker *w, struct sy_burst *burst)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	uint8_t missed[SY_BURST];
	unsigned misses = 0;

	/* Plain loops of few instructions: while one packet waits, the next ones begin. */
	for (unsigned i = 0; i < burst->count; i++) {
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP))
			continue;
		const struct sy_tuple *tuple = &burst->view[i].tuple;
		burst->hash[i] = SY_LIKELY(burst->view[i].v4) ? sy_hash_tuple_v4(&b->key, tuple)
		                                              : sy_hash_tuple(&b->key, tuple);
		SY_COUNT(bw->slot_packets[burst->slot[i]], 1);
	}
	/* A prefetch waits for its address's translation, and what is behind it for its turn: only
	 * with nothing in between do the next ones begin meanwhile. */
	for (unsigned i = 0; i < burst->count; i++) {
		const struct session_table t = session_table_of(&b->space, burst->slot[i]);
		if (SY_LIKELY(burst->next[i] == SY_NEXT_LOOKUP))
			session_prefetch_bucket(&t, burst->hash[i]);
	}

	/* Their buckets are here. */
	for (unsigned i = 0; i < burst->count; i++) {
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP))
			continue;
		const struct session_table t = session_table_of(&b->space, burst->slot[i]);
		burst->session[i] = session_guess(&t, burst->hash[i]);
		if (SY_UNLIKELY(burst->session[i] == SESSION_NONE))
			missed[misses++] = (uint8_t)i;
	}
	/* One in six lies in its other bucket. */
	for (unsigned k = 0; k < misses; k++) {
		unsigned i = missed[k];
		const struct session_table t = session_table_of(&b->space, burst->slot[i]);
		burst->session[i] = session_guess_other(&t, burst->hash[i]);
	}
}
