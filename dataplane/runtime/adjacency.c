// SPDX-License-Identifier: Apache-2.0
/* Next hops and on-link neighbours with their MAC addresses (adjacency.h). path.c refers to them as
 * hops, the mirror publishes their MACs, transmit.c reads them. */
#include <stdlib.h>

#include "runtime.h"

static uint32_t now_seconds(void)
{
	return (uint32_t)(sy_clock_ns() / 1000000000u);
}

int adjacencies_open(struct adjacencies **out)
{
	struct adjacencies *a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->record = aligned_alloc(SY_CACHE_LINE, ADJACENCIES * sizeof(*a->record));
	a->head = calloc(ADJACENCIES, sizeof(*a->head));
	a->free = calloc(ADJACENCIES, sizeof(*a->free));
	a->high = 1;
	int rc = a->record && a->head && a->free ? sy_hash_key_random(&a->key) : -ENOMEM;
	if (rc) {
		adjacencies_close(a);
		return rc;
	}
	*out = a;
	return 0;
}

void adjacencies_close(struct adjacencies *a)
{
	if (!a)
		return;
	free(a->record);
	free(a->head);
	free(a->free);
	free(a);
}

static uint32_t record_make(struct sy_runtime *rt, unsigned port, const struct sy_addr *addr)
{
	struct adjacencies *a = rt->adjacencies;
	uint32_t i = a->free_count           ? a->free[--a->free_count]
	             : a->high < ADJACENCIES ? a->high++
	                                     : ADJACENCY_NONE;
	if (!i) {
		if (!a->full_logged)
			sy_log(SY_LOG_ERROR, "runtime",
			       "the neighbour table is full (%u): too many hosts on directly "
			       "connected networks",
			       ADJACENCIES);
		a->full_logged = true;
		return ADJACENCY_NONE;
	}
	uint32_t *head = &a->head[adjacency_bucket(a, port, addr)];
	a->record[i] =
	        (struct adjacency){.addr = *addr, .port = (uint8_t)port, .next = *head, .owner = a};
	__atomic_store_n(head, i, __ATOMIC_RELEASE);
	return i;
}

static uint32_t record_find_or_make(struct sy_runtime *rt, unsigned port,
                                    const struct sy_addr *addr)
{
	uint32_t i = adjacency_find(rt->adjacencies, port, addr);
	return i ? i : record_make(rt, port, addr);
}

static void record_reuse(void *ptr)
{
	struct adjacency *r = ptr;
	r->owner->free[r->owner->free_count++] = (uint32_t)(r - r->owner->record);
}

static void record_end(struct sy_runtime *rt, uint32_t index)
{
	struct adjacencies *a = rt->adjacencies;
	struct adjacency *r = &a->record[index];
	uint32_t *at = &a->head[adjacency_bucket(a, r->port, &r->addr)];
	while (*at != index)
		at = &a->record[*at].next;
	__atomic_store_n(at, r->next, __ATOMIC_RELEASE);
	r->owner = a;
	r->port = SY_PORT_NONE; /* readers of this record, and the tick, no longer match it */
	sy_rcu_retire(rt, r, record_reuse);
}

static void record_set_link(struct sy_runtime *rt, struct adjacency *r, enum adjacency_state state,
                            const uint8_t mac[6])
{
	uint64_t link = 0, before = r->link;
	if (state == ADJACENCY_VALID)
		memcpy(&link, mac, 6);
	link |= (uint64_t)state << 48;
	if (link == before)
		return;
	__atomic_store_n(&r->link, link, __ATOMIC_RELEASE);
	__atomic_fetch_add(&rt->links_changed, 1, __ATOMIC_RELEASE);
	if (adjacency_link_state(before) == ADJACENCY_PENDING)
		workers_neighbour_changed(rt); /* packets may be queued for this neighbour */
}

/* Asks the kernel at most once a second per neighbour: it may keep dropping the entry. */
static void record_manage(struct sy_runtime *rt, struct adjacency *r)
{
	const struct port *port = rt->port[r->port];
	uint32_t now = now_seconds();
	if (r->fixed || r->requested_s == now)
		return;
	r->requested_s = now;
	if (!rt->mirror || !port->ifindex) {
		record_set_link(rt, r, ADJACENCY_FAILED, NULL); /* there is no kernel interface */
		return;
	}
	r->managed = !sy_mirror_neigh_manage(rt->mirror, port->ifindex, &r->addr);
}

uint32_t adjacency_acquire(struct sy_runtime *rt, unsigned port, const struct sy_addr *addr)
{
	uint32_t i = record_find_or_make(rt, port, addr);
	if (!i)
		return ADJACENCY_NONE;
	struct adjacency *r = &rt->adjacencies->record[i];
	r->refs++;
	if (!r->managed)
		record_manage(rt, r);
	return i;
}

void adjacency_drop(struct sy_runtime *rt, uint32_t index)
{
	rt->adjacencies->record[index].refs--; /* the tick releases it */
}

void adjacency_resolve(struct sy_runtime *rt, unsigned port, const struct sy_addr *addr)
{
	uint32_t i = record_find_or_make(rt, port, addr);
	if (!i)
		return;
	struct adjacency *r = &rt->adjacencies->record[i];
	__atomic_store_n(&r->used, now_seconds(), __ATOMIC_RELAXED);
	if (!r->managed)
		record_manage(rt, r);
}

void adjacency_publish(struct sy_runtime *rt, unsigned port, const struct sy_neigh *neigh,
                       bool gone)
{
	uint32_t i = gone ? adjacency_find(rt->adjacencies, port, &neigh->addr)
	                  : record_find_or_make(rt, port, &neigh->addr);
	if (!i)
		return;
	struct adjacency *r = &rt->adjacencies->record[i];
	if (r->fixed)
		return;
	r->known = !gone;
	if (gone) {
		r->managed = false; /* the deleted kernel entry was the managed one */
		record_set_link(rt, r, ADJACENCY_PENDING, NULL);
		if (r->refs)
			record_manage(rt, r);
		return;
	}
	record_set_link(rt, r,
	                neigh->valid    ? ADJACENCY_VALID
	                : neigh->failed ? ADJACENCY_FAILED
	                                : ADJACENCY_PENDING,
	                neigh->mac);
}

void adjacencies_lose(struct sy_runtime *rt, unsigned port)
{
	struct adjacencies *a = rt->adjacencies;
	for (uint32_t i = 1; i < a->high; i++) {
		struct adjacency *r = &a->record[i];
		if (r->port != port || r->fixed)
			continue;
		r->known = r->managed = false;
		r->requested_s = 0;
		record_set_link(rt, r, ADJACENCY_PENDING, NULL);
	}
}

bool adjacency_fix(struct sy_runtime *rt, unsigned port, const struct sy_addr *addr,
                   const uint8_t mac[6])
{
	uint32_t i = record_find_or_make(rt, port, addr);
	if (!i)
		return false;
	struct adjacency *r = &rt->adjacencies->record[i];
	r->fixed = true;
	record_set_link(rt, r, ADJACENCY_VALID, mac);
	return true;
}

void adjacencies_tick(struct sy_runtime *rt)
{
	struct adjacencies *a = rt->adjacencies;
	uint32_t now = now_seconds();
	for (uint32_t i = 1; i < a->high; i++) {
		struct adjacency *r = &a->record[i];
		if (r->port == SY_PORT_NONE || r->fixed)
			continue;
		/* Signed, as a worker's second may be one ahead. */
		bool wanted = r->refs || (int32_t)(now - SY_READ(r->used)) < ADJACENCY_IDLE_S;
		bool pending = adjacency_link_state(r->link) == ADJACENCY_PENDING;
		if (wanted && (!r->managed || (pending && (int32_t)(now - r->requested_s) > 2))) {
			record_manage(rt, r);
		} else if (!wanted && r->managed) {
			sy_mirror_neigh_release(rt->mirror, rt->port[r->port]->ifindex, &r->addr);
			r->managed = false;
		}
		if (!wanted && !r->known)
			record_end(rt, i);
	}
}
