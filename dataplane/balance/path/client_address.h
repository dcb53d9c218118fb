// SPDX-License-Identifier: Apache-2.0
/* Passing clients' addresses to servers (docs/design/0014-client-address.md). */
#ifndef CLIENT_ADDRESS_H
#define CLIENT_ADDRESS_H

#include "balance.h"

/* For a client's SYN, packet i. If it begins the connection, first or again, this notes what to
 * send the server, and the number of the client's first byte. If the SYN may be a repetition, the
 * server's answer decides. Removes data from a SYN where a PROXY header must come before it. */
void client_address_begin(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          struct session *s);
/* For a client's packet whose server may not have the address yet: inserts it, in at most `mtu`
 * bytes of IP packet. False: the packet was dropped. */
bool client_address_insert(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                           struct session *s, uint32_t mtu);
/* For a server's packet while SESSION_ADDRESS_PENDING, which this clears once the server has the
 * address. If the server acknowledged only a part of the header, conceals that from the client.
 * Returns the TCP flags that may change the session's state. */
uint8_t client_address_acknowledged(struct session *s, const struct session_cold *cold,
                                    uint8_t *frame, const struct sy_view *v);

#endif
