// SPDX-License-Identifier: Apache-2.0
/* ICMP: errors that we send, packets to our addresses, errors from others. */
#ifndef ICMP_H
#define ICMP_H

#include "balance.h"

/* Sends an ICMP error to the sender of packet i, from the address it was sent to. Returns whether
 * it was sent. */
bool icmp_send_error(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                     enum sy_icmp_error kind, uint16_t mtu);
/* Hands ICMP packet i over if another worker owns its slot. Drops an error that quotes none of our
 * packets. */
void icmp_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Handles ICMP packet i, sent to one of our addresses, or to a client about a packet to a NAT
 * server. */
void icmp_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- icmp_error.c ---------------------------------------------------------------------------- */

/* Does it quote a packet to a NAT server, or to an inside host of SNAT? Then it was sent to that
 * packet's sender, and we are the return path. */
bool icmp_is_about_server(const struct sy_balance *b, const uint8_t *frame,
                          const struct sy_view *v);
/* icmp_steer() and icmp_packet() for errors. */
void icmp_error_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i);
void icmp_error_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i);

#endif
