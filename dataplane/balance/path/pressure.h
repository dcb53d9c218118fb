// SPDX-License-Identifier: Apache-2.0
/*
 * Embryonic sessions are counted, by slot and by service, so that they cannot crowd out others
 * (docs/design/0026-pressure.md). Called by the worker that owns the slot, with every change of
 * session_state_is_embryonic(); packets of established sessions change nothing.
 */
#ifndef PRESSURE_H
#define PRESSURE_H

#include "balance.h"

/* The slot of `t` gets one embryonic session more, or one less. */
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

/* A session has begun. */
static inline void pressure_begin(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	pressure_add(w, t, record, 1);
}

/* A session is no longer embryonic: counts a handshake that was completed, also one of a session
 * that is not counted yet. */
static inline void pressure_prove(struct sy_worker *w, const struct session_table *t,
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

/* After a change of the session's state; before: whether it was embryonic. */
static inline void pressure_change(struct sy_worker *w, struct session_table *t, uint32_t record,
                                   bool before)
{
	bool after = session_state_is_embryonic(session_at(t, record)->state);
	if (before == after)
		return;
	pressure_add(w, t, record, after - before);
	if (!after)
		pressure_prove(w, t, record);
}

/* Before the session ends. */
static inline void pressure_end(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	if (session_state_is_embryonic(session_at(t, record)->state))
		pressure_add(w, t, record, -1);
}

/* Must an embryonic session of the slot end before another one begins? */
static inline bool pressure_is_full(const struct session_table *t)
{
	return t->embryonic >= session_max_embryonic(t);
}

/* Seconds below which pressure shortens no timeout: a handshake over a long way, and a SYN that is
 * repeated. */
#define PRESSURE_SECONDS 3

/* What is left of the timeouts of embryonic sessions, in 256ths: all of it while they take less
 * than half of their share, then less and less. */
static inline uint32_t pressure_timeout_left(const struct session_table *t)
{
	uint32_t most = session_max_embryonic(t), half = most / 2;
	if (SY_LIKELY(t->embryonic <= half))
		return 256;
	return t->embryonic >= most
	               ? 0
	               : (uint32_t)((uint64_t)(most - t->embryonic) * 256 / (most - half));
}

/* A service has few sessions if another one, or all together, have this many times as many. */
#define PRESSURE_FEW 8

/* A worker's embryonic sessions of a service. A session that began at the slot's former worker and
 * ends here is subtracted here only: never less than none. */
static inline uint32_t pressure_embryonic(const struct service_load *load, uint32_t service)
{
	const uint32_t count = load[service].embryonic;
	return (int32_t)count > 0 ? count : 0;
}

/* Does a service have too few embryonic sessions of this worker to be the cause of pressure? */
static inline bool pressure_is_by_others(const struct balance_worker *bw, uint32_t service)
{
	return (int64_t)pressure_embryonic(bw->load, service) * PRESSURE_FEW <
	       (int32_t)bw->embryonic;
}

/* Does the client of a one-way session go on talking? Its server's answers cannot be seen. The
 * first second does not count: a flood may send twice. */
static inline bool pressure_talks(const struct session *s, const struct session_cold *cold)
{
	return (uint16_t)(s->seen - (uint16_t)cold->created) > 1;
}

#endif
