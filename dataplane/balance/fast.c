// SPDX-License-Identifier: Apache-2.0
/* fast path: established hits. Rewrite, note the time, count. Nothing else. */
#include "balance.h"

void sy_fast_stage(struct sy_worker *w, struct sy_burst *burst)
{
	struct sy_balance *b = w->app;

	for (unsigned i = 0; i < burst->count; i++) {
		if (burst->next[i] != SY_NEXT_FAST)
			continue;
		const struct sy_view *v = &burst->view[i];
		struct session *s = session_at(b->table[burst->slot[i]], burst->session[i]);
		uint16_t path = forward_path(w, s, burst->direction[i]);
		/* What a router must answer with ICMP, or cannot route, is for the slow path. */
		if (SY_UNLIKELY(path == SY_PATH_NONE ||
		                v->frame_len - v->l3 +
		                                b->endpoint[s->server].growth[burst->direction[i]] >
		                        sy_path_mtu(b->rt, path) ||
		                sy_packet_ttl(sy_frame(burst->mbuf[i]), v) <= 1)) {
			burst->next[i] = SY_NEXT_SLOW;
			continue;
		}
		burst->path[i] = path;
		forward_packet(w, burst, i, s);
	}
}
