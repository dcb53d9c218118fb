// SPDX-License-Identifier: Apache-2.0
/* Input: calls of libsteelyard-tcp with their arguments. Each returns a valid result, and
 * no packet buffer leaks. */
#include <sanitizer/lsan_interface.h>

#include "calls.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct calls calls;

	__lsan_disable(); /* EAL's memory, which the leak detector cannot inspect */
	struct rte_mempool *pool = tests_pool();
	__lsan_enable();
	unsigned before = rte_mempool_avail_count(pool);
	calls_open(&calls, data, len);
	while (calls.left > 0)
		calls_step(&calls); /* also checks its result */
	calls_close(&calls);
	CHECK(rte_mempool_avail_count(pool) == before);
	return 0;
}
