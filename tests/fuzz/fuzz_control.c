// SPDX-License-Identifier: Apache-2.0
/* Input: one control request, or, if the first byte is even, a list of requests, each after a
 * length of two bytes. The first byte's other bits, if any is set, limit a request's memory, in
 * units of 64 bytes. Each request gets one valid reply, and the configuration stays consistent. */
#include <stdlib.h>

#include "consistent.h"

static struct topology topology;

struct replies {
	unsigned count;
	bool valid;
};

static void on_reply(void *ctx, const uint8_t *bytes, size_t len)
{
	struct replies *replies = ctx;
	pb_response *response = steelyard__forwarder__v1__response__unpack(NULL, len, bytes);
	replies->count++;
	replies->valid &=
	        response && (!response->error || (response->error->code && *response->error->text));
	if (response)
		steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

static bool request_gets_one_valid_reply(const uint8_t *bytes, size_t len)
{
	struct replies replies = {.valid = true};
	uint8_t *copy = copy_make(bytes, len);
	sy_balance_request(topology.harness.b, copy, len, on_reply, &replies);
	free(copy);
	return replies.count == 1 && replies.valid;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	topology_open_once(&topology);
	struct budget *budget = &inspect_control(topology.harness.b)->budget;
	const size_t request_max = budget->request_max, used = budget->used;
	if (size > 0 && data[0] >> 1)
		budget->request_max = (size_t)(data[0] >> 1) * 64;
	if (size > 0 && data[0] % 2 == 0) {
		for (size_t at = 1; at + 2 <= size;) {
			size_t len = (size_t)data[at] << 8 | data[at + 1];
			at += 2;
			len = len < size - at ? len : size - at;
			CHECK(request_gets_one_valid_reply(data + at, len));
			CHECK(configuration_is_consistent(topology.harness.b));
			at += len;
		}
	} else if (size > 0) {
		CHECK(request_gets_one_valid_reply(data + 1, size - 1));
		CHECK(configuration_is_consistent(topology.harness.b));
	}
	/* A commit without changes discards staged ones. */
	struct changes none = {0};
	budget->request_max = request_max;
	harness_commit(&topology.harness, &none);
	CHECK(budget->used == used);
	CHECK(topology_is_cleared(&topology));
	return 0;
}
