// SPDX-License-Identifier: Apache-2.0
/* EAL and packets for tests. */
#include <stdio.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include "script.h"

#define PACKETS 32767
#define COPIES  3

struct rte_mempool *tests_pool(void)
{
	static struct rte_mempool *pool;
	char *argv[] = {"test",        "--no-huge",      "-m",          "160",
	                "--no-pci",    "--no-telemetry", "--no-shconf", "--iova-mode=va",
	                "--log-level", "critical",       NULL};

	if (pool)
		return pool;
	if (rte_eal_init((int)(sizeof(argv) / sizeof(*argv)) - 1, argv) < 0)
		abort();
	/* LIFO: recently used buffers are still in the cache. */
	pool = rte_pktmbuf_pool_create_by_ops("tests", PACKETS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
	                                      SOCKET_ID_ANY, "stack");
	if (!pool)
		abort();
	return pool;
}

struct rte_mempool *tests_copies(void)
{
	static struct rte_mempool *pool;

	if (!pool)
		pool = rte_pktmbuf_pool_create("copies", COPIES, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
		                               SOCKET_ID_ANY);
	if (!pool)
		abort();
	return pool;
}
