// SPDX-License-Identifier: Apache-2.0
/*
 * Counts the sessions of each client, for services that limit them
 * (docs/design/0027-access-lists.md): one table for all workers, without locks. It ends with the
 * process. A bit per record, outside the session file, says whether the session is counted: its
 * slot's worker sets it after counting, and clears it after releasing.
 *
 *     bucket    | client | client | … |    eight words of 64 bits, one cache line
 *     word      | tag 40 | count 24 |      0: empty
 *
 * The tag is a keyed hash of client and service. Words change by compare-and-swap. Two workers that
 * count a client's first sessions at the same time may use a word each: its count is their sum.
 */
#ifndef CLIENT_COUNT_H
#define CLIENT_COUNT_H

#include "session.h"

#define CLIENT_SESSIONS_MAX 1000000u

struct client_counts;

struct client_counts *client_counts_create(void);
void client_counts_destroy(struct client_counts *c);

/* The client's sessions. client: hash of its address and the service. Any thread. */
uint32_t client_count_read(const struct client_counts *c, uint64_t client);

enum client_count_result {
	CLIENT_COUNTED,
	CLIENT_OVER,      /* the client has `limit` sessions or more */
	CLIENT_UNCOUNTED, /* not counted: the bucket is full of other clients */
};
/* Counts one more session if there are fewer than `limit`. Any worker. */
enum client_count_result client_count_acquire(struct client_counts *c, uint64_t client,
                                              uint32_t limit);
/* The sum of all counts, for tests. c may be NULL, here and below. */
uint64_t client_counts_sum(const struct client_counts *c);
/* How often client_count_release() found no count to release: a bug. Any thread. */
uint64_t client_counts_lost(const struct client_counts *c);
/* Releases one counted session. */
void client_count_release(struct client_counts *c, uint64_t client);

/* The bits of a slot's records: bit n % 8 of byte n / 8 is that of record n. Writer and reader: the
 * slot's worker. */
uint8_t *client_counts_bits(struct client_counts *c, uint8_t slot);

#endif
