// SPDX-License-Identifier: Apache-2.0
/* Inserts entries into the index and removes them: cuckoo hashing, bounded and reversible. */
#ifndef SY_SESSION_WALK_H
#define SY_SESSION_WALK_H

#include "session.h"

/* Max buckets that a search visits, breadth first. Every full bucket leads to ten others: 2 at the
 * root, then 20, then 200; the rest of the limit is three moves away. */
#define SESSION_WALK_BUCKETS 512
#define SESSION_WALK_MOVES   3

/* The positions that an insertion changed: entries moved from place[i] to place[i + 1], and the new
 * entry went to place[0]. */
struct session_walk {
	uint32_t length; /* of place[], at least 1 */
	struct session_place {
		uint32_t bucket, index;
	} place[SESSION_WALK_MOVES + 1];
};

/* Inserts `entry` under a hash, moving others to their other buckets if needed. Returns false, with
 * nothing changed, if it finds no path to an empty place. */
bool session_walk_insert(const struct session_index *x, uint64_t hash, uint32_t entry,
                         struct session_walk *walk);

/* Reverts the insertion exactly; nothing else may have changed the index since. */
void session_walk_undo(const struct session_index *x, const struct session_walk *walk);

/* Inserts both entries of a record (only the client's if server_hash is SESSION_ONE_WAY), or
 * none. */
bool session_walk_enter(const struct session_index *x, uint32_t record, uint64_t client_hash,
                        uint64_t server_hash);

/* Removes the entry of a hash; does nothing if it is not there. */
void session_walk_remove(const struct session_index *x, uint64_t hash, uint32_t entry);

#endif
