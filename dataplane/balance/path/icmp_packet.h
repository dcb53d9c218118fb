// SPDX-License-Identifier: Apache-2.0
/* ICMP: originated errors, packets to the forwarder's addresses, errors from other hosts. */
#ifndef ICMP_PACKET_H
#define ICMP_PACKET_H

#include "balance.h"

/* Sends an ICMP error to the sender of packet i, from the packet's destination address. Returns
 * whether it was sent. */
bool icmp_send_error(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                     enum sy_icmp_error kind, uint16_t mtu);
/* Steers ICMP packet i if another worker owns its slot. Drops an error that quotes no packet of the
 * forwarder. */
void icmp_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Processes ICMP packet i, sent to one of the forwarder's addresses, or to a client about a packet
 * to a NAT server. */
void icmp_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- icmp_error_forward.c -------------------------------------------------------------------- */

/* Does the error quote a packet to a NAT server or to an inside host of SNAT? Then it is addressed
 * to that packet's sender, and the forwarder is on the return path. */
bool icmp_is_about_server(const struct sy_balance *b, const uint8_t *frame,
                          const struct sy_view *v);
/* icmp_steer() and icmp_packet() for errors. */
void icmp_error_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i);
void icmp_error_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i);

#endif
