// SPDX-License-Identifier: Apache-2.0
/*
 * The fragment table (docs/design/0012-fragments.md). Fragments wait until their datagram is
 * complete, so servers receive only whole datagrams. Later fragments have no ports; they get those
 * of the first fragment. Each worker has its own table for datagrams of its slots; no other thread
 * accesses it.
 */
#ifndef FRAGMENT_TABLE_H
#define FRAGMENT_TABLE_H

#include "balance.h"

/* Reassembly timeout, from the first fragment that arrives. */
#define FRAGMENT_TIMEOUT_NS  UINT64_C(2000000000)
#define FRAGMENT_MAX_WAITING SY_BALANCE_FRAGMENTS(1) /* max waiting fragments of a worker */
#define FRAGMENT_PIECES      128 /* max fragments of a datagram: 64 KB have 119 at an MTU of 576 */
/* Datagrams of a source with more than 1/FRAGMENT_SHARES of the limit are evicted first. */
#define FRAGMENT_SHARES 8

struct fragments;

/* limit: max waiting fragments, at most FRAGMENT_MAX_WAITING. Returns NULL without memory, or if
 * packet buffers have no space for the steering metadata. */
struct fragments *fragments_create(unsigned limit);
/* Also frees waiting fragments. f may be NULL. */
void fragments_destroy(struct fragments *f);

/* Call for a packet that enters the pipeline by sy_packet_resubmit() and may be a fragment: its
 * buffer may have the steering metadata of an earlier packet. */
void fragment_note_reset(struct rte_mbuf *m);

/*
 * Handles packet i, a fragment to one of the forwarder's addresses. Returns NONE if the packet
 * continues: its view now has the datagram's ports, protocol and new id. Also returns NONE if it
 * waits (SY_NEXT_PENDING), was steered (SY_NEXT_STEERED) or has left for another node
 * (SY_NEXT_RELAYED). Otherwise returns the drop reason.
 */
enum sy_drop fragment_classify(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Returns an id for the fragments of a datagram from one of the forwarder's addresses. */
uint32_t fragment_id_new(struct sy_worker *w);
/* Drops datagrams that have timed out. Called once a round. */
void fragments_expire(struct sy_worker *w);

#endif
