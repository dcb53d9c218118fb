// SPDX-License-Identifier: Apache-2.0
#include "session_fits.h"

#include <arpa/inet.h>

#include "splice.h"

static bool state_fits(uint8_t state, uint8_t proto)
{
	bool udp = state == SESSION_UDP_ONE_WAY || state == SESSION_UDP_ANSWERED ||
	           state == SESSION_UDP_BOTH_WAYS;
	/* it had another state at another node, which was checked */
	if (state == SESSION_AWAY)
		return true;
	return udp == (proto == SY_PROTO_UDP) &&
	       (state == SESSION_ECHO) == (proto != SY_PROTO_UDP && proto != SY_PROTO_TCP);
}

/* Sessions that begin under the SYN defence are pairs. */
static bool may_be_spliced(const struct endpoint *e)
{
	return e->proto == SY_PROTO_TCP && (e->mode == MODE_FNAT || e->mode == MODE_NAT);
}

/* A session of a service with many ports has one of them in vport; all others have 0. */
static bool vport_fits(const struct session_cold *cold, const struct endpoint *e)
{
	uint16_t first = ntohs(e->first_port), last = ntohs(e->last_port),
	         port = ntohs(cold->vport);
	if (e->vport || e->mode == MODE_SNAT)
		return port == 0;
	return port > 0 && (first == 0 || (port >= first && port <= last));
}

/* The previous process may have crashed between the stores of server_answers(): derives the state
 * from the splice. Without a PROXY header only spliced sessions are SHIFTED. */
static void splice_fit(struct session *s, const struct session_cold *cold)
{
	const struct session_splice *splice = (const struct session_splice *)(cold + 1);
	if (splice->spliced && s->state == SESSION_OPENING)
		s->state = SESSION_ESTABLISHED;
	else if (!splice->spliced && s->state == SESSION_ESTABLISHED &&
	         s->flags & SESSION_SHIFTED && !session_is_by_proxy(cold))
		s->state = SESSION_OPENING;
}

bool session_fits(const struct sy_balance *b, struct session *s, const struct session_cold *cold)
{
	const struct endpoint *e = &b->endpoint[s->server];
	bool snat = e->mode == MODE_SNAT, local = mode_is_local(e->mode) || snat;
	/* A SNAT session has its VIP side in the pair record; in other modes the endpoint has
	 * it. */
	const struct sy_addr *vip = snat ? &s[1].client : &e->vip, *addr = snat ? vip : &e->addr;
	bool pair = s[1].state == SESSION_PAIR_RECORD;
	if (pair != snat && !(pair && may_be_spliced(e)))
		return false;
	if (pair && !snat)
		splice_fit(s, cold);
	if ((s->state == SESSION_OPENING && !pair) || local != (s->local != LOCAL_NONE) ||
	    (local && sy_addr_is_v4(&b->local[s->local]) != sy_addr_is_v4(addr)) ||
	    sy_addr_is_v4(&s->client) != sy_addr_is_v4(vip) || !state_fits(s->state, e->proto) ||
	    !vport_fits(cold, e))
		return false;
	if (s->state == SESSION_UDP_BOTH_WAYS && s->flags & SESSION_UNSHOWN) {
		s->state = SESSION_UDP_ANSWERED;
		s->flags &= (uint8_t)~SESSION_UNSHOWN;
	}
	return true;
}
