// SPDX-License-Identifier: Apache-2.0
/*
 * Counts embryonic sessions by slot and by service, to bound them (docs/design/0026-pressure.md).
 * Called by the slot's owner for every change of session_state_is_embryonic(); packets of
 * established sessions change nothing.
 */
#ifndef PRESSURE_H
#define PRESSURE_H

#include "balance.h"

/* Adds to the slot's count of embryonic sessions: 1 or −1. */
static inline void pressure_add(struct sy_worker *w, struct session_table *t, uint32_t record,
                                int32_t more)
{
	const struct sy_balance *b = w->app;
	uint32_t service = b->endpoint[session_at(t, record)->server].service;
	if (SY_UNLIKELY(!session_is_counted(t, record)))
		return;
	__atomic_store_n(&t->embryonic, t->embryonic + (uint32_t)more, __ATOMIC_RELAXED);
	if (SY_LIKELY(service != SERVICE_NONE)) {
		struct balance_worker *bw = balance_worker_of(w);
		uint32_t *count = &bw->load[service].embryonic;
		__atomic_store_n(count, *count + (uint32_t)more, __ATOMIC_RELAXED);
		bw->embryonic += (uint32_t)more;
	}
}

/* Call when a session has begun. */
static inline void pressure_begin(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	pressure_add(w, t, record, 1);
}

/* Call when a session is no longer embryonic: counts a completed handshake, even of a session that
 * is not counted yet. */
static inline void pressure_complete(struct sy_worker *w, const struct session_table *t,
                                     uint32_t record)
{
	const uint32_t completed = 1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT |
	                           1u << SESSION_CLOSING | 1u << SESSION_TIME_WAIT;
	const struct sy_balance *b = w->app;
	const struct session *s = session_at(t, record);
	uint32_t service = b->endpoint[s->server].service;
	if (SY_LIKELY(completed >> s->state & 1 && service != SERVICE_NONE))
		SY_COUNT(balance_worker_of(w)->load[service].established, 1);
}

/* Call after the session's state has changed; before: whether it was embryonic. */
static inline void pressure_change(struct sy_worker *w, struct session_table *t, uint32_t record,
                                   bool before)
{
	bool after = session_state_is_embryonic(session_at(t, record)->state);
	if (before == after)
		return;
	pressure_add(w, t, record, after - before);
	if (!after)
		pressure_complete(w, t, record);
}

/* Call before the session ends. */
static inline void pressure_end(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	if (session_state_is_embryonic(session_at(t, record)->state))
		pressure_add(w, t, record, -1);
}

/* Must an embryonic session of the slot be evicted before a new one begins? */
static inline bool pressure_is_full(const struct session_table *t)
{
	return t->embryonic >= session_max_embryonic(t);
}

/* Pressure does not shorten timeouts below this: time for a slow handshake and one retransmitted
 * SYN. Seconds. */
#define PRESSURE_SECONDS 3

/* The remaining part of the timeouts of embryonic sessions, in 256ths: all while they use at most
 * half of their share, then decreasing. */
static inline uint32_t pressure_timeout_left(const struct session_table *t)
{
	uint32_t max = session_max_embryonic(t), half = max / 2;
	if (SY_LIKELY(t->embryonic <= half))
		return 256;
	return t->embryonic >= max
	               ? 0
	               : (uint32_t)((uint64_t)(max - t->embryonic) * 256 / (max - half));
}

/* A service has few sessions if another one, or all together, have PRESSURE_FEW times as many. */
#define PRESSURE_FEW 8

/* The service's embryonic sessions at this worker. Sessions that began at the slot's former worker
 * are subtracted here when they end: clamp at 0. */
static inline uint32_t pressure_embryonic(const struct service_load *load, uint32_t service)
{
	const uint32_t count = load[service].embryonic;
	return (int32_t)count > 0 ? count : 0;
}

/* Has the service too few embryonic sessions at this worker to cause the pressure? */
static inline bool pressure_is_by_others(const struct balance_worker *bw, uint32_t service)
{
	return (int64_t)pressure_embryonic(bw->load, service) * PRESSURE_FEW <
	       (int32_t)bw->embryonic;
}

/* Did the client of a one-way session send repeatedly? The server's answers are not visible. The
 * first second does not count: a flood may send twice. */
static inline bool pressure_is_repeated(const struct session *s, const struct session_cold *cold)
{
	return (uint16_t)(s->seen - (uint16_t)cold->created) > 1;
}

#endif
