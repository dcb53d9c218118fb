// SPDX-License-Identifier: Apache-2.0
/* Inserts entries into the index and removes them: cuckoo hashing, bounded and reversible. */
#ifndef SY_SESSION_WALK_H
#define SY_SESSION_WALK_H

#include "session.h"

/* Max buckets that a breadth-first search visits. Each full bucket has 10 entries to move: the
 * search visits 2 buckets, then 20, then 200, and the remaining ones at depth 3. */
#define SESSION_WALK_BUCKETS 512
#define SESSION_WALK_MOVES   3

/* The positions that an insertion changed: each entry at position[i] moved to position[i + 1], and
 * the new entry is at position[0]. */
struct session_walk {
	uint32_t length; /* of position[], at least 1 */
	struct session_position {
		uint32_t bucket, index;
	} position[SESSION_WALK_MOVES + 1];
};

/* Inserts `entry` under a hash, moving other entries to their second buckets if needed. Returns
 * false, with nothing changed, if it finds no path to an empty entry. */
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
