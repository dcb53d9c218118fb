// SPDX-License-Identifier: Apache-2.0
/* Scenarios: each drives the balancer into one shortage and out of it again. scenario_attack.c has
 * those that attackers cause. */
#include <arpa/inet.h>
#include <stdlib.h>

#include <rte_ethdev.h>

#include "fragment_table.h"
#include "scenario.h"

void scenario_greet(struct fuzz_traffic *w, unsigned count, const struct service_key *key)
{
	for (unsigned n = 0; n < count; n++) {
		struct frame f;
		const struct service_key other = topology_service(n % TOPOLOGY_SERVICES);
		struct sy_tuple t = fuzz_traffic_client(w, key ? key : &other);
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		if (n % SY_BURST == 0)
			fuzz_traffic_turn(w);
	}
	fuzz_traffic_turn(w);
}

uint64_t scenario_count_sessions(struct fuzz_traffic *w, unsigned kind,
                                 bool (*match)(const struct session *s, const struct endpoint *e,
                                               unsigned kind))
{
	const uint32_t over = 1u << SESSION_TIME_WAIT | 1u << SESSION_RESET | 1u << SESSION_DYING;
	const struct sy_balance *b = w->topology.harness.b;
	uint64_t count = 0;
	harness_advance(&w->topology.harness, 3 * SECOND_NS);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = inspect_table(b, (uint8_t)slot);
		uint32_t cursor = 0, record;
		while ((record = session_next(t, &cursor)) != SESSION_NONE) {
			const struct session *s = session_at(t, record);
			const struct endpoint *e = inspect_endpoint(b, s->server);
			count += e->mode != MODE_SNAT && !(over >> s->state & 1) &&
			         match(s, e, kind);
		}
	}
	return count;
}

/* Creates a service's sessions one after the other, with no control thread turn between them. */
static void scenario_special(struct fuzz_traffic *w, enum topology_special special)
{
	struct service_key key = topology_special_service(special);
	for (unsigned n = 0; n < 2 * UNRESOLVED_HOP_MAX; n++) {
		struct frame f;
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
	}
	fuzz_traffic_turn(w);
}

/* A client uses one port for two services of one NAT server; then the server sends packets of no
 * session. */
static void scenario_nat(struct fuzz_traffic *w)
{
	struct service_key key = topology_special_service(SPECIAL_NAT),
	                   duplicate = topology_special_service(SPECIAL_NAT_DUPLICATE);
	for (unsigned n = 0; n < 16; n++) {
		struct frame f;
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		const struct sy_tuple stray = {topology_special_server(SPECIAL_NAT), t.src,
		                               htons(8080),
		                               htons((uint16_t)rng_below(&w->rng, 1024)), t.proto};
		const struct segment s = {SY_TCP_ACK, 1, 1, 0};
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		t.dst = duplicate.vip;
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		f.port = HARNESS_LAN;
		frame_tcp(&f, &w->rng, &stray, &s, 0);
		fuzz_traffic_send(w, &f);
	}
	fuzz_traffic_turn(w);
}

/* More fragments than may wait, of datagrams that are never complete; then one datagram of too
 * many.
 */
static void scenario_fragments(struct fuzz_traffic *w)
{
	struct service_key key = topology_service(1);
	struct sy_tuple t = fuzz_traffic_client(w, &key);
	static struct frame many[FRAGMENT_PIECES + 1];
	struct frame f, piece[4];
	unsigned workers = w->topology.harness.rt->workers;
	frame_udp(&f, &w->rng, &t, 8 * FRAGMENT_PIECES);
	f.port = HARNESS_WAN;
	for (uint32_t id = 0; id < 2 * FRAGMENT_MAX_WAITING * workers; id++) {
		frame_cut(&f, id, 512, piece, 4);
		fuzz_traffic_send(w, &piece[id % 2]);
		if (id % SY_BURST == 0)
			fuzz_traffic_turn(w);
	}
	fuzz_traffic_turn(w);
	unsigned count = frame_cut(&f, 20000, 8, many, FRAGMENT_PIECES + 1);
	for (unsigned n = 1; n <= count; n++)
		fuzz_traffic_send(w, &many[n % count]);
	fuzz_traffic_turn(w);
	t.proto = SY_PROTO_ICMP;
	frame_icmp(&f, &w->rng, &t, 8, 0, 500);
	frame_cut(&f, 1, 200, piece, 4);
	fuzz_traffic_send(w, &piece[0]);
	fuzz_traffic_turn(w);
}

/* Datagrams without a checksum over IPv6, some of them in sessions with IPv4 servers. */
static void scenario_untranslatable(struct fuzz_traffic *w)
{
	struct service_key key = topology_service(TOPOLOGY_TURNED);
	for (unsigned n = 0; n < 4 * TOPOLOGY_SERVERS; n++) {
		struct frame f;
		struct sy_view v;
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		if (sy_packet_parse(f.bytes, f.len, &v) != SY_DROP_NONE)
			abort();
		memset(f.bytes + v.l4 + 6, 0, 2);
		fuzz_traffic_send(w, &f);
	}
	fuzz_traffic_turn(w);
}

/* Inside hosts that need more ports towards one remote than the pool has, then more records than
 * there are; and packets of no session. */
static void scenario_snat(struct fuzz_traffic *w)
{
	static const char *const pool[] = {"192.0.2.90", "192.0.2.91", "192.0.2.92"};
	struct changes c = {0};
	struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	struct sy_tuple client = fuzz_traffic_client(w, &key), t = client;
	uint8_t slot = sy_slot_of(&client.src, client.sport);
	struct frame f;
	t.dst = client.src; /* an address that has a route */
	for (unsigned pools = 1; pools <= 3; pools += 2) {
		put_snat(&c, "scenario", "10.0.77.0", 24, pool, pools);
		harness_commit(&w->topology.harness, &c);
		for (unsigned n = 0; n < 3 * SY_SLOT_PORTS; n++) {
			t.src = harness_addr("10.0.77.0");
			t.src.b[15] = (uint8_t)(1 + n / SY_SLOT_PORTS);
			t.sport = sy_slot_port(slot, &t.src, n % SY_SLOT_PORTS);
			fuzz_traffic_greet(w, &f, &t);
			f.port = HARNESS_LAN;
			fuzz_traffic_send(w, &f);
			if (n % SY_BURST == 0)
				fuzz_traffic_turn(w);
		}
		fuzz_traffic_turn(w);
	}
	t = (struct sy_tuple){client.src, harness_addr(pool[0]), htons(1), htons(1), SY_PROTO_UDP};
	frame_udp(&f, &w->rng, &t, 10);
	f.port = HARNESS_WAN;
	fuzz_traffic_send(w, &f);
	fuzz_traffic_turn(w);
	delete_snat(&c, "scenario");
	harness_commit(&w->topology.harness, &c);
}

/* New sessions in the name of a VIP. */
static void scenario_own_source(struct fuzz_traffic *w)
{
	for (unsigned n = 0; n < TOPOLOGY_SERVICES; n++) { /* some of them exist */
		struct frame f;
		struct service_key key = topology_service(n);
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		for (unsigned other = 0; other < TOPOLOGY_SERVICES; other++) {
			t.src = topology_service(other).vip;
			if (sy_addr_is_v4(&t.src) != sy_addr_is_v4(&t.dst) ||
			    sy_addr_equal(&t.src, &t.dst))
				continue;
			fuzz_traffic_greet(w, &f, &t);
			fuzz_traffic_send(w, &f);
		}
		fuzz_traffic_turn(w);
	}
}

/* More packets of no session than may be answered at once. */
static void scenario_unknown(struct fuzz_traffic *w)
{
	struct service_key key = topology_service(2); /* as put_topology_service() has it */
	const struct segment late = {SY_TCP_ACK, 1, 1, 0};
	for (unsigned n = 0; n < 3000; n++) {
		struct frame f = {.port = HARNESS_WAN};
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		frame_tcp(&f, &w->rng, &t, &late, 0);
		fuzz_traffic_send(w, &f);
		if (n % (8 * SY_BURST) == 0)
			fuzz_traffic_turn(w);
	}
	fuzz_traffic_turn(w);
}

/* A service without servers, and a port without a service, with each setting: more packets than
 * may be answered, some of them in fragments. */
static void scenario_unavailable(struct fuzz_traffic *w)
{
	const struct segment late = {SY_TCP_ACK, 1, 1, 0}, reset = {SY_TCP_RST, 1, 0, 0};
	struct harness *r = &w->topology.harness;
	struct service_key key = topology_special_service(SPECIAL_EMPTY);
	for (unsigned setting = SY_UNAVAILABLE_DROP; setting <= SY_UNAVAILABLE_ICMP; setting++) {
		struct changes c = {0};
		put_service(&c, &key, "empty", STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR,
		            NULL)
		        ->when_unavailable = 1 + (int)setting; /* as on the wire */
		harness_commit(r, &c);
		r->b->options.unknown_ports = setting;
		for (unsigned n = 0; n < 2000; n++) {
			struct sy_tuple t = fuzz_traffic_client(w, &key);
			struct frame f, piece[2];
			if (n % 4 == 0)
				t.dport = htons(4444);
			if (n % 8 == 0)
				t.proto = SY_PROTO_UDP;
			fuzz_traffic_greet(w, &f, &t);
			if (n % 16 == 8)
				frame_udp(&f, &w->rng, &t, 300);
			else if (n % 16 == 3)
				frame_tcp(&f, &w->rng, &t, &late, 300);
			else if (n % 16 == 5)
				frame_tcp(&f, &w->rng, &t, &reset, 0);
			f.port = HARNESS_WAN;
			if (n % 32 != 8 || frame_cut(&f, n, 200, piece, 2) != 2) {
				fuzz_traffic_send(w, &f);
			} else {
				fuzz_traffic_send(w, &piece[1]);
				fuzz_traffic_send(w, &piece[0]);
			}
			if (n % (8 * SY_BURST) == 0)
				fuzz_traffic_turn(w);
		}
		fuzz_traffic_turn(w);
	}
	r->b->options.unknown_ports = SY_UNAVAILABLE_DROP;
	topology_restore(&w->topology);
}

/* Limits of new sessions, and of packets, refuse some of these clients for a while. */
static void scenario_limits(struct fuzz_traffic *w)
{
	struct changes c = {0};
	put_limit(&c, "new", STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_SESSIONS, 1, 20);
	Steelyard__Forwarder__V1__Limit *l = put_limit(
	        &c, "all", STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_PACKETS, 1, 5);
	set_limit_clients(&c, l, 64);
	harness_commit(&w->topology.harness, &c);
	for (unsigned n = 0; n < 4 * SY_BURST; n++) {
		struct frame f;
		struct service_key key = topology_service(n % TOPOLOGY_SERVICES);
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		fuzz_traffic_greet(w, &f, &t);
		for (unsigned again = 0; again < 8; again++)
			fuzz_traffic_send(w, &f);
		if (n % (SY_BURST / 8) == 0)
			fuzz_traffic_turn(w);
	}
	fuzz_traffic_turn(w);
	delete_limit(&c, "new");
	delete_limit(&c, "all");
	harness_commit(&w->topology.harness, &c);
}

/* Shaped ports: queues become full, and drop early. Later their packets leave. */
static void scenario_shaping(struct fuzz_traffic *w)
{
	struct changes c = {0};
	for (unsigned early = 0; early < 2; early++) {
		for (unsigned port = 0; port < HARNESS_PORTS; port++) {
			Steelyard__Forwarder__V1__Shaping *s =
			        put_shaping(&c, harness_port_name[port], 1000000, 4096);
			Steelyard__Forwarder__V1__ShapingClass *class =
			        add_shaping_class(&c, s, "all", 0);
			class->queue = early ? 1000 : 3;
			class->early_percent = early ? 100 : 0;
			class->early_to = 1;
		}
		harness_commit(&w->topology.harness, &c);
		const struct service_key key = topology_special_service(SPECIAL_UNIFORM);
		scenario_greet(w, 4 * SY_BURST, &key);
	}
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		delete_shaping(&c, harness_port_name[port]);
	harness_commit(&w->topology.harness, &c);
	fuzz_traffic_turn(w);
}

/* A connected client continues after its server was removed. */
static void scenario_removed(struct fuzz_traffic *w)
{
	struct changes c = {0};
	struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	struct sy_tuple t = fuzz_traffic_client(w, &key);
	struct segment s = {SY_TCP_ACK, 1, 1, 0};
	struct frame f;
	fuzz_traffic_greet(w, &f, &t);
	fuzz_traffic_send(w, &f);
	fuzz_traffic_turn(w);
	delete_service(&c, &key);
	put_service(&c, &key, "empty", STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR, NULL);
	harness_commit(&w->topology.harness, &c);
	frame_tcp(&f, &w->rng, &t, &s, 0);
	fuzz_traffic_send(w, &f);
	fuzz_traffic_turn(w);
	topology_restore(&w->topology);
}

static void scenario_down(struct fuzz_traffic *w)
{
	struct harness *r = &w->topology.harness;
	struct port *port = r->rt->port[HARNESS_WAN];
	uint16_t device;
	if (rte_eth_dev_get_port_by_name(port->name, &device) < 0)
		abort();
	rte_eth_dev_set_link_down(device);
	port->ops->refresh(port);
	scenario_send_echoes(w, SY_BURST, r->rt->workers);
	fuzz_traffic_turn(w);
	rte_eth_dev_set_link_up(device);
	port->ops->refresh(port);
}

/* Packets whose TTL expires: first there is no buffer for the answers, then they exceed the rate.
 */
static void scenario_expired(struct fuzz_traffic *w)
{
	static struct rte_mbuf *held[32768];
	struct harness *r = &w->topology.harness;
	struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	unsigned count = 0;
	harness_advance(r, 2 * SECOND_NS);
	for (unsigned n = 0; n < 2 * SY_BURST; n++) {
		struct frame f;
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		fuzz_traffic_greet(w, &f, &t);
		frame_set_ttl(&f, 1);
		fuzz_traffic_send(w, &f);
		if (n == SY_BURST / 4) {
			while (count < SY_ARRAY_LEN(held) &&
			       (held[count] = rte_pktmbuf_alloc(r->rt->pool)))
				count++;
			harness_poll(r);
			while (count > 0)
				rte_pktmbuf_free(held[--count]);
		}
	}
	fuzz_traffic_turn(w);
}

/* Worker 1 is stopped while worker 0 hands packets over to it. */
static void scenario_hand_over(struct fuzz_traffic *w)
{
	struct harness *r = &w->topology.harness;
	if (r->rt->workers < 2)
		return;
	for (unsigned n = 0; n < 12000; n++) {
		struct frame f;
		struct service_key key = topology_service(0);
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		if (n % SY_BURST == 0) {
			harness_poll_worker(r, 0);
			fuzz_traffic_collect(w, false);
		}
	}
	fuzz_traffic_turn(w);
}

/* No consumer dequeues packets from the event device. */
static void scenario_event_full(struct fuzz_traffic *w)
{
	struct harness *r = &w->topology.harness;
	struct changes c = {0};
	if (r->rt->workers < 2)
		return;
	put_limit(&c, "queued", STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_PACKETS,
	          1000000000, 1000000000)
	        ->engine = STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_ATOMIC;
	harness_commit(r, &c);
	r->rt->options.poll = NULL;
	for (unsigned n = 0; n < 6000; n++) {
		struct frame f;
		struct service_key key = topology_special_service(SPECIAL_UNIFORM);
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		if (n % SY_BURST == 0) {
			harness_poll_worker(r, 0);
			fuzz_traffic_collect(w, false);
		}
	}
	r->rt->options.poll = sy_balance_poll;
	fuzz_traffic_turn(w);
	delete_limit(&c, "queued");
	harness_commit(r, &c);
}

static void send_halfway(void *ctx)
{
	struct fuzz_traffic *w = ctx;
	struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	struct sy_tuple t = fuzz_traffic_client(w, &key);
	struct frame f;
	fuzz_traffic_greet(w, &f, &t);
	fuzz_traffic_send(w, &f);
	fuzz_traffic_turn(w);
}

void scenario_all(struct fuzz_traffic *w)
{
	fuzz_traffic_check_clients(w);
	topology_restore(&w->topology);
	scenario_floods(w);
	for (unsigned special = 0; special < SPECIAL_SERVICES; special++)
		scenario_special(w, special);
	scenario_nat(w);
	scenario_fragments(w);
	scenario_untranslatable(w);
	scenario_snat(w);
	scenario_own_source(w);
	scenario_unknown(w);
	scenario_unavailable(w);
	scenario_access(w);
	scenario_sets(w);
	scenario_limits(w);
	scenario_shaping(w);
	scenario_removed(w);
	scenario_defence(w);
	scenario_client_rate(w);
	scenario_overload(w);
	scenario_client_sessions(w);
	scenario_echo_rate(w);
	scenario_full_queue(w);
	scenario_down(w);
	scenario_expired(w);
	scenario_hand_over(w);
	scenario_event_full(w);
	topology_commit_halfway(&w->topology, send_halfway, w);
}
