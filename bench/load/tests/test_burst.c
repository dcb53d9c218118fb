// SPDX-License-Identifier: Apache-2.0
/* A burst leaves back to back: turn by turn, at one time of the clock. */
#include "load_world.h"

#define BURST    150
#define PER_POLL 64
#define REQUEST  80 /* a frame of more bytes has data: 98, a SYN 74 */

/* Delivers the clients' packets of a poll; returns the requests. */
static unsigned requests_move(struct world *w)
{
	struct rte_mbuf *m[32];
	unsigned count, requests = 0;

	while ((count = sy_stack_transmit(w->s[0], m, SY_ARRAY_LEN(m), w->now)) > 0) {
		for (unsigned i = 0; i < count; i++)
			requests += m[i]->pkt_len > REQUEST;
		sy_stack_receive(w->s[1], m, count, w->now);
	}
	return requests;
}

/* Polls while the clients request it without advancing the time. Returns the requests, and the
 * number of polls with some. */
static unsigned moment(struct world *w, unsigned per_poll, unsigned *polls)
{
	unsigned sent, all = 0;
	uint64_t next;

	*polls = 0;
	for (unsigned n = 0;; n++) {
		assert_true(n < 1000);
		next = client_poll(w->client, w->s[0], w->now);
		sent = requests_move(w);
		assert_true(sent <= per_poll);
		/* Each poll but the last is full: nothing is deferred. */
		assert_true(sent == 0 || all % per_poll == 0);
		all += sent;
		*polls += sent > 0;
		if (next > w->now || client_phase(w->client) != CLIENT_MEASURING)
			return all;
	}
}

/* turn: the option; 0: default. */
static void bursts_leave(unsigned turn)
{
	struct distribution burst = distribution_constant(BURST);
	unsigned per_poll = turn ? turn : PER_POLL, bursts = 0, polls, sent;
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.connections = w.o.active = 2 * BURST;
	w.o.connecting = 64;
	w.o.open = true;
	w.o.rate = 10 * BURST;
	w.o.burst = &burst;
	w.o.turn = turn;
	w.o.duration_ns = 950 * MS; /* one is due each 100 ms */
	assert_int_equal(mix_complete(&w.mix, NULL), 0);
	w.client = client_new(&w.o);
	client_go(w.client);
	server_start(&w);
	for (uint64_t until = w.now + 100 * SEC; client_phase(w.client) != CLIENT_DONE;) {
		sy_stack_advance(w.s[0], w.now);
		sy_stack_advance(w.s[1], w.now);
		sent = moment(&w, per_poll, &polls);
		if (sent > 0) {
			assert_int_equal(sent, BURST);
			assert_int_equal(polls, (BURST + per_poll - 1) / per_poll);
			bursts++;
		}
		while (server_poll(w.server, w.s[1], w.now))
			;
		packets_move(&w, 1);
		w.now += STEP;
		assert_true(w.now < until);
	}
	assert_int_equal(bursts, 9);
	assert_int_equal(no_errors(&w)->answered, bursts * BURST);
	world_close(&w);
}

static void test_burst(void **state)
{
	bursts_leave(0);
}

static void test_smaller_turns(void **state)
{
	bursts_leave(8);
	bursts_leave(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_burst),
	        cmocka_unit_test(test_smaller_turns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
