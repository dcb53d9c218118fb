// SPDX-License-Identifier: Apache-2.0
/*
 * The fragment table (docs/design/0012-fragments.md): what a later fragment lacks, ports, it gets
 * from its datagram's first one.
 *
 * Each worker has one, of the datagrams whose slot is its own, and nobody else touches it.
 */
#ifndef BALANCE_FRAGMENT_H
#define BALANCE_FRAGMENT_H

#include "balance.h"

/* How long a datagram may take from its first fragment to come to its last. */
#define FRAGMENT_LIFE_NS     UINT64_C(2000000000)
#define FRAGMENT_WAITING     64   /* fragments that wait for their first, of a worker */
#define FRAGMENT_WAITING_MAX 16   /* of them of one datagram */
#define FRAGMENT_DATAGRAMS   1024 /* at once, of a worker */

struct fragments;

/* NULL: no memory, or no room in packet buffers for what workers tell each other. */
struct fragments *fragments_create(void);
/* Frees what waits too. f may be NULL. */
void fragments_destroy(struct fragments *f);

/*
 * Packet i is a fragment, for us. NONE: its view has the datagram's ports, protocol and new id now,
 * and it goes on like any packet; or it is SY_NEXT_GONE: it waits, or another worker has it.
 * Anything else: why it is dropped.
 */
enum sy_drop fragment_classify(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* An id for a datagram's fragments, of either family, whose source is an address of ours. */
uint32_t fragment_id_new(struct sy_worker *w);
/* Ends what has taken too long. Each round. */
void fragments_expire(struct sy_worker *w);

#endif
