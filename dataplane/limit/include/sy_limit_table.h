// SPDX-License-Identifier: Apache-2.0
/*
 * Many buckets of one rate, found by a 128-bit key: one per client of a limit. A bucket is created
 * on first use. A full bucket is equivalent to none, so its entry is free. Nothing is locked or
 * allocated, and any thread may charge any bucket.
 *
 *     lines      | tag level | tag level | tag level | tag level |   one cache line
 *     clients    | key, counts | key, counts | …                     by entry; charging does not
 * read it
 *
 * A tag is a keyed hash of the key, so that a client that chooses keys cannot fill a line. Each key
 * has two lines. Tag and level change together, by a 128-bit compare-and-swap: charging a bucket
 * and reusing it for another client cannot both succeed.
 */
#ifndef SY_LIMIT_TABLE_H
#define SY_LIMIT_TABLE_H

#include "sy_limit.h"

#define SY_LIMIT_TABLE_MAX (UINT32_C(1) << 20)

struct sy_limit_table;

struct sy_limit_counts {
	uint64_t packets, bytes;
};

/* Refers to the entry of a bucket. */
struct sy_limit_entry {
	uint64_t tag;
	uint32_t at; /* SY_LIMIT_NO_ENTRY: none */
};
#define SY_LIMIT_NO_ENTRY UINT32_MAX

struct sy_limit_key {
	uint64_t d[2];
};

enum sy_limit_answer {
	SY_LIMIT_CHARGED,
	SY_LIMIT_ABOVE,     /* nothing was charged */
	SY_LIMIT_UNLIMITED, /* nothing was charged: no bucket of the key, and no free entry */
};

/* Creates a table for `max` buckets (1 to SY_LIMIT_TABLE_MAX); memory is touched on first use.
 * threads: number of threads that use it, besides the reader. Returns NULL without memory. */
struct sy_limit_table *sy_limit_table_create(uint32_t max, unsigned threads);
void sy_limit_table_destroy(struct sy_limit_table *t);
size_t sy_limit_table_bytes(uint32_t max);

/* Charges `cost` units to the key's bucket; see sy_limit_charge(). */
enum sy_limit_answer sy_limit_table_charge(struct sy_limit_table *t, const struct sy_limit_rate *r,
                                           const struct sy_limit_key *key, uint64_t volume,
                                           uint64_t cost, struct sy_limit_entry *place);
/* As sy_limit_peek(), with the entry of the key's bucket, if it has one. */
bool sy_limit_table_peek(const struct sy_limit_table *t, const struct sy_limit_rate *r,
                         const struct sy_limit_key *key, uint64_t volume, uint64_t cost,
                         struct sy_limit_entry *place);
/* The entry of a key's bucket, if it has one. */
struct sy_limit_entry sy_limit_table_find(const struct sy_limit_table *t,
                                          const struct sy_limit_key *key);
/* Refunds units that were charged to the entry. */
void sy_limit_table_refund(struct sy_limit_table *t, const struct sy_limit_entry *place,
                           uint64_t cost);
/* Counts a packet of a key whose bucket was found. Two threads may lose each other's count while a
 * bucket is created. */
void sy_limit_table_count(struct sy_limit_table *t, const struct sy_limit_entry *place, bool above,
                          uint64_t packets, uint64_t bytes);
/* As sy_limit_settle(), for all buckets. */
void sy_limit_table_settle(struct sy_limit_table *t, uint64_t volume);

/* A key of the table. */
struct sy_limit_client {
	struct sy_limit_key key;
	struct sy_limit_counts passed, above; /* since its bucket was created */
	bool full;                            /* full: the entry is free for other keys */
};

uint32_t sy_limit_table_capacity(const struct sy_limit_table *t);
/* The number of buckets that are not full. Other threads may charge buckets meanwhile. */
uint32_t sy_limit_table_used(const struct sy_limit_table *t, const struct sy_limit_rate *r,
                             uint64_t volume);
/* Reads an entry. Returns false if it is empty. One thread at a time; other threads may charge
 * buckets meanwhile. */
bool sy_limit_table_read(const struct sy_limit_table *t, uint32_t place,
                         const struct sy_limit_rate *r, uint64_t volume,
                         struct sy_limit_client *out);

#endif
