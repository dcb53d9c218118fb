// SPDX-License-Identifier: Apache-2.0
/* Servers are told their clients' addresses (docs/design/0014-client-address.md). */
#ifndef TELL_H
#define TELL_H

#include "balance.h"

/* A client's SYN, packet i. If it (again) begins the connection: notes what its server is to be
 * told, and from where on. If the server decides that, the SYN brings no data before a header. */
void client_address_begin(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          struct session *s);
/* A client's packet whose server may not know yet: tells it, in at most `room` bytes of IP packet.
 * False: the packet was dropped. */
bool client_address_insert(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                           struct session *s, uint32_t mtu);
/* A server's packet while that may be so: does it know now? Hides from the client that less than
 * the header may have been acknowledged. Returns the flags that the session's state may follow. */
uint8_t client_address_acknowledged(struct session *s, const struct session_cold *cold,
                                    uint8_t *frame, const struct sy_view *v);

#endif
