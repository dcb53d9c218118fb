// SPDX-License-Identifier: Apache-2.0
/*
 * Policing: the packets of sessions whose servers have limits
 * (docs/design/0033-limits-in-the-path.md).
 *
 * Each packet is asked about once, where nothing else speaks against forwarding it, and before it
 * changes its session's state: a segment that is dropped must not close a connection. What it
 * limits is noted for the burst, so that a later stage does not ask again, and gives it back if the
 * packet is not forwarded after all.
 */
#ifndef POLICE_H
#define POLICE_H

#include <sy_shaping.h>

#include "limit.h"

/* A packet of a session. */
struct police_packet {
	uint32_t server;
	const struct sy_addr *client;
	enum session_direction from;
	uint16_t len; /* bytes of IP packet, as it came */
	bool begins;  /* the session: takes from limits of new sessions, too */
};

/* Asks the server's limits about packet i. NONE: it may pass, and may have got another DSCP; or why
 * it is to be dropped, and nothing was taken. */
enum sy_drop police_check(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          const struct police_packet *p);
/* Who receives a packet from the event device asks the limits that drop packets. flow: the number
 * of its flow, which is this worker's alone; POLICE_NO_FLOW: by the device's model, whoever
 * receives it is. */
struct queued;
#define POLICE_NO_FLOW UINT32_MAX
enum sy_drop police_queued(struct sy_worker *w, struct rte_mbuf *m, const struct queued *q,
                           uint32_t flow);
/* Asks them now, if packet i is for the event device and cannot go there. */
enum sy_drop police_now(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Refunds what was charged for packet i, which is about to be charged for something else. */
void police_undo(struct sy_worker *w, unsigned i);
/* Refunds what was charged for those packets before packet `end` that were not forwarded. Called
 * once at the end of a burst, or before packets leave it for the event device; a stage that drops,
 * steers or holds a packet need not refund anything. */
void police_settle(struct sy_worker *w, const struct sy_burst *burst, unsigned end);
/* The session of packet i has begun: what it limits for that stays taken. */
void police_begun(struct sy_worker *w, unsigned i);

/* Has packet i of this burst been asked about? */
static inline bool police_was_checked(const struct balance_worker *bw, unsigned i)
{
	return bw->burst.charged >> i & 1;
}

/* Is packet i for the event device? */
static inline bool police_queues(const struct balance_worker *bw, unsigned i)
{
	return bw->burst.queued >> i & 1;
}

/* Asks about packet i of a session, unless that was done; false: it was dropped. */
bool police_session(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                    const struct session *s, enum session_direction from);

/* Writes the number of its service into a packet that may be shaped. */
static inline void police_mark(struct rte_mbuf *m, const struct endpoint *e)
{
	if (SY_UNLIKELY(SY_READ(e->limited) & LIMITED_SHAPED) && e->service != SERVICE_NONE)
		sy_packet_set_service(m, e->service + 1);
}

/* Writes the class of its service into a client's packet, before limits may give it another. */
void police_class(const struct sy_balance *b, struct rte_mbuf *m, const struct endpoint *e);

/* The bits of endpoint.limited by which there may be something to ask, or to do otherwise, about a
 * session's packet. */
static inline unsigned police_bits(enum session_direction from)
{
	return 1u << from | LIMITED_SHAPED | (from == SESSION_CLIENT ? LIMITED_DSCP : 0);
}

static inline bool police_applies(const struct endpoint *e, enum session_direction from)
{
	return SY_READ(e->limited) & police_bits(from);
}

/* police_session(), unless there is nothing to ask. */
static inline __attribute__((always_inline)) bool
police_passes(struct sy_worker *w, struct sy_burst *burst, unsigned i, const struct session *s,
              const struct endpoint *e, enum session_direction from)
{
	return SY_LIKELY(!police_applies(e, from)) || police_session(w, burst, i, s, from);
}

#endif
