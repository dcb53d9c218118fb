// SPDX-License-Identifier: Apache-2.0
/* Scenarios of clients that are too many, too fast or not welcome. */
#include <arpa/inet.h>
#include <stdlib.h>

#include <sy_tcp_segment.h>

#include "scenario.h"

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

/* More answered sessions of clients in one slot than there are ports. */
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
			harness_poll(&w->topology.harness);
			harness_attend(&w->topology.harness);
			fuzz_traffic_collect(w, !go_on);
		}
	}
	fuzz_traffic_turn(w);
}

void scenario_floods(struct fuzz_traffic *w)
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

/* Whether the list of scenario_access() refuses this session, which should have ended. */
static bool is_refused(const struct session *s, const struct endpoint *e, unsigned kind)
{
	return e->proto == SY_PROTO_UDP || !sy_addr_is_v4(&s->client);
}

/* An access list drops UDP sessions, and refuses TCP ones over IPv6, for a while: new ones, and
 * every other time existing ones too. */
void scenario_access(struct fuzz_traffic *w)
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
	scenario_greet(w, 4 * SY_BURST, NULL);
	if (ends)
		w->tally.stayed += scenario_count_sessions(w, 0, is_refused);
	put_global_access(&c, "");
	delete_access_list(&c, "soak");
	delete_access_set(&c, "soak");
	harness_commit(&w->topology.harness, &c);
}

/* The cookie that answers this SYN; 0: its worker has not sent any yet. */
static uint32_t cookie_of(struct fuzz_traffic *w, const struct sy_tuple *t, uint32_t number)
{
	const struct sy_tcp_options options = {.mss = 1460, .scale = SY_TCP_NO_SCALE};
	struct harness *r = &w->topology.harness;
	unsigned owner = sy_slot_worker(r->rt, sy_slot_of(&t->src, t->sport));
	const struct cookie_keys *keys = &inspect_worker(r->b, owner)->cookies;
	uint64_t hash = sy_cookie_hash(&keys->key[0][keys->epoch & 1], t, number);
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

/* SYNs without handshakes, until `syn_defence: auto` is switched on. */
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
void scenario_defence(struct fuzz_traffic *w)
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
void scenario_client_rate(struct fuzz_traffic *w)
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
void scenario_overload(struct fuzz_traffic *w)
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
void scenario_client_sessions(struct fuzz_traffic *w)
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
void scenario_send_echoes(struct fuzz_traffic *w, unsigned count, unsigned turns)
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
				harness_poll_worker(r, i);
				memset(&inspect_worker(r->b, i)->originated, 0,
				       sizeof(struct originated_rates));
			}
	}
}

/* More echo requests than the rate allows. */
void scenario_echo_rate(struct fuzz_traffic *w)
{
	static const unsigned many = 8 * SY_BURST;
	scenario_send_echoes(w, many, 0);
	fuzz_traffic_turn(w);
}

void scenario_full_queue(struct fuzz_traffic *w)
{
	scenario_send_echoes(w, HARNESS_RING + 4 * SY_BURST, w->topology.harness.rt->workers);
	fuzz_traffic_turn(w);
}
