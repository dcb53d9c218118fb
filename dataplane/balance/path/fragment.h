// SPDX-License-Identifier: Apache-2.0
/*
 * The fragment table (docs/design/0012-fragments.md). Fragments wait until their datagram is
 * complete, so no server gets a part of one. A later fragment has no ports; it gets them from its
 * datagram's first fragment. Each worker has its own table, for the datagrams whose slot it owns;
 * no other thread uses it.
 */
#ifndef BALANCE_FRAGMENT_H
#define BALANCE_FRAGMENT_H

#include "balance.h"

/* The longest time from a datagram's first fragment to arrive until its last. */
#define FRAGMENT_TIMEOUT_NS UINT64_C(2000000000)
#define FRAGMENT_HELD       SY_BALANCE_FRAGMENTS(1) /* fragments of a worker that wait, at most */
#define FRAGMENT_PIECES     128 /* of one datagram: 64 KB have 119 at an MTU of 576 */
/* The datagrams of a source with more than this part of the limit are evicted first. */
#define FRAGMENT_SHARES 8

struct fragments;

/* limit: fragments that wait, up to FRAGMENT_HELD. NULL: no memory, or no space in packet buffers
 * for the note from worker to worker. */
struct fragments *fragments_create(unsigned limit);
/* Also frees waiting fragments. f may be NULL. */
void fragments_destroy(struct fragments *f);

/*
 * Packet i is a fragment for us. NONE: its view now has the datagram's ports, protocol and new id,
 * and it continues like any packet; or it is SY_NEXT_PENDING: it waits, or SY_NEXT_STEERED to
 * another worker. Otherwise: the reason to drop it.
 */
enum sy_drop fragment_classify(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* An id for the fragments of a datagram of either family, whose source is one of our addresses. */
uint32_t fragment_id_new(struct sy_worker *w);
/* Drops datagrams that are not complete in time. Called each round. */
void fragments_expire(struct sy_worker *w);

#endif
