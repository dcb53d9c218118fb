// SPDX-License-Identifier: Apache-2.0
/* The SYN defence of DR and IPIP: SYNs of unknown clients answered by challenges, and the resets
 * that prove an address (docs/design/0025-syn-defence.md). */
#ifndef CHALLENGE_H
#define CHALLENGE_H

#include "defence.h"

/* A client and a service of DR or IPIP, for view/validated.h. */
uint64_t challenge_client(const struct sy_balance *b, const struct service *service,
                          const struct sy_addr *client);
/* May packet i, a SYN of this client without a session, begin one? Takes one of the client's
 * credits. False: it has none, and a challenge took the SYN's place. */
bool challenge_passes(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                      const struct service *service, uint64_t client);
/* Packet i, a reset without a session for this service. DROPPED: it was a proof, and was dropped.
 */
enum defence_result challenge_reset(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                    const struct service *service);
/* Packet i, a client's reset for session s. True: it was a proof that came late, and was dropped.
 */
bool challenge_is_late_proof(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                             const struct session *s);
/* A one-way session was established: notes its client, unless it had to prove itself. */
void challenge_note_session(struct sy_worker *w, const struct session *s);

#endif
