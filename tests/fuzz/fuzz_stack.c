// SPDX-License-Identifier: Apache-2.0
/* Input: operations of a peer, an application and a network against a TCP stack, see
 * dataplane/tcp/tests/hostile.h. */
#include <rte_eal.h>
#include <sanitizer/lsan_interface.h>

#include "fuzz.h"

#include "hostile.h"

#define PACKETS 2047

/* Starts EAL once, in memory that the leak detector cannot inspect. */
static struct rte_mempool *pool_once(void)
{
	static struct rte_mempool *pool;
	char *argv[] = {"fuzz",        "--no-huge",      "-m",          "64",
	                "--no-pci",    "--no-telemetry", "--no-shconf", "--iova-mode=va",
	                "--log-level", "critical",       NULL};

	if (pool)
		return pool;
	__lsan_disable();
	CHECK(rte_eal_init((int)(sizeof(argv) / sizeof(*argv)) - 1, argv) >= 0);
	pool = rte_pktmbuf_pool_create("fuzz", PACKETS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
	                               SOCKET_ID_ANY);
	__lsan_enable();
	CHECK(pool);
	return pool;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rte_mempool *pool = pool_once();
	unsigned before = rte_mempool_avail_count(pool);
	struct hostile h;
	CHECK(hostile_open(&h, pool, data, size));
	while (h.size > 0) {
		hostile_step(&h); /* also checks each packet that the stack sends */
		CHECK(hostile_is_consistent(h.s));
	}
	hostile_close(&h);
	CHECK(rte_mempool_avail_count(pool) == before);
	return 0;
}
