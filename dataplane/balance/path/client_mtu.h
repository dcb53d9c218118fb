// SPDX-License-Identifier: Apache-2.0
/* Narrow paths to clients (docs/design/0020-path-mtu.md). */
#ifndef CLIENT_MTU_H
#define CLIENT_MTU_H

#include "balance.h"

/* Below this an error about an FNAT server's packet is kept from the server. */
#define CLIENT_MTU_FLOOR 1280
/* Nobody can make us send fragments that are smaller (RFC 791 3.1: all hosts take these). */
#define CLIENT_MTU_LEAST 576
/* Seconds that one is remembered (RFC 1191 6.3). */
#define CLIENT_MTU_S 600

/* A router says that the path to this IPv4 client has this MTU. */
void client_mtu_note(struct sy_worker *w, const struct sy_addr *client, uint16_t mtu);
/* The MTU of the path to this client, where one was noted; else 0. */
uint16_t client_mtu_find(struct sy_worker *w, const struct sy_addr *client);

#endif
