// SPDX-License-Identifier: Apache-2.0
/*
 * The packet pool: one memory zone, so that one address range is the UMEM of every AF_XDP socket.
 * No buffer crosses a huge page: zero-copy drivers refuse that.
 */
#include <unistd.h>

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_memzone.h>

#include "runtime.h"

/* Buffers in a worker's cache, which may hold half as many more. With a smaller cache, a worker
 * that alternates between freeing and allocating gets cold buffers from the common ring: at 128,
 * with workers that steer half of their packets, every second buffer. */
#define CACHE_MAX 512

static int pool_populate(struct rte_mempool *pool, bool huge, size_t *length)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), chunk, align;
	/* A zone has pages of one size; 2 MB divides every larger size. */
	ssize_t need = rte_mempool_op_calc_mem_size_default(
	        pool, pool->size, huge ? (unsigned)__builtin_ctzl(RTE_PGSIZE_2M) : 0, &chunk,
	        &align);
	if (need < 0)
		return (int)need;
	page = huge ? RTE_PGSIZE_2M : page;
	*length = RTE_ALIGN_CEIL((size_t)need, page);
	const struct rte_memzone *zone = rte_memzone_reserve_aligned(
	        "sy_packets", *length, SOCKET_ID_ANY, 0, (unsigned)page);
	if (!zone)
		return -rte_errno;
	int rc = rte_mempool_populate_virt(pool, zone->addr, *length, page, NULL, NULL);
	if (rc == (int)pool->size)
		return 0;
	rte_memzone_free(zone);
	return rc < 0 ? rc : -ENOMEM;
}

struct rte_mempool *pool_open(unsigned count, unsigned data_room, unsigned workers, bool huge,
                              struct sy_error *err)
{
	/* All caches together have less than half of the buffers. */
	unsigned cache = count / (4 * workers) < CACHE_MAX ? count / (4 * workers) : CACHE_MAX;
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size = (uint16_t)data_room};
	unsigned size = (unsigned)sizeof(struct rte_mbuf) + data_room;
	size_t length = 0;
	/* Without huge pages no device uses DMA, and a buffer may cross small pages. */
	struct rte_mempool *pool =
	        rte_mempool_create_empty("sy_packets", count, size, cache, sizeof(private),
	                                 SOCKET_ID_ANY, huge ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (!pool)
		return sy_fail(err, rte_errno, "packet pool: %s", rte_strerror(rte_errno)), NULL;
	int rc = rte_mempool_set_ops_byname(pool, "ring_mp_mc", NULL);
	if (!rc) {
		rte_pktmbuf_pool_init(pool, &private);
		rc = pool_populate(pool, huge, &length);
	}
	if (rc) {
		rte_mempool_free(pool);
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
	(void)pool; /* there is only one pool */
	const struct rte_memzone *zone = rte_memzone_lookup("sy_packets");
	*start = zone->addr;
	*len = zone->len;
}
