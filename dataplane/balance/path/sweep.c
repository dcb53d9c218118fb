// SPDX-License-Identifier: Apache-2.0
/*
 * Session expiry. Each worker sweeps the tables of its slots, one slice per round. A whole pass
 * takes about a second; for very large tables, as long as SWEEP_RATE allows. A pass ends sessions
 * that have exceeded their timeout or belong to a removed server, and renews stale paths. TCP
 * sessions first reset both ends (reset_both_begin()), which takes RESET_BOTH_SECONDS.
 */
#include <rte_cycles.h>

#include "client_sessions.h"
#include "end.h"
#include "existing.h"
#include "forward.h"
#include "fragment_table.h"
#include "opening_queue.h"
#include "packet_relay.h"
#include "pressure.h"
#include "reset.h"
#include "reset_both.h"
#include "splice_path.h"
#include "sweep.h"
#include "synced.h"
#include "tcp_step.h"

#define SWEEP_PASS_NS 1000000000u
#define SWEEP_RATE    4000000u /* max records per second and worker */
#define SWEEP_CHUNK   256u
/* Records swept per created session, when sessions are created faster than rounds sweep. With 4,
 * expired sessions amount to a third of the live ones. */
#define SWEEP_CREATION 4u
/* Bounds of one round, so that queues are polled in between. A late round makes up for one
 * missed. */
#define SWEEP_ELAPSED_NS (2 * SY_ROUND_MS * UINT64_C(1000000))
#define SWEEP_ROUND_US   200u
/* Max idle time, seconds. A larger value means that the clock is behind: the slot's former worker
 * may have been slightly ahead. Timeouts are below 2^15, so even a sweep hours late recognizes an
 * expired session. */
#define IDLE_MAX (UINT16_MAX - 60)

/* Does expiry reset both ends? Not after a reset that was not refuted, nor after a one-way client's
 * FIN: neither end would wait. Not before the handshake completes: the client's address may be
 * forged, and a third party must not be probed. */
static bool sweep_sends_resets(const struct service *service, const struct endpoint *e,
                               const struct session *s)
{
	return service->policy.resets & RESETS_EXPIRED && !session_is_challenged(s) &&
	       s->state != SESSION_SYN_RECEIVED &&
	       !(s->state == SESSION_FIN_WAIT && endpoint_is_one_way(e));
}

/* Does a session continue although it timed out? A client in whose name a reset came may be silent
 * because a firewall drops the challenge. The server, which got the reset, is challenged last.
 * One-way: the reset's number decides, or the session continues as if there had been no reset. */
static bool sweep_goes_on(struct sy_worker *w, const struct endpoint *e, struct session *s)
{
	if (s->state != SESSION_RESET_BY_CLIENT)
		return false;
	if (!endpoint_is_one_way(e))
		s->state = SESSION_RESET_BY_SERVER;
	else if (!(s->flags & SESSION_CLIENT_FIN_ACKED))
		s->state = (uint8_t)tcp_state_of_fins(s);
	else
		return false;
	s->seen = (uint16_t)balance_seconds(w);
	return true;
}

/* A slice of a table, and its sessions that end. */
struct slice {
	struct sy_worker *w;
	const struct access *access; /* lists that may end sessions; NULL: none in this pass */
	uint16_t now;                /* tick */
	uint32_t embryonic_left; /* remaining part of the timeouts of embryonic sessions, in 256ths
	                          */
	unsigned count;
	uint32_t record[SESSIONS_END];
};

static void slice_flush(struct slice *slice, struct session_table *t)
{
	sessions_end(slice->w, t, slice->record, slice->count);
	slice->count = 0;
}

static void slice_add(struct slice *slice, struct session_table *t, uint32_t record)
{
	slice->record[slice->count++] = record;
	if (slice->count == SESSIONS_END)
		slice_flush(slice, t);
}

/* Idle timeout of a session in seconds; shorter for embryonic sessions while their service causes
 * pressure. */
static inline uint16_t slice_timeout(const struct slice *slice, const struct service *service,
                                     const struct endpoint *e, const struct session *s,
                                     const struct session_cold *cold)
{
	uint16_t whole = session_timeout(service, s);
	if (SY_LIKELY(slice->embryonic_left == 256) || !session_state_is_embryonic(s->state) ||
	    whole <= PRESSURE_SECONDS ||
	    (endpoint_is_one_way(e) && pressure_is_repeated(s, cold)) ||
	    pressure_is_by_others(balance_worker_of(slice->w), e->service))
		return whole;
	uint16_t left = (uint16_t)(whole * slice->embryonic_left / 256);
	return left > PRESSURE_SECONDS ? left : PRESSURE_SECONDS;
}

/* Sweeps a session that waits for its server's SYN-ACK. Uses the session's age, because the
 * forwarder's own SYNs update its tick. Returns true if it ends. */
static bool sweep_opening(struct slice *slice, struct session_table *t, uint32_t record)
{
	struct sy_worker *w = slice->w;
	const struct sy_balance *b = w->app;
	struct session *s = session_at(t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	uint32_t age = session_age(session_cold_at(t, record), balance_seconds(w));
	if (!service || session_is_dead(b, s) || SY_READ(e->down) ||
	    (age > session_timeout(service, s) && age <= SESSION_CREATED_MASK / 2)) {
		splice_abandon(w, t, record);
		slice_add(slice, t, record);
		return true;
	}
	uint16_t idle = session_idle(s, slice->now);
	if (idle > 0 && idle <= IDLE_MAX)
		splice_syn_retransmit(w, t, record);
	return false;
}

/* Ends a session that has timed out or whose server is gone. Returns false if it continues. */
static bool sweep_ends(struct slice *slice, struct session_table *t, uint32_t record)
{
	struct sy_worker *w = slice->w;
	const struct sy_balance *b = w->app;
	struct session *s = session_at(t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	uint16_t idle = session_idle(s, slice->now);
	if (s->state == SESSION_OPENING)
		return sweep_opening(slice, t, record);
	if (s->state == SESSION_DYING) {
		if (idle > RESET_BOTH_SECONDS && idle <= IDLE_MAX) {
			slice_add(slice, t, record);
			return true;
		}
		reset_both_probe(w, s);
		return false;
	}
	bool dead = session_is_dead(b, s) || !service;
	if (!dead && (idle <= slice_timeout(slice, service, e, s, session_cold_at(t, record)) ||
	              idle > IDLE_MAX || sweep_goes_on(w, e, s)))
		return false;
	if (reset_both_is_due(e, s) && (dead || sweep_sends_resets(service, e, s))) {
		bool embryonic = session_state_is_embryonic(s->state);
		reset_both_begin(w, s, SESSION_NEITHER);
		pressure_change(w, t, record, embryonic);
		return false;
	}
	slice_add(slice, t, record);
	return true;
}

/* Ends a session that an access list refuses now. Returns false if it continues. */
static __attribute__((noinline)) bool sweep_refuses(struct slice *slice, struct session_table *t,
                                                    uint32_t record)
{
	struct sy_worker *w = slice->w;
	const struct sy_balance *b = w->app;
	struct session *s = session_at(t, record);
	if (!existing_is_refused(w, slice->access, t, record))
		return false;
	if (s->state != SESSION_OPENING && reset_both_is_due(&b->endpoint[s->server], s)) {
		bool embryonic = session_state_is_embryonic(s->state);
		reset_both_begin(w, s, SESSION_NEITHER);
		pressure_change(w, t, record, embryonic);
		return true;
	}
	if (s->state == SESSION_OPENING)
		splice_abandon(w, t, record);
	slice_add(slice, t, record);
	return true;
}

/* Returns true if the session needs no action, as most do. */
static inline bool sweep_passes(const struct slice *slice, const struct session *s,
                                const struct session_cold *cold, const struct endpoint *e)
{
	const struct sy_worker *w = slice->w;
	const struct sy_balance *b = w->app;
	const uint32_t special = 1u << SESSION_DYING | 1u << SESSION_RESET_BY_CLIENT |
	                         1u << SESSION_RESET_BY_SERVER | 1u << SESSION_OPENING;
	const struct service *service = endpoint_service(b, e);
	return service && !(special >> s->state & 1) && e->mode != MODE_SNAT &&
	       session_idle(s, slice->now) <= slice_timeout(slice, service, e, s, cold) &&
	       !session_is_dead(b, s) &&
	       (s->path == SY_PATH_NONE || SY_RCU_READ(w->path_mtu[s->path]));
}

/* A replica neither expires, nor meets access lists, nor ends with its server's health: the node
 * that serves the session decides. Ends it if its server or local address was removed here. */
static bool sweep_replica(struct slice *slice, struct session_table *t, uint32_t record)
{
	const struct sy_balance *b = slice->w->app;
	const struct session *s = session_at(t, record);
	if (!SY_READ(b->endpoint[s->server].removed) && !SY_READ(b->local_removed[s->local]))
		return false;
	slice_add(slice, t, record);
	return true;
}

static void sweep_session(struct slice *slice, struct session_table *t, uint32_t record)
{
	struct sy_worker *w = slice->w;
	struct sy_balance *b = w->app;
	struct session *s = session_at(t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	const bool replica = session_is_replica(b, t->slot, record) || session_is_away(s);

	if (SY_UNLIKELY(!t->counted) && session_state_is_embryonic(s->state))
		pressure_begin(w, t, record);
	if (session_is_away(s) && relay_sweep(w, t, record)) {
		slice_add(slice, t, record);
		return;
	}
	if (SY_UNLIKELY(replica)) {
		if (sweep_replica(slice, t, record))
			return;
	} else if (SY_UNLIKELY(slice->access) && sweep_refuses(slice, t, record)) {
		if (s->state == SESSION_DYING)
			synced_change(w, t->slot, record);
		return;
	}
	if (SY_LIKELY(sweep_passes(slice, s, session_cold_at(t, record), e)))
		return;
	const uint8_t state = s->state;
	const bool ends = !replica && sweep_ends(slice, t, record);
	if (s->state != state && s->state != SESSION_FREE)
		synced_change(w, t->slot, record);
	if (ends)
		return;
	if (SY_UNLIKELY(session_is_challenged(s)) && !replica)
		challenge_repeat(w, s);
	if (SY_UNLIKELY(s->path != SY_PATH_NONE && sy_path_is_stale(b->rt, s->path)))
		s->path = sy_path_lookup(b->rt, &s->client);
	if (SY_UNLIKELY(e->mode == MODE_SNAT))
		forward_path(w, s, SESSION_CLIENT); /* renews the pair record's path */
}

/* Returns true if the session is to be replicated from now on, without a packet that changes it: it
 * is old enough, or the client of a one-way service has sent repeatedly. */
static bool sweep_finds_due(const struct slice *slice, const struct session_table *t,
                            uint32_t record)
{
	const struct sy_balance *b = slice->w->app;
	const struct session *s = session_at(t, record);
	const struct session_cold *cold = session_cold_at(t, record);
	if (s->state == SESSION_FREE || s->state == SESSION_PAIR_RECORD ||
	    *session_mark_at(b, t->slot, record) & (SYNC_KNOWN | SYNC_OWNER))
		return false;
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	if (service && service->policy.sync_older_than)
		return session_age(cold, balance_seconds(slice->w)) >=
		       service->policy.sync_older_than;
	return s->state == SESSION_UDP_ONE_WAY && endpoint_is_one_way(e) &&
	       pressure_is_repeated(s, cold);
}

static void sweep_visit(void *ctx, struct session_table *t, uint32_t record)
{
	struct slice *slice = ctx;
	const struct sy_balance *b = slice->w->app;
	sweep_session(slice, t, record);
	if (SY_UNLIKELY(b->sync != NULL) && sweep_finds_due(slice, t, record))
		synced_change(slice->w, t->slot, record);
	if (SY_UNLIKELY(SY_RCU_READ(b->client_counts) != NULL) &&
	    session_at(t, record)->state != SESSION_FREE)
		client_sessions_recount(slice->w, t, record);
}

/* Visits the next records of the current table, then moves to the next one. */
static void sweep_slice(struct sy_worker *w)
{
	struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	if (sy_slot_worker(b->rt, (uint8_t)bw->sweep_slot) == w->id) {
		struct session_table *t = b->table[bw->sweep_slot];
		struct slice slice = {.w = w,
		                      .access = existing_begin(w, t),
		                      .now = (uint16_t)balance_seconds(w),
		                      .embryonic_left = pressure_timeout_left(t)};
		bool whole = session_sweep(t, SWEEP_CHUNK, sweep_visit, &slice);
		if (whole) {
			t->counted = true;
			existing_end(w, t);
		}
		slice_flush(&slice, t);
		if (!whole)
			return;
	}
	if (++bw->sweep_slot == SY_SLOTS) {
		bw->sweep_slot = 0;
		bw->pass_ns = w->now_ns;
		__atomic_store_n(&bw->passes, bw->passes + 1, __ATOMIC_RELEASE);
	}
}

static uint64_t sweep_owned(const struct sy_balance *b, unsigned worker)
{
	uint64_t records = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		if (sy_slot_worker(b->rt, (uint8_t)slot) == worker)
			records += session_count(b->table[slot]);
	return records;
}

void sy_balance_round(struct sy_worker *w)
{
	struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	uint64_t elapsed = w->now_ns - bw->swept_ns;
	fragments_expire(w);
	opening_queue_poll(w);
	uint64_t until = rte_rdtsc() + rte_get_tsc_hz() / 1000000 * SWEEP_ROUND_US;
	if (elapsed > SWEEP_ELAPSED_NS)
		elapsed = SWEEP_ELAPSED_NS;
	bw->swept_ns = w->now_ns;

	/* Twice the live records: tables have gaps. Every slot costs a step, even an empty one. */
	int64_t budget = SWEEP_CHUNK;
	if (elapsed > 0) {
		uint64_t whole = 2 * sweep_owned(b, w->id) + SY_SLOTS * SWEEP_CHUNK;
		uint64_t rate = whole < SWEEP_RATE ? whole : SWEEP_RATE;
		budget += (int64_t)(rate * elapsed / SWEEP_PASS_NS);
	}
	for (; budget > 0 && rte_rdtsc() < until; budget -= SWEEP_CHUNK)
		sweep_slice(w);
}

/* At most one pass per second: challenges of one pass count as unanswered in the next. */
static bool sweep_is_late(const struct sy_worker *w, const struct balance_worker *bw)
{
	return w->now_ns - bw->pass_ns > (uint64_t)bw->sweep_slot * (SWEEP_PASS_NS / SY_SLOTS);
}

void sweep_for_creations(struct sy_worker *w)
{
	struct balance_worker *bw = balance_worker_of(w);
	if (bw->created - bw->swept_created < SWEEP_CHUNK / SWEEP_CREATION)
		return;
	bw->swept_created = bw->created;
	if (sweep_is_late(w, bw))
		sweep_slice(w);
}
