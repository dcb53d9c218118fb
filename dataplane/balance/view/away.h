// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions that another node of an ECMP group serves (docs/design/0071-ecmp.md). Their records have
 * the state SESSION_AWAY, which no fast path forwards; the state at the other node is in a byte
 * beside the record. If this node takes the session over, the byte has the former owner: until a
 * packet arrives, that one may have it back. Writer and reader: the slot's owner.
 */
#ifndef AWAY_H
#define AWAY_H

#include "sync_members.h"
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

/* Do peers keep sessions with this server from their creation on? In an ECMP group the first answer
 * of a NAT server, which is sent to the client's address, may arrive at any node. */
static inline bool synced_at_creation(const struct sy_balance *b, const struct service *service,
                                      const struct endpoint *e)
{
	return service->policy.sync == SYNC_ALL || service->policy.sync == SYNC_STRICT ||
	       (group_is_ecmp(b) && e->mode == MODE_NAT && service->policy.sync != SYNC_OFF);
}

/* Does the session count as one of this node's, for limits and schedulers? One that another node
 * serves does not. */
static inline bool session_counts(const struct sy_balance *b, unsigned slot, uint32_t record)
{
	return !group_is_ecmp(b) || !session_is_away(session_at(b->table[slot], record));
}

/* Call after a change of a record's state. counted: session_counts() before it. */
static inline void session_recount(struct sy_balance *b, unsigned slot, uint32_t record,
                                   bool counted)
{
	const uint32_t server = session_at(b->table[slot], record)->server;
	if (SY_LIKELY(counted == session_counts(b, slot, record)))
		return;
	if (counted)
		load_release(b, server);
	else
		load_force(b, server);
}

#define AWAY_TAKEN 0x80 /* the byte of a session that this node serves: taken over from a node */
#define AWAY_LATE  3    /* seconds after a node's death, within which its sessions are taken over */
#define AWAY_HOUR  3600 /* ticks are modulo 2^16: after this time they do not compare */

/* Was this session taken over from a node, and has no packet arrived since? */
static inline bool session_is_unused(const struct sy_balance *b, const struct sy_worker *w,
                                     unsigned slot, uint32_t record, const struct session *s)
{
	const uint8_t from = *away_state_at(b, slot, record);
	if (!(from & AWAY_TAKEN))
		return false;
	const uint32_t now = balance_seconds(w);
	const uint32_t gone =
	        (uint32_t)(sync_node_gone_ns(b->sync, from & SYNC_OWNER) / 1000000000u);
	return now - gone < AWAY_HOUR && (int16_t)(s->seen - (uint16_t)gone) <= AWAY_LATE;
}

#endif
