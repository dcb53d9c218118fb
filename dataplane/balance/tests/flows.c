// SPDX-License-Identifier: Apache-2.0
#include "flows.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND_NS UINT64_C(1000000000)

uint64_t __wrap_sy_clock_ns(void);

/* Never set back: files from another test could otherwise be newer. */
static uint64_t clock_ns = UINT64_C(100000000000000);

uint64_t __wrap_sy_clock_ns(void)
{
	return clock_ns;
}

/* ---- lifecycle ------------------------------------------------------------------------------- */

static const char *const vip_text[2] = {"192.0.2.10", "2001:db8:a::10"};
static const char *const server_text[2] = {"10.0.0.0", "2001:db8:b::"};
static const char *const local_text[2] = {"10.0.1.1", "2001:db8:b:1::1"};

static void addresses_make(struct flows *f)
{
	for (unsigned s = 0; s < FLOW_SERVICES; s++) {
		unsigned v6 = s / 2;
		f->service[s] = s % 2 ? harness_key(vip_text[v6], 53, SY_PROTO_UDP)
		                      : harness_key(vip_text[v6], 80, SY_PROTO_TCP);
		for (unsigned i = 0; i < FLOW_SERVERS; i++) {
			f->server[s][i] = harness_addr(server_text[v6]);
			f->server[s][i].b[15] = (uint8_t)(1 + FLOW_SERVERS * s + i);
		}
	}
	for (unsigned v6 = 0; v6 < 2; v6++)
		f->local[v6] = harness_addr(local_text[v6]);
}

static uint16_t server_port(const struct flows *f, unsigned service)
{
	return f->service[service].proto == SY_PROTO_TCP ? 8080 : 5353;
}

static void service_put(struct flows *f, struct changes *c, unsigned s)
{
	put_service(c, &f->service[s], "service", FLOW_RR, NULL);
	for (unsigned i = 0; i < FLOW_SERVERS; i++)
		put_server(c, &f->service[s], &f->server[s][i], server_port(f, s), 1, FLOW_UP);
}

void flows_configure(struct flows *f, const unsigned order[FLOW_SERVICES])
{
	struct changes c = {0};
	for (unsigned i = 2; i-- > 0;)
		put_local(&c, &f->local[order[0] ? i : 1 - i]);
	for (unsigned i = 0; i < FLOW_SERVICES; i++)
		service_put(f, &c, order[i]);
	flows_commit(f, &c);
}

void flows_sync_older_than(struct flows *f, unsigned seconds)
{
	struct changes c = {0};
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		put_service(&c, &f->service[s], "service", FLOW_RR, NULL)->sync_older_than_s =
		        seconds;
	flows_commit(f, &c);
}

unsigned flows_memory_mb;

int flows_setup(void **state)
{
	static struct sy_static_route route[6];
	static struct sy_static_neigh neigh[8];
	static const unsigned order[FLOW_SERVICES] = {0, 1, 2, 3};
	struct flows *f = calloc(1, sizeof(*f));
	const struct sy_static_route routes[6] = {
	        {"net_ring_wan", harness_addr("198.18.0.0"), harness_addr("192.0.2.1"), 16},
	        {"net_ring_lan", harness_addr("10.0.0.0"), harness_addr("10.0.0.254"), 16},
	        {"net_ring_wan", harness_addr("2001:db8:c::"), harness_addr("2001:db8:a::1"), 48},
	        {"net_ring_lan", harness_addr("2001:db8:b::"), harness_addr("2001:db8:b::fe"), 48},
	        {"net_ring_lan", harness_addr("10.3.0.0"), {{{0}}}, 16},
	        {"net_ring_lan", harness_addr("2001:db8:d::"), {{{0}}}, 64}};
	memcpy(route, routes, sizeof(route));
	for (unsigned i = 0; i < 8; i++) {
		const struct sy_static_route *r = &routes[i < 4 ? i : 4 + i % 2];
		neigh[i].addr = i < 4 ? r->via : r->prefix;
		if (i >= 4)
			neigh[i].addr.b[15] = (uint8_t)(i / 2 - 1); /* hosts 1 and 2 on link */
		memcpy(neigh[i].port, r->port, sizeof(neigh[i].port));
		memcpy(neigh[i].mac, (uint8_t[6]){2, 0, 0, 0, 1, (uint8_t)i}, 6);
	}
	f->rng.state = 1;
	assert_true(folder_make(f->state, "/dev/shm"));
	assert_true(folder_make(f->store, "/dev/shm"));
	f->options = (struct harness_options){.route = route,
	                                      .routes = 6,
	                                      .neigh = neigh,
	                                      .neighs = 8,
	                                      .memory_mb = flows_memory_mb,
	                                      .state_directory = f->state,
	                                      .store_directory = f->store};
	addresses_make(f);
	flows_open(f);
	flows_configure(f, order);
	*state = f;
	return 0;
}

static void remove_in(const char *directory, const char *name)
{
	char path[FOLDER_NAME + 32];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	unlink(path);
}

int flows_teardown(void **state)
{
	struct flows *f = *state;
	harness_close(&f->harness);
	remove_in(f->state, "config");
	remove_in(f->state, "config.damaged");
	remove_in(f->state, "journal");
	remove_in(f->state, "journal.damaged");
	remove_in(f->store, "harness");
	/* fails if a temporary file is left */
	assert_int_equal(rmdir(f->state), 0);
	assert_int_equal(rmdir(f->store), 0);
	free(f);
	return 0;
}

void flows_open(struct flows *f)
{
	struct sy_error err;
	f->options.start_ns = clock_ns;
	if (harness_open(&f->harness, &f->options, &err) < 0)
		fail_msg("%s", err.text);
}

void flows_reopen(struct flows *f, unsigned workers, uint64_t ticket, bool crash)
{
	f->options.workers = workers;
	f->options.ticket = ticket;
	if (crash)
		harness_crash(&f->harness);
	else
		harness_stop(&f->harness, ticket);
	flows_open(f);
}

void flows_commit(struct flows *f, struct changes *c)
{
	if (!harness_commit(&f->harness, c))
		fail_msg("%s", f->harness.error);
}

void flows_check_refused(struct flows *f, struct changes *c, const char *why)
{
	assert_false(harness_commit(&f->harness, c));
	assert_int_equal(f->harness.code, STEELYARD__FORWARDER__V1__CODE__CODE_INVALID);
	if (!strstr(f->harness.error, why))
		fail_msg("\"%s\" does not say \"%s\"", f->harness.error, why);
}

void flows_put(struct changes *c, const struct service_key *key, const char *name, enum mode mode,
               const char *const server[], unsigned servers, uint16_t port)
{
	put_service(c, key, name, FLOW_RR, NULL);
	set_mode(c, mode);
	for (unsigned i = 0; i < servers; i++) {
		struct sy_addr addr = harness_addr(server[i]);
		put_server(c, key, &addr, port, 1, FLOW_UP);
	}
}

void flows_change_saved(struct flows *f, struct changes *c)
{
	struct harness_options before = f->options;
	f->options.store_directory = NULL;
	f->options.ticket = 0;
	flows_open(f);
	flows_commit(f, c);
	harness_close(&f->harness);
	f->options = before;
}

void flows_advance(struct flows *f, unsigned seconds)
{
	while (seconds-- > 0) {
		clock_ns += SECOND_NS;
		harness_advance(&f->harness, SECOND_NS);
	}
}

void flows_pass(struct flows *f, unsigned seconds)
{
	clock_ns += seconds * SECOND_NS;
}

/* ---- packets --------------------------------------------------------------------------------- */

/* The TCP header of an originated reset or probe, which have window 0. NULL: another frame. */
static const struct sy_tcp *own_segment(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	struct sy_view v;
	if (sy_packet_parse(frame, rte_pktmbuf_data_len(m), &v) != SY_DROP_NONE ||
	    v.proto != SY_PROTO_TCP || !sy_view_has_l4(&v) || sy_packet_tcp(frame, &v)->window)
		return NULL;
	return sy_packet_tcp(frame, &v);
}

bool flows_originated_segment(struct flows *f, unsigned port, struct sy_tcp *out)
{
	struct rte_mbuf *m;
	const struct sy_tcp *word = NULL;
	while (!word && (m = harness_collect(&f->harness, port))) {
		word = own_segment(m);
		if (word)
			*out = *word;
		rte_pktmbuf_free(m);
	}
	return word != NULL;
}

/* The next frame that leaves a port, except originated ones. */
static struct rte_mbuf *flows_collect(struct flows *f, unsigned port)
{
	struct rte_mbuf *m;
	while ((m = harness_collect(&f->harness, port)) && own_segment(m))
		rte_pktmbuf_free(m);
	return m;
}

bool flows_through(struct flows *f, unsigned port, const struct frame *in, struct frame *out)
{
	struct rte_mbuf *m;
	assert_true(harness_inject(&f->harness, port, in->bytes, in->len));
	harness_poll(&f->harness);
	harness_attend(&f->harness);
	assert_null(flows_collect(f, port));
	m = flows_collect(f, 1 - port);
	if (!m)
		return false;
	memset(out, 0, sizeof(*out));
	out->len = rte_pktmbuf_data_len(m);
	memcpy(out->bytes, rte_pktmbuf_mtod(m, void *), out->len);
	rte_pktmbuf_free(m);
	assert_null(flows_collect(f, 1 - port));
	return true;
}

void flows_frame(struct flows *f, struct frame *out, const struct sy_tuple *t, uint8_t flags,
                 uint32_t seq, unsigned payload)
{
	const struct segment s = {flags, seq, 1, flags & SY_TCP_SYN ? 1460 : 0};
	if (t->proto == SY_PROTO_TCP)
		frame_tcp(out, &f->rng, t, &s, payload);
	else
		frame_udp(out, &f->rng, t, payload < 20 ? 20 : payload);
}

void frame_check_translated(const struct frame *in, const struct frame *out, struct sy_view *after)
{
	struct sy_view before;
	assert_int_equal(out->len, in->len);
	assert_int_equal(sy_packet_parse(in->bytes, in->len, &before), SY_DROP_NONE);
	assert_int_equal(sy_packet_parse(out->bytes, out->len, after), SY_DROP_NONE);
	assert_int_equal(sy_packet_check_l4(out->bytes, after), SY_CSUM_OK);
	assert_int_equal(sy_packet_ttl(out->bytes, after), sy_packet_ttl(in->bytes, &before) - 1);
	assert_memory_equal(out->bytes + out->len - 100, in->bytes + in->len - 100, 100);
}

void flow_begin(struct flows *f, struct flow *flow, unsigned service, uint16_t port)
{
	const struct service_key *key = &f->service[service];
	struct sy_addr client = harness_addr(service / 2 ? "2001:db8:c::1" : "198.18.0.1");
	/* In IPv6 it is the network that differs. */
	client.h[service / 2 ? 3 : 7] ^= htons((uint16_t)f->client);
	*flow = (struct flow){.service = service, .port = port};
	flow->client = (struct sy_tuple){client, key->vip, htons(port), key->vport, key->proto};
	flows_frame(f, &flow->in[SESSION_CLIENT], &flow->client, SY_TCP_SYN, 1, 0);
	assert_true(flows_through(f, HARNESS_WAN, &flow->in[SESSION_CLIENT],
	                          &flow->out[SESSION_CLIENT]));
	struct session *s = flow_session(f, flow);
	assert_non_null(s);
	flow->server_id = s->server;
	const struct session_cold *cold = session_cold_beside(
	        inspect_table(f->harness.b, sy_slot_of(&client, htons(port))), s);
	flow->server = session_server_tuple(f->harness.b, s, cold,
	                                    inspect_endpoint(f->harness.b, s->server));
}

void flow_open(struct flows *f, struct flow *flow, unsigned service, uint16_t port)
{
	struct frame out;
	flow_begin(f, flow, service, port);
	/* so that the next number is 1, which flows_frame() acknowledges */
	flows_frame(f, &flow->in[SESSION_SERVER], &flow->server, SY_TCP_SYN | SY_TCP_ACK, 0, 0);
	assert_true(flows_through(f, HARNESS_LAN, &flow->in[SESSION_SERVER], &out));
	flows_frame(f, &flow->in[SESSION_CLIENT], &flow->client, SY_TCP_ACK, 1, 100);
	flows_frame(f, &flow->in[SESSION_SERVER], &flow->server, SY_TCP_ACK, 1, 200);
	assert_true(flows_through(f, HARNESS_WAN, &flow->in[SESSION_CLIENT],
	                          &flow->out[SESSION_CLIENT]));
	assert_true(flows_through(f, HARNESS_LAN, &flow->in[SESSION_SERVER],
	                          &flow->out[SESSION_SERVER]));
	struct session *s = flow_session(f, flow);
	assert_int_equal(s->state, flow->client.proto == SY_PROTO_TCP ? SESSION_ESTABLISHED
	                                                              : SESSION_UDP_BOTH_WAYS);
}

void flow_check(struct flows *f, const struct flow *flow)
{
	static const unsigned port[2] = {
	        [SESSION_CLIENT] = HARNESS_WAN, [SESSION_SERVER] = HARNESS_LAN};
	struct frame out;
	for (unsigned way = 0; way < 2; way++) {
		assert_true(flows_through(f, port[way], &flow->in[way], &out));
		assert_int_equal(out.len, flow->out[way].len);
		assert_memory_equal(out.bytes, flow->out[way].bytes, out.len);
	}
	assert_int_equal(flow_session(f, flow)->server, flow->server_id);
}

void flow_check_dropped(struct flows *f, const struct flow *flow, enum sy_drop reason)
{
	struct frame out;
	uint64_t before = harness_drops(&f->harness, reason);
	assert_false(flows_through(f, HARNESS_WAN, &flow->in[SESSION_CLIENT], &out));
	assert_int_equal(harness_drops(&f->harness, reason), before + 1);
}

struct session *flows_find(struct flows *f, const struct sy_tuple *client)
{
	struct sy_balance *b = f->harness.b;
	const struct session_table *t = inspect_table(b, sy_slot_of(&client->src, client->sport));
	const struct match_context ctx = {b, t, client};
	enum session_direction from;
	uint32_t record = session_find(t->index, sy_hash_tuple(inspect_key(b), client),
	                               match_session, &ctx, &from);
	return record == SESSION_NONE ? NULL : session_at(t, record);
}

struct session *flow_session(struct flows *f, const struct flow *flow)
{
	return flows_find(f, &flow->client);
}

/* ---- counters -------------------------------------------------------------------------------- */

uint64_t flows_result(const struct flows *f, enum session_result v)
{
	return inspect_adopted(f->harness.b, v);
}

static uint64_t service_active(const Steelyard__Forwarder__V1__ServiceStats *s,
                               const struct sy_addr *server)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < s->n_servers; i++) {
		const Steelyard__Forwarder__V1__ServerStats *one = s->servers[i];
		struct sy_addr addr;
		sum += one->traffic->sessions_active;
		sy_addr_from_bytes(one->server->address.data, one->server->address.len, &addr);
		if (server && sy_addr_equal(&addr, server))
			return one->traffic->sessions_active;
	}
	assert_int_equal(sum, s->traffic->sessions_active);
	return sum;
}

const Steelyard__Forwarder__V1__ServiceStats *
flows_stats(struct flows *f, const struct service_key *key, pb_response **response)
{
	Steelyard__Forwarder__V1__ListServicesRequest list =
	        STEELYARD__FORWARDER__V1__LIST_SERVICES_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SERVICES;
	q.list_services = &list;
	*response = harness_request(&f->harness, &q);
	assert_null((*response)->error);
	for (size_t i = 0; i < (*response)->list_services->n_services; i++) {
		const Steelyard__Forwarder__V1__ServiceStats *s =
		        (*response)->list_services->services[i];
		struct sy_addr vip;
		sy_addr_from_bytes(s->service->key->vip.data, s->service->key->vip.len, &vip);
		if (sy_addr_equal(&vip, &key->vip) && s->service->key->port == ntohs(key->vport) &&
		    s->service->key->protocol == key->proto)
			return s;
	}
	return NULL;
}

uint64_t flows_active(struct flows *f, unsigned service, const struct sy_addr *server)
{
	pb_response *response;
	const Steelyard__Forwarder__V1__ServiceStats *s =
	        flows_stats(f, &f->service[service], &response);
	uint64_t active = s ? service_active(s, server) : 0;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return active;
}

void flows_check_active(struct flows *f, uint64_t all)
{
	struct sy_balance_totals t = harness_totals(&f->harness);
	uint64_t sum = 0;
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		sum += flows_active(f, s, NULL);
	assert_int_equal(sum, all);
	assert_int_equal(t.live, all);
	assert_int_equal(t.created - t.ended, all);
}
