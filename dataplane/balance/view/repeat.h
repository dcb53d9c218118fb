// SPDX-License-Identifier: Apache-2.0
/*
 * What a worker has seen in the last five seconds, and sees again (docs/design/0035-overload.md):
 * a Bloom filter for each second, all of them for one hash in one cache line.
 *
 *     line    | second 32 | 80 bits | … |    six generations, by second mod 6
 *
 * Each hash sets two of a generation's bits. A line clears what is too old when it is touched.
 * Owner: one worker.
 */
#ifndef REPEAT_H
#define REPEAT_H

#include <stdbool.h>
#include <stdint.h>

/* A repetition counts if it comes in one of so many seconds after the hash was seen last. */
#define REPEAT_SECONDS 5

struct repeats;

/* NULL: no memory. It takes 16 MB once all lines have been touched. */
struct repeats *repeats_create(void);
void repeats_destroy(struct repeats *r);
/* Before repeat_note() is called for this hash. */
void repeat_prefetch(const struct repeats *r, uint64_t hash);
/* Notes the hash. Was it noted in one of the REPEAT_SECONDS seconds before this one? Also true, by
 * mistake, for one in 20 others while a million of them are noted each second. now: seconds that
 * never fall; equal hashes must be spread evenly over all bits. */
bool repeat_note(struct repeats *r, uint64_t hash, uint32_t now);

#endif
