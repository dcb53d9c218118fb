// SPDX-License-Identifier: Apache-2.0
/*
 * Clients and server on two stacks, with nothing between them, in virtual time: what is counted is
 * what happened, and what was slow is seen by those who had to wait for it.
 */
#include <arpa/inet.h>
#include <errno.h>

#include "../client_state.h"
#include "script.h"
#include "server.h"

#define US    UINT64_C(1000)
#define MS    UINT64_C(1000000)
#define SEC   UINT64_C(1000000000)
#define START SEC
#define STEP  (50 * US)

struct world {
	struct sy_stack *s[2]; /* clients, server */
	struct mix mix;
	struct sy_addr source[4];
	struct client_options o;
	struct client *client;
	struct server *server;
	uint64_t now;
	uint64_t stalled_from, stalled_until; /* the server does nothing */
	uint64_t resets_at;                   /* it forgets all connections */
};

static uint64_t not_busy(uint64_t ns)
{
	return ns;
}

static struct sy_stack *stack_of_ports(uint16_t first, uint16_t last)
{
	struct sy_stack_options o = {.pool = tests_pool(),
	                             .connections = 2048,
	                             .time_wait_ms = 1,
	                             .port_first = first,
	                             .port_last = last,
	                             .secret = "ends"};
	struct sy_stack *s;

	assert_int_equal(sy_stack_create(&o, START, &s, NULL), 0);
	return s;
}

static struct sy_stack *stack_new(void)
{
	return stack_of_ports(0, 0);
}

static struct sy_stack_endpoint server_at(void)
{
	struct sy_stack_endpoint e = {.port = htons(7000)};
	sy_addr_parse("10.0.0.1", &e.addr);
	return e;
}

static void world_open(struct world *w, enum protocol p)
{
	*w = (struct world){.now = START, .mix.protocol = p};
	for (unsigned i = 0; i < 4; i++)
		w->source[i] = sy_addr_v4(htonl(0x0a000064 + i));
	w->s[0] = stack_new();
	w->s[1] = stack_new();
	w->o = (struct client_options){
	        .mix = &w->mix,
	        .source = w->source,
	        .sources = 4,
	        .target = server_at(),
	        .connections = 8,
	        .active = 8,
	        .connecting = 4,
	        .depth = 1,
	        .timeout_ns = 5 * SEC,
	        .seed = 1,
	};
}

static void server_start(struct world *w)
{
	static struct sy_stack_endpoint local;

	local = server_at();
	w->server = server_new(&(struct server_options){.echo = w->mix.protocol == PROTOCOL_ECHO,
	                                                .local = &local,
	                                                .locals = 1,
	                                                .connections = 2048,
	                                                .busy = not_busy});
	assert_int_equal(server_listen(w->server, w->s[1], NULL), 0);
}

static void packets_move(struct world *w, unsigned from)
{
	struct rte_mbuf *m[32];
	unsigned count;

	while ((count = sy_stack_transmit(w->s[from], m, 32, w->now)) > 0)
		sy_stack_receive(w->s[!from], m, count, w->now);
}

/* Until the clients are done. */
static void world_run(struct world *w, bool with_server)
{
	uint64_t until = w->now + 100 * SEC;

	if (!w->mix.classes)
		assert_int_equal(mix_complete(&w->mix, NULL), 0);
	w->client = client_new(&w->o);
	client_go(w->client);
	if (with_server)
		server_start(w);
	while (client_phase(w->client) != CLIENT_DONE) {
		sy_stack_advance(w->s[0], w->now);
		sy_stack_advance(w->s[1], w->now);
		client_turn(w->client, w->s[0], w->now);
		packets_move(w, 0);
		if (with_server && (w->now < w->stalled_from || w->now >= w->stalled_until))
			while (server_turn(w->server, w->s[1], w->now))
				;
		packets_move(w, 1);
		if (w->resets_at && w->now >= w->resets_at) {
			sy_stack_destroy(w->s[1]);
			w->s[1] = stack_new();
			server_free(w->server);
			w->resets_at = 0;
			server_start(w);
		}
		w->now += STEP;
		assert_true(w->now < until);
	}
}

static void world_close(struct world *w)
{
	client_free(w->client);
	server_free(w->server);
	sy_stack_destroy(w->s[0]);
	sy_stack_destroy(w->s[1]);
	mix_free(&w->mix);
}

static const struct client_counts *no_errors(const struct world *w)
{
	const struct client_counts *n = client_counts(w->client);

	assert_int_equal(n->connect + n->reset + n->closed + n->timeout + n->wrong + n->unsent, 0);
	assert_int_equal(n->open_failed + n->lost, 0);
	assert_int_equal(n->sent, n->answered);
	return n;
}

static uint64_t measured(const struct world *w)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < w->mix.classes; i++)
		sum += client_class(w->client, i)->latency.count;
	return sum;
}

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

/* A server that stands still for a second: whoever was due then has waited. A tool that omits
 * these sees one slow answer for each connection. */
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
	/* Since they were sent: only the eight that were under way. */
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

/* The same seed asks for the same, whatever the server does meanwhile; another one does not. */
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
		client_turn(w.client, w.s[0], w.now);
		if (client_phase(w.client) == phase && client_connected(w.client))
			client_stop(w.client);
		packets_move(&w, 0);
		while (server_turn(w.server, w.s[1], w.now))
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

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void test_refused(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.requests = 16;
	world_run(&w, false);
	const struct client_counts *n = client_counts(w.client);
	assert_int_equal(client_connect_error(w.client), ECONNREFUSED);
	assert_int_equal(n->connect, 16);
	assert_int_equal(n->opened, 0);
	assert_int_equal(n->open_failed, 8 * 3 + 16);
	assert_int_equal(measured(&w), 0);
	world_close(&w);
}

/* Eight connections, of which only four at a time have a port: connecting fails at once. Each place
 * of the others asks again. */
static void no_ports(bool open, uint32_t each)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	sy_stack_destroy(w.s[0]);
	w.s[0] = stack_of_ports(5000, 5000); /* of each of four sources */
	w.o.open = open;
	w.o.rate = open ? 1000 : 0;
	w.o.each = each;
	w.o.depth = 2;
	w.o.requests = 500;
	world_run(&w, true);
	const struct client_counts *n = client_counts(w.client);
	assert_true(n->connect > 0 && n->open_failed > 0);
	assert_true(n->answered > 0);
	assert_int_equal(n->answered + n->connect, 500);
	world_close(&w);
}

static void test_no_ports(void **state)
{
	for (uint32_t each = 1; each <= 3; each++) {
		no_ports(false, each);
		no_ports(true, each);
	}
}

/* A server that answers nothing, and from `from` on ends connections on which nothing came. */
static void world_run_impatient(struct world *w, uint64_t from)
{
	struct sy_stack_endpoint local = server_at();
	sy_stack_id listener, id[64];
	unsigned ids = 0;
	const void *bytes;

	assert_int_equal(sy_stack_listen(w->s[1], &local, 64, 0, &listener), 0);
	assert_int_equal(mix_complete(&w->mix, NULL), 0);
	w->client = client_new(&w->o);
	client_go(w->client);
	while (client_phase(w->client) != CLIENT_DONE) {
		for (unsigned i = 0; i < 2; i++)
			sy_stack_advance(w->s[i], w->now);
		client_turn(w->client, w->s[0], w->now);
		packets_move(w, 0);
		while (ids < SY_ARRAY_LEN(id) &&
		       sy_stack_accept(w->s[1], listener, 0, NULL, &id[ids]) == 0)
			ids++;
		for (unsigned i = ids; i-- > 0 && w->now >= from;) {
			if (sy_stack_peek(w->s[1], id[i], &bytes) > 0)
				continue;
			sy_stack_close(w->s[1], id[i], w->now);
			id[i] = id[--ids];
		}
		packets_move(w, 1);
		w->now += STEP;
		assert_true(w->now < START + 100 * SEC);
	}
}

/* While connections are opened, too: each is tried three times, and once more for its request. */
static void test_impatient_at_once(void **state)
{
	for (unsigned active = 0; active <= 8; active += 4) {
		struct world w;
		world_open(&w, PROTOCOL_RAW);
		w.o.active = active;
		w.o.requests = active ? active : 0;
		w.o.duration_ns = active ? 0 : 10 * MS;
		w.o.timeout_ns = 10 * MS;
		world_run_impatient(&w, 0);
		const struct client_counts *n = client_counts(w.client);
		/* Those that idle and were open when it went on: every 20 ms in 100 ms of sweeping.
		 */
		assert_in_range(n->reopened, 8 * 3, 8 * 3 + (8 - active) * 6);
		assert_in_range(n->opened, n->reopened + active, n->reopened + 8);
		assert_int_equal(n->timeout, active);
		assert_int_equal(n->connect + n->reset + n->closed + n->wrong + n->lost, 0);
		world_close(&w);
	}
}

/* Later: those that idle come again, but not at once. */
static void test_impatient_later(void **state)
{
	for (unsigned open = 0; open < 2; open++) {
		struct world w;
		world_open(&w, PROTOCOL_RAW);
		w.o.connections = 2;
		w.o.active = 1;
		w.o.open = open;
		w.o.rate = open ? 1000 : 0;
		w.o.requests = 1;
		w.o.timeout_ns = SEC;
		world_run_impatient(&w, START + 100 * MS);
		const struct client_counts *n = client_counts(w.client);
		assert_int_equal(n->timeout, 1);
		assert_in_range(n->opened, n->reopened + 1, n->reopened + 2);
		assert_in_range(n->reopened, 20, 50); /* in 0.9 s, each after 20 ms */
		world_close(&w);
	}
}

static void lost_and_found(bool open)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.open = open;
	w.o.rate = open ? 5000 : 0;
	w.o.depth = 2;
	w.o.duration_ns = 2 * SEC;
	w.resets_at = START + SEC;
	world_run(&w, true);
	const struct client_counts *n = client_counts(w.client);
	assert_in_range(n->reset, open ? 0 : 1, 16);
	assert_in_range(n->opened, 9, 16 + 16);
	assert_int_equal(n->closed + n->timeout + n->wrong + n->unsent, 0);
	/* After it, it goes on as before. */
	assert_true(n->answered > (open ? 9000u : 20000u));
	assert_int_equal(n->sent, n->answered + n->reset);
	world_close(&w);
}

static void test_resets(void **state)
{
	lost_and_found(false);
	lost_and_found(true);
}

static void test_timeout(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.requests = 1000;
	w.o.timeout_ns = 500 * MS;
	w.stalled_from = START + 1 * MS;
	w.stalled_until = UINT64_MAX;
	world_run(&w, true);
	const struct client_counts *n = client_counts(w.client);
	assert_true(n->timeout >= 8);
	assert_int_equal(n->answered + n->timeout + n->connect, 1000);
	world_close(&w);
}

/* An echo of what the raw protocol asks is no answer. */
static void test_wrong(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.requests = 20;
	static struct sy_stack_endpoint local;
	local = server_at();
	w.server = server_new(&(struct server_options){
	        .echo = true, .local = &local, .locals = 1, .connections = 64});
	assert_int_equal(server_listen(w.server, w.s[1], NULL), 0);
	assert_int_equal(mix_complete(&w.mix, NULL), 0);
	w.client = client_new(&w.o);
	client_go(w.client);
	while (client_phase(w.client) != CLIENT_DONE) {
		for (unsigned i = 0; i < 2; i++)
			sy_stack_advance(w.s[i], w.now);
		client_turn(w.client, w.s[0], w.now);
		packets_move(&w, 0);
		while (server_turn(w.server, w.s[1], w.now))
			;
		packets_move(&w, 1);
		w.now += STEP;
	}
	assert_int_equal(client_counts(w.client)->wrong, 20);
	assert_int_equal(client_counts(w.client)->answered, 0);
	world_close(&w);
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
		client_turn(w.client, w.s[0], w.now);
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
	        cmocka_unit_test(test_counts),
	        cmocka_unit_test(test_think),
	        cmocka_unit_test(test_active),
	        cmocka_unit_test(test_omission),
	        cmocka_unit_test(test_open_rates),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_resets),
	        cmocka_unit_test(test_timeout),
	        cmocka_unit_test(test_wrong),
	        cmocka_unit_test(test_pipelined_again),
	        cmocka_unit_test(test_seeds),
	        cmocka_unit_test(test_no_ports),
	        cmocka_unit_test(test_impatient_at_once),
	        cmocka_unit_test(test_impatient_later),
	        cmocka_unit_test(test_stopped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
