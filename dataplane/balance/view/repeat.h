// SPDX-License-Identifier: Apache-2.0
/*
 * Detects hashes that a worker has seen in the last five seconds (docs/design/0035-overload.md): a
 * Bloom filter per second; a hash has all of them in one cache line.
 *
 * line | second 32 | 80 bits | … | six generations, by second mod 6
 *
 * Each hash sets two bits of a generation. An access clears the line's expired generations. Owner:
 * one worker.
 */
#ifndef REPEAT_H
#define REPEAT_H

#include <stdbool.h>
#include <stdint.h>

/* A repetition counts if it comes within this many seconds. */
#define REPEAT_SECONDS 5

struct repeats;

/* Returns NULL without memory. Uses 16 MB once all lines were touched. */
struct repeats *repeats_create(void);
void repeats_destroy(struct repeats *r);
/* Call before repeat_note() for this hash. */
void repeat_prefetch(const struct repeats *r, uint64_t hash);
/* Stores the hash. Returns whether it was stored in one of the REPEAT_SECONDS seconds before this
 * one; also true for one in 20 others while a million are stored per second. now: monotonic
 * seconds; equal hashes must be spread evenly over all bits. */
bool repeat_note(struct repeats *r, uint64_t hash, uint32_t now);

#endif
