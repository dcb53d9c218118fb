// SPDX-License-Identifier: Apache-2.0
/* Putting entries into the index and taking them out: cuckoo hashing, bounded and undoable. */
#ifndef SY_SESSION_WALK_H
#define SY_SESSION_WALK_H

#include "session.h"

/* A search looks at no more buckets than these. It goes breadth first, and every full bucket leads
 * to ten others: 2 at the root, 20 behind them, 200, and the rest is three moves away. */
#define SESSION_WALK_BUCKETS 512
#define SESSION_WALK_MOVES   3

/* The places an insertion touched: entries moved from place[i] to place[i + 1], and the new one
 * went to place[0]. */
struct session_walk {
	uint32_t length; /* of place[], at least 1 */
	struct session_place {
		uint32_t bucket, index;
	} place[SESSION_WALK_MOVES + 1];
};

/* Enters `entry` under a hash, moving others to their other buckets if need be. Returns false, with
 * nothing changed, when no path to an empty place is found. */
bool session_walk_insert(struct session_table *t, uint64_t hash, uint32_t entry,
                         struct session_walk *walk);

/* Takes the insertion back, to the bit; nothing else may have changed the index since. */
void session_walk_undo(struct session_table *t, const struct session_walk *walk);

/* Enters both entries of a record (the client's alone if it is SESSION_ONE_WAY), or none. */
bool session_walk_enter(struct session_table *t, uint32_t record, uint64_t client_hash,
                        uint64_t server_hash);

/* Takes the entry of a hash out; without effect if it is not there. */
void session_walk_remove(struct session_table *t, uint64_t hash, uint32_t entry);

#endif
