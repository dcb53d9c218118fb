// SPDX-License-Identifier: Apache-2.0
/*
 * Logs of slots in virtual time: one node's objects and another node's replicas of them, with a
 * network between them that loses, repeats, delays and reorders, receivers that restart with or
 * without what they had, tables that are full, and senders that know nothing of the peer any more.
 *
 * Checked after each run: the replicas equal the objects, and the sums prove it. Checked at each
 * acknowledgement: the receiver has applied what it acknowledges.
 *
 * SY_SCHEDULES: how many runs (default 300); SY_SEED: the first one's seed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sync_fixture.h"
#include "sync_log.h"
#include "sync_replica.h"

#define SLOTS   3
#define RECORDS 200
#define IDS     400
#define FLIGHT  64
#define STEP_NS UINT64_C(1000000)
#define STEPS   400
#define QUIET   4000 /* steps within which all must be equal once nothing disturbs */
#define SENDER  7

struct packet {
	bool used, back;
	uint64_t at_ns;
	struct sync_payload payload;
};

static struct world {
	uint64_t now_ns;
	/* the sender */
	struct sync_log log[SLOTS];
	struct object object[SLOTS][RECORDS];
	uint8_t mark[SLOTS][RECORDS];
	unsigned incarnation;
	/* the receiver */
	struct sync_replica replica[SLOTS];
	struct {
		bool here, counted;
		uint32_t value;
	} stored[SLOTS][IDS];
	uint32_t capacity;
	/* between them */
	struct packet packet[FLIGHT];
	unsigned loss; /* of 100 */
} world;

static bool chance(unsigned percent)
{
	return random_below(100) < percent;
}

/* ---- the sender's objects -------------------------------------------------------------------- */

/* One value in eight is not to be replicated, like an embryonic session. */
static bool describe(void *context, unsigned slot, uint32_t record, bool known, uint8_t *entry,
                     uint64_t *hash)
{
	const struct object *o = &world.object[slot][record];

	if (o->id == 0 || o->value % 8 == 7)
		return false;
	object_write(entry, known ? SYNC_CHANGE : SYNC_PUT, o, hash);
	return true;
}

static void describe_end(void *context, unsigned slot, uint32_t record, bool transferred,
                         uint8_t *entry, uint64_t *hash)
{
	(void)transferred;
	object_write(entry, SYNC_DELETE, &world.object[slot][record], hash);
}

static uint32_t next(void *context, unsigned slot, uint32_t record)
{
	for (; record < RECORDS; record++)
		if (world.object[slot][record].id)
			return record;
	return SYNC_NO_RECORD;
}

static uint8_t *marks(void *context, unsigned slot, uint8_t peer, uint32_t *count)
{
	*count = RECORDS;
	return world.mark[slot];
}

static const struct sync_source source = {NULL, describe, describe_end, next, marks};

/* One change of one object. */
static void object_step(void)
{
	unsigned slot = random_below(SLOTS), record = random_below(RECORDS);
	struct object *o = &world.object[slot][record];
	uint32_t id = 1 + random_below(IDS - 1);

	if (o->id && chance(30)) {
		sync_log_end(&world.log[slot], &source, record, false);
		*o = (struct object){0};
	} else if (o->id) {
		o->value++;
		sync_log_change(&world.log[slot], &source, record);
	} else {
		for (unsigned i = 0; i < RECORDS; i++)
			if (world.object[slot][i].id == id)
				return;
		*o = (struct object){id, random_below(16)};
		sync_log_change(&world.log[slot], &source, record);
	}
}

/* ---- the receiver's replicas ----------------------------------------------------------------- */

static uint32_t stored_count(void)
{
	uint32_t count = 0;

	for (unsigned slot = 0; slot < SLOTS; slot++)
		for (unsigned id = 0; id < IDS; id++)
			count += world.stored[slot][id].here;
	return count;
}

static enum sync_result apply(void *context, unsigned node, unsigned slot, const uint8_t *entry,
                              uint64_t *hash)
{
	struct object_entry e;

	assert_int_equal(node, SENDER);
	memcpy(&e, entry, sizeof(e));
	*hash = object_hash(e.id);
	__typeof__(&world.stored[0][0]) s = &world.stored[slot][e.id];
	bool counted = s->here && s->counted;
	if (e.head.kind == SYNC_DELETE) {
		enum sync_result result = !s->here ? SYNC_MISSING : counted ? SYNC_DONE : SYNC_NEW;
		memset(s, 0, sizeof(*s));
		return result;
	}
	if (!s->here && e.head.kind == SYNC_CHANGE)
		return SYNC_MISSING;
	if (!s->here && stored_count() >= world.capacity)
		return SYNC_REFUSED;
	s->here = s->counted = true;
	s->value = e.value;
	return counted ? SYNC_DONE : SYNC_NEW;
}

static void copy_begin(void *context, unsigned node, unsigned slot)
{
	for (unsigned id = 0; id < IDS; id++)
		world.stored[slot][id].counted = false;
}

static void copy_end(void *context, unsigned node, unsigned slot)
{
	for (unsigned id = 0; id < IDS; id++)
		if (!world.stored[slot][id].counted)
			memset(&world.stored[slot][id], 0, sizeof(world.stored[slot][id]));
}

static const struct sync_sink sink = {NULL, apply, copy_begin, copy_end, NULL};

/* ---- the network ----------------------------------------------------------------------------- */

static void packet_send(const struct sync_payload *p, bool back)
{
	unsigned copies = chance(5) ? 2 : 1;

	while (copies-- > 0) {
		struct packet *to =
		        &world.packet[random_below(FLIGHT)]; /* may displace another: a loss */
		if (chance(world.loss))
			continue;
		*to = (struct packet){
		        true, back, world.now_ns + random_below(chance(20) ? 20 : 2) * STEP_NS, *p};
	}
}

static void receiver_handle(const struct sync_payload *p)
{
	struct sync_payload answer = {0};
	struct sync_part part;
	size_t at = 0;

	while (sync_part_next(p->bytes, p->len, &at, &part) > 0) {
		struct sync_replica *r = &world.replica[part.slot];
		enum sync_reply reply = sync_replica_apply(r, &sink, SENDER, &part, world.now_ns);
		sync_part_add(&answer, reply == SYNC_REPLY_GAP ? SYNC_GAP : SYNC_APPLIED, part.slot,
		              r->generation, r->expected);
		if (reply == SYNC_REPLY_COPY)
			sync_part_add(&answer, SYNC_COPY, part.slot, r->generation, r->expected);
	}
	packet_send(&answer, true);
}

static void sender_handle(const struct sync_payload *p)
{
	struct sync_part part;
	size_t at = 0;

	while (sync_part_next(p->bytes, p->len, &at, &part) > 0) {
		sync_log_answer(&world.log[part.slot], &part, world.now_ns);
	}
}

static void network_step(void)
{
	for (unsigned i = 0; i < FLIGHT; i++) {
		struct packet p = world.packet[i];
		if (!p.used || p.at_ns > world.now_ns)
			continue;
		world.packet[i].used = false;
		if (p.back)
			sender_handle(&p.payload);
		else
			receiver_handle(&p.payload);
	}
}

/* A new incarnation of either side: what is on its way is refused, numbers begin again. */
static void numbers_begin(void)
{
	memset(world.packet, 0, sizeof(world.packet));
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		struct sync_sum here = {0};
		for (unsigned id = 0; id < IDS; id++) {
			world.stored[slot][id].counted = world.stored[slot][id].here;
			if (world.stored[slot][id].here)
				sync_sum_add(&here, object_hash(id));
		}
		sync_replica_begin(&world.replica[slot], world.log[slot].generation, &here,
		                   world.now_ns);
	}
}

static void receiver_restart(bool forgets)
{
	if (forgets)
		memset(world.stored, 0, sizeof(world.stored));
	for (unsigned slot = 0; slot < SLOTS; slot++)
		sync_log_renumber(&world.log[slot]);
	numbers_begin();
}

static void sender_restart(void)
{
	for (unsigned slot = 0; slot < SLOTS; slot++)
		sync_log_restart(&world.log[slot], &source);
	numbers_begin();
}

static void sender_step(void)
{
	struct sync_payload p = {0};

	for (unsigned slot = 0; slot < SLOTS; slot++) {
		struct sync_log *log = &world.log[slot];
		sync_log_expire(log, 5 * STEP_NS, 200 * STEP_NS, world.now_ns);
		sync_log_fill(log, &source, random_below(20),
		              world.now_ns - log->sum_ns > 50 * STEP_NS, world.now_ns);
		if (sync_log_send(log, &p, world.now_ns) && chance(50)) {
			packet_send(&p, false);
			p.len = 0;
		}
	}
	if (p.len > 0)
		packet_send(&p, false);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool is_equal(void)
{
	uint32_t count = 0;

	for (unsigned slot = 0; slot < SLOTS; slot++) {
		const struct sync_log *log = &world.log[slot];
		if (sync_log_is_due(log) || !sync_window_is_empty(&log->window))
			return false;
		for (unsigned i = 0; i < RECORDS; i++) {
			const struct object *o = &world.object[slot][i];
			bool worth = o->id && o->value % 8 != 7;
			if (worth && (!world.stored[slot][o->id].here ||
			              world.stored[slot][o->id].value != o->value))
				return false;
			count += worth;
		}
	}
	return count == stored_count();
}

static void disturb(void)
{
	if (chance(1))
		world.loss = random_below(4) * 15;
	if (chance(1) && chance(30))
		world.loss = 100; /* cut */
	if (chance(1) && chance(50))
		receiver_restart(chance(50));
	if (chance(1) && chance(50))
		sender_restart();
	if (chance(1) && chance(50))
		world.capacity = chance(50) ? UINT32_MAX : random_below(SLOTS * RECORDS);
}

static void settle(uint64_t seed)
{
	world.loss = 0;
	world.capacity = UINT32_MAX;
	for (unsigned step = 0; step < QUIET; step++) {
		if (is_equal())
			return;
		for (unsigned slot = 0; slot < SLOTS && step % 100 == 0; slot++)
			if (world.replica[slot].refused.count) /* as the receiver requests it */
				sync_log_copy(&world.log[slot]);
		network_step();
		sender_step();
		world.now_ns += STEP_NS;
	}
	fail_msg("seed %llu: the replicas differ", (unsigned long long)seed);
}

static void quiet_steps(unsigned count)
{
	while (count-- > 0) {
		network_step();
		sender_step();
		world.now_ns += STEP_NS;
	}
}

/* A restart may have forgotten what was refused: one sum shows that, and a copy repairs it. */
static void sums_prove(uint64_t seed)
{
	uint64_t faults[SLOTS];

	quiet_steps(400);
	for (unsigned slot = 0; slot < SLOTS; slot++)
		faults[slot] = world.replica[slot].mismatches;
	quiet_steps(200);
	for (unsigned slot = 0; slot < SLOTS; slot++)
		if (world.replica[slot].mismatches != faults[slot] || !world.replica[slot].verified)
			fail_msg("seed %llu: slot %u: a sum differs", (unsigned long long)seed,
			         slot);
	settle(seed);
}

static void run(uint64_t seed)
{
	memset(&world, 0, sizeof(world));
	random_state = seed;
	world.capacity = UINT32_MAX;
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		sync_log_begin(&world.log[slot], slot, 0);
		sync_log_copy(&world.log[slot]);
	}
	numbers_begin();
	for (unsigned step = 0; step < STEPS; step++) {
		for (unsigned i = random_below(chance(5) ? 400 : 20); i > 0; i--)
			object_step();
		disturb();
		network_step();
		sender_step();
		world.now_ns += STEP_NS;
	}
	settle(seed);
	sums_prove(seed);
}

static void test_replicas_equal_the_objects(void **state)
{
	uint64_t seed = number_of("SY_SEED", 1), runs = number_of("SY_SCHEDULES", 300);

	for (uint64_t i = 0; i < runs; i++)
		run(seed + i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_replicas_equal_the_objects),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
