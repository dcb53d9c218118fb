// SPDX-License-Identifier: Apache-2.0
/* Session creation: create.c, create_check.c, snat_create.c, schedule.c. */
#ifndef CREATE_H
#define CREATE_H

#include "balance.h"

/* Prepares sessions for those of the packets at[0] to at[count − 1], found by locate_burst(), that
 * will create one: finds the servers and prefetches memory, for all together. It takes a place on
 * each server, so session_create() or create_cancel() must follow for each packet whose
 * creation it has prepared. */
void create_prepare(struct sy_worker *w, struct sy_burst *burst, const uint8_t *at, unsigned count);
/* Packet i, whose creation is prepared, creates no session. */
void create_cancel(struct sy_worker *w, unsigned i);

/* May a packet of this kind create a session? Others may by sloppy_tcp: creation_find_server(). */
static inline bool packet_may_create(const struct sy_view *v)
{
	if (SY_LIKELY(v->proto == SY_PROTO_TCP))
		return (v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK)) == SY_TCP_SYN;
	return v->proto == SY_PROTO_UDP;
}

/* May packet i, which has no session, create one? NONE, or why not. */
enum sy_drop create_check(const struct sy_balance *b, struct sy_burst *burst, unsigned i);
/* Is the source one of b->own_sources? Then the packet is forged, and an answer would reach all
 * hosts of a network, or this one. */
bool source_is_own(const struct sy_balance *b, const struct sy_view *v);
/* Type of service or traffic class of packet i, with the bits of ECN. */
static inline uint8_t packet_tos(const struct sy_burst *burst, unsigned i)
{
	const struct sy_view *v = &burst->view[i];
	const uint8_t *ip = sy_frame(burst->mbuf[i]) + v->l3;
	return v->v4 ? ip[1] : (uint8_t)(ip[0] << 4 | ip[1] >> 4);
}

/* NONE if its source is another host's and may be routed, and its checksum is right or unknown. */
enum sy_drop create_check_origin(const struct sy_balance *b, struct sy_burst *burst, unsigned i);

/* For session_find_port(): does this session have the tuple that the search in a struct port_search
 * proposes? Compares tuples, as two server ids may name one endpoint. */
static inline bool port_is_in_use(const void *ctx, const struct session *s,
                                  enum session_direction direction)
{
	const struct port_search *p = SY_CONTAINER_OF(ctx, struct port_search, search);
	const struct match_context match = {p->balance, p->table, &p->search.reply};
	return direction == SESSION_SERVER && match_session(&match, s, direction);
}

struct splice_opening;

/* Schedules and creates a session for packet i, from a client. Returns its record, or SESSION_NONE
 * and sets the reason. opening: of a client that has returned a cookie; NULL: of any other. */
uint32_t session_create(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct splice_opening *opening, enum sy_drop *reason);
/* Asks the access lists and limits about packet i, a SYN that begins a connection under the tuple
 * of a session of this server. NONE, or why it is to be dropped. */
enum sy_drop create_recheck(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                            uint32_t server);

/* ---- snat_create.c --------------------------------------------------------------------------- */

/* session_create() for a packet that matches no service. */
uint32_t snat_create(struct sy_worker *w, struct sy_burst *burst, unsigned i, enum sy_drop *reason);

/* ---- schedule.c ------------------------------------------------------------------------------ */

/* Chooses a server for a new session of this client and takes a place on it; session_end() or
 * load_release() releases the place. Returns NONE, NO_SERVER or CONNECTION_LIMIT. */
enum sy_drop schedule(struct sy_worker *w, const struct service *service,
                      const struct sy_tuple *client, uint32_t *server);

#endif
