// SPDX-License-Identifier: Apache-2.0
/* Packets of other workers' slots, for classify: remote_classify() looks them up in the owner's
 * table, and forwards them by its record or steers them to the owner. */
#include "remote.h"

#include <stdlib.h>

#include "client_options.h"
#include "forward.h"
#include "police.h"
#include "session_hot.h"

#define GROUP 16
/* Bits that distinguish the flows of a slot: only packets of one flow wait for each other. */
#define FLOW_BITS 4

struct remote {
	/* By slot and flow: sy_steer_position() after the last steered packet. */
	uint32_t steered[SY_SLOTS << FLOW_BITS];
	uint32_t left[SY_MAX_WORKERS]; /* by owner, when last read */
};

int remote_create(struct remote **out, unsigned workers)
{
	if (workers < 2 || !hot_is_shared())
		return 0;
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

void remote_destroy(struct remote *r)
{
	free(r);
}

/* ---- order: a flow's packets leave as they came ---------------------------------------------- */

static inline uint32_t *remote_position(struct remote *r, const struct sy_burst *burst, unsigned i)
{
	/* hash bits that the index does not use */
	unsigned flow = (unsigned)(burst->hash[i] >> 16) & ((1u << FLOW_BITS) - 1);
	return &r->steered[(unsigned)burst->slot[i] << FLOW_BITS | flow];
}

/* Positions are modulo 2^32. One that was not checked for long must not appear to be ahead. */
#define POSITIONS_APART (UINT32_C(1) << 30)

static void remote_steer(struct sy_worker *w, struct remote *r, struct sy_burst *burst, unsigned i)
{
	unsigned owner = sy_slot_worker(w->rt, burst->slot[i]);
	sy_burst_steer(w, burst, i);
	uint32_t position = sy_steer_position(w, owner);
	*remote_position(r, burst, i) = position;
	if (SY_UNLIKELY(position - r->left[owner] > POSITIONS_APART))
		r->left[owner] = sy_steer_left(w, owner);
}

/* Has the owner sent all steered packets of this flow? Reads the owner's cache line only if some
 * were still queued at the last read. */
static inline bool remote_is_next(const struct sy_worker *w, struct remote *r,
                                  const struct sy_burst *burst, unsigned i)
{
	uint32_t position = *remote_position(r, burst, i);
	unsigned owner = SY_READ(w->slot_worker[burst->slot[i]]);
	if (SY_LIKELY((int32_t)(position - r->left[owner]) <= 0))
		return true;
	r->left[owner] = sy_steer_left(w, owner);
	return (int32_t)(position - r->left[owner]) <= 0;
}

/* ---- by the owner's record ------------------------------------------------------------------- */

struct remote_candidate {
	struct session *session;
	uint32_t entry; /* index entry from session_guess() */
	uint32_t i;     /* packet number in the burst */
};

/* Forwards a plain packet if the record is its session, needs no special handling, and has a known
 * path and next hop: nothing may wait here. */
static inline __attribute__((always_inline)) bool
remote_forward(struct sy_worker *w, struct sy_burst *burst, struct sy_tx_cache *tx,
               const struct remote_candidate *at, enum session_direction from, uint16_t now)
{
	const struct sy_balance *b = w->app;
	struct session s;
	if (SY_UNLIKELY(!hot_read(at->session, &s)))
		return false;
	const struct endpoint *e = &b->endpoint[s.server];
	struct server_share *share = &balance_worker_of(w)->share[s.server];
	struct rte_mbuf *m = burst->mbuf[at->i];
	uint8_t *frame = sy_frame(m);
	unsigned plain = burst->plain[at->i];
	const bool v4 = plain & SY_PLAIN_V4;
	const bool direct = from == SESSION_CLIENT &&
	                    e->transmit_mode == (v4 ? TRANSMIT_DIRECT_V4 : TRANSMIT_DIRECT_V6);
	uint64_t neighbour;

	/* Steer if: the event device serves the session, because its packets must enter the device
	 * by one port to stay in order; the endpoint does not name the ports, because only the
	 * owner may read the cold half; or the server is down, because the owner decides which
	 * sessions are lost. */
	if (SY_UNLIKELY(
	            !session_is_steady(&s, from) || SY_READ(e->limited) & LIMITED_QUEUED(from) ||
	            (!direct && e->transmit_mode != (v4 ? TRANSMIT_V4 : TRANSMIT_V6)) || !e->port ||
	            !e->vport || !session_has_plain_tuple(b, &s, e, frame, plain, v4, from) ||
	            !forward_may(b, &s, e, from, SESSION_SLOW_ONLY) || SY_READ(e->down) ||
	            !forward_find(w, tx, m, &s, e, from, share, direct, &neighbour)))
		return false;
	uint16_t len = sy_plain_len(frame, v4);
	if (!police_passes(w, burst, at->i, &s, e, from))
		return true;
	/* `limited` was read before a limit of the session began to use the device */
	if (SY_UNLIKELY(police_queues(balance_worker_of(w), at->i)))
		return false;
	if (from == SESSION_CLIENT)
		client_options_blank_plain(w, burst, at->i, frame, e, v4);
	if (SY_UNLIKELY(direct))
		sy_plain_hop(frame, v4);
	else
		forward_plain(b, frame, plain, burst->slot[at->i], &s, e, from);
	/* If the record was reused meanwhile, its new session has just begun and has the same
	 * tick. */
	burst->next[at->i] = (uint8_t)forward_emit(tx, neighbour, m, frame, at->session, s.seen,
	                                           now, from, share, len, false);
	return true;
}

/* ---- packets of a burst ---------------------------------------------------------------------- */

/* Collects the packets without branches, which would be mispredicted for half of the packets. */
static unsigned remote_find(const struct sy_worker *w, const struct sy_burst *burst, unsigned n,
                            uint8_t at[SY_BURST])
{
	unsigned count = 0;
	for (unsigned i = 0; i < n; i++) {
		at[count] = (uint8_t)i;
		count += (burst->next[i] == SY_NEXT_LOOKUP) &
		         (SY_READ(w->slot_worker[burst->slot[i]]) != w->id);
	}
	return count;
}

/* sy_lookup_stage() for these packets. */
static void remote_look_up(const struct sy_balance *b, struct sy_burst *burst, const uint8_t *at,
                           unsigned count)
{
	uint8_t missed[SY_BURST];
	unsigned misses = 0;
	for (unsigned k = 0; k < count; k++) {
		const struct session_index x = session_index_of_any(&b->index[burst->slot[at[k]]]);
		session_prefetch_bucket(&x, burst->hash[at[k]]);
	}
	for (unsigned k = 0; k < count; k++) {
		const struct session_index x = session_index_of_any(&b->index[burst->slot[at[k]]]);
		burst->session[at[k]] = session_guess(&x, burst->hash[at[k]]);
		if (SY_UNLIKELY(burst->session[at[k]] == SESSION_NONE))
			missed[misses++] = at[k];
	}
	for (unsigned k = 0; k < misses; k++) {
		const struct session_index x =
		        session_index_of_any(&b->index[burst->slot[missed[k]]]);
		burst->session[missed[k]] = session_guess_other(&x, burst->hash[missed[k]]);
	}
}

/* The candidate record for packet i. NULL if there is none or the owner must handle the packet. */
static inline struct session *remote_record(const struct sy_balance *b,
                                            const struct sy_burst *burst, unsigned i)
{
	const struct session_index x = session_index_of_any(&b->index[burst->slot[i]]);
	unsigned plain = burst->plain[i];
	if (SY_UNLIKELY(burst->session[i] == SESSION_NONE || !plain ||
	                plain & SY_PLAIN_SYN_FIN_RST))
		return NULL;
	return &x.hot[burst->session[i] >> 1];
}

static void remote_gather(const struct sy_balance *b, const struct sy_burst *burst,
                          const struct server_share *share, const uint8_t *at, unsigned count,
                          struct remote_candidate *out)
{
	for (unsigned k = 0; k < count; k++) {
		struct session *s = remote_record(b, burst, at[k]);
		out[k] = (struct remote_candidate){s, burst->session[at[k]], at[k]};
		if (SY_UNLIKELY(!s))
			continue;
		__builtin_prefetch(&b->endpoint[s->server]);
		__builtin_prefetch(&share[s->server], 1);
	}
}

static bool remote_packet(struct sy_worker *w, struct sy_burst *burst, struct sy_tx_cache *tx,
                          struct remote *r, const struct remote_candidate *at, uint16_t now)
{
	if (SY_UNLIKELY(!at->session || !remote_is_next(w, r, burst, at->i)))
		return false;
	return at->entry & 1 ? remote_forward(w, burst, tx, at, SESSION_SERVER, now)
	                     : remote_forward(w, burst, tx, at, SESSION_CLIENT, now);
}

static void remote_run(struct sy_worker *w, struct remote *r, struct sy_burst *burst,
                       const uint8_t *at, unsigned count)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	struct sy_tx_cache tx = {.path = SY_TX_CACHE_NONE};
	uint16_t now = (uint16_t)balance_seconds(w);
	struct remote_candidate group[GROUP];
	unsigned forwarded = 0;

	burst_state_reset(&bw->burst);
	remote_look_up(b, burst, at, count);
	for (unsigned first = 0; first < count; first += GROUP) {
		unsigned n = count - first < GROUP ? count - first : GROUP;
		remote_gather(b, burst, bw->share, at + first, n, group);
		for (unsigned k = 0; k < n; k++) {
			if (!remote_packet(w, burst, &tx, r, &group[k], now)) {
				remote_steer(w, r, burst, group[k].i);
				continue;
			}
			forwarded++;
			SY_COUNT(bw->slot_packets[burst->slot[group[k].i]], 1);
		}
	}
	SY_COUNT(w->counters.remote, forwarded);
	police_settle(w, burst, SY_BURST);
}

void remote_classify(struct sy_worker *w, struct sy_burst *burst, unsigned n)
{
	struct remote *r = balance_worker_of(w)->remote;
	uint8_t at[SY_BURST];
	unsigned count = remote_find(w, burst, n, at);

	if (r && SY_READ(w->queues_suffice)) {
		remote_run(w, r, burst, at, count);
		return;
	}
	for (unsigned k = 0; k < count; k++)
		if (r) /* notes positions for remote_run(), once queues suffice again */
			remote_steer(w, r, burst, at[k]);
		else
			sy_burst_steer(w, burst, at[k]);
}
