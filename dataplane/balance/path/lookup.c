// SPDX-License-Identifier: Apache-2.0
/* The second stage, sy_lookup_stage(): finds an index entry with each packet's tag, and prefetches
 * the session record that fast.c will verify. */
#include "access_check.h"

void sy_lookup_stage(struct sy_worker *w, struct sy_burst *burst)
{
	const struct session_index *index = ((const struct sy_balance *)w->app)->index;
	struct balance_worker *bw = balance_worker_of(w);
	const struct session_bucket *bucket[SY_BURST];
	uint8_t missed[SY_BURST];
	unsigned misses = 0;

	/* Short loops: while one packet's load waits for memory, the next packets' loads start. A
	 * prefetch occupies its slot until its address is translated, so nothing but prefetches
	 * runs in between. */
	for (unsigned i = 0; i < burst->count; i++) {
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP))
			continue;
		bucket[i] = session_bucket_first(&index[burst->slot[i]], burst->hash[i]);
		SESSION_PREFETCH(bucket[i]);
	}

	/* The buckets are cached now. */
	for (unsigned i = 0; i < burst->count; i++) {
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP))
			continue;
		uint8_t slot = burst->slot[i];
		const struct session_index *x = &index[slot];
		uint32_t entry = session_guess_in(x, bucket[i], burst->hash[i]);
		SY_COUNT(bw->slot_packets[slot], 1);
		burst->session[i] = entry;
		if (SY_UNLIKELY(entry == SESSION_NONE))
			missed[misses++] = (uint8_t)i;
	}
	/* In a full table, one session in six is in its other bucket. */
	for (unsigned k = 0; k < misses; k++) {
		unsigned i = missed[k];
		const struct session_index *x = &index[burst->slot[i]];
		burst->session[i] = session_guess_other(x, burst->hash[i]);
	}
	burst_state_reset(&bw->burst);
	if (misses && SY_UNLIKELY(SY_RCU_READ(((const struct sy_balance *)w->app)->access)))
		access_lookup_begin(w, burst, missed, misses);
}
