// SPDX-License-Identifier: Apache-2.0
/* ICMP: what we tell senders ourselves, what is sent to our addresses, errors of others. */
#ifndef ICMP_H
#define ICMP_H

#include "balance.h"

/* Tells the sender of packet i what became of it, as the address it was sent to. */
void icmp_send_error(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                     enum sy_icmp_error kind, uint16_t mtu);
/* Hands packet i, which is ICMP, over to the worker that owns its slot, if it is another; drops an
 * error that quotes nothing of ours. */
void icmp_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Handles packet i, which is ICMP and was sent to an address of ours, or to a client about a packet
 * to a NAT server. */
void icmp_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- icmp_error.c ---------------------------------------------------------------------------- */

/* Does it quote a packet to a NAT server, or to an inside host of SNAT? It was sent to that
 * packet's sender then, for whom we are the way back. */
bool icmp_is_about_server(const struct sy_balance *b, const uint8_t *frame,
                          const struct sy_view *v);
/* The same two for errors. */
void icmp_error_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i);
void icmp_error_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i);

#endif
