// SPDX-License-Identifier: Apache-2.0
/* The calls of libsteelyard-tcp, in an order and with arguments that bytes say. */
#include <sanitizer/lsan_interface.h>

#include "calls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static bool begun;

	if (!begun) { /* EAL's memory, which the leak detector cannot inspect */
		__lsan_disable();
		tests_pool();
		__lsan_enable();
		begun = true;
	}
	calls_play(data, len);
	return 0;
}
