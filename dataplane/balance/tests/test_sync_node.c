// SPDX-License-Identifier: Apache-2.0
/*
 * Nodes that keep replicas of each other's objects, in virtual time: the real code from change to
 * sealed datagram, with two to four nodes of one to three workers, and a network that loses,
 * repeats, delays, reorders, is cut, forges and replays. Nodes end, return with or without what
 * they had, and stay away.
 *
 * Checked after each run: each object of a living node is stored, with its present value, at the
 * node that is to keep it, and no living node stores an object that its owner has not.
 *
 * SY_SCHEDULES: how many runs (default 12); SY_SEED: the first one's seed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sync_fixture.h"
#include "sync_members.h"
#include "sync_node.h"

#define NODES   4
#define USED    5 /* slots with objects, the dictionary among them */
#define RECORDS 60
#define IDS     120
#define FLIGHT  256
#define STEP_NS UINT64_C(1000000)
#define STEPS   1500
#define QUIET   6000

static const uint16_t used[USED] = {0, 17, 64, 255, SYNC_DICTIONARY};

struct stored {
	bool here, counted;
	uint32_t value;
};

struct node {
	bool lives;
	uint8_t number;
	unsigned workers;
	struct sync_node *sync;
	struct object object[USED][RECORDS];
	uint8_t mark[USED][NODES + 1][RECORDS]; /* the dictionary has one log for each peer */
	struct stored stored[NODES + 1][USED][IDS];
};

struct packet {
	bool used;
	uint8_t to;
	uint64_t at_ns;
	uint16_t len;
	uint8_t bytes[SYNC_DATAGRAM];
};

static struct {
	uint64_t now_ns;
	unsigned nodes, loss;
	bool cut[NODES + 1][NODES + 1];
	struct node node[NODES + 1];
	struct packet packet[FLIGHT], recorded[32];
} world;

static bool chance(unsigned permille)
{
	return random_below(1000) < permille;
}

static unsigned used_index(unsigned slot)
{
	unsigned i = 0;

	while (i < USED && used[i] != slot)
		i++;
	return i;
}

/* ---- objects --------------------------------------------------------------------------------- */

static bool describe(void *context, unsigned slot, uint32_t record, bool known, uint8_t *entry,
                     uint64_t *hash)
{
	const struct node *n = context;
	const struct object *o = &n->object[used_index(slot)][record];

	if (o->id)
		object_write(entry, known ? SYNC_CHANGE : SYNC_PUT, o, hash);
	return o->id;
}

static void describe_end(void *context, unsigned slot, uint32_t record, bool transferred,
                         uint8_t *entry, uint64_t *hash)
{
	(void)transferred;
	const struct node *n = context;

	object_write(entry, SYNC_DELETE, &n->object[used_index(slot)][record], hash);
}

static uint32_t next(void *context, unsigned slot, uint32_t record)
{
	const struct node *n = context;
	unsigned i = used_index(slot);

	for (; i < USED && record < RECORDS; record++)
		if (n->object[i][record].id)
			return record;
	return SYNC_NO_RECORD;
}

static uint8_t *marks(void *context, unsigned slot, uint8_t peer, uint32_t *count)
{
	struct node *n = context;
	unsigned i = used_index(slot);

	*count = i < USED ? RECORDS : 0;
	return i < USED ? n->mark[i][peer] : NULL;
}

/* The dictionary only grows here, as ids do that are in use. */
static void object_step(struct node *n)
{
	unsigned i = random_below(USED), record = random_below(RECORDS);
	struct object *o = &n->object[i][record];
	uint32_t id = 1 + random_below(IDS - 1);

	if (o->id && chance(300) && used[i] != SYNC_DICTIONARY) {
		sync_node_end(n->sync, used[i], record);
		*o = (struct object){0};
	} else if (o->id) {
		o->value++;
		sync_node_change(n->sync, used[i], record);
	} else {
		for (unsigned other = 0; other < RECORDS; other++)
			if (n->object[i][other].id == id)
				return;
		*o = (struct object){id, random_below(16)};
		sync_node_change(n->sync, used[i], record);
	}
}

/* ---- replicas -------------------------------------------------------------------------------- */

static enum sync_result apply(void *context, unsigned node, unsigned slot, const uint8_t *entry,
                              uint64_t *hash)
{
	struct node *n = context;
	struct object_entry e;

	memcpy(&e, entry, sizeof(e));
	*hash = object_hash(e.id);
	struct stored *s = &n->stored[node][used_index(slot)][e.id];
	bool counted = s->here && s->counted;
	if (e.head.kind == SYNC_DELETE) {
		enum sync_result result = !s->here ? SYNC_MISSING : counted ? SYNC_DONE : SYNC_NEW;
		*s = (struct stored){0};
		return result;
	}
	if (!s->here && e.head.kind == SYNC_CHANGE)
		return SYNC_MISSING;
	*s = (struct stored){true, true, e.value};
	return counted ? SYNC_DONE : SYNC_NEW;
}

static void copy_begin(void *context, unsigned node, unsigned slot)
{
	struct node *n = context;
	unsigned i = used_index(slot);

	for (unsigned id = 0; id < IDS && i < USED; id++)
		n->stored[node][i][id].counted = false;
}

static void copy_end(void *context, unsigned node, unsigned slot)
{
	struct node *n = context;
	unsigned i = used_index(slot);

	for (unsigned id = 0; id < IDS && i < USED; id++)
		if (!n->stored[node][i][id].counted)
			n->stored[node][i][id] = (struct stored){0};
}

static struct sync_sum stored_sum(void *context, uint8_t node, unsigned slot)
{
	struct node *n = context;
	struct sync_sum sum = {0};
	unsigned i = used_index(slot);

	for (unsigned id = 0; id < IDS && i < USED; id++) {
		struct stored *s = &n->stored[node][i][id];
		s->counted = s->here;
		if (s->here)
			sync_sum_add(&sum, object_hash(id));
	}
	return sum;
}

/* ---- the network ----------------------------------------------------------------------------- */

static unsigned owner(void *context, unsigned slot)
{
	const struct node *n = context;

	return slot % n->workers;
}

static void pass(void *context, unsigned worker, uint8_t from, const struct sync_part *part)
{
	const struct node *n = context;

	if (!chance(20)) /* the ring was full */
		sync_lane_part(n->sync, worker, from, part, world.now_ns);
}

static void packet_put(uint8_t to, const uint8_t *bytes, size_t len)
{
	struct packet *p = &world.packet[random_below(FLIGHT)];

	p->used = true;
	p->to = to;
	p->at_ns = world.now_ns + random_below(chance(100) ? 30 : 2) * STEP_NS;
	p->len = (uint16_t)len;
	memcpy(p->bytes, bytes, len);
	if (chance(20))
		world.recorded[random_below(SY_ARRAY_LEN(world.recorded))] = *p;
}

static void datagram_send(void *context, unsigned worker, uint8_t to, const uint8_t *bytes,
                          size_t len)
{
	const struct node *n = context;

	for (unsigned copies = chance(30) ? 2 : 1; copies > 0; copies--)
		if (random_below(100) >= world.loss && !world.cut[n->number][to])
			packet_put(to, bytes, len);
}

static void forge(void)
{
	struct packet p = world.recorded[random_below(SY_ARRAY_LEN(world.recorded))];

	if (p.len == 0) /* none was recorded, or it was cut to nothing */
		return;
	if (chance(500))
		p.bytes[random_below(p.len)] ^= (uint8_t)(1 + random_below(255));
	packet_put(p.to, p.bytes, chance(900) ? p.len : random_below(p.len + 1u));
}

static void network_step(void)
{
	for (unsigned i = 0; i < FLIGHT; i++) {
		struct packet p = world.packet[i];
		struct node *n = &world.node[p.to];
		if (!p.used || p.at_ns > world.now_ns)
			continue;
		world.packet[i].used = false;
		if (n->lives)
			/* By the sender's worker, as a kernel's filter spreads them. */
			sync_lane_receive(n->sync, p.bytes[5] % n->workers, p.bytes, p.len,
			                  world.now_ns);
	}
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void node_start(struct node *n)
{
	const struct sync_node_options options = {
	        .node = n->number,
	        .name = "node",
	        .slot_key = 99,
	        .secret = {{1, SYNC_SECRET, "a secret of thirty-two bytes ..."}},
	        .peers = ((2u << world.nodes) - 2) & ~(1u << n->number),
	        .workers = n->workers,
	        .copies = 50,
	        .source = {n, describe, describe_end, next, marks},
	        .sink = {n, apply, copy_begin, copy_end, NULL},
	        .context = n,
	        .owner = owner,
	        .pass = pass,
	        .send = datagram_send,
	        .stored = stored_sum,
	};

	memset(n->mark, 0, sizeof(n->mark));
	n->sync = sync_node_create(&options, world.now_ns);
	assert_non_null(n->sync);
	n->lives = true;
}

static void node_stop(struct node *n, bool forgets)
{
	sync_node_destroy(n->sync);
	n->sync = NULL;
	n->lives = false;
	if (forgets) {
		memset(n->object, 0, sizeof(n->object));
		memset(n->stored, 0, sizeof(n->stored));
	}
}

static void nodes_step(bool changes)
{
	for (unsigned i = 1; i <= world.nodes; i++) {
		struct node *n = &world.node[i];
		for (unsigned left = random_below(chance(10) ? 200 : 6);
		     changes && n->lives && left > 0; left--)
			object_step(n);
		for (unsigned worker = 0; n->lives && worker < n->workers; worker++)
			sync_lane_poll(n->sync, worker, world.now_ns);
	}
}

static void disturb(void)
{
	struct node *n = &world.node[1 + random_below(world.nodes)];
	unsigned a = 1 + random_below(world.nodes), b = 1 + random_below(world.nodes);

	if (chance(5))
		world.loss = random_below(4) * 15;
	if (chance(5))
		world.cut[a][b] = chance(300);
	if (chance(2) && n->lives)
		node_stop(n, chance(500));
	else if (chance(20) && !n->lives)
		node_start(n);
	if (chance(200))
		forge();
}

static bool is_stored(const struct node *n, unsigned i, const struct object *o)
{
	for (uint8_t peer = 1; peer <= world.nodes; peer++) {
		const struct stored *s = &world.node[peer].stored[n->number][i][o->id];
		bool keeps = peer != n->number && (used[i] == SYNC_DICTIONARY ||
		                                   sync_node_target(n->sync, used[i]) == peer);
		if (keeps && (!s->here || s->value != o->value))
			return false;
	}
	return true;
}

static bool exists(const struct node *n, unsigned i, uint32_t id)
{
	for (unsigned record = 0; record < RECORDS; record++)
		if (n->object[i][record].id == id)
			return true;
	return false;
}

/* What the node that is to keep them stores of others' objects. A former one's replicas are no
 * longer refreshed. */
static bool is_equal(void)
{
	for (unsigned number = 1; number <= world.nodes; number++) {
		const struct node *n = &world.node[number];
		for (unsigned i = 0; i < USED; i++) {
			for (unsigned record = 0; record < RECORDS; record++)
				if (n->object[i][record].id &&
				    !is_stored(n, i, &n->object[i][record]))
					return false;
			uint8_t target = used[i] == SYNC_DICTIONARY
			                         ? 1 + (number == 1)
			                         : sync_node_target(n->sync, used[i]);
			for (unsigned id = 1; target && id < IDS; id++)
				if (world.node[target].stored[number][i][id].here &&
				    !exists(n, i, id))
					return false;
		}
	}
	return true;
}

/* Do peers report that they have just what is offered to them? */
static bool is_reported(void)
{
	for (unsigned number = 1; number <= world.nodes; number++) {
		const struct sync_node *n = world.node[number].sync;
		for (uint8_t peer = 1; peer <= world.nodes; peer++) {
			uint64_t offered = 0;
			for (unsigned slot = 0; slot < SY_SLOTS; slot++)
				if (sync_node_target(n, slot) == peer)
					offered += sync_node_log(n, slot)->sum.count;
			if (peer != number && sync_node_peer(n, peer)->kept != offered)
				return false;
		}
	}
	return true;
}

static void settle(uint64_t seed)
{
	world.loss = 0;
	memset(world.cut, 0, sizeof(world.cut));
	for (unsigned i = 1; i <= world.nodes; i++)
		if (!world.node[i].lives)
			node_start(&world.node[i]);
	for (unsigned step = 0; step < QUIET; step++) {
		if (step > 3000 && is_equal() && is_reported())
			return;
		network_step();
		nodes_step(false);
		if (chance(100))
			forge();
		world.now_ns += STEP_NS;
	}
	fail_msg("seed %llu: replicas differ", (unsigned long long)seed);
}

/* Nodes have come lately: of a slot's sessions, any of them may have one that no other has. */
static void check_all_are_asked(void)
{
	const uint32_t all = (2u << world.nodes) - 2;
	for (unsigned i = 1; i <= world.nodes; i++) {
		const struct sync_node *n = world.node[i].sync;
		uint32_t visited = 1u << i;
		uint8_t node;
		assert_true(sync_node_has_changed(n, world.now_ns));
		while ((node = sync_node_next(n, used[0], visited, world.now_ns))) {
			assert_false(visited >> node & 1);
			visited |= 1u << node;
		}
		assert_int_equal(visited, all);
	}
}

static void run(uint64_t seed)
{
	memset(&world, 0, sizeof(world));
	random_state = seed;
	world.now_ns = UINT64_C(1000000000000);
	world.nodes = 2 + random_below(NODES - 1);
	for (unsigned i = 1; i <= world.nodes; i++) {
		world.node[i].number = (uint8_t)i;
		world.node[i].workers = 1 + random_below(3);
		node_start(&world.node[i]);
	}
	for (unsigned step = 0; step < STEPS; step++) {
		disturb();
		network_step();
		nodes_step(true);
		world.now_ns += STEP_NS;
	}
	settle(seed);
	check_all_are_asked();
	for (unsigned i = 1; i <= world.nodes; i++)
		node_stop(&world.node[i], true);
}

static void test_peers_store_what_living_nodes_have(void **state)
{
	uint64_t seed = number_of("SY_SEED", 1), runs = number_of("SY_SCHEDULES", 12);

	for (uint64_t i = 0; i < runs; i++)
		run(seed + i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_peers_store_what_living_nodes_have),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
