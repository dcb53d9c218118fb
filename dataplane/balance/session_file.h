// SPDX-License-Identifier: Apache-2.0
/*
 * The session file as bytes: a header, then one region of equal size per slot.
 *
 *   file    │ header, padded to SESSION_FILE_FIRST │ slot 0 │ slot 1 │ … │ to a whole page │
 *   slot    │ port cursors │ index: buckets │ hot halves │ cold halves │
 *
 * A slot's region is contiguous, so that handing over a slot hands over one piece of memory.
 * Numbers are in the machine's byte order: the file never leaves the machine.
 */
#ifndef SY_SESSION_FILE_H
#define SY_SESSION_FILE_H

#include "session.h"

#define SESSION_FILE_MAGIC   "SYSLOTS" /* with its end, 8 bytes */
#define SESSION_FILE_VERSION 1         /* of all layouts together: header, halves, buckets */
#define SESSION_FILE_FIRST   4096      /* where slot 0 begins */

/* Where a slot's parts begin, in bytes from its region's start; each on a cache line. */
struct session_geometry {
	uint32_t records, buckets;
	uint64_t cursors_at, buckets_at, hot_at, cold_at;
	uint64_t size; /* of the region */
};

struct session_file {
	char magic[8];
	uint32_t version;
	uint16_t bucket_size, hot_size, cold_size, cursors; /* layout sizes of this version */
	uint32_t slots;
	uint64_t file_size;
	struct session_geometry slot;
	struct sy_hash_key key; /* of the index */
	uint64_t check;         /* session_file_check(), stored last: 0 or wrong: never finished */
};
_Static_assert(sizeof(struct session_file) <= SESSION_FILE_FIRST, "header fits its page");

uint64_t session_file_check(const struct session_file *f);

/* Lays out a slot of this many records (a multiple of SESSION_RECORDS_STEP) and buckets. */
#define SESSION_RECORDS_STEP 4 /* cold halves of a cache line */
void session_geometry_init(struct session_geometry *g, uint32_t records, uint32_t buckets);

/* Records and buckets of one slot when all slots together shall hold this many sessions. */
void session_geometry_choose(struct session_geometry *g, uint64_t sessions);

/* An empty table over a region of zeros, aligned to a cache line. */
void session_table_init(struct session_table *t, uint8_t slot, void *region,
                        const struct session_geometry *g);

#endif
