// SPDX-License-Identifier: Apache-2.0
/*
 * The prefixes of a set that is too large for a transaction. The agent sends them as one block of
 * bytes, which a transaction then names by its digest. A block never changes. Control thread only,
 * unless said otherwise.
 *
 *     0       4       8
 *     | IPv4  | IPv6  | address (4), length (1) × IPv4 | address (16), length (1) × IPv6 |
 *
 * The two numbers are little-endian, addresses in network order. IPv4 comes first, each family is
 * sorted, and no prefix lies within another one.
 */
#ifndef SET_DATA_H
#define SET_DATA_H

#include "address_ranges.h"
#include "balance.h"

#define SET_DIGEST   32u
#define SET_PREFIXES (4u << 20) /* of all such sets of a configuration, and so of one, at most */
#define SET_HEAD     8u
#define SET_SIZE_MAX (SET_HEAD + (size_t)SET_PREFIXES * 17)
/* Of all that wait for a transaction: as many as it can name. */
#define SET_WAITING_MAX (ADDRESS_SETS * (size_t)SET_HEAD + (size_t)SET_PREFIXES * 17)

struct set_data {
	struct set_data *next;
	unsigned holders;   /* sets of a version of the configuration */
	const void *sender; /* keeps it for its next transaction; NULL: nobody does */
	bool refused;       /* with its sender's transaction, and not asked for since */
	bool saved;         /* in the state directory */
	uint8_t digest[SET_DIGEST];
	uint32_t prefixes4, prefixes6; /* set by set_data_check() */
	uint32_t crc32c;
	size_t size;
	uint8_t bytes[];
};

struct set_data *set_data_alloc(const uint8_t *digest, size_t size, uint32_t crc32c);
/* Whether the bytes are as the checksum and the format say: 0, or -EINVAL with err. Any thread. */
int set_data_check(struct set_data *d, struct sy_error *err);
/* Writes its prefixes to out, which has room for all. Any thread. */
void set_data_unpack(const struct set_data *d, struct sy_prefix *out);
/* Calls visit() for each prefix. */
void set_data_each(const struct set_data *d, void (*visit)(void *ctx, const struct sy_prefix *p),
                   void *ctx);
static inline uint32_t set_data_prefixes(const struct set_data *d)
{
	return d->prefixes4 + d->prefixes6;
}

/* Gives checked data to the balancer. sender NULL: nobody keeps it. */
void set_data_add(struct sy_balance *b, struct set_data *d, const void *sender);
/* NULL: it has none of this name. */
struct set_data *set_data_find(const struct sy_balance *b, const uint8_t *digest);
/* This sender keeps nothing any more: its transaction was accepted, or it has left. */
void set_data_release(struct sy_balance *b, const void *sender);
/* This sender's transaction was refused: it may begin again with the same data, or with others. */
void set_data_refuse(struct sy_balance *b, const void *sender);
/* Frees what this sender sent before a refusal, and has not asked for since. */
void set_data_release_refused(struct sy_balance *b, const void *sender);
/* Frees what neither a set nor a sender keeps. */
void set_data_collect(struct sy_balance *b);
/* The bytes of all data that no set holds. */
size_t set_data_waiting(const struct sy_balance *b);
/* Frees all. */
void set_data_destroy(struct sy_balance *b);

#endif
