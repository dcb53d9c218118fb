// SPDX-License-Identifier: Apache-2.0
#include "set_data.h"

#include <stdlib.h>

#include <rte_byteorder.h>
#include <rte_hash_crc.h>

#include "access_model.h"

#define SIZE4 5u /* of an IPv4 prefix */
#define SIZE6 17u

struct set_data *set_data_alloc(const uint8_t *digest, size_t size, uint32_t crc32c)
{
	struct set_data *d = malloc(sizeof(*d) + size);
	if (!d)
		return NULL;
	*d = (struct set_data){.size = size, .crc32c = crc32c};
	memcpy(d->digest, digest, SET_DIGEST);
	return d;
}

/* Reads a prefix; returns the bytes behind it. */
static const uint8_t *prefix_read(const uint8_t *at, bool v4, struct sy_prefix *out)
{
	const unsigned size = v4 ? SIZE4 - 1 : SIZE6 - 1;
	sy_addr_from_bytes(at, size, &out->addr);
	out->bits = at[size];
	return at + size + 1;
}

static uint32_t number_at(const uint8_t *at)
{
	uint32_t n;
	memcpy(&n, at, sizeof(n));
	return rte_le_to_cpu_32(n);
}

int set_data_check(struct set_data *d, struct sy_error *err)
{
	struct sy_prefix pair[2];
	uint32_t bad;
	if (d->size < SET_HEAD)
		return sy_fail(err, EINVAL, "the data of a set is cut off");
	d->prefixes4 = number_at(d->bytes);
	d->prefixes6 = number_at(d->bytes + sizeof(uint32_t));
	if (d->prefixes4 > SET_PREFIXES || d->prefixes6 > SET_PREFIXES - d->prefixes4)
		return sy_fail(err, EINVAL, "a set has more than %u prefixes", SET_PREFIXES);
	if (d->size != SET_HEAD + (size_t)d->prefixes4 * SIZE4 + (size_t)d->prefixes6 * SIZE6)
		return sy_fail(err, EINVAL, "the data of a set has a wrong size");
	if (rte_hash_crc(d->bytes, (uint32_t)d->size, UINT32_MAX) != ~d->crc32c)
		return sy_fail(err, EINVAL, "the checksum of a set's data is wrong");
	const uint8_t *at = d->bytes + SET_HEAD;
	for (uint32_t i = 0; i < set_data_prefixes(d); i++) {
		const struct prefix_list last = {pair + (i == 0), i == 0 ? 1 : 2};
		at = prefix_read(at, i < d->prefixes4, &pair[1]);
		/* An IPv4 address can also be written as an IPv6 one. */
		if (sy_addr_is_v4(&pair[1].addr) != (i < d->prefixes4) ||
		    !prefix_list_is_sorted(&last, &bad))
			return sy_fail(
			        err, EINVAL,
			        "prefix %u of a set's data has bits behind its length, or is "
			        "not behind the one before it",
			        i + 1);
		pair[0] = pair[1];
	}
	return 0;
}

void set_data_unpack(const struct set_data *d, struct sy_prefix *out)
{
	const uint8_t *at = d->bytes + SET_HEAD;
	for (uint32_t i = 0; i < set_data_prefixes(d); i++)
		at = prefix_read(at, i < d->prefixes4, &out[i]);
}

void set_data_each(const struct set_data *d, void (*visit)(void *ctx, const struct sy_prefix *p),
                   void *ctx)
{
	const uint8_t *at = d->bytes + SET_HEAD;
	struct sy_prefix p;
	for (uint32_t i = 0; i < set_data_prefixes(d); i++) {
		at = prefix_read(at, i < d->prefixes4, &p);
		visit(ctx, &p);
	}
}

void set_data_add(struct sy_balance *b, struct set_data *d, const void *sender)
{
	d->sender = sender;
	d->next = b->ctl->access->data;
	b->ctl->access->data = d;
}

struct set_data *set_data_find(const struct sy_balance *b, const uint8_t *digest)
{
	struct set_data *d = b->ctl->access->data;
	while (d && memcmp(d->digest, digest, SET_DIGEST) != 0)
		d = d->next;
	return d;
}

void set_data_release(struct sy_balance *b, const void *sender)
{
	for (struct set_data *d = b->ctl->access->data; d; d = d->next)
		if (d->sender == sender)
			d->sender = NULL;
	set_data_collect(b);
}

void set_data_refuse(struct sy_balance *b, const void *sender)
{
	for (struct set_data *d = b->ctl->access->data; d; d = d->next)
		d->refused |= d->sender == sender;
}

void set_data_release_refused(struct sy_balance *b, const void *sender)
{
	for (struct set_data *d = b->ctl->access->data; d; d = d->next)
		if (d->sender == sender && d->refused)
			d->sender = NULL;
	set_data_collect(b);
}

void set_data_collect(struct sy_balance *b)
{
	for (struct set_data **at = &b->ctl->access->data; *at;) {
		struct set_data *d = *at;
		if (d->holders > 0 || d->sender) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		free(d);
	}
}

size_t set_data_waiting(const struct sy_balance *b)
{
	size_t bytes = 0;
	for (const struct set_data *d = b->ctl->access->data; d; d = d->next)
		bytes += d->holders == 0 ? d->size : 0;
	return bytes;
}

void set_data_destroy(struct sy_balance *b)
{
	while (b->ctl->access->data) {
		struct set_data *d = b->ctl->access->data;
		b->ctl->access->data = d->next;
		free(d);
	}
}
