// SPDX-License-Identifier: Apache-2.0
/*
 * Narrow paths to IPv4 clients of FNAT (docs/design/0020-path-mtu.md): the path MTU that routers
 * reported, by the client's address. One 64-bit entry per client, which all workers access
 * atomically:
 *
 *     63          40 39        24 23         0
 *     │ tag of hash │ MTU, bytes │ second noted │
 *
 * A colliding client replaces the entry. That costs the first one a segment: the next too large
 * segment triggers another ICMP error.
 */
#include "client_mtu.h"

#define SECONDS 0xffffffu

static uint64_t client_hash(const struct sy_balance *b, const struct sy_addr *client)
{
	const struct sy_tuple t = {.src = *client};
	return sy_hash_tuple(&b->key, &t);
}

static uint64_t word_of(uint64_t hash, uint16_t mtu, uint32_t now)
{
	return hash >> 40 << 40 | (uint64_t)mtu << 24 | (now & SECONDS);
}

void client_mtu_note(struct sy_worker *w, const struct sy_addr *client, uint16_t mtu)
{
	struct sy_balance *b = w->app;
	uint32_t now = balance_seconds(w);
	uint64_t hash = client_hash(b, client);

	if (mtu < CLIENT_MTU_MIN)
		mtu = CLIENT_MTU_MIN;
	__atomic_store_n(&b->client_mtu[hash % CLIENT_MTUS], word_of(hash, mtu, now),
	                 __ATOMIC_RELAXED);
	if (SY_READ(b->client_mtu_noted) != now) /* shared cache line: write only if it changes */
		__atomic_store_n(&b->client_mtu_noted, now | !now, __ATOMIC_RELAXED);
}

uint16_t client_mtu_find(struct sy_worker *w, const struct sy_addr *client)
{
	const struct sy_balance *b = w->app;
	uint32_t now = balance_seconds(w), noted = SY_READ(b->client_mtu_noted);

	/* Common case: no narrow path was noted recently. */
	if (SY_LIKELY(!noted || (int32_t)(now - noted) > CLIENT_MTU_S) || !sy_addr_is_v4(client))
		return 0;
	uint64_t hash = client_hash(b, client);
	uint64_t word = SY_READ(b->client_mtu[hash % CLIENT_MTUS]);
	/* Another worker's clock may be slightly ahead. */
	uint32_t age = (now + 1 - (uint32_t)word) & SECONDS;
	return (word ^ hash) >> 40 == 0 && age <= CLIENT_MTU_S + 1 ? (uint16_t)(word >> 24) : 0;
}
