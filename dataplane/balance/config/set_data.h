// SPDX-License-Identifier: Apache-2.0
/*
 * The prefixes of a set that is too large for a transaction. The agent sends them before as one
 * block of bytes, which a transaction then names by its digest. Blocks are immutable. Control
 * thread only, unless noted otherwise.
 *
 *     0       4       8
 *     | IPv4  | IPv6  | address (4), length (1) × IPv4 | address (16), length (1) × IPv6 |
 *
 * The two numbers are little-endian, addresses in network order. IPv4 comes first, each family is
 * sorted, and no prefix is within another one.
 */
#ifndef SET_DATA_H
#define SET_DATA_H

#include "address_ranges.h"
#include "balance.h"

#define SET_DIGEST 32u
#define SET_PREFIXES                                                                               \
	(4u << 20) /* max prefixes of all such sets of a configuration, and so of one */
#define SET_HEAD     8u
#define SET_SIZE_MAX (SET_HEAD + (size_t)SET_PREFIXES * 17)
/* Max bytes of all blocks that wait for a transaction: as many as it can name. */
#define SET_WAITING_MAX (ADDRESS_SETS * (size_t)SET_HEAD + (size_t)SET_PREFIXES * 17)

struct set_data {
	struct set_data *next;
	unsigned holders;   /* references by sets of configuration versions */
	const void *sender; /* sender that needs it for its next transaction; NULL: none */
	bool refused; /* its sender's transaction was refused, and has not requested it since */
	bool saved;   /* in the state directory */
	uint8_t digest[SET_DIGEST];
	uint32_t prefixes4, prefixes6; /* set by set_data_check() */
	uint32_t crc32c;
	size_t size;
	uint8_t bytes[];
};

struct set_data *set_data_alloc(const uint8_t *digest, size_t size, uint32_t crc32c);
/* Are the bytes valid by checksum and format? Returns 0, or -EINVAL with err. Any thread. */
int set_data_check(struct set_data *d, struct sy_error *err);
/* Writes its prefixes to out, which has space for all. Any thread. */
void set_data_unpack(const struct set_data *d, struct sy_prefix *out);
/* Calls visit() for each prefix. */
void set_data_each(const struct set_data *d, void (*visit)(void *ctx, const struct sy_prefix *p),
                   void *ctx);
static inline uint32_t set_data_prefixes(const struct set_data *d)
{
	return d->prefixes4 + d->prefixes6;
}

/* Passes checked data to the balancer. sender NULL: none needs it. */
void set_data_add(struct sy_balance *b, struct set_data *d, const void *sender);
/* Returns NULL if there is none of this digest. */
struct set_data *set_data_find(const struct sy_balance *b, const uint8_t *digest);
/* Releases the sender's data: its transaction was accepted, or it has disconnected. */
void set_data_release(struct sy_balance *b, const void *sender);
/* The sender's transaction was refused: it may retry with the same data, or other data. */
void set_data_refuse(struct sy_balance *b, const void *sender);
/* Frees the sender's data from before a refusal that it has not requested since. */
void set_data_release_refused(struct sy_balance *b, const void *sender);
/* Frees data that neither a set nor a sender needs. */
void set_data_collect(struct sy_balance *b);
/* The bytes of all data without a set. */
size_t set_data_waiting(const struct sy_balance *b);
/* Frees all. */
void set_data_destroy(struct sy_balance *b);

#endif
