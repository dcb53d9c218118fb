// SPDX-License-Identifier: Apache-2.0
/* Scenarios: each drives the balancer into one shortage and out of it again. */
#include <arpa/inet.h>
#include <stdlib.h>

#include <rte_ethdev.h>

#include "fragment.h"
#include "fuzz_traffic.h"

#define SECOND_NS UINT64_C(1000000000)

/* The server answers this client, so its session keeps its port; over TCP the client confirms. */
static void flood_answer(struct fuzz_traffic *w, const struct sy_tuple *t)
{
	const struct sy_balance *b = w->topology.harness.b;
	const struct session_table *table = inspect_table(b, sy_slot_of(&t->src, t->sport));
	const struct match_context ctx = {b, table, t};
	const struct segment syn_ack = {SY_TCP_SYN | SY_TCP_ACK, 1, 2, 1460},
	                     ack = {SY_TCP_ACK, 2, 2, 0};
	enum session_direction from;
	struct frame f;
	uint32_t record = session_find(table->index, sy_hash_tuple(inspect_key(b), t),
	                               match_session, &ctx, &from);
	if (record == SESSION_NONE)
		return;
	const struct session *s = session_at(table, record);
	const struct sy_tuple server = session_server_tuple(b, s, session_cold_at(table, record),
	                                                    inspect_endpoint(b, s->server));
	if (t->proto == SY_PROTO_UDP)
		frame_udp(&f, &w->rng, &server, 20);
	else
		frame_tcp(&f, &w->rng, &server, &syn_ack, 0);
	f.port = HARNESS_LAN;
	fuzz_traffic_send(w, &f);
	fuzz_traffic_turn(w);
	if (t->proto == SY_PROTO_UDP)
		return;
	frame_tcp(&f, &w->rng, t, &ack, 0);
	f.port = HARNESS_WAN;
	fuzz_traffic_send(w, &f);
	fuzz_traffic_turn(w);
}

/* As many clients as flood a slot: a service's local addresses have fewer ports in it. */
#define SLOT_CLIENTS (3 * SY_SLOT_PORTS)

/* The nth of them, n below SLOT_CLIENTS: of the slot and the network of this client. */
static struct sy_tuple slot_client(const struct sy_tuple *one, unsigned n)
{
	struct sy_tuple t = *one;
	t.src.b[15] = (uint8_t)(101 + n / SY_SLOT_PORTS);
	t.sport = sy_slot_port(sy_slot_of(&one->src, one->sport), &t.src, n % SY_SLOT_PORTS);
	return t;
}

/* Clients of one slot whose sessions their servers answer, more than there are ports. */
static void flood_ports(struct fuzz_traffic *w, const struct service_key *key)
{
	const struct sy_tuple one = fuzz_traffic_client(w, key);
	for (unsigned n = 0; n < SLOT_CLIENTS; n++) {
		const struct sy_tuple t = slot_client(&one, n);
		struct frame f;
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		fuzz_traffic_turn(w);
		flood_answer(w, &t);
	}
}

/* New clients of one slot, enough to exhaust the slot's table or ports. go_on: each sends an ACK
 * after its SYN, and no other packet of theirs is sent, so under DR the sessions are established
 * and cannot be evicted; but every eighth sends a reset, and its session gives way. */
static void flood_slot(struct fuzz_traffic *w, const struct service_key *key, bool go_on)
{
	const struct segment ack = {SY_TCP_ACK, 1, 1, 0}, reset = {SY_TCP_RST, 1, 0, 0};
	const struct sy_tuple one = fuzz_traffic_client(w, key);
	for (unsigned n = 0; n < SLOT_CLIENTS; n++) {
		const struct sy_tuple t = slot_client(&one, n);
		struct frame f;
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		if (go_on) {
			frame_tcp(&f, &w->rng, &t, n % 8 ? &ack : &reset, 0);
			fuzz_traffic_send(w, &f);
		}
		if (n % (SY_BURST / 2) == 0) {
			harness_turn(&w->topology.harness);
			harness_attend(&w->topology.harness);
			fuzz_traffic_collect(w, !go_on);
		}
	}
	fuzz_traffic_turn(w);
}

static void scenario_floods(struct fuzz_traffic *w)
{
	struct service_key direct = topology_service(TOPOLOGY_DIRECT);
	struct service_key table = topology_special_service(SPECIAL_UNIFORM);
	struct service_key ports = topology_special_service(SPECIAL_UNIFORM_6);
	flood_slot(w, &direct, true);
	harness_advance(&w->topology.harness, 20 * SECOND_NS);
	flood_slot(w, &table, false);
	harness_advance(&w->topology.harness, 20 * SECOND_NS);
	flood_ports(w, &ports);
}

/* Creates a service's sessions one after the other, with no control thread turn between them. */
static void scenario_special(struct fuzz_traffic *w, enum topology_special special)
{
	struct service_key key = topology_special_service(special);
	for (unsigned n = 0; n < 2 * WORKER_WAITING_MAX; n++) {
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

/* More fragments than may wait for their first one; then more datagrams than the table holds. */
static void scenario_fragments(struct fuzz_traffic *w)
{
	struct service_key key = topology_service(1);
	struct sy_tuple t = fuzz_traffic_client(w, &key);
	struct frame f, piece[4];
	unsigned workers = w->topology.harness.rt->workers;
	frame_udp(&f, &w->rng, &t, 500);
	f.port = HARNESS_WAN;
	for (uint32_t id = 0; id < 4 * FRAGMENT_WAITING * workers; id++) {
		frame_cut(&f, id, 200, piece, 4);
		fuzz_traffic_send(w, &piece[1]);
	}
	fuzz_traffic_turn(w);
	for (uint32_t id = 10000; id < 10000 + 4 * FRAGMENT_DATAGRAMS * workers; id++) {
		frame_cut(&f, id, 200, piece, 4);
		fuzz_traffic_send(w, &piece[0]);
		if (id % SY_BURST == 0)
			fuzz_traffic_turn(w);
	}
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

/* Sessions of services that the list of scenario_access() no longer admits, and that go on. */
static uint64_t count_stayed(struct fuzz_traffic *w)
{
	const uint32_t over = 1u << SESSION_TIME_WAIT | 1u << SESSION_RESET | 1u << SESSION_DYING;
	const struct sy_balance *b = w->topology.harness.b;
	uint64_t stayed = 0;
	harness_advance(&w->topology.harness, 3 * SECOND_NS);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = inspect_table(b, (uint8_t)slot);
		uint32_t cursor = 0, record;
		while ((record = session_next(t, &cursor)) != SESSION_NONE) {
			const struct session *s = session_at(t, record);
			const struct endpoint *e = inspect_endpoint(b, s->server);
			stayed += e->mode != MODE_SNAT && !(over >> s->state & 1) &&
			          (e->proto == SY_PROTO_UDP || !sy_addr_is_v4(&s->client));
		}
	}
	return stayed;
}

/* An access list drops UDP sessions, and refuses TCP ones over IPv6, for a while: new ones, and
 * every other time existing ones too. */
static void scenario_access(struct fuzz_traffic *w)
{
	struct changes c = {0};
	Steelyard__Forwarder__V1__AccessSet *set = put_access_set(&c, "soak");
	add_access_prefix(&c, set, "198.18.0.0", 17);
	Steelyard__Forwarder__V1__AccessList *l = put_access_list(
	        &c, "soak", STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_RESET);
	const bool ends = rng_percent(&w->rng, 50);
	if (ends)
		l->existing = STEELYARD__FORWARDER__V1__EXISTING_SESSIONS__EXISTING_SESSIONS_END;
	add_access_rule(&c, l, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP, NULL, 0)
	        ->protocol = STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_UDP;
	add_access_rule(&c, l, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_COUNT,
	                "198.18.0.0", 16);
	add_access_from_set(
	        &c,
	        add_access_rule(&c, l, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW,
	                        NULL, 0),
	        "soak");
	put_global_access(&c, "soak");
	harness_commit(&w->topology.harness, &c);
	for (unsigned n = 0; n < 4 * SY_BURST; n++) {
		struct frame f;
		struct service_key key = topology_service(n % TOPOLOGY_SERVICES);
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		if (n % SY_BURST == 0)
			fuzz_traffic_turn(w);
	}
	fuzz_traffic_turn(w);
	if (ends)
		w->tally.stayed += count_stayed(w);
	put_global_access(&c, "");
	delete_access_list(&c, "soak");
	delete_access_set(&c, "soak");
	harness_commit(&w->topology.harness, &c);
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

/* The cookie that answers this SYN; 0: its worker has not sent any yet. */
static uint32_t cookie_of(struct fuzz_traffic *w, const struct sy_tuple *t, uint32_t number)
{
	const struct sy_tcp_options options = {.mss = 1460, .scale = SY_TCP_NO_SCALE};
	struct harness *r = &w->topology.harness;
	unsigned owner = sy_slot_worker(r->rt, sy_slot_of(&t->src, t->sport));
	const struct cookie_keys *keys = &inspect_worker(r->b, owner)->cookies;
	uint64_t hash = sy_cookie_hash(&keys->key[keys->epoch & 1], t, number);
	return keys->epoch ? sy_cookie_make(hash, keys->epoch & 1, sy_addr_is_v4(&t->src), &options)
	                   : 0;
}

/* Puts a service in the place of the uniform one. limit: new sessions of a client, a second;
 * sessions: at once; 0: any number. */
static void put_special(struct fuzz_traffic *w, const struct service_key *key, int defence,
                        uint32_t limit, uint32_t sessions)
{
	struct changes c = {0};
	struct sy_addr server = topology_special_server(SPECIAL_UNIFORM);
	pb_service *s = put_service(&c, key, "special",
	                            STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR, NULL);
	s->syn_defence = (Steelyard__Forwarder__V1__SynDefence)defence;
	if (limit)
		set_client_limits(&c, s, limit, limit);
	if (sessions)
		set_client_sessions(&c, s, sessions);
	put_server(&c, key, &server, 8080, 1,
	           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP);
	if (!harness_commit(&w->topology.harness, &c))
		abort();
}

static void send_syn(struct fuzz_traffic *w, const struct sy_tuple *t, uint32_t number)
{
	const struct segment syn = {SY_TCP_SYN, number, 0, 1460};
	struct frame f = {.port = HARNESS_WAN};
	frame_tcp(&f, &w->rng, t, &syn, 0);
	fuzz_traffic_send(w, &f);
	fuzz_traffic_turn(w);
}

/* SYNs that nobody follows up, until `syn_defence: auto` is switched on. */
static void flood_until_defended(struct fuzz_traffic *w, const struct service_key *key)
{
	struct sy_balance *b = w->topology.harness.b;
	struct sy_tuple t = fuzz_traffic_client(w, key);
	uint32_t id = directory_find(b, &t)->id;
	for (unsigned seconds = 0; !b->defends[id]; seconds++) {
		if (seconds == 20)
			abort();
		for (unsigned n = 0; n < 1500; n++) {
			t = fuzz_traffic_client(w, key);
			send_syn(w, &t, n);
		}
		harness_advance(&w->topology.harness, SECOND_NS);
	}
}

/* Clients of a service that answers by cookies: right ones with and without data, wrong ones. Many
 * servers' answers are lost. */
static void defended_clients(struct fuzz_traffic *w, const struct service_key *key)
{
	for (unsigned n = 0; n < 1000; n++) {
		struct frame f = {.port = HARNESS_WAN};
		struct sy_tuple t = fuzz_traffic_client(w, key);
		uint32_t number = rng_below(&w->rng, UINT32_MAX);
		send_syn(w, &t, number);
		uint32_t cookie = cookie_of(w, &t, number) + rng_percent(&w->rng, 20);
		for (unsigned i = 0; i < 1 + rng_below(&w->rng, 7); i++) {
			const struct segment ack = {SY_TCP_ACK, number + 1, cookie + 1, 0};
			f.port = HARNESS_WAN;
			frame_tcp(&f, &w->rng, &t, &ack, rng_percent(&w->rng, 50) ? 100 : 0);
			fuzz_traffic_send(w, &f);
		}
		if (n % 8 == 0)
			fuzz_traffic_turn(w);
	}
	fuzz_traffic_turn(w);
	harness_advance(&w->topology.harness, 3 * SECOND_NS);
}

/* SYNs answered always, and while there is a flood. */
static void scenario_defence(struct fuzz_traffic *w)
{
	const struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	put_special(w, &key, STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS, 0, 0);
	defended_clients(w, &key);
	put_special(w, &key, STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_AUTO, 0, 0);
	flood_until_defended(w, &key);
	defended_clients(w, &key);
	topology_restore(&w->topology);
}

/* One client that begins more connections than it may. */
static void scenario_client_rate(struct fuzz_traffic *w)
{
	const struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	put_special(w, &key, STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_OFF, 3, 0);
	struct sy_tuple t = fuzz_traffic_client(w, &key);
	for (unsigned n = 0; n < 20; n++) {
		t.sport = htons((uint16_t)(20000 + n));
		send_syn(w, &t, n);
	}
	topology_restore(&w->topology);
}

/* New connections while the receive queue is nearly full. */
static void scenario_overload(struct fuzz_traffic *w)
{
	const struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	struct harness *r = &w->topology.harness;
	harness_crowd(r, HARNESS_WAN, HARNESS_CROWD, HARNESS_CROWD);
	for (unsigned n = 0; n < 4 * SY_BURST; n++) {
		const struct sy_tuple t = fuzz_traffic_client(w, &key);
		const struct segment syn = {SY_TCP_SYN, n, 0, 1460};
		struct frame f = {.port = HARNESS_WAN};
		frame_tcp(&f, &w->rng, &t, &syn, 0);
		fuzz_traffic_send(w, &f);
	}
	fuzz_traffic_turn(w);
	harness_crowd(r, HARNESS_WAN, 0, 0);
	topology_restore(&w->topology);
}

static void send_segment(struct fuzz_traffic *w, unsigned port, const struct sy_tuple *t,
                         const struct segment *s)
{
	struct frame f = {.port = (uint8_t)port};
	frame_tcp(&f, &w->rng, t, s, 0);
	fuzz_traffic_send(w, &f);
	fuzz_traffic_turn(w);
}

/* The tuple of a server's packets to a client that has just sent its SYN. */
static struct sy_tuple server_tuple(struct fuzz_traffic *w, const struct sy_tuple *client)
{
	const struct sy_balance *b = w->topology.harness.b;
	const struct session_table *t = inspect_table(b, sy_slot_of(&client->src, client->sport));
	uint32_t cursor = 0, record;
	while ((record = session_next(t, &cursor)) != SESSION_NONE) {
		const struct session *s = session_at(t, record);
		const struct session_cold *cold = session_cold_at(t, record);
		const struct endpoint *e = inspect_endpoint(b, s->server);
		const struct sy_tuple of = session_client_tuple(s, cold, e);
		if (memcmp(&of, client, sizeof(of)) == 0)
			return session_server_tuple(b, s, cold, e);
	}
	abort();
}

/* One client that has more connections than it may: the second one's handshake is too late, the
 * third one does not begin. */
static void scenario_client_sessions(struct fuzz_traffic *w)
{
	const struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	put_special(w, &key, STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_OFF, 0, 1);
	struct sy_tuple t = fuzz_traffic_client(w, &key), back[2];
	for (unsigned n = 0; n < 3; n++) {
		t.sport = htons((uint16_t)(20000 + n));
		send_syn(w, &t, n);
		if (n < 2)
			back[n] = server_tuple(w, &t);
		for (unsigned i = 0; n == 1 && i < 2; i++) {
			const struct segment answer = {SY_TCP_SYN | SY_TCP_ACK, 7, i + 1, 1460},
			                     last = {SY_TCP_ACK, i + 1, 8, 0};
			t.sport = htons((uint16_t)(20000 + i));
			send_segment(w, HARNESS_LAN, &back[i], &answer);
			send_segment(w, HARNESS_WAN, &t, &last);
		}
	}
	fuzz_traffic_check_clients(w);
	topology_restore(&w->topology);
}

/* Valid echo requests, to which only the balancer's answer is sent. */
static void send_echoes(struct fuzz_traffic *w, unsigned count, unsigned turns)
{
	struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	struct harness *r = &w->topology.harness;
	for (unsigned n = 0; n < count; n++) {
		struct frame f = {.port = HARNESS_WAN};
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		frame_icmp(&f, &w->rng, &t, 8, 0, 20);
		fuzz_traffic_send(w, &f);
		if (n % SY_BURST == 0)
			for (unsigned i = 0; i < turns; i++) {
				harness_turn_worker(r, i);
				memset(&inspect_worker(r->b, i)->own, 0, sizeof(struct own_rates));
			}
	}
}

/* More echo requests than the rate allows. */
static void scenario_echo_rate(struct fuzz_traffic *w)
{
	static const unsigned many = 8 * SY_BURST;
	send_echoes(w, many, 0);
	fuzz_traffic_turn(w);
}

static void scenario_full_queue(struct fuzz_traffic *w)
{
	send_echoes(w, HARNESS_RING + 4 * SY_BURST, w->topology.harness.rt->workers);
	fuzz_traffic_turn(w);
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
	send_echoes(w, SY_BURST, r->rt->workers);
	fuzz_traffic_turn(w);
	rte_eth_dev_set_link_up(device);
	port->ops->refresh(port);
}

/* Packets whose TTL runs out: first there is no buffer for the answers, then they exceed the
 * rate. */
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
			harness_turn(r);
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
			harness_turn_worker(r, 0);
			fuzz_traffic_collect(w, false);
		}
	}
	fuzz_traffic_turn(w);
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
	scenario_unknown(w);
	scenario_access(w);
	scenario_limits(w);
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
	topology_commit_halfway(&w->topology, send_halfway, w);
}
