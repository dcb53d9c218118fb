// SPDX-License-Identifier: Apache-2.0
/* Input: a peer's segments in any order. Kept data and SACK blocks agree with a plain model.
 *
 *     4 bytes each: operation │ from, 2 bytes │ length */
#include "fuzz.h"

#include "arrived_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct model m;
	model_init(&m, UINT32_MAX - 1000);
	for (; size >= 4; data += 4, size -= 4) {
		int from = (data[1] | data[2] << 8) % (2 * MODEL_BYTES) - MODEL_BYTES;
		int to = from + 1 + data[3];
		switch (data[0] % 8) {
		case 0:
			model_tell(&m, data[1] % 5);
			break;
		case 1:
			model_take(&m);
			break;
		case 2:
			model_advance(&m, data[3]);
			break;
		case 3:
			model_drop(&m);
			break;
		default:
			model_add(&m, from, to < MODEL_BYTES ? to : MODEL_BYTES);
		}
		CHECK(model_agrees(&m));
	}
	return 0;
}
