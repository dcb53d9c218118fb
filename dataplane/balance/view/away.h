// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions that another node of an ECMP group serves (docs/design/0071-ecmp.md). Their records have
 * the state SESSION_AWAY, which no fast path forwards; the state at the other node is in a byte
 * beside the record. Writer and reader: the slot's owner.
 */
#ifndef AWAY_H
#define AWAY_H

#include "synced.h"

/* Does every node of this forwarder's group serve? */
static inline bool group_is_ecmp(const struct sy_balance *b)
{
	return SY_UNLIKELY(b->away_state != NULL);
}

static inline bool session_is_away(const struct session *s)
{
	return SY_UNLIKELY(s->state == SESSION_AWAY);
}

static inline uint8_t *away_state_at(const struct sy_balance *b, unsigned slot, uint32_t record)
{
	return &b->away_state[(size_t)slot * SESSION_RECORDS_MAX + record];
}

/* The state at the node that serves the session. Unknown after a restart: then it is in use. */
static inline uint8_t away_state_of(const struct sy_balance *b, unsigned slot, uint32_t record,
                                    uint8_t proto)
{
	const uint8_t state =
	        group_is_ecmp(b) ? *away_state_at(b, slot, record) : (uint8_t)SESSION_FREE;
	if (state != SESSION_FREE)
		return state;
	return proto == SY_PROTO_TCP   ? SESSION_ESTABLISHED
	       : proto == SY_PROTO_UDP ? SESSION_UDP_BOTH_WAYS
	                               : SESSION_ECHO;
}

#endif
