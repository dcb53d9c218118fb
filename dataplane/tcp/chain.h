// SPDX-License-Identifier: Apache-2.0
/*
 * Packets in several buffers, as created by LRO:
 *
 *     Ethernet │ IP │ TCP │ payload ──▶ payload ──▶ payload
 */
#ifndef CHAIN_H
#define CHAIN_H

#include <rte_mbuf.h>

#include <sy_packet.h>

/* Parses a chain. Moves all headers into the first buffer; a packet that is not plain TCP is
 * linearized. Returns false if it is malformed or does not fit one buffer. */
bool chain_parse(struct rte_mbuf *m, struct sy_view *v);
/* Verifies the TCP checksum, like sy_packet_check_l4(). */
enum sy_csum_state chain_check(const struct rte_mbuf *m, const struct sy_view *v);
/* Trims the chain to these bytes, at least one. Returns its new first buffer; frees the others, and
 * empty ones. */
struct rte_mbuf *chain_trim(struct rte_mbuf *m, uint32_t offset, uint32_t len);
/* Detaches the first buffer as a packet. Returns the rest, or NULL. */
struct rte_mbuf *chain_part(struct rte_mbuf *m);

#endif
