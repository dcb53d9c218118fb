// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the service of a client's packet. A service with one port is found by its key. The others
 * of a VIP and protocol share one entry, under a key that no service has: their ranges.
 */
#include <arpa/inet.h>
#include <stdlib.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>

#include "balance.h"
#include "ranges.h"

int directory_create(struct sy_balance *b, struct sy_error *err)
{
	const struct rte_hash_parameters parameters = {
	        .name = "sy_directory",
	        .entries = b->options.max_services,
	        .key_len = sizeof(struct service_key),
	        .hash_func = rte_hash_crc,
	        .socket_id = SOCKET_ID_ANY,
	        .extra_flag =
	                RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF | RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};
	b->directory = rte_hash_create(&parameters);
	return b->directory ? 0
	                    : sy_fail(err, ENOMEM,
	                              "no memory for a directory of %u services: raise --memory",
	                              b->options.max_services);
}

/* A key that no service has: its range ends with port 1 but has no first port. */
static struct service_key ranges_key(const struct sy_addr *vip, uint16_t proto)
{
	return (struct service_key){.vip = *vip, .proto = proto, .last_port = htons(1)};
}

void directory_destroy(struct sy_balance *b)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	while (b->directory && rte_hash_iterate(b->directory, &key, &data, &next) >= 0)
		if (key_is_range(key))
			free(data);
	rte_hash_free(b->directory);
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static uint32_t find_range(const struct sy_balance *b, const struct sy_tuple *t)
{
	const struct service_key key = ranges_key(&t->dst, t->proto);
	void *ranges;
	if (t->dport == 0 || rte_hash_lookup_data(b->directory, &key, &ranges) < 0)
		return RANGE_NONE;
	return ranges_find(ranges, ntohs(t->dport));
}

const struct service *directory_find(const struct sy_balance *b, const struct sy_tuple *client)
{
	const struct service_key key = {client->dst, client->dport, client->proto, 0, 0};
	void *id;
	if (SY_UNLIKELY(rte_hash_lookup_data(b->directory, &key, &id) < 0)) {
		uint32_t of_many = find_range(b, client);
		return of_many == RANGE_NONE ? NULL : SY_RCU_READ(b->service[of_many]);
	}
	return SY_RCU_READ(b->service[(uintptr_t)id]);
}

/* ---- publishing ------------------------------------------------------------------------------ */

struct freed_key {
	struct rte_hash *hash;
	int32_t position;
};

static void key_free(void *ptr)
{
	struct freed_key *k = ptr;
	rte_hash_free_key_with_position(k->hash, k->position);
	free(k);
}

/* Lock-free readers may still compare the key: free its entry after a grace period. */
static void key_delete(struct sy_balance *b, const struct service_key *key)
{
	struct freed_key *k = malloc(sizeof(*k));
	int32_t position = rte_hash_del_key(b->directory, key);
	if (!k || position < 0) {
		free(k);
		return;
	}
	*k = (struct freed_key){b->directory, position};
	sy_rcu_retire(b->rt, k, key_free);
}

static struct ranges *ranges_now(const struct sy_balance *b, const struct service_key *key)
{
	void *ranges = NULL;
	return rte_hash_lookup_data(b->directory, key, &ranges) < 0 ? NULL : ranges;
}

/* Replaces the entry's list by `next`; removes the entry if that is empty. */
static int ranges_swap(struct sy_balance *b, const struct service_key *entry, struct ranges *next)
{
	struct ranges *old = ranges_now(b, entry);
	int rc = 0;
	if (!next)
		return -ENOMEM;
	if (next->count > 0)
		rc = rte_hash_add_key_data(b->directory, entry, next);
	else
		key_delete(b, entry);
	if (rc < 0 || next->count == 0)
		free(next);
	if (rc == 0 && old)
		sy_rcu_retire(b->rt, old, free);
	return rc;
}

static uint16_t last_of(const struct service_key *key)
{
	return key->vport == 0 ? UINT16_MAX : ntohs(key->last_port);
}

int directory_add(struct sy_balance *b, const struct service_key *key, uint32_t id)
{
	if (!key_is_range(key))
		return rte_hash_add_key_data(b->directory, key, (void *)(uintptr_t)id);
	const struct service_key entry = ranges_key(&key->vip, key->proto);
	return ranges_swap(b, &entry,
	                   ranges_with(ranges_now(b, &entry), ntohs(key->vport), last_of(key), id));
}

void directory_remove(struct sy_balance *b, const struct service_key *key, uint32_t id)
{
	void *now;
	if (key_is_range(key)) {
		const struct service_key entry = ranges_key(&key->vip, key->proto);
		/* Without memory the entry stays, with an id that has no service. */
		ranges_swap(
		        b, &entry,
		        ranges_without(ranges_now(b, &entry), ntohs(key->vport), last_of(key), id));
	} else if (rte_hash_lookup_data(b->directory, key, &now) >= 0 && (uintptr_t)now == id) {
		key_delete(b, key);
	}
}
