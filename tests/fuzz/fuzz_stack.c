// SPDX-License-Identifier: Apache-2.0
/* A peer, an application and a network that do what the input says, against a stack of TCP: see
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
	hostile_run(pool_once(), data, size);
	return 0;
}
