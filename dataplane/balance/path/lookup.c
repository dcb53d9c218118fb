// SPDX-License-Identifier: Apache-2.0
/* look up: tags; the records that they point to are on their way when the next stage asks. */
#include "balance.h"

void sy_lookup_stage(struct sy_worker *w, struct sy_burst *burst)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	const struct session_bucket *bucket[SY_BURST];
	uint8_t missed[SY_BURST];
	unsigned misses = 0;

	/* Plain loops of few instructions: while one packet waits, the next ones begin. A prefetch
	 * waits for its address's translation, and what is behind it for its turn: only with
	 * nothing in between do the next ones begin meanwhile. */
	for (unsigned i = 0; i < burst->count; i++) {
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP))
			continue;
		bucket[i] = session_space_bucket(&b->space, burst->slot[i], burst->hash[i]);
		SESSION_PREFETCH(bucket[i]);
	}

	/* They are here. */
	for (unsigned i = 0; i < burst->count; i++) {
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP))
			continue;
		uint8_t slot = burst->slot[i];
		const struct session_table t = session_table_of(&b->space, slot);
		uint32_t entry = session_guess_in(&t, bucket[i], burst->hash[i]);
		SY_COUNT(bw->slot_packets[slot], 1);
		burst->session[i] = entry;
		if (SY_UNLIKELY(entry == SESSION_NONE))
			missed[misses++] = (uint8_t)i;
	}
	/* One in six lies in its other bucket. */
	for (unsigned k = 0; k < misses; k++) {
		unsigned i = missed[k];
		const struct session_table t = session_table_of(&b->space, burst->slot[i]);
		burst->session[i] = session_guess_other(&t, burst->hash[i]);
	}
}
