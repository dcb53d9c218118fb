// SPDX-License-Identifier: Apache-2.0
/*
 * Packets in several buffers. Ports that join what comes (LRO) make them:
 *
 *     Ethernet │ IP │ TCP │ payload ──▶ payload ──▶ payload
 */
#ifndef CHAIN_H
#define CHAIN_H

#include <rte_mbuf.h>

#include <sy_packet.h>

/* Parses a packet of several buffers. Afterwards all headers lie in the first one, and of what is
 * no plain TCP segment all bytes do. False: it is malformed, or does not fit one buffer. */
bool chain_parse(struct rte_mbuf *m, struct sy_view *v);
/* What TCP's checksum is, as sy_packet_check_l4() says. Sums all of it. */
enum sy_csum_state chain_check(const struct rte_mbuf *m, const struct sy_view *v);
/* Keeps these bytes; there are so many, and at least one. Returns the first buffer that has some:
 * the others are freed, and none is empty. */
struct rte_mbuf *chain_trim(struct rte_mbuf *m, uint32_t offset, uint32_t len);
/* Makes the first buffer a packet of its own. Returns the rest, without a length; NULL: there is
 * none. */
struct rte_mbuf *chain_part(struct rte_mbuf *m);

#endif
