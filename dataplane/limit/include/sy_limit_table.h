// SPDX-License-Identifier: Apache-2.0
/*
 * Many buckets of one rate, found by a key of 128 bits: one for each client of a limit. They are
 * made on first use, and go by themselves: a bucket that is full again is as good as none, so its
 * place is free. Nothing is locked or allocated, and any threads may take from any bucket.
 *
 *     lines      | tag level | tag level | tag level | tag level |   one cache line
 *     clients    | key, counts | key, counts | …                     by place; not read to take
 *
 * A tag is a keyed hash of the key, so who chooses keys cannot fill a line. Each key has two lines.
 * Tag and level change together, by one compare-and-swap of 128 bits: a thread that takes from a
 * bucket and one that makes it another client's cannot both succeed.
 */
#ifndef SY_LIMIT_TABLE_H
#define SY_LIMIT_TABLE_H

#include "sy_limit.h"

#define SY_LIMIT_TABLE_MAX (UINT32_C(1) << 20)

struct sy_limit_table;

struct sy_limit_counts {
	uint64_t packets, bytes;
};

/* Where a bucket was found. */
struct sy_limit_place {
	uint64_t tag;
	uint32_t at; /* SY_LIMIT_NO_PLACE: it was not found */
};
#define SY_LIMIT_NO_PLACE UINT32_MAX

struct sy_limit_key {
	uint64_t d[2];
};

enum sy_limit_answer {
	SY_LIMIT_CHARGED,
	SY_LIMIT_ABOVE,     /* nothing was charged */
	SY_LIMIT_UNLIMITED, /* nothing was charged: no bucket of the key, and no place for one */
};

/* Room for `most` buckets (1 to SY_LIMIT_TABLE_MAX), whose memory is not touched before its use.
 * threads: how many will use it, besides the one that reads it. NULL: no memory. */
struct sy_limit_table *sy_limit_table_create(uint32_t most, unsigned threads);
void sy_limit_table_destroy(struct sy_limit_table *t);
size_t sy_limit_table_bytes(uint32_t most);

/* Takes `cost` units from the key's bucket; see sy_limit_charge(). */
enum sy_limit_answer sy_limit_table_charge(struct sy_limit_table *t, const struct sy_limit_rate *r,
                                           const struct sy_limit_key *key, uint64_t volume,
                                           uint64_t cost, struct sy_limit_place *place);
/* As sy_limit_peek(), with the place of the key's bucket, if it has one. */
bool sy_limit_table_peek(const struct sy_limit_table *t, const struct sy_limit_rate *r,
                         const struct sy_limit_key *key, uint64_t volume, uint64_t cost,
                         struct sy_limit_place *place);
/* The place of a key's bucket, if it has one. */
struct sy_limit_place sy_limit_table_find(const struct sy_limit_table *t,
                                          const struct sy_limit_key *key);
/* Gives units back that were charged there and did not pass. */
void sy_limit_table_refund(struct sy_limit_table *t, const struct sy_limit_place *place,
                           uint64_t cost);
/* Counts a packet of the key whose bucket was found. Two threads may lose each other's count while
 * a bucket is made. */
void sy_limit_table_count(struct sy_limit_table *t, const struct sy_limit_place *place, bool above,
                          uint64_t packets, uint64_t bytes);
/* As sy_limit_settle(), for all buckets. */
void sy_limit_table_settle(struct sy_limit_table *t, uint64_t volume);

/* A key that the table knows. */
struct sy_limit_client {
	struct sy_limit_key key;
	struct sy_limit_counts passed, above; /* since its bucket was made */
	bool full;                            /* its place is free for others */
};

uint32_t sy_limit_table_places(const struct sy_limit_table *t);
/* How many buckets are not full. Beside any threads. */
uint32_t sy_limit_table_used(const struct sy_limit_table *t, const struct sy_limit_rate *r,
                             uint64_t volume);
/* What a place has; false: nothing. One thread, beside those that take. */
bool sy_limit_table_read(const struct sy_limit_table *t, uint32_t place,
                         const struct sy_limit_rate *r, uint64_t volume,
                         struct sy_limit_client *out);

#endif
