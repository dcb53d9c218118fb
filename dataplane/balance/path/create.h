// SPDX-License-Identifier: Apache-2.0
/* Session creation: create.c, create_check.c, snat_create.c, schedule.c. */
#ifndef CREATE_H
#define CREATE_H

#include "balance.h"

/* Prepares the sessions of packets at[0] to at[count − 1], found by locate_burst(): finds servers
 * and prefetches memory, for all together. Acquires a session on each server, so session_create()
 * or create_cancel() must follow for each prepared packet. */
void create_prepare(struct sy_worker *w, struct sy_burst *burst, const uint8_t *at, unsigned count);
/* Cancels the prepared creation of packet i. */
void create_cancel(struct sy_worker *w, unsigned i);

/* Can a packet of this kind create a session? Others can with sloppy_tcp:
 * creation_find_server(). */
static inline bool packet_may_create(const struct sy_view *v)
{
	if (SY_LIKELY(v->proto == SY_PROTO_TCP))
		return (v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK)) == SY_TCP_SYN;
	return v->proto == SY_PROTO_UDP;
}

/* May packet i, which has no session, create one? Returns NONE or the drop reason. */
enum sy_drop create_check(const struct sy_balance *b, struct sy_burst *burst, unsigned i);
/* Is the source in b->own_sources? Then it is forged; an answer would reach this host or a
 * broadcast address. */
bool source_is_own(const struct sy_balance *b, const struct sy_view *v);
/* Type of service or traffic class of packet i, including ECN. */
static inline uint8_t packet_tos(const struct sy_burst *burst, unsigned i)
{
	const struct sy_view *v = &burst->view[i];
	const uint8_t *ip = sy_frame(burst->mbuf[i]) + v->l3;
	return v->v4 ? ip[1] : (uint8_t)(ip[0] << 4 | ip[1] >> 4);
}

/* Returns NONE if the source is another host's routable address, and the checksum is right or
 * unknown. Otherwise returns the drop reason. */
enum sy_drop create_check_origin(const struct sy_balance *b, struct sy_burst *burst, unsigned i);

/* Callback of session_find_port(): does the session use the tuple that the search proposes?
 * Compares tuples, not server ids: two ids may name one endpoint. */
static inline bool port_is_in_use(const void *ctx, const struct session *s,
                                  enum session_direction direction)
{
	const struct port_search *p = SY_CONTAINER_OF(ctx, struct port_search, search);
	const struct match_context match = {p->balance, p->table, &p->search.reply};
	return direction == SESSION_SERVER && match_session(&match, s, direction);
}

struct splice_opening;

/* Schedules and creates the session of packet i, from a client. Returns its record, or SESSION_NONE
 * and the reason. opening: of a client that returned a cookie; otherwise NULL. */
uint32_t session_create(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct splice_opening *opening, enum sy_drop *reason);
/* Checks access lists and limits for packet i, a SYN that begins a new connection under the tuple
 * of an existing session. Returns NONE or the drop reason. */
enum sy_drop create_recheck(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                            uint32_t server);

/* ---- snat_create.c --------------------------------------------------------------------------- */

/* session_create() for a packet that matches no service. */
uint32_t snat_create(struct sy_worker *w, struct sy_burst *burst, unsigned i, enum sy_drop *reason);

/* ---- schedule.c ------------------------------------------------------------------------------ */

/* Chooses a server for a new session and acquires a session on it; session_end() or load_release()
 * releases it. Returns NONE, NO_SERVER or CONNECTION_LIMIT. */
enum sy_drop schedule(struct sy_worker *w, const struct service *service,
                      const struct sy_tuple *client, uint32_t *server);

#endif
