// SPDX-License-Identifier: Apache-2.0
/* Narrow paths to clients (docs/design/0020-path-mtu.md). */
#ifndef CLIENT_MTU_H
#define CLIENT_MTU_H

#include "balance.h"

/* Errors about an FNAT server's packet with a smaller MTU are not sent to the server. */
#define CLIENT_MTU_FLOOR 1280
/* The least MTU that an error can make us use (RFC 791 3.1: all hosts accept such fragments). */
#define CLIENT_MTU_LEAST 576
/* Seconds that an MTU is remembered (RFC 1191 6.3). */
#define CLIENT_MTU_S 600

/* Notes that a router reported this MTU for the path to an IPv4 client. */
void client_mtu_note(struct sy_worker *w, const struct sy_addr *client, uint16_t mtu);
/* The MTU noted for the path to this client; 0: none. */
uint16_t client_mtu_find(struct sy_worker *w, const struct sy_addr *client);

#endif
