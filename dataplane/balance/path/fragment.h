// SPDX-License-Identifier: Apache-2.0
/*
 * The fragment table (docs/design/0012-fragments.md). A later fragment has no ports; it gets them
 * from its datagram's first fragment. Each worker has its own table, for the datagrams whose slot
 * it owns; no other thread uses it.
 */
#ifndef BALANCE_FRAGMENT_H
#define BALANCE_FRAGMENT_H

#include "balance.h"

/* The longest time from a datagram's first fragment to arrive until its last. */
#define FRAGMENT_TIMEOUT_NS  UINT64_C(2000000000)
#define FRAGMENT_WAITING     64   /* fragments of a worker that wait for their first fragment */
#define FRAGMENT_WAITING_MAX 16   /* of these, of one datagram */
#define FRAGMENT_DATAGRAMS   1024 /* of a worker, at once */

struct fragments;

/* NULL: no memory, or no space in packet buffers for the note from worker to worker. */
struct fragments *fragments_create(void);
/* Also frees waiting fragments. f may be NULL. */
void fragments_destroy(struct fragments *f);

/*
 * Packet i is a fragment for us. NONE: its view now has the datagram's ports, protocol and new id,
 * and it continues like any packet; or it is SY_NEXT_GONE: it waits, or was handed over to another
 * worker. Otherwise: the reason to drop it.
 */
enum sy_drop fragment_classify(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* An id for the fragments of a datagram of either family, whose source is one of our addresses. */
uint32_t fragment_id_new(struct sy_worker *w);
/* Drops datagrams that have taken too long. Called each round. */
void fragments_expire(struct sy_worker *w);

#endif
