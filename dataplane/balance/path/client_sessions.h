// SPDX-License-Identifier: Apache-2.0
/*
 * The sessions of each client, for services with client_limits: sessions
 * (docs/design/0027-access-lists.md). A session counts while it is validated and open. Called by
 * the worker that owns the slot; only if there is a table sy_balance.client_counts.
 */
#ifndef CLIENT_SESSIONS_H
#define CLIENT_SESSIONS_H

#include "balance.h"

/* Has its client shown its address, and have not both sides ended it? */
static inline bool session_is_shown(const struct session *s)
{
	const uint32_t shown = 1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT |
	                       1u << SESSION_CLOSING | 1u << SESSION_UDP_BOTH_WAYS |
	                       1u << SESSION_RESET_BY_CLIENT | 1u << SESSION_RESET_BY_SERVER;
	return shown >> s->state & 1;
}

/* Does it count? A one-way session's end is not seen: its client's FIN takes its place. */
static inline bool session_is_had(const struct session *s, const struct endpoint *e)
{
	return session_is_shown(s) && !(endpoint_is_one_way(e) && s->flags & SESSION_CLIENT_FIN);
}

/*
 * TCP before the client has shown its address: by an ACK of the server's SYN-ACK, which went to
 * that address. Kept in the cold half's client_fin.
 *
 * Does packet i, without SYN and RST, show nothing? Then it is forwarded, and the state stays. */
bool client_sessions_shows_nothing(struct sy_worker *w, const struct sy_burst *burst, unsigned i);
/* Packet i is a SYN-ACK, and has advanced the state. */
void client_sessions_expect(struct sy_worker *w, const struct sy_burst *burst, unsigned i);

/* A client of a service, for view/client_count.h. A client of IPv6 is a /64. */
uint64_t client_sessions_key(const struct sy_balance *b, uint32_t service,
                             const struct sy_addr *client);
/* Has the client fewer sessions than the service allows? Takes no place. */
bool client_sessions_has_place(const struct sy_balance *b, const struct service *service,
                               const struct sy_addr *client);
/* After a change of the session's state; began: its client had not shown its address before. False:
 * the client has as many sessions as it may, and this one is not counted: client_sessions_refuse().
 */
bool client_sessions_change(struct sy_worker *w, const struct session_table *t, uint32_t record,
                            bool began);
/* Ends the session of packet i, of TCP by resets to both ends, and drops the packet unless it is
 * gone. */
void client_sessions_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i, bool gone);
/* Before the session ends. */
void client_sessions_end(struct sy_worker *w, const struct session_table *t, uint32_t record);
/* Counts sessions that were found or whose service has got a limit, no longer those whose service
 * has none. For the sweep. */
static inline void client_sessions_recount(struct sy_worker *w, const struct session_table *t,
                                           uint32_t record)
{
	client_sessions_change(w, t, record, false);
}

#endif
