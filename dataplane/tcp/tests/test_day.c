// SPDX-License-Identifier: Apache-2.0
/*
 * A day of virtual time between a client's stack and an echo server's. The network loses,
 * duplicates and delays packets, and is down for 45 seconds every three hours.
 *
 *     idle      open all day with keepalive, one request at the end
 *     asker     a request every two seconds, or every five, ten, … minutes, or three hours
 *     sleeper   a request larger than the window; reads the response three hours later
 *     visitor   one connection per request, consecutively
 *
 * Clocks of 32-bit milliseconds wrap at noon. Checks every byte, that no connection fails, and that
 * nothing leaks.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "talk_network.h"

#define S_NS     (1000 * MS_NS)
#define HOUR_NS  (3600 * S_NS)
#define START_NS ((UINT64_C(1) << 32) * MS_NS - 12 * HOUR_NS)
#define END_NS   (START_NS + 24 * HOUR_NS)
#define OVER_NS  (END_NS + HOUR_NS)
#define OUTAGE   3           /* hours */
#define OUT_NS   (45 * S_NS) /* less than an orphan's time-out */
#define FLOWS    96
#define SERVED   256
#define PORT     80
#define LISTENER SERVED /* a cookie */
#define LOSS     10     /* of 1000 packets */

enum kind { IDLE, ASKER, SLEEPER, VISITOR };

/* The client's end. Bytes count from the first one of the connection. */
struct flow {
	enum kind kind;
	sy_stack_id id;
	uint32_t to_ask, asked, answered;
	uint64_t every, next, reads; /* times of request, next request, next read; 0: now */
	uint8_t key;                 /* distinguishes its bytes */
	bool last;
};

/* The server's. */
struct served {
	sy_stack_id id;
	uint32_t echoed;
	uint8_t key;
};

static struct day {
	struct talk net; /* side 0: the client's */
	struct flow flow[FLOWS];
	struct served served[SERVED];
	unsigned flows, visits, open, accepted, ended;
} day;

static uint8_t byte_of(uint8_t key, uint32_t n)
{
	return (uint8_t)((n ^ n >> 8 ^ n >> 16) + 77 * key);
}

static void bytes_check(const uint8_t *bytes, int64_t len, uint8_t key, uint32_t from)
{
	for (int64_t i = 0; i < len; i++)
		if (bytes[i] != byte_of(key, from + (uint32_t)i))
			fail_msg("byte %u of connection %u is wrong", from + (uint32_t)i, key);
}

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint8_t key_of(uint16_t port)
{
	return (uint8_t)(ntohs(port) ^ ntohs(port) >> 8);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void server_serve(struct served *c)
{
	struct sy_stack *s = day.net.side[1].s;
	const void *bytes;
	int64_t len;

	while ((len = sy_stack_peek(s, c->id, &bytes)) > 0) {
		int64_t sent = sy_stack_send(s, c->id, bytes, (size_t)len, 0, day.net.now);
		if (sent == -EAGAIN)
			return;
		assert_true(sent > 0);
		bytes_check(bytes, sent, c->key, c->echoed);
		sy_stack_consume(s, c->id, (size_t)sent, day.net.now);
		c->echoed += (uint32_t)sent;
	}
	if (len == 0) {
		assert_int_equal(sy_stack_close(s, c->id, day.net.now), 0);
		c->id = SY_STACK_NONE;
		day.ended++;
	} else {
		assert_int_equal(len, -EAGAIN);
	}
}

static void server_accept(sy_stack_id listener)
{
	struct sy_stack *s = day.net.side[1].s;
	struct sy_stack_endpoint peer;
	sy_stack_id id;
	unsigned i = 0;

	while (i < SERVED && day.served[i].id)
		i++;
	while (sy_stack_accept(s, listener, i, &peer, &id) == 0) {
		assert_true(i < SERVED);
		day.served[i] = (struct served){.id = id, .key = key_of(peer.port)};
		day.accepted++;
		server_serve(&day.served[i]);
		while (i < SERVED && day.served[i].id)
			i++;
	}
}

static void server_turn(void)
{
	struct sy_stack_event e;

	while (sy_stack_events(day.net.side[1].s, &e, 1)) {
		if (e.cookie == LISTENER)
			server_accept(e.id);
		else if (day.served[e.cookie].id == e.id)
			server_serve(&day.served[e.cookie]);
	}
}

/* ---- the client ------------------------------------------------------------------------------ */

static void flow_open(struct flow *f)
{
	struct sy_stack_endpoint from = {0}, to = {.port = htons(PORT)};
	struct sy_stack *s = day.net.side[0].s;
	struct sy_stack_info info;
	bool v4 = chance(&day.net, 500);

	sy_addr_parse(v4 ? "10.0.0.1" : "2001:db8::1", &from.addr);
	sy_addr_parse(v4 ? "10.0.0.2" : "2001:db8::2", &to.addr);
	assert_int_equal(
	        sy_stack_connect(s, &from, &to, (uint64_t)(f - day.flow), day.net.now, &f->id), 0);
	assert_int_equal(sy_stack_info(s, f->id, &info), 0);
	f->key = key_of(info.local.port);
	f->to_ask = f->asked = f->answered = 0;
	if (f->kind == IDLE)
		sy_stack_set(s, f->id, SY_STACK_KEEPALIVE_S, 7200, day.net.now);
	day.open++;
}

static void flow_add(enum kind kind, unsigned count, uint64_t every)
{
	for (unsigned i = 0; i < count; i++) {
		assert_true(day.flows < FLOWS);
		struct flow *f = &day.flow[day.flows++];
		*f = (struct flow){.kind = kind, .every = every, .next = START_NS};
		if (kind != VISITOR)
			flow_open(f);
		if (kind == IDLE)
			f->next = UINT64_MAX;
	}
}

static void flow_send(struct flow *f)
{
	uint8_t bytes[4096];

	while (f->asked < f->to_ask) {
		uint32_t len = f->to_ask - f->asked;
		len = len < sizeof(bytes) ? len : sizeof(bytes);
		for (uint32_t i = 0; i < len; i++)
			bytes[i] = byte_of(f->key, f->asked + i);
		int64_t sent = sy_stack_send(day.net.side[0].s, f->id, bytes, len, 0, day.net.now);
		if (sent == -EAGAIN)
			return;
		assert_true(sent > 0);
		f->asked += (uint32_t)sent;
	}
}

static void flow_read(struct flow *f)
{
	uint8_t bytes[4096];
	int64_t got;

	while ((got = sy_stack_receive_bytes(day.net.side[0].s, f->id, bytes, sizeof(bytes),
	                                     day.net.now)) > 0) {
		bytes_check(bytes, got, f->key, f->answered);
		f->answered += (uint32_t)got;
	}
	if (got != -ENOTCONN || f->answered > 0) /* not yet */
		assert_int_equal(got, -EAGAIN);  /* the server ends no connection */
}

static void flow_ask(struct flow *f)
{
	if (!f->id)
		flow_open(f);
	f->next = UINT64_MAX;
	f->to_ask += f->kind == SLEEPER ? 300000 : 1 + some(&day.net, 19999);
	f->reads = f->kind == SLEEPER ? day.net.now + 3 * HOUR_NS : 0;
}

/* End of the day: one byte more if it had no request. */
static void flow_end(struct flow *f)
{
	f->last = true;
	f->next = UINT64_MAX;
	f->reads = 0;
	if (f->id && f->answered == f->to_ask)
		f->to_ask++;
}

static void flow_answered(struct flow *f)
{
	day.visits += f->kind == VISITOR;
	if (!f->last)
		f->next = day.net.now + f->every;
	if (f->last || f->kind == VISITOR) {
		assert_int_equal(sy_stack_close(day.net.side[0].s, f->id, day.net.now), 0);
		f->id = SY_STACK_NONE;
	}
}

static void flow_turn(struct flow *f)
{
	if (!f->id || f->answered == f->to_ask)
		return;
	flow_send(f);
	if (f->reads > day.net.now)
		return;
	f->reads = 0;
	flow_read(f);
	if (f->answered == f->to_ask)
		flow_answered(f);
}

/* Returns when the clients act without an event. */
static uint64_t client_turn(void)
{
	struct sy_stack_event e;
	uint64_t next = UINT64_MAX;

	while (sy_stack_events(day.net.side[0].s, &e, 1)) {
		assert_false(e.what & SY_STACK_ERROR);
		if (day.flow[e.cookie].id == e.id)
			flow_turn(&day.flow[e.cookie]);
	}
	for (unsigned i = 0; i < day.flows; i++) {
		struct flow *f = &day.flow[i];
		bool over = !f->last && day.net.now >= END_NS;
		if (over)
			flow_end(f);
		else if (f->next <= day.net.now)
			flow_ask(f);
		if (over || f->to_ask > f->asked || (f->reads && f->reads <= day.net.now))
			flow_turn(f);
		next = min(next, f->next);
		if (f->reads)
			next = min(next, f->reads);
	}
	return next;
}

/* ---- a day ----------------------------------------------------------------------------------- */

/* Returns the next change. */
static uint64_t weather(void)
{
	uint64_t hours = (day.net.now - START_NS) / HOUR_NS / OUTAGE * OUTAGE;
	uint64_t begins = START_NS + hours * HOUR_NS, ends = begins + OUT_NS;
	bool out = hours > 0 && day.net.now < ends && day.net.now < END_NS;

	for (unsigned i = 0; i < 2; i++)
		day.net.side[i].out.loss = out ? 1000 : LOSS;
	return out ? ends : begins + OUTAGE * HOUR_NS;
}

static void turn(void)
{
	uint64_t next = weather();
	struct rte_mbuf *out[32];

	for (unsigned i = 0; i < 2; i++) {
		struct sy_stack *s = day.net.side[i].s;
		unsigned count;
		wire_deliver(&day.net, !i);
		sy_stack_advance(s, day.net.now);
		if (i == 1)
			server_turn();
		else
			next = min(next, client_turn());
		while ((count = sy_stack_transmit(s, out, 32, day.net.now)) > 0)
			for (unsigned k = 0; k < count; k++)
				wire_send(&day.net, i, out[k]);
		next = min(next, sy_stack_advance(s, day.net.now));
	}
	for (unsigned i = 0; i < 2; i++)
		if (day.net.side[i].out.count > 0)
			next = min(next, day.net.side[i].out.packet[0].at);
	if (day.net.now < END_NS)
		next = min(next, END_NS);
	day.net.now = next > day.net.now ? next : day.net.now + 1000;
}

static bool is_over(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct sy_stack_usage usage;
		sy_stack_usage(day.net.side[i].s, &usage);
		if (usage.connections > 0)
			return false;
	}
	return day.net.now >= END_NS;
}

static void side_open(unsigned i)
{
	struct side *side = &day.net.side[i];
	const struct sy_stack_options o = {
	        .pool = tests_pool(), .connections = 512, .secret = {(uint8_t)i}};

	assert_int_equal(sy_stack_create(&o, START_NS, &side->s, NULL), 0);
	side->out.packet = day.net.space[i];
	side->out.mtu = 1500;
	side->out.doubled = 5;
	side->out.late = 20;
	side->out.late_us = 30000;
	side->out.delay_us = 10000;
	side->out.jitter_us = 2000;
}

static void side_close(struct side *side, const char *name)
{
	const struct sy_stack_counters *c = sy_stack_counters(side->s);
	struct sy_stack_usage usage;

	sy_stack_usage(side->s, &usage);
	printf("  %s: %lu packets sent, %lu segments sent again, %lu time-outs, %lu window probes, "
	       "%lu keepalives\n",
	       name, c->packets_out, c->retransmitted, c->timeouts, c->window_probes,
	       c->keepalives);
	assert_int_equal(c->orphans_ended, 0);
	assert_int_equal(c->refused_memory, 0);
	assert_int_equal(usage.send_bytes, 0);
	assert_int_equal(usage.receive_bytes, 0);
	assert_int_equal(usage.ranges, 0);
	while (side->out.count > 0)
		rte_pktmbuf_free(wire_take(&side->out));
	sy_stack_destroy(side->s);
}

/* Reports unfinished flows. */
static void show(void)
{
	struct sy_stack_info info;

	for (unsigned i = 0; i < day.flows; i++) {
		const struct flow *f = &day.flow[i];
		if (f->id && sy_stack_info(day.net.side[0].s, f->id, &info) == 0)
			printf("  flow %u of kind %u: %u asked of %u, %u answered, %s\n", i,
			       f->kind, f->asked, f->to_ask, f->answered,
			       sy_stack_state_name(info.state));
	}
	for (unsigned i = 0; i < SERVED; i++) {
		const struct served *c = &day.served[i];
		if (c->id && sy_stack_info(day.net.side[1].s, c->id, &info) == 0)
			printf("  served %u: %u echoed, %u unread, %u unsent, %s\n", i, c->echoed,
			       info.unread, info.unsent, sy_stack_state_name(info.state));
	}
	for (unsigned i = 0; i < 2; i++) {
		struct sy_stack_usage usage;
		sy_stack_usage(day.net.side[i].s, &usage);
		printf("  side %u: %u connections, %u half-open, %u in TIME-WAIT\n", i,
		       usage.connections, usage.half_open, usage.time_wait);
	}
}

static void test_a_day(void **state)
{
	static const unsigned minutes[] = {5, 10, 20, 30, 45, 60, 90, 120, 180};
	struct sy_stack_endpoint any = {.port = htons(PORT)}, any4 = {sy_addr_v4(0), any.port};
	unsigned before = rte_mempool_avail_count(tests_pool());
	struct side *side = day.net.side;
	sy_stack_id id;

	day.net.random = 24;
	day.net.now = START_NS;
	for (unsigned i = 0; i < 2; i++)
		side_open(i);
	assert_int_equal(sy_stack_listen(side[1].s, &any, 128, LISTENER, &id), 0);
	assert_int_equal(sy_stack_listen(side[1].s, &any4, 128, LISTENER, &id), 0);
	flow_add(IDLE, 60, 0);
	flow_add(ASKER, 1, 2 * S_NS);
	for (unsigned i = 0; i < SY_ARRAY_LEN(minutes); i++)
		flow_add(ASKER, 2, minutes[i] * 60 * S_NS);
	flow_add(SLEEPER, 4, 600 * S_NS);
	flow_add(VISITOR, 1, 10 * S_NS);
	while (!is_over()) {
		if (day.net.now >= OVER_NS)
			show();
		assert_true(day.net.now < OVER_NS);
		turn();
	}
	printf("  %u connections, of which %u for one question each\n", day.open, day.visits);
	assert_true(day.visits > 7000);
	assert_int_equal(day.accepted, day.open);
	assert_int_equal(day.ended, day.open);
	assert_true(sy_stack_counters(side[0].s)->keepalives >= 60 * 11);
	assert_true(sy_stack_counters(side[1].s)->window_probes > 4 * 100);
	assert_int_equal(sy_stack_counters(side[0].s)->timed_out, 0);
	side_close(&side[0], "client");
	side_close(&side[1], "server");
	assert_int_equal(rte_mempool_avail_count(tests_pool()), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_a_day),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
