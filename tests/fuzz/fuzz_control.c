// SPDX-License-Identifier: Apache-2.0
/*
 * Control requests: the input is one of them, or, if its first byte is even, a list of them, each
 * behind a length of two bytes. Whatever they are, each gets one reply, and the configuration stays
 * one that agrees with itself.
 */
#include <stdlib.h>

#include <rte_hash.h>
#include <sanitizer/lsan_interface.h>

#include "../../dataplane/balance/model.h"
#include "../storm/world.h"

#define SECOND_NS UINT64_C(1000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

static struct world world;

static void on_reply(void *ctx, const uint8_t *bytes, size_t len)
{
	unsigned *replies = ctx;
	pb_response *response = steelyard__forwarder__v1__response__unpack(NULL, len, bytes);
	CHECK(response);
	CHECK(!response->error || (response->error->code && *response->error->text));
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	++*replies;
}

static void model_is_sound(void)
{
	struct sy_balance *b = world.rig.b;
	const struct model *m = b->model;
	uint32_t services = 0, servers = 0, locals = 0;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		CHECK(!s == !b->service[id]);
		if (!s)
			continue;
		services++;
		servers += s->servers;
		CHECK(s->id == id && b->service[id]->id == id);
		CHECK(b->service[id]->pool->members <= s->servers);
		CHECK(rte_hash_lookup(b->directory, &s->key) >= 0);
		for (unsigned i = 0; i < s->servers; i++)
			CHECK(b->endpoint[s->server[i].id].service == id &&
			      !b->endpoint[s->server[i].id].removed);
	}
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		locals += m->local[id].used;
	CHECK(services == m->services && servers == m->servers);
	CHECK(servers == m->servers_of[0] + m->servers_of[1]);
	CHECK(locals == b->locals[0]->count + b->locals[1]->count);
	CHECK((uint32_t)rte_hash_count(m->by_key) == services);
}

static void request(const uint8_t *bytes, size_t len)
{
	unsigned replies = 0;
	/* On the heap and exact, so that sanitizers see what goes beyond it. */
	uint8_t *copy = malloc(len ? len : 1);
	CHECK(copy);
	if (len > 0)
		memcpy(copy, bytes, len);
	sy_balance_request(world.rig.b, copy, len, on_reply, &replies);
	free(copy);
	CHECK(replies == 1);
	model_is_sound();
}

static void open_once(void)
{
	static struct dice dice = {1};
	static bool opened;
	if (opened)
		return;
	/* Stays for good, in memory that the search for leaks cannot see into. */
	__lsan_disable();
	CHECK(world_open(&world, &dice, 1, NULL));
	__lsan_enable();
	world_clear(&world);
	opened = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	open_once();
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
	/* As at the beginning, so that an input does the same each time: a commit without changes
	 * takes what was staged along. */
	struct changes none = {0};
	rig_commit(&world.rig, &none);
	world_clear(&world);
	rig_advance(&world.rig, 4 * SECOND_NS);
	const struct model *m = world.rig.b->model;
	CHECK(m->services == 0 && m->servers == 0 && rte_hash_count(m->address) == 0);
	CHECK(m->service_ids.count == m->service_ids.fresh);
	CHECK(m->server_ids.count == m->server_ids.fresh);
	return 0;
}
