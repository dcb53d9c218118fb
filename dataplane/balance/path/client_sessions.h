// SPDX-License-Identifier: Apache-2.0
/*
 * Counts each client's sessions, for services with client_limits: sessions
 * (docs/design/0027-access-lists.md). A session counts while it is open and its client validated.
 * Called by the slot's owner, and only if sy_balance.client_counts exists.
 */
#ifndef CLIENT_SESSIONS_H
#define CLIENT_SESSIONS_H

#include "balance.h"

/* Is the client validated, and not both sides closed? */
static inline bool session_is_shown(const struct session *s)
{
	const uint32_t shown = 1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT |
	                       1u << SESSION_CLOSING | 1u << SESSION_UDP_BOTH_WAYS |
	                       1u << SESSION_RESET_BY_CLIENT | 1u << SESSION_RESET_BY_SERVER;
	return shown >> s->state & 1;
}

/* Does the session count? The end of a one-way session is not visible: its client's FIN counts as
 * the end. */
static inline bool session_is_had(const struct session *s, const struct endpoint *e)
{
	return session_is_shown(s) && !(endpoint_is_one_way(e) && s->flags & SESSION_CLIENT_FIN);
}

/*
 * TCP clients validate their address by an ACK of the server's SYN-ACK, which was sent to it. The
 * expected number is kept in the cold half's client_fin.
 *
 * Does packet i, without SYN and RST, fail to validate the client? Then it is forwarded, and the
 * state stays.
 */
bool client_sessions_shows_nothing(struct sy_worker *w, const struct sy_burst *burst, unsigned i);
/* Notes the number of packet i, a SYN-ACK that has advanced the state. */
void client_sessions_expect(struct sy_worker *w, const struct sy_burst *burst, unsigned i);

/* Key of a service's client for view/client_count.h: an IPv4 address or an IPv6 /64. */
uint64_t client_sessions_key(const struct sy_balance *b, uint32_t service,
                             const struct sy_addr *client);
/* Has the client fewer sessions than the service allows? Acquires nothing. */
bool client_sessions_has_place(const struct sy_balance *b, const struct service *service,
                               const struct sy_addr *client);
/* Updates the count after a change of the session's state; began: the client was validated by it.
 * Returns false if the client is at its limit and the session was not counted: call
 * client_sessions_refuse(). */
bool client_sessions_change(struct sy_worker *w, const struct session_table *t, uint32_t record,
                            bool began);
/* Ends the session of packet i (TCP: resets both ends), and drops the packet unless it has left. */
void client_sessions_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i, bool gone);
/* Call before the session ends. */
void client_sessions_end(struct sy_worker *w, const struct session_table *t, uint32_t record);
/* For the sweep: counts adopted sessions and those whose service has a new limit; releases those
 * whose service has none. */
static inline void client_sessions_recount(struct sy_worker *w, const struct session_table *t,
                                           uint32_t record)
{
	client_sessions_change(w, t, record, false);
}

#endif
