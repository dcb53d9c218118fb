// SPDX-License-Identifier: Apache-2.0
/* Passing clients' addresses to servers (docs/design/0014-client-address.md). */
#ifndef CLIENT_ADDRESS_H
#define CLIENT_ADDRESS_H

#include "balance.h"

/* Processes packet i, a SYN of a client. If it begins the connection, notes what to send the server
 * and the client's first number. If it may be a retransmission, the server's answer decides. Strips
 * data from a SYN that a PROXY header must precede. */
void client_address_begin(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          struct session *s);
/* Inserts the address into a client's packet if the server may not have it yet. mtu: max bytes of
 * IP packet. Returns false if the packet was dropped. */
bool client_address_insert(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                           struct session *s, uint32_t mtu);
/* Processes a server's packet while SESSION_ADDRESS_PENDING, which it clears once the server has
 * the address. Conceals a partial acknowledgement of the header from the client. Returns the TCP
 * flags that may change the session's state. */
uint8_t client_address_acknowledged(struct session *s, const struct session_cold *cold,
                                    uint8_t *frame, const struct sy_view *v);

#endif
