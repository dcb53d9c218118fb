// SPDX-License-Identifier: Apache-2.0
/* The SYN defence of DR and IPIP: answers SYNs of unknown clients by challenges; a reset in answer
 * validates the client's address (docs/design/0025-syn-defence.md). */
#ifndef CHALLENGE_H
#define CHALLENGE_H

#include "defence.h"

/* Key of a client of a DR or IPIP service for view/validated.h. */
uint64_t challenge_client(const struct sy_balance *b, const struct service *service,
                          const struct sy_addr *client);
/* May packet i, a SYN without a session, begin one? Consumes one of the client's credits. Returns
 * false if it has none; a challenge has replaced the SYN. */
bool challenge_passes(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                      const struct service *service, uint64_t client);
/* Processes packet i, a reset without a session for this service. Returns DEFENCE_CONSUMED if it
 * validated the client: then it was dropped. */
enum defence_result challenge_reset(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                    const struct service *service);
/* Drops packet i, a client's reset for session s, if it is a late answer to a challenge. Returns
 * true if so. */
bool challenge_is_late_proof(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                             const struct session *s);
/* Notes the client of an established one-way session, unless a challenge validated it. */
void challenge_note_session(struct sy_worker *w, const struct session *s);

#endif
