// SPDX-License-Identifier: Apache-2.0
/* Control requests: the input is one request, or, if its first byte is even, a list of requests,
 * each after a length of two bytes. The first byte's other bits, if any is set, are the memory that
 * a request may take, in units of 64 bytes. Whatever they contain, each gets one reply, and the
 * configuration stays consistent. */
#include <stdlib.h>

#include "sound.h"

#define SECOND_NS UINT64_C(1000000000)

static struct topology topology;

static void on_reply(void *ctx, const uint8_t *bytes, size_t len)
{
	unsigned *replies = ctx;
	pb_response *response = steelyard__forwarder__v1__response__unpack(NULL, len, bytes);
	CHECK(response);
	CHECK(!response->error || (response->error->code && *response->error->text));
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	++*replies;
}

static void request(const uint8_t *bytes, size_t len)
{
	unsigned replies = 0;
	/* On the heap with its exact size, so sanitizers detect any access beyond it. */
	uint8_t *copy = malloc(len ? len : 1);
	CHECK(copy);
	if (len > 0)
		memcpy(copy, bytes, len);
	sy_balance_request(topology.harness.b, copy, len, on_reply, &replies);
	free(copy);
	CHECK(replies == 1);
	model_is_sound(topology.harness.b);
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
			request(data + at, len);
			at += len;
		}
	} else if (size > 0) {
		request(data + 1, size - 1);
	}
	/* Resets the state, so that an input has the same effect each time: a commit without
	 * changes removes the staged ones. */
	struct changes none = {0};
	budget->request_max = request_max;
	harness_commit(&topology.harness, &none);
	CHECK(budget->used == used);
	topology_clear(&topology);
	do
		harness_advance(&topology.harness, SECOND_NS);
	while (inspect_retired(topology.harness.b));
	const struct model *m = inspect_model(topology.harness.b);
	CHECK(m->services == 0 && m->servers == 0 && rte_hash_count(m->address) == 0);
	CHECK(m->service_ids.count == m->service_ids.fresh);
	CHECK(m->server_ids.count == m->server_ids.fresh);
	return 0;
}
