// SPDX-License-Identifier: Apache-2.0
#include "direction_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include "packets.h"

struct rig *rig_open(const char *text)
{
	struct rig *r = calloc(1, sizeof(*r));
	char error[PARAMS_ERROR], *copy = strdup(text);
	struct params p;
	params_default(&p);
	assert_int_equal(pool_open(&r->pool, CAPACITY, ROOM), 0);
	assert_int_equal(direction_open(&r->d, &r->pool, &r->back), 0);
	assert_int_equal(direction_open(&r->back, &r->pool, &r->d), 0);
	if (params_read(&p, copy, error))
		fail_msg("%s", error);
	free(copy);
	direction_set(&r->d, &p);
	direction_seed(&r->d, 1);
	r->now = 5 * NS;
	return r;
}

void rig_run(struct rig *r, uint64_t until)
{
	for (uint64_t next; (next = direction_next(&r->d)) <= until && next != UINT64_MAX;) {
		r->now = next > r->now ? next : r->now;
		direction_advance(&r->d, r->now);
		for (uint32_t i; (i = direction_take(&r->d, r->now)) != STORE_NONE;) {
			memcpy(&r->number[r->count], pool_bytes(&r->pool, i) + 40, 4);
			r->time[r->count++] = r->now;
			direction_delivered(&r->d, i);
		}
	}
	if (until != UINT64_MAX)
		r->now = until;
}

void rig_close(struct rig *r)
{
	const struct direction_counts *c = &r->d.counts;
	uint64_t dropped = 0;
	rig_run(r, UINT64_MAX);
	for (unsigned i = 0; i < DROP_COUNT; i++)
		dropped += c->drop[i];
	assert_int_equal(c->arrived + c->duplicated + c->fragments,
	                 c->delivered + dropped + c->fragmented);
	assert_int_equal(direction_on_the_way(&r->d), 0);
	assert_int_equal(r->pool.used, direction_on_the_way(&r->back));
	direction_close(&r->d);
	direction_close(&r->back);
	pool_close(&r->pool);
	free(r);
}

void rig_send_as(struct rig *r, uint32_t number, unsigned length, unsigned flags)
{
	uint32_t i = pool_take(&r->pool);
	assert_int_not_equal(i, STORE_NONE);
	uint8_t *bytes = pool_bytes(&r->pool, i);
	r->pool.packet[i].length = packet_v4(bytes, length, flags, 0);
	memcpy(bytes + 40, &number, 4);
	r->pool.packet[i].arrived = r->now;
	direction_arrive(&r->d, i);
}

void rig_send(struct rig *r, uint32_t number)
{
	rig_send_as(r, number, 986, DF); /* a frame of 1000 bytes */
}

void rig_send_many(struct rig *r, unsigned count, uint64_t gap)
{
	for (unsigned i = 0; i < count; i++) {
		rig_run(r, r->now + gap);
		rig_send(r, i);
	}
	rig_run(r, UINT64_MAX);
}
