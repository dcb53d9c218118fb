// SPDX-License-Identifier: Apache-2.0
/* Levels do not reorder a connection's bytes (docs/design/0045-priorities.md, "The driver's step,
 * and a flow's order"). */
#include "pair.h"

static uint8_t at_random(struct sy_hook_packet *p, const uint8_t *payload)
{
	return (uint8_t)random_below(SY_PRIORITIES + 1) % (SY_PRIORITIES + 1) == SY_PRIORITIES
	               ? SY_KEEP
	               : (uint8_t)random_below(SY_PRIORITIES);
}

#define FLOWS 12
#define BYTES 60000u

static uint8_t byte_of(unsigned flow, uint32_t n)
{
	return (uint8_t)(n ^ n >> 8 ^ 37 * flow);
}

static void flow_write(unsigned i, uint32_t *written)
{
	uint8_t bytes[3000];
	uint32_t len = 1 + random_below(sizeof(bytes));

	len = len > BYTES - *written ? BYTES - *written : len;
	for (uint32_t k = 0; k < len; k++)
		bytes[k] = byte_of(i, *written + k);
	int64_t done = sy_stack_send(pair.client, pair.from[i], bytes, len, 0, pair.now);
	*written += done > 0 ? (uint32_t)done : 0;
}

static void flow_read(unsigned i, uint32_t *read)
{
	uint8_t bytes[5000];
	int64_t got = sy_stack_receive_bytes(pair.server, pair.to[i], bytes,
	                                     1 + random_below(sizeof(bytes)), pair.now);

	for (int64_t k = 0; k < got; k++)
		assert_int_equal(bytes[k], byte_of(i, *read + (uint32_t)k));
	*read += got > 0 ? (uint32_t)got : 0;
}

/* Random levels and batch sizes: each byte arrives in order. Returns the number of dropped packets.
 */
static uint64_t schedule(unsigned seed, unsigned max)
{
	uint32_t written[FLOWS] = {0}, read[FLOWS] = {0};
	struct sy_stack_levels levels;
	unsigned done = 0;

	random_state = seed;
	pair_connect(FLOWS);
	sy_stack_packet_hook(pair.server, pair_packet_hook("random", at_random));
	for (unsigned turn = 0; done < FLOWS; turn++) {
		unsigned i = random_below(FLOWS);
		assert_true(turn < 1000000);
		flow_write(i, &written[i]);
		if (random_below(3) == 0)
			pair_bring(pair.client, pair.server);
		sy_stack_process(pair.server, random_below(max), pair.now);
		i = random_below(FLOWS);
		if (read[i] < BYTES) {
			flow_read(i, &read[i]);
			done += read[i] == BYTES;
		}
		if (random_below(4) == 0)
			pair_bring(pair.server, pair.client);
		if (random_below(20) == 0) {
			pair.now += PAIR_MS;
			sy_stack_advance(pair.client, pair.now);
			sy_stack_advance(pair.server, pair.now);
		}
	}
	sy_stack_levels(pair.server, &levels);
	assert_true(levels.risen > 100);
	for (unsigned i = 1; i < SY_PRIORITIES; i++)
		levels.dropped[0] += levels.dropped[i];
	return levels.dropped[0];
}

/* And without apparent loss: no segment out of order, no duplicate ACK. */
static void test_flows_keep_their_order(void **state)
{
	for (unsigned seed = 1; seed <= 40; seed++) {
		const struct sy_stack_counters *c = sy_stack_counters(pair.server);
		assert_int_equal(schedule(seed, 8), 0);
		assert_int_equal(c->out_of_order + c->duplicates, 0);
		assert_int_equal(sy_stack_counters(pair.client)->recoveries, 0);
		pair_close();
		pair_open(NULL);
	}
}

/* Also while packets are dropped and retransmitted. */
static void test_bytes_survive_drops(void **state)
{
	uint64_t dropped = 0;

	for (unsigned seed = 1; seed <= 10; seed++) {
		pair_close();
		pair_open(pair_few());
		dropped += schedule(seed, 2);
	}
	assert_true(dropped > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        PAIR_TEST(flows_keep_their_order),
	        PAIR_TEST(bytes_survive_drops),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
