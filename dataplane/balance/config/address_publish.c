// SPDX-License-Identifier: Apache-2.0
/* The address set: VIPs, local and pool addresses, with reference counts. */
#include <stdlib.h>

#include <rte_hash.h>

#include "address_set.h"
#include "model.h"

/* The hash's data word: kind in the upper half, references in the lower. */
#define ADDRESS_DATA(kind, refs) ((void *)((uintptr_t)(kind) << 32 | (refs)))
#define ADDRESS_KIND(data)       ((uint8_t)((uintptr_t)(data) >> 32))
#define ADDRESS_REFS(data)       ((uint32_t)(uintptr_t)(data))

static const char *const kind_name[] = {"nothing", "a VIP", "a local address", "a pool address"};

uint8_t address_kind(struct sy_balance *b, const struct sy_addr *addr)
{
	void *data;
	if (rte_hash_lookup_data(b->ctl->model->address, addr, &data) < 0 ||
	    ADDRESS_REFS(data) == 0)
		return ADDRESS_SET_NONE;
	return ADDRESS_KIND(data);
}

/* Checks the use of an address by this host or network. An address that another host uses may be
 * claimed later. Not checked while a saved configuration is loaded: the address was accepted
 * earlier. */
static int address_check_use(struct sy_balance *b, const struct sy_addr *addr, uint8_t kind,
                             struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	struct neighbour_found *found = &b->ctl->neighbour_found;
	uint8_t mac[6];
	switch (b->ctl->served ? sy_address_use(b->rt, addr, mac) : SY_ADDRESS_FREE) {
	case SY_ADDRESS_GATEWAY:
		return sy_fail(err, EADDRINUSE,
		               "%s is a gateway of this host's routes: it cannot also be %s; "
		               "use an address that no host has",
		               sy_addr_format(addr, text), kind_name[kind]);
	case SY_ADDRESS_NEIGHBOUR:
		*found = (struct neighbour_found){.addr = *addr, .at_ns = sy_clock_ns()};
		memcpy(found->mac, mac, sizeof(mac));
		sy_log(SY_LOG_WARN, "balance", NEIGHBOUR_FOUND,
		       NEIGHBOUR_FOUND_VALUES(found, text));
		return 0;
	default:
		return 0; /* the host's own addresses cannot be claimed; that error gives the reason
		           */
	}
}

bool address_is_known(const struct sy_balance *b, const struct sy_addr *addr)
{
	return rte_hash_lookup(b->ctl->model->address, addr) >= 0;
}

int address_acquire(struct sy_balance *b, const struct sy_addr *addr, uint8_t kind,
                    struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	void *data = ADDRESS_DATA(kind, 0);
	if (rte_hash_lookup_data(b->ctl->model->address, addr, &data) < 0) {
		int rc = address_check_use(b, addr, kind, err);
		if (rc == 0 && !b->ctl->standby)
			rc = sy_address_claim(b->rt, addr, err);
		if (rc < 0)
			return rc;
		b->ctl->model->address_touched = true;
	} else if (ADDRESS_KIND(data) != kind && ADDRESS_REFS(data) > 0) {
		return sy_fail(err, EINVAL, "%s is %s already and cannot be %s too",
		               sy_addr_format(addr, text), kind_name[ADDRESS_KIND(data)],
		               kind_name[kind]);
	} else if (ADDRESS_KIND(data) != kind) {
		early_address_changed(b, addr);
	}
	if (rte_hash_add_key_data(b->ctl->model->address, addr,
	                          ADDRESS_DATA(kind, ADDRESS_REFS(data) + 1)) < 0)
		return sy_fail(err, ENOSPC, "no room for another address: raise --max-services");
	return 0;
}

void address_release(struct sy_balance *b, const struct sy_addr *addr)
{
	void *data;
	if (rte_hash_lookup_data(b->ctl->model->address, addr, &data) < 0)
		return;
	b->ctl->model->address_touched |= ADDRESS_REFS(data) == 1;
	rte_hash_add_key_data(b->ctl->model->address, addr,
	                      ADDRESS_DATA(ADDRESS_KIND(data), ADDRESS_REFS(data) - 1));
}

void address_free_unused(struct sy_balance *b)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	while (rte_hash_iterate(b->ctl->model->address, &key, &data, &next) >= 0) {
		if (ADDRESS_REFS(data) > 0)
			continue;
		struct sy_addr addr = *(const struct sy_addr *)key;
		if (!b->ctl->standby)
			sy_address_release(b->rt, &addr);
		rte_hash_del_key(b->ctl->model->address, &addr);
	}
}

void addresses_serve(struct sy_balance *b, bool serve)
{
	struct sy_error err;
	const void *key;
	void *data;
	uint32_t next = 0;
	if (b->ctl->standby != serve)
		return;
	while (rte_hash_iterate(b->ctl->model->address, &key, &data, &next) >= 0) {
		early_address_changed(b, key);
		if (!serve)
			sy_address_release(b->rt, key);
		else if (sy_address_claim_now(b->rt, key, &err) < 0)
			sy_log(SY_LOG_ERROR, "balance", "%s", err.text);
	}
	b->ctl->standby = !serve;
}

/* Assigns each bucket of clients the local address with the highest hash of both (rendezvous
 * hashing), so that few clients change address when one is added or removed. */
static void locals_distribute(struct local_set *set)
{
	for (unsigned n = 0; n < LOCAL_BUCKETS && set->count > 1; n++) {
		uint64_t best = 0;
		for (unsigned i = 0; i < set->count; i++) {
			const struct sy_addr *a = &set->addr[i];
			uint64_t own = sy_hash_mix(a->d[0] ^ 0x9e3779b97f4a7c15,
			                           a->d[1] ^ 0xbf58476d1ce4e5b9);
			uint64_t weight = sy_hash_mix(own ^ 0x94d049bb133111eb,
			                              n + UINT64_C(0xd6e8feb86659fd93));
			if (weight < best)
				continue;
			best = weight;
			set->home[n] = (uint8_t)i;
		}
	}
}

static int publish_locals(struct sy_balance *b, bool v4)
{
	struct local_set *set = calloc(1, sizeof(*set));
	if (!set)
		return -ENOMEM;
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		const struct model_local *l = &b->ctl->model->local[id];
		if (!l->used || l->pools || l->of_peer || sy_addr_is_v4(&l->addr) != v4)
			continue;
		set->addr[set->count] = l->addr;
		set->id[set->count++] = (uint8_t)id;
	}
	locals_distribute(set);
	const struct local_set *old = b->locals[v4];
	SY_RCU_PUBLISH(b->locals[v4], set);
	sy_rcu_retire(b->rt, (void *)(uintptr_t)old, free);
	return 0;
}

/* Publishes the sources that may not begin sessions: configured addresses, and the host's own.
 * Addresses that are both are in the set twice. */
static int publish_own_sources(struct sy_balance *b)
{
	const uint32_t version = sy_own_sources_version(b->rt);
	struct sy_addr *own;
	int count = sy_own_sources(b->rt, &own);
	if (count < 0)
		return count;
	struct address_set_entry *all = calloc(
	        (size_t)rte_hash_count(b->ctl->model->address) + (size_t)count + 1, sizeof(*all));
	const void *key;
	void *data;
	uint32_t next = 0;
	unsigned n = 0;
	while (all && rte_hash_iterate(b->ctl->model->address, &key, &data, &next) >= 0)
		if (ADDRESS_REFS(data) > 0)
			all[n++] = (struct address_set_entry){*(const struct sy_addr *)key,
			                                      ADDRESS_KIND(data)};
	for (int i = 0; all && i < count; i++)
		all[n++] = (struct address_set_entry){own[i], ADDRESS_SET_LOCAL};
	struct address_set *set = all ? address_set_build(all, n) : NULL;
	free(own);
	free(all);
	if (!set)
		return -ENOMEM;
	const struct address_set *old = b->own_sources;
	SY_RCU_PUBLISH(b->own_sources, set);
	sy_rcu_retire(b->rt, (void *)(uintptr_t)old, free);
	b->ctl->own_version = version;
	return 0;
}

void address_follow_host(struct sy_balance *b)
{
	if (b->ctl->own_version != sy_own_sources_version(b->rt))
		publish_own_sources(b); /* on failure the next tick retries */
}

static void publish_own_locals(struct sy_balance *b)
{
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		const struct model_local *l = &b->ctl->model->local[id];
		__atomic_store_n(&b->local_is_own[id], l->used && !l->of_peer, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&b->locals_version, b->locals_version + 1, __ATOMIC_RELEASE);
}

int publish_addresses(struct sy_balance *b, bool include_unreferenced)
{
	size_t count = (size_t)rte_hash_count(b->ctl->model->address) +
	               (size_t)rte_hash_count(b->ctl->model->source);
	struct address_set_entry *entries = calloc(count + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	const void *key;
	void *data;
	uint32_t next = 0;
	unsigned n = 0;
	while (rte_hash_iterate(b->ctl->model->address, &key, &data, &next) >= 0)
		if (include_unreferenced || ADDRESS_REFS(data) > 0)
			entries[n++] = (struct address_set_entry){*(const struct sy_addr *)key,
			                                          ADDRESS_KIND(data)};
	n += source_list(b, include_unreferenced, entries + n);
	struct address_set *address_set = address_set_build(entries, n);
	free(entries);
	if (!address_set || publish_own_sources(b) < 0 || publish_locals(b, false) < 0 ||
	    publish_locals(b, true) < 0) {
		free(address_set);
		return -ENOMEM;
	}
	const struct address_set *old = b->address_set;
	SY_RCU_PUBLISH(b->address_set, address_set);
	sy_rcu_retire(b->rt, (void *)(uintptr_t)old, free);
	publish_own_locals(b);
	return 0;
}
