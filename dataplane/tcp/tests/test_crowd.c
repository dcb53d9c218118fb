// SPDX-License-Identifier: Apache-2.0
/*
 * Many connections with infrequent requests, in virtual time. Both sides have a CPU with a fixed
 * cost per packet, and a bounded ring before it:
 *
 *     requests ──▶ client's core ──▶ ring ──▶ server's core ──▶ ring ──▶ client's core
 *
 * The server has spare capacity. One of the cores then stalls, as on a busy machine, and must catch
 * up. Spurious retransmissions of segments that wait in a ring would prevent that.
 */
#include "random.h"
#include "script.h"

#define RING        4096
#define BURST       64
#define TURN        (4 * BURST) /* packets sent per poll iteration */
#define CONNECTIONS 100000u
#define BYTES       64
#define US          UINT64_C(1000)
#define MS          (1000 * US)
#define S           (1000 * MS)
#define RATE        9000 /* requests per second */

struct host {
	struct sy_stack *s;
	uint64_t at;     /* its core is busy until then */
	uint64_t packet; /* cost per packet */
	struct rte_mbuf *ring[RING];
	uint64_t came[RING];
	unsigned first, count;
	unsigned lost;
	struct host *peer;
	uint64_t seen_ns;
};

struct crowd {
	struct host client, server;
	uint64_t next_ns, until_ns; /* requests are due from, to */
	unsigned backlog, answered, most_answered;
	unsigned opened, connected, free;
	sy_stack_id id[CONNECTIONS];
	uint32_t idle[CONNECTIONS];
};

/* ---- both ------------------------------------------------------------------------------------ */

static void host_open(struct host *h, uint64_t packet, uint64_t now)
{
	const struct sy_stack_options o = {
	        .pool = tests_pool(),
	        .connections = CONNECTIONS + 1,
	        .secret = {1},
	        .port_first = 1024,
	};
	struct sy_error err;

	assert_int_equal(sy_stack_create(&o, now, &h->s, &err), 0);
	h->packet = packet;
	h->at = now;
}

static void host_send(struct host *h)
{
	struct rte_mbuf *m[TURN];
	unsigned count = sy_stack_transmit(h->s, m, TURN, h->at);
	struct host *to = h->peer;

	h->at += count * h->packet;
	for (unsigned i = 0; i < count; i++) {
		if (to->count == RING) {
			rte_pktmbuf_free(m[i]);
			to->lost++;
			continue;
		}
		unsigned place = (to->first + to->count++) % RING;
		to->ring[place] = m[i];
		to->came[place] = h->at;
	}
}

/* Returns the number of packets. */
static unsigned host_receive(struct host *h)
{
	struct rte_mbuf *m[BURST];
	unsigned count = 0;

	while (count < BURST && h->count > 0 && h->came[h->first] <= h->at) {
		m[count++] = h->ring[h->first];
		h->first = (h->first + 1) % RING;
		h->count--;
	}
	h->seen_ns = h->count ? h->came[h->first] : h->at;
	sy_stack_receive(h->s, m, count, h->at);
	h->at += count * h->packet;
	return count;
}

static void host_close(struct host *h)
{
	for (; h->count > 0; h->count--, h->first = (h->first + 1) % RING)
		rte_pktmbuf_free(h->ring[h->first]);
	sy_stack_destroy(h->s);
}

/* ---- the server ------------------------------------------------------------------------------ */

static const struct sy_stack_endpoint service = {.addr = {{{10, 0, 0, 1}}}, .port = 0x0700};

static void server_serve(struct crowd *w)
{
	struct sy_stack *s = w->server.s;
	struct sy_stack_event e;
	const void *bytes;
	sy_stack_id id;
	int64_t len;

	while (sy_stack_events(s, &e, 1)) {
		if (e.cookie == 1) {
			while (sy_stack_accept(s, e.id, 0, NULL, &id) == 0)
				;
			continue;
		}
		while ((len = sy_stack_peek(s, e.id, &bytes)) > 0) {
			assert_int_equal(
			        sy_stack_send(s, e.id, bytes, (size_t)len, 0, w->server.at), len);
			sy_stack_consume(s, e.id, (size_t)len, w->server.at);
		}
	}
}

/* ---- the client ------------------------------------------------------------------------------ */

static void client_connect(struct crowd *w)
{
	struct sy_stack_endpoint local = {.addr = {{{10, 0, 0, 2}}}};

	while (w->opened < CONNECTIONS && w->opened < w->connected + BURST) {
		local.addr.b[3] = (uint8_t)(2 + w->opened / 50000); /* ports of one are too few */
		assert_int_equal(sy_stack_connect(w->client.s, &local, &service, w->opened,
		                                  w->client.at, &w->id[w->opened]),
		                 0);
		w->opened++;
	}
}

static void client_events(struct crowd *w)
{
	struct sy_stack *s = w->client.s;
	struct sy_stack_event e;
	const void *bytes;
	int64_t len;

	while (sy_stack_events(s, &e, 1)) {
		uint32_t i = (uint32_t)e.cookie;
		assert_false(e.what & SY_STACK_ERROR);
		if (w->connected < CONNECTIONS) {
			w->connected++;
			w->idle[w->free++] = i;
			continue;
		}
		while ((len = sy_stack_peek(s, e.id, &bytes)) > 0) {
			sy_stack_consume(s, e.id, (size_t)len, w->client.at);
			assert_int_equal(len, BYTES); /* it is one segment */
			w->answered++;
			w->idle[w->free++] = i;
		}
	}
}

static void client_ask(struct crowd *w)
{
	static const uint8_t bytes[BYTES];
	unsigned max = BURST;

	for (; w->next_ns <= w->client.at && w->next_ns < w->until_ns; w->next_ns += S / RATE)
		w->backlog++;
	for (; w->backlog > 0 && w->free > 0 && max > 0; max--, w->backlog--) {
		uint32_t at = random_below(w->free), i = w->idle[at];
		w->idle[at] = w->idle[--w->free];
		assert_int_equal(
		        sy_stack_send(w->client.s, w->id[i], bytes, BYTES, 0, w->client.at), BYTES);
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

static void turn(struct crowd *w)
{
	struct host *h = w->client.at <= w->server.at ? &w->client : &w->server;
	uint64_t begun = h->at;

	host_receive(h);
	sy_stack_mark_seen(h->s, h->seen_ns);
	sy_stack_advance(h->s, h->at);
	if (h == &w->server) {
		server_serve(w);
	} else {
		client_connect(w);
		client_events(w);
		client_ask(w);
	}
	host_send(h);
	if (h->at == begun)
		h->at += 50 * US;
}

/* Runs for ns. Returns the number of responses. */
static unsigned run(struct crowd *w, uint64_t ns)
{
	uint64_t end = w->client.at + ns;
	unsigned before = w->answered;

	while (w->client.at < end || w->server.at < end)
		turn(w);
	return w->answered - before;
}

static struct crowd *crowd_open(uint64_t client, uint64_t server)
{
	struct crowd *w = calloc(1, sizeof(*w));
	sy_stack_id id;

	host_open(&w->client, client, S);
	host_open(&w->server, server, S);
	w->client.peer = &w->server;
	w->server.peer = &w->client;
	assert_int_equal(sy_stack_listen(w->server.s, &service, 4096, 1, &id), 0);
	while (w->connected < CONNECTIONS)
		turn(w);
	w->next_ns = w->client.at;
	w->until_ns = UINT64_MAX;
	return w;
}

/* Reports retransmissions and their reasons. */
static void host_tell(const struct host *h, const char *name)
{
	const struct sy_stack_counters *c = sy_stack_counters(h->s);

	printf("  %s: %lu segments sent again, %lu time-outs, %lu undone, %u packets lost\n", name,
	       c->retransmitted, c->timeouts, c->undone, h->lost);
}

static void crowd_close(struct crowd *w)
{
	host_tell(&w->client, "client");
	host_tell(&w->server, "server");
	host_close(&w->client);
	host_close(&w->server);
	free(w);
}

/* ---- the tests ------------------------------------------------------------------------------- */

/* After a stall, throughput recovers within three seconds. */
static void held_up(uint64_t client, uint64_t server, uint64_t client_ns, uint64_t server_ns)
{
	struct crowd *w = crowd_open(client, server);

	assert_in_range(run(w, S), RATE - RATE / 20, RATE + RATE / 20);
	w->client.at += client_ns;
	w->server.at += server_ns;
	printf("  answers in the seconds after it:");
	for (unsigned n = 0; n < 3; n++)
		printf(" %u", run(w, S));
	printf("\n");
	assert_true(w->backlog + CONNECTIONS - w->free < RATE / 20);
	for (unsigned n = 0; n < 3; n++)
		assert_in_range(run(w, S), RATE - RATE / 20, RATE + RATE / 20);
	crowd_close(w);
}

/* At first half of the requests overflow the ring, and the other half is retransmitted before it is
 * answered. */
static void test_server(void **state)
{
	held_up(10 * US, 30 * US, 0, 500 * MS);
}

static void test_client(void **state)
{
	held_up(30 * US, 10 * US, 500 * MS, 0);
}

/* Responses arrived in time at a stalled core. */
static void test_answers_wait(void **state)
{
	struct crowd *w = crowd_open(1 * US, 30 * US);

	w->until_ns = 0;
	w->backlog = 2000;
	run(w, 10 * MS);
	assert_int_equal(w->backlog, 0);
	w->client.at += 500 * MS;
	run(w, S);
	assert_int_equal(w->answered, 2000);
	assert_int_equal(sy_stack_counters(w->client.s)->timeouts, 0);
	assert_int_equal(sy_stack_counters(w->client.s)->retransmitted, 0);
	crowd_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_server),
	        cmocka_unit_test(test_client),
	        cmocka_unit_test(test_answers_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
