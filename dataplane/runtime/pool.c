// SPDX-License-Identifier: Apache-2.0
/*
 * The packet pool. All of it lies in one memory zone, so that one stretch of addresses can be the
 * UMEM of every AF_XDP socket; no buffer straddles two huge pages, which zero-copy drivers refuse.
 */
#include <unistd.h>

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_memzone.h>

#include "runtime.h"

#define CACHE 128 /* buffers a thread keeps to itself */

static size_t zone_length(unsigned count, size_t object, size_t page)
{
	size_t per_page = page / object;
	return page ? (count + per_page - 1) / per_page * page : count * object + SY_CACHE_LINE;
}

static int pool_populate(struct rte_mempool *pool, const struct rte_memzone *zone, size_t page)
{
	size_t step = page ? page : zone->len;
	for (size_t at = 0; at + step <= zone->len && pool->populated_size < pool->size;
	     at += step) {
		int rc = rte_mempool_populate_virt(pool, (char *)zone->addr + at, step, step, NULL,
		                                   NULL);
		if (rc <= 0)
			return rc ? rc : -ENOMEM;
	}
	return pool->populated_size == pool->size ? 0 : -ENOMEM;
}

struct rte_mempool *pool_open(unsigned count, unsigned room, bool huge, struct sy_error *err)
{
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size = (uint16_t)room};
	unsigned size = (unsigned)sizeof(struct rte_mbuf) + room;
	size_t object = rte_mempool_calc_obj_size(size, 0, NULL);
	size_t small = (size_t)sysconf(_SC_PAGESIZE), page = 0;
	struct rte_mempool *pool = rte_mempool_create_empty("sy_packets", count, size, CACHE,
	                                                    sizeof(private), SOCKET_ID_ANY, 0);
	if (!pool)
		return sy_fail(err, rte_errno, "packet pool: %s", rte_strerror(rte_errno)), NULL;
	if (huge) /* all pages of a memory zone are of one size; 2 MB divides each */
		page = RTE_PGSIZE_2M;
	size_t length = RTE_ALIGN_CEIL(zone_length(count, object, page), small);
	const struct rte_memzone *zone = rte_memzone_reserve_aligned(
	        "sy_packets", length, SOCKET_ID_ANY, 0, page ? (unsigned)page : (unsigned)small);
	int rc = zone ? rte_mempool_set_ops_byname(pool, "ring_mp_mc", NULL) : -rte_errno;
	if (!rc) {
		rte_pktmbuf_pool_init(pool, &private);
		rc = pool_populate(pool, zone, page);
	}
	if (rc) {
		rte_mempool_free(pool);
		rte_memzone_free(zone);
		return sy_fail(err, -rc,
		               "packet pool: %u buffers need %zu MB of EAL memory: %s; raise "
		               "--memory or lower --mbufs",
		               count, length >> 20, strerror(-rc)),
		       NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

void pool_close(struct rte_mempool *pool)
{
	if (!pool)
		return;
	rte_mempool_free(pool);
	rte_memzone_free(rte_memzone_lookup("sy_packets"));
}

void pool_area(const struct rte_mempool *pool, void **start, size_t *len)
{
	(void)pool; /* there is one */
	const struct rte_memzone *zone = rte_memzone_lookup("sy_packets");
	*start = zone->addr;
	*len = zone->len;
}
