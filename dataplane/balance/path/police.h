// SPDX-License-Identifier: Apache-2.0
/*
 * Policing: limits of services and servers, charged for each packet of a session
 * (docs/design/0033-limits-in-the-path.md).
 *
 * Each packet is charged once, after all other checks and before its session's state changes: a
 * dropped segment must not close a connection. The charge is noted for the burst. Later stages do
 * not repeat it, and police_settle() refunds it if the packet was not forwarded.
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
	uint16_t len; /* IP packet's length before rewriting */
	bool begins;  /* begins the session: charge limits of new sessions too */
};

/* Charges the limits of the server for packet i. Returns NONE if the packet may pass, maybe with
 * another DSCP. Otherwise returns the drop reason; nothing was charged. */
enum sy_drop police_check(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          const struct police_packet *p);
/* Charges, in the consumer of the event device, the limits that drop packets. flow: a flow that
 * only this worker handles; POLICE_NO_FLOW: the device's model guarantees that. */
struct queued;
#define POLICE_NO_FLOW UINT32_MAX
enum sy_drop police_queued(struct sy_worker *w, struct rte_mbuf *m, const struct queued *q,
                           uint32_t flow);
/* Charges the limits of packet i now if it is for the event device but cannot go there. */
enum sy_drop police_now(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Refunds the charge of packet i before it is charged for another session. */
void police_undo(struct sy_worker *w, unsigned i);
/* Refunds the charges of packets before packet `end` that were not forwarded. Called at the end of
 * a burst, and before packets leave it for the event device. Stages that drop, steer or queue a
 * packet need not refund. */
void police_settle(struct sy_worker *w, const struct sy_burst *burst, unsigned end);
/* The session of packet i was created: its charge to limits of new sessions is final. */
void police_begun(struct sy_worker *w, unsigned i);

/* Was packet i of this burst charged? */
static inline bool police_was_checked(const struct balance_worker *bw, unsigned i)
{
	return bw->burst.charged >> i & 1;
}

/* Is packet i for the event device? */
static inline bool police_queues(const struct balance_worker *bw, unsigned i)
{
	return bw->burst.queued >> i & 1;
}

/* Charges the limits for packet i of a session, unless that was done. Returns false if the packet
 * was dropped. */
bool police_session(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                    const struct session *s, enum session_direction from);

/* Stores the service's id in a packet that may be shaped. */
static inline void police_mark(struct rte_mbuf *m, const struct endpoint *e)
{
	if (SY_UNLIKELY(SY_READ(e->limited) & LIMITED_SHAPED) && e->service != SERVICE_NONE)
		sy_packet_set_service(m, e->service + 1);
}

/* Sets the DSCP of its service in a client's packet; limits may change it afterwards. */
void police_class(const struct sy_balance *b, struct rte_mbuf *m, const struct endpoint *e);

/* The bits of endpoint.limited that require work for a packet from this side. */
static inline unsigned police_bits(enum session_direction from)
{
	return 1u << from | LIMITED_SHAPED | (from == SESSION_CLIENT ? LIMITED_DSCP : 0);
}

static inline bool police_applies(const struct endpoint *e, enum session_direction from)
{
	return SY_READ(e->limited) & police_bits(from);
}

/* police_session() if any limit or mark applies. */
static inline __attribute__((always_inline)) bool
police_passes(struct sy_worker *w, struct sy_burst *burst, unsigned i, const struct session *s,
              const struct endpoint *e, enum session_direction from)
{
	return SY_LIKELY(!police_applies(e, from)) || police_session(w, burst, i, s, from);
}

#endif
