// SPDX-License-Identifier: Apache-2.0
/* Counters equal the events, and delays are measured where requests had to wait. */
#include "load_world.h"

/* ---- closed loop ----------------------------------------------------------------------------- */

static void count_is_exact(enum protocol p, uint32_t depth, uint32_t each)
{
	struct world w;

	world_open(&w, p);
	w.o.depth = depth;
	w.o.each = each;
	w.o.requests = 1001;
	assert_int_equal(class_read(&w.mix, "a,length=uniform:1:5000", NULL), 0);
	assert_int_equal(class_read(&w.mix, "b,share=3", NULL), 0);
	world_run(&w, true);
	const struct client_counts *n = no_errors(&w);
	assert_int_equal(n->sent, 1001);
	assert_int_equal(measured(&w), 1001);
	assert_int_equal(n->in_window, 1001);
	assert_int_equal(server_counts(w.server)->accepted, n->opened);
	assert_int_equal(server_counts(w.server)->bytes_in, n->bytes_out);
	assert_int_equal(server_counts(w.server)->bytes_out, n->bytes_in);
	assert_int_equal(server_counts(w.server)->bad + server_counts(w.server)->reset, 0);
	if (p == PROTOCOL_RAW)
		assert_int_equal(server_counts(w.server)->requests, 1001);
	if (each)
		assert_in_range(n->opened, (1001 + each - 1) / each,
		                1001 / each + w.o.connections + 1);
	else
		assert_int_equal(n->opened, w.o.connections);
	assert_int_equal(server_connected(w.server), 0);
	world_close(&w);
}

static void test_counts(void **state)
{
	for (enum protocol p = PROTOCOL_RAW; p <= PROTOCOL_ECHO; p++) {
		count_is_exact(p, 1, 0);
		count_is_exact(p, 5, 0);
		count_is_exact(p, 1, 1);
		count_is_exact(p, 3, 7);
	}
}

static void test_think(void **state)
{
	struct distribution think = distribution_constant(10 * MS);
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.think = &think;
	w.o.duration_ns = SEC;
	w.o.warm_ns = 100 * MS;
	world_run(&w, true);
	/* Each of eight asks about a hundred times. */
	assert_in_range(no_errors(&w)->in_window, 770, 800);
	assert_true(client_class(w.client, 0)->latency.largest < MS);
	world_close(&w);
}

/* A request's number says when it was sent, and comes back with its answer. */
static void test_stamp(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.now += UINT64_C(1) << 40; /* a number of 32 bits would not do */
	w.mix.stamp = true;
	w.o.depth = 3;
	w.o.requests = 500;
	world_run(&w, true);
	assert_int_equal(no_errors(&w)->answered, 500);
	for (uint32_t i = 0; i < w.o.connections * w.o.depth; i++) {
		const struct request *r = &w.client->request[i];
		char header[REQUEST_HEADER];
		struct raw_header h;
		request_header(&w.mix, r, header);
		assert_int_equal(raw_read((const uint8_t *)header, &h), 0);
		assert_int_equal(h.number, r->sent_ns);
		assert_in_range(h.number, START + (UINT64_C(1) << 40), w.now);
	}
	world_close(&w);
}

static void test_active(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.connections = 1000;
	w.o.active = 10;
	w.o.requests = 500;
	world_run(&w, true);
	assert_int_equal(no_errors(&w)->opened, 1000);
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(w.client->conn[i].number > 0, i < 10);
	world_close(&w);
}

/* ---- open loop ------------------------------------------------------------------------------- */

/* A server that stalls for a second: all requests due then have waited. A tool with coordinated
 * omission sees one slow response per connection. */
static void test_omission(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.open = true;
	w.o.rate = 1000;
	w.o.duration_ns = 4 * SEC;
	w.stalled_from = START + 1 * SEC;
	w.stalled_until = START + 2 * SEC;
	world_run(&w, true);
	assert_in_range(no_errors(&w)->answered, 3995, 4001);
	const struct client_class *k = client_class(w.client, 0);
	assert_int_equal(k->latency.count, w.client->counts.answered);
	/* A quarter was due in that second, and waited half of it on average. */
	assert_true(histogram_at(&k->latency, 0.74) < 2 * MS);
	assert_in_range(histogram_at(&k->latency, 0.875), 450 * MS, 550 * MS);
	assert_in_range(k->latency.largest, 990 * MS, 1010 * MS);
	/* From sending: only the eight in progress. */
	assert_true(histogram_at(&k->service, 0.99) < 2 * MS);
	world_close(&w);
}

static void test_open_rates(void **state)
{
	struct distribution ten = distribution_constant(10);
	struct world w;

	world_open(&w, PROTOCOL_ECHO);
	w.o.open = true;
	w.o.poisson = true;
	w.o.rate = 20000;
	w.o.depth = 4;
	w.o.each = 50;
	w.o.burst = &ten;
	w.o.warm_ns = 100 * MS;
	w.o.duration_ns = SEC;
	world_run(&w, true);
	assert_in_range(no_errors(&w)->in_window, 18500, 21500);
	world_close(&w);
}

/* Unsent requests are not waited for, without other effects. */
static void test_unsent(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.open = true;
	w.o.rate = 2000;
	w.o.duration_ns = SEC;
	assert_int_equal(class_read(&w.mix, "sent,share=1", NULL), 0);
	assert_int_equal(class_read(&w.mix, "dropped,share=3,unsent=1us", NULL), 0);
	world_run(&w, true);
	assert_in_range(no_errors(&w)->answered, 400, 600);
	assert_int_equal(client_class(w.client, 0)->latency.count, w.client->counts.answered);
	assert_int_equal(client_class(w.client, 1)->latency.count, 0);
	world_close(&w);
}

/* The same seed yields the same requests, whatever the server does; another one does not. */
static void test_seeds(void **state)
{
	uint64_t bytes[3];

	for (unsigned i = 0; i < 3; i++) {
		struct world w;
		world_open(&w, PROTOCOL_RAW);
		w.o.open = w.o.poisson = true;
		w.o.rate = 2000;
		w.o.requests = 1500;
		w.o.seed = i < 2 ? 5 : 6;
		w.stalled_from = START + 200 * MS;
		w.stalled_until = START + (i == 1 ? 400 : 200) * MS;
		assert_int_equal(
		        class_read(&w.mix, "a,length=exp:500,answer=pareto:100:1.2:10k", NULL), 0);
		assert_int_equal(class_read(&w.mix, "b", NULL), 0);
		world_run(&w, true);
		bytes[i] = no_errors(&w)->bytes_in * 1000000 + w.client->counts.bytes_out;
		world_close(&w);
	}
	assert_int_equal(bytes[0], bytes[1]);
	assert_int_not_equal(bytes[0], bytes[2]);
}

/* A client that is stopped as soon as it is in this phase. */
static void stopped_in(enum client_phase phase, bool open)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.open = open;
	w.o.rate = open ? 20000 : 0;
	w.o.warm_ns = SEC;
	w.o.duration_ns = SEC;
	assert_int_equal(mix_complete(&w.mix, NULL), 0);
	w.client = client_new(&w.o);
	client_go(w.client);
	server_start(&w);
	while (client_phase(w.client) != CLIENT_DONE) {
		sy_stack_advance(w.s[0], w.now);
		sy_stack_advance(w.s[1], w.now);
		client_poll(w.client, w.s[0], w.now);
		if (client_phase(w.client) == phase && client_connected(w.client))
			client_stop(w.client);
		packets_move(&w, 0);
		while (server_poll(w.server, w.s[1], w.now))
			;
		packets_move(&w, 1);
		w.now += STEP;
		assert_true(w.now < START + (phase == CLIENT_MEASURING ? 1500 : 500) * MS);
	}
	assert_int_equal(client_has_measured(w.client), phase == CLIENT_MEASURING);
	assert_int_equal(client_measured_ns(w.client) > 0, phase == CLIENT_MEASURING);
	if (phase != CLIENT_MEASURING)
		assert_int_equal(measured(&w), 0);
	assert_int_equal(server_connected(w.server), 0);
	world_close(&w);
}

static void test_stopped(void **state)
{
	for (enum client_phase p = CLIENT_OPENING; p <= CLIENT_MEASURING; p++) {
		stopped_in(p, false);
		stopped_in(p, true);
	}
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

#define ANSWERS 10 /* on a connection; the last one announces its end */

/* A connection's cookie: how many it has answered, and how far an empty line is (2 bits). */
static void web_answer(struct sy_stack *s, const struct sy_stack_event *e, uint64_t now,
                       unsigned *answered)
{
	static const char stays[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	                  ends[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n"
	                           "\r\nok";
	unsigned count = (unsigned)e->cookie >> 2, line = e->cookie & 3;
	const void *bytes;
	int64_t len;

	while (count < ANSWERS && (len = sy_stack_peek(s, e->id, &bytes)) > 0) {
		char c = *(const char *)bytes;
		sy_stack_consume(s, e->id, 1, now);
		line = c == "\r\n\r\n"[line] ? line + 1 : c == '\r';
		if (line < 4)
			continue;
		line = 0;
		count++;
		++*answered;
		if (count == ANSWERS)
			sy_stack_send(s, e->id, ends, sizeof(ends) - 1, 0, now);
		else
			sy_stack_send(s, e->id, stays, sizeof(stays) - 1, 0, now);
	}
	sy_stack_set_cookie(s, e->id, count << 2 | line);
	if (count == ANSWERS) { /* whatever else was asked is read, and not answered */
		while ((len = sy_stack_peek(s, e->id, &bytes)) > 0)
			sy_stack_consume(s, e->id, (size_t)len, now);
		sy_stack_shutdown(s, e->id, now);
	}
	if (e->what & SY_STACK_PEER_DONE)
		sy_stack_close(s, e->id, now);
}

static void test_pipelined_again(void **state)
{
	struct sy_stack_endpoint local = server_at();
	struct sy_stack_event e;
	unsigned answered = 0, accepted = 0;
	sy_stack_id listener, id;
	struct world w;

	world_open(&w, PROTOCOL_HTTP);
	w.o.depth = 4;
	w.o.requests = 1000;
	assert_int_equal(sy_stack_listen(w.s[1], &local, 64, 0, &listener), 0);
	assert_int_equal(mix_complete(&w.mix, NULL), 0);
	w.client = client_new(&w.o);
	client_go(w.client);
	while (client_phase(w.client) != CLIENT_DONE) {
		for (unsigned i = 0; i < 2; i++)
			sy_stack_advance(w.s[i], w.now);
		client_poll(w.client, w.s[0], w.now);
		packets_move(&w, 0);
		while (sy_stack_events(w.s[1], &e, 1)) {
			if (e.id != listener)
				web_answer(w.s[1], &e, w.now, &answered);
			else
				while (sy_stack_accept(w.s[1], listener, 0, NULL, &id) == 0)
					accepted++;
		}
		packets_move(&w, 1);
		w.now += STEP;
		assert_true(w.now < START + 100 * SEC);
	}
	const struct client_counts *n = client_counts(w.client);
	assert_int_equal(n->answered, 1000);
	assert_int_equal(answered, 1000);
	assert_int_equal(n->connect + n->reset + n->closed + n->timeout + n->wrong, 0);
	assert_int_equal(accepted, n->opened);
	assert_in_range(n->reopened, 1000 / ANSWERS - w.o.connections, 1000 / ANSWERS);
	assert_true(n->sent > n->answered); /* some were asked twice */
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_counts),   cmocka_unit_test(test_think),
	        cmocka_unit_test(test_active),   cmocka_unit_test(test_stamp),
	        cmocka_unit_test(test_omission), cmocka_unit_test(test_open_rates),
	        cmocka_unit_test(test_unsent),   cmocka_unit_test(test_pipelined_again),
	        cmocka_unit_test(test_seeds),    cmocka_unit_test(test_stopped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
