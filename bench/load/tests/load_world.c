// SPDX-License-Identifier: Apache-2.0
#include "load_world.h"

#include <arpa/inet.h>

static uint64_t not_busy(uint64_t ns)
{
	return ns;
}

struct sy_stack *stack_of_ports(uint16_t first, uint16_t last)
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

struct sy_stack_endpoint server_at(void)
{
	struct sy_stack_endpoint e = {.port = htons(7000)};
	sy_addr_parse("10.0.0.1", &e.addr);
	return e;
}

void world_open(struct world *w, enum protocol p)
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

void server_start(struct world *w)
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

void packets_move(struct world *w, unsigned from)
{
	struct rte_mbuf *m[32];
	unsigned count;

	while ((count = sy_stack_transmit(w->s[from], m, 32, w->now)) > 0)
		sy_stack_receive(w->s[!from], m, count, w->now);
}

void world_run(struct world *w, bool with_server)
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
		client_poll(w->client, w->s[0], w->now);
		packets_move(w, 0);
		if (with_server && (w->now < w->stalled_from || w->now >= w->stalled_until))
			while (server_poll(w->server, w->s[1], w->now))
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

void world_close(struct world *w)
{
	client_free(w->client);
	server_free(w->server);
	sy_stack_destroy(w->s[0]);
	sy_stack_destroy(w->s[1]);
	mix_free(&w->mix);
}

const struct client_counts *no_errors(const struct world *w)
{
	const struct client_counts *n = client_counts(w->client);

	assert_int_equal(n->connect + n->reset + n->closed + n->timeout + n->wrong + n->unsent, 0);
	assert_int_equal(n->open_failed + n->lost, 0);
	assert_int_equal(n->sent, n->answered);
	return n;
}

uint64_t measured(const struct world *w)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < w->mix.classes; i++)
		sum += client_class(w->client, i)->latency.count;
	return sum;
}
