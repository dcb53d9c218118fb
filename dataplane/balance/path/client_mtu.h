// SPDX-License-Identifier: Apache-2.0
/* Narrow paths to clients (docs/design/0020-path-mtu.md). */
#ifndef CLIENT_MTU_H
#define CLIENT_MTU_H

#include "balance.h"

/* ICMP errors with a smaller MTU than this, about an FNAT server's packet, are not passed to the
 * server. */
#define CLIENT_MTU_FLOOR 1280
/* Lower bound for MTUs in errors (RFC 791 3.1: all hosts accept fragments of this size). */
#define CLIENT_MTU_MIN 576
/* Lifetime of an entry, seconds (RFC 1191 6.3). */
#define CLIENT_MTU_S 600

/* Notes the MTU that a router reported for the path to an IPv4 client. */
void client_mtu_note(struct sy_worker *w, const struct sy_addr *client, uint16_t mtu);
/* Returns the MTU noted for the path to this client; 0: none. */
uint16_t client_mtu_find(struct sy_worker *w, const struct sy_addr *client);

#endif
