// SPDX-License-Identifier: Apache-2.0
#include "soak_topology.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "limit_model.h"
#include "model.h"
#include "shaping_model.h"

#define UP     STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DRAIN  STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN
#define DOWN   STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN
#define KILL   STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_KILL
#define RR     STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR
#define WRR    STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_WRR
#define ALWAYS STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS
#define AUTO   STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_AUTO
#define OFF    STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_OFF
#define TUPLE  STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_TUPLE

#define SESSIONS (640 * SY_SLOTS) /* more than an address has ports in a slot, two records each */
#define MBUFS    12287            /* exceeds a transmit queue */
#define EVENTS   1024

static bool service_is_v6(unsigned i)
{
	return i % 3 == 2;
}

static enum mode service_mode(unsigned i)
{
	return i % 8 < 4 ? MODE_FNAT : i % 8 < 6 ? MODE_NAT : MODE_DR;
}

/* Returns whether the service challenges its clients: one DR service of each family does. */
static bool challenges(unsigned i)
{
	return service_mode(i) == MODE_DR && i % 2 == 0 && i != TOPOLOGY_DIRECT;
}

static uint16_t server_port(unsigned i)
{
	return service_mode(i) == MODE_DR ? TOPOLOGY_PORT : (uint16_t)(8000 + i);
}

struct service_key topology_service(unsigned i)
{
	struct service_key key = harness_key(service_is_v6(i) ? "2001:db8:1::" : "192.0.2.0",
	                                     TOPOLOGY_PORT, i % 2 ? SY_PROTO_UDP : SY_PROTO_TCP);
	key.vip.b[15] = (uint8_t)(100 + i / 2); /* each VIP has a TCP and a UDP service */
	return key;
}

struct service_key topology_special_service(enum topology_special special)
{
	if (special == SPECIAL_UNIFORM_6)
		return harness_key("2001:db8:1::1", TOPOLOGY_PORT, SY_PROTO_TCP);
	struct service_key key = harness_key("192.0.2.200", TOPOLOGY_PORT, SY_PROTO_TCP);
	key.vip.b[15] = (uint8_t)(key.vip.b[15] + special);
	return key;
}

/* Some FNAT services have servers of both families. */
static bool server_is_v6(unsigned service, unsigned i)
{
	bool mixed = service % 8 == 0 || service % 8 == 3;
	return service_is_v6(service) != (mixed && i % 2);
}

struct sy_addr topology_server(unsigned service, unsigned i)
{
	struct sy_addr a = harness_addr(server_is_v6(service, i) ? "2001:db8:2::" : "10.0.0.0");
	a.b[15] = (uint8_t)(1 + (service + i) % 16); /* servers that several services share */
	return a;
}

struct sy_addr topology_special_server(enum topology_special special)
{
	static const char *const text[SPECIAL_SERVICES] = {
	        [SPECIAL_SILENT] = "10.0.9.9",
	        [SPECIAL_HOLE] = "10.66.0.1",
	        [SPECIAL_UNROUTED] = "10.77.0.1",
	        [SPECIAL_OFF_LINK] = "10.88.0.1",
	        [SPECIAL_NAT] = "10.0.0.3",
	        [SPECIAL_NAT_DUPLICATE] = "10.0.0.3",
	        [SPECIAL_UNIFORM] = "10.0.0.1",
	        [SPECIAL_LIMITED] = "10.0.0.2",
	        [SPECIAL_UNIFORM_6] = "2001:db8:2::1",
	};
	return harness_addr(text[special]);
}

struct sy_addr topology_local(unsigned i)
{
	struct sy_addr a = harness_addr(i < TOPOLOGY_LOCALS ? "10.0.255.0" : "2001:db8:2::ff00");
	a.b[15] = (uint8_t)(1 + i);
	return a;
}

/* ---- the network ----------------------------------------------------------------------------- */

/* The neighbour `last` addresses further on. */
static struct sy_static_neigh neigh_make(unsigned port, const char *addr, uint8_t last)
{
	struct sy_static_neigh n = harness_neighbour(port, harness_addr(addr), last);
	n.addr.b[15] = (uint8_t)(n.addr.b[15] + last);
	return n;
}

static void must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "soak: %s\n", what);
	exit(EXIT_FAILURE);
}

bool topology_open(struct topology *w, struct rng *d, unsigned workers,
                   const struct sy_stage *pipeline)
{
	struct sy_static_route route[] = {
	        harness_route(HARNESS_WAN, "198.18.0.0", 16, "192.0.2.1"),
	        harness_route(HARNESS_WAN, "2001:db8:c::", 48, "fe80::1"),
	        harness_route(HARNESS_LAN, "10.0.0.0", 16, NULL),
	        harness_route(HARNESS_LAN, "10.88.0.0", 16, "10.0.0.1"),
	        harness_route(HARNESS_LAN, "2001:db8:2::", 64, NULL),
	};
	struct sy_static_neigh neigh[34] = {neigh_make(HARNESS_WAN, "192.0.2.0", 1),
	                                    neigh_make(HARNESS_WAN, "fe80::", 1)};
	for (uint8_t i = 0; i < 16; i++) {
		neigh[2 + 2 * i] = neigh_make(HARNESS_LAN, "10.0.0.0", i + 1);
		neigh[3 + 2 * i] = neigh_make(HARNESS_LAN, "2001:db8:2::", i + 1);
	}
	const struct harness_options o = {
	        .workers = workers,
	        .sessions = SESSIONS,
	        .mbufs = MBUFS,
	        .event_capacity = EVENTS,
	        .max_services = 256,
	        .max_servers = 2048,
	        .pipeline = pipeline,
	        .route = route,
	        .routes = SY_ARRAY_LEN(route),
	        .neigh = neigh,
	        .neighs = SY_ARRAY_LEN(neigh),
	};
	struct sy_error err;
	*w = (struct topology){.rng = d};
	if (harness_open(&w->harness, &o, &err) < 0) {
		fprintf(stderr, "soak: %s\n", err.text);
		return false;
	}
	const struct sy_route hole[] = {
	        {.prefix = harness_addr("198.19.0.0"), .prefix_len = 16, .blackhole = true},
	        {.prefix = harness_addr("10.66.0.0"), .prefix_len = 16, .blackhole = true},
	};
	for (unsigned i = 0; i < SY_ARRAY_LEN(hole); i++)
		routes_apply(w->harness.rt, &hole[i], false);
	routes_flush(w->harness.rt);
	topology_restore(w);
	return true;
}

void topology_close(struct topology *w)
{
	harness_close(&w->harness);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Short, so that sessions expire often; in each service one timeout differs from the others. */
static pb_timeouts timeouts_make(unsigned service)
{
	pb_timeouts t = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	t.syn_sent_s = 3;
	t.syn_received_s = 4;
	t.established_s = 20 + service;
	t.fin_wait_s = 8;
	t.closing_s = 6;
	t.time_wait_s = 5;
	t.reset_s = 2;
	t.udp_one_way_s = 5;
	t.udp_s = 12 + service;
	return t;
}

static void put_topology_service(struct changes *c, unsigned i)
{
	char name[32];
	struct service_key key = topology_service(i);
	pb_timeouts t = timeouts_make(i);
	snprintf(name, sizeof(name), "service-%u", i);
	/* Each scheduler serves TCP and UDP, and each distribution method has some services. */
	unsigned scheduler = 1 + (i / 2) % SCHEDULERS;
	pb_service *s = put_service(c, &key, name, (int)scheduler, &t);
	if (scheduler_find(scheduler)->by_hash && i % 5 < 2)
		s->hash_on = TUPLE;
	set_mode(c, service_mode(i));
	if (i % 4 == 1 && service_mode(i) == MODE_FNAT)
		s->one_packet = true;
	else if (i % 5 == 2)
		set_persistence(c, s, 10, 24 + i % 9, 120);
	if (key.proto == SY_PROTO_TCP && service_mode(i) == MODE_FNAT)
		s->client_address = (Steelyard__Forwarder__V1__ClientAddress)(i / 2 % 4);
	if (challenges(i))
		s->syn_defence = ALWAYS;
	s->slow_start_s = i % 3 ? 0 : 8;
	s->max_sessions = i % 7 ? 0 : 500;
	if (i % 4 == 2)
		set_resets(c, s, i % 3 != 1, i % 3 != 2, true);
}

/* Puts a service, half the time with another scheduler and other limits. */
static void change_service(struct topology *w, struct changes *c, unsigned i)
{
	put_topology_service(c, i);
	pb_service *s = c->change[c->count - 1]->put_service;
	if (rng_percent(w->rng, 50))
		return;
	s->scheduler = (Steelyard__Forwarder__V1__Scheduler)(1 + rng_below(w->rng, SCHEDULERS));
	s->hash_on = STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_UNSPECIFIED;
	s->max_sessions = rng_percent(w->rng, 20) ? 1 + rng_below(w->rng, 20) : 0;
	s->slow_start_s = rng_below(w->rng, 10);
	if (rng_percent(w->rng, 10))
		set_client_limits(c, s, 1 + rng_below(w->rng, 20), 1 + rng_below(w->rng, 40));
	else if (rng_percent(w->rng, 10) && !s->one_packet &&
	         (i % 2 == 0 || service_mode(i) != MODE_DR))
		set_client_sessions(c, s, 1 + rng_below(w->rng, 4));
	if (challenges(i)) {
		static const int any[] = {ALWAYS, AUTO, OFF};
		s->syn_defence = (Steelyard__Forwarder__V1__SynDefence)any[rng_below(w->rng, 3)];
	}
}

static enum mode special_mode(enum topology_special special)
{
	if (special == SPECIAL_NAT || special == SPECIAL_NAT_DUPLICATE)
		return MODE_NAT;
	return special == SPECIAL_OFF_LINK ? MODE_DR : MODE_FNAT;
}

static void put_special_service(struct changes *c, enum topology_special special)
{
	struct service_key key = topology_special_service(special);
	pb_timeouts t = timeouts_make(0);
	put_service(c, &key, "special", WRR, &t);
	set_mode(c, special_mode(special));
	if (special == SPECIAL_EMPTY)
		return;
	struct sy_addr server = topology_special_server(special);
	pb_server *s = put_server(c, &key, &server,
	                          special == SPECIAL_OFF_LINK ? TOPOLOGY_PORT : 8080, 1, UP);
	s->max_sessions = special == SPECIAL_LIMITED ? 3 : 0;
}

static void clear_shaping(const struct topology *w, struct changes *c)
{
	const struct shaping_model *m = w->harness.b->ctl->shaping;
	for (unsigned i = 0; i < SHAPED_PORTS; i++)
		if (m->now[i])
			delete_shaping(c, m->now[i]->port);
}

static void clear_limits(const struct topology *w, struct changes *c)
{
	const struct limit_model *m = inspect_limits(w->harness.b);
	for (uint32_t id = 0; id < m->ids.fresh; id++)
		if (m->limit[id])
			delete_limit(c, m->limit[id]->name);
}

void topology_restore(struct topology *w)
{
	struct changes c = {0};
	clear_limits(w, &c);
	clear_shaping(w, &c);
	for (unsigned i = 0; i <= TOPOLOGY_LOCALS; i++) {
		struct sy_addr local = topology_local(i);
		put_local(&c, &local);
	}
	for (unsigned special = 0; special < SPECIAL_SERVICES; special++)
		put_special_service(&c, special);
	for (unsigned i = 0; i < TOPOLOGY_SERVICES; i++) {
		struct service_key key = topology_service(i);
		put_topology_service(&c, i);
		for (unsigned n = 0; n < TOPOLOGY_SERVERS; n++) {
			struct sy_addr server = topology_server(i, n);
			pb_server *s = put_server(&c, &key, &server, server_port(i), 1 + n, UP);
			s->backup = n == TOPOLOGY_SERVERS - 1 && i % 2;
		}
	}
	must(harness_commit(&w->harness, &c), w->harness.error);
	w->commits++;
}

static void change_server(struct topology *w, struct changes *c, unsigned i)
{
	static const int state[] = {UP, UP, UP, DRAIN, DOWN, KILL, KILL, KILL};
	struct service_key key = topology_service(i);
	unsigned n = rng_below(w->rng, TOPOLOGY_SERVERS);
	struct sy_addr server = topology_server(i, n);
	if (rng_percent(w->rng, 30))
		delete_server(c, &key, &server, server_port(i));
	else {
		pb_server *s = put_server(c, &key, &server, server_port(i), rng_below(w->rng, 10),
		                          state[rng_below(w->rng, SY_ARRAY_LEN(state))]);
		s->backup = rng_percent(w->rng, 15);
		s->max_sessions = rng_percent(w->rng, 15) ? 1 + rng_below(w->rng, 30) : 0;
	}
}

static void change_local(struct topology *w, struct changes *c)
{
	struct sy_addr local = topology_local(rng_below(w->rng, TOPOLOGY_LOCALS + 1));
	if (rng_percent(w->rng, 30))
		delete_local(c, &local);
	else
		put_local(c, &local);
}

/* A limit that rarely refuses, with whatever it may have; or deletes it. */
static void change_limit(struct topology *w, struct changes *c)
{
	char name[8] = "limit 0";
	const int unit = 1 + (int)rng_below(w->rng, 3);
	name[6] = (char)('0' + rng_below(w->rng, 6));
	Steelyard__Forwarder__V1__Limit *l =
	        put_limit(c, name, unit, 10000000, 1 + rng_below(w->rng, 100000));
	for (unsigned n = rng_below(w->rng, 4); n > 0; n--) {
		struct service_key key = topology_service(rng_below(w->rng, TOPOLOGY_SERVICES));
		if (rng_percent(w->rng, 50))
			add_limit_service(c, l, &key);
		else
			add_limit_vip(c, l, &key.vip);
	}
	if (rng_percent(w->rng, 30))
		set_limit_clients(c, l, 1 + rng_below(w->rng, 50));
	if (unit != STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_SESSIONS) {
		l->direction = (int)rng_below(w->rng, 4);
		l->action = (int)rng_below(w->rng, 3);
	}
	l->engine = (int)rng_below(w->rng, 5);
	if (rng_percent(w->rng, 30))
		delete_limit(c, l->name);
}

/* Shapes a port to a rate that hardly delays anything; or no longer. */
static void change_shaping(struct topology *w, struct changes *c)
{
	const char *port = harness_port_name[rng_below(w->rng, HARNESS_PORTS)];
	static const char *const names[] = {"a", "b", "c"};
	if (rng_percent(w->rng, 30)) {
		delete_shaping(c, port);
		return;
	}
	Steelyard__Forwarder__V1__Shaping *s =
	        put_shaping(c, port, UINT64_C(100000000000), 4096 + rng_below(w->rng, 1000000));
	s->layer = (int)rng_below(w->rng, 5);
	for (unsigned n = 1 + rng_below(w->rng, 3); n > 0; n--) {
		Steelyard__Forwarder__V1__ShapingClass *class =
		        add_shaping_class(c, s, names[n - 1], n * 10);
		class->priority = rng_below(w->rng, 8);
		class->queue = 1 + rng_below(w->rng, 1000);
		class->guaranteed = rng_percent(w->rng, 30) ? 1000000000 : 0;
	}
	Steelyard__Forwarder__V1__ShapingTenant *t = add_shaping_tenant(c, s, names[0]);
	for (unsigned n = rng_below(w->rng, 3); n > 0; n--) {
		struct service_key key = topology_service(n);
		add_shaping_service(c, t, names[n - 1], &key)->maximum = UINT64_C(90000000000);
	}
}

/* A change that no forwarder accepts, whatever its configuration is. */
static void change_wrong(struct topology *w, struct changes *c)
{
	struct service_key key = topology_service(rng_below(w->rng, TOPOLOGY_SERVICES));
	struct sy_addr nowhere = harness_addr("127.0.0.1"), vip = key.vip;
	switch (rng_below(w->rng, 6)) {
	case 0:
		put_local(c, &nowhere);
		break;
	case 1:
		put_service(c, &key, "wrong", 77, NULL);
		break;
	case 2:
		put_service(c, &key, "unhashed", RR, NULL)->hash_on = TUPLE;
		break;
	case 3:
		set_persistence(c, put_service(c, &key, "wide", RR, NULL), 60, 33, 0);
		break;
	case 4:
		put_service(c, &key, "twofold", RR, NULL);
		put_local(c, &vip);
		break;
	default:
		put_service(c, &key, "itself", RR, NULL);
		put_server(c, &key, &vip, 8080, 1, UP);
	}
}

void topology_change(struct topology *w)
{
	struct changes c = {0};
	for (unsigned n = 1 + rng_below(w->rng, 3); n; n--) {
		unsigned i = rng_below(w->rng, TOPOLOGY_SERVICES);
		struct service_key key = topology_service(i);
		switch (rng_below(w->rng, 8)) {
		case 0:
			change_service(w, &c, i);
			break;
		case 1:
			delete_service(&c, &key);
			break;
		case 2:
			change_local(w, &c);
			break;
		default:
			change_server(w, &c, i);
		}
	}
	if (rng_percent(w->rng, 20))
		change_limit(w, &c);
	if (rng_percent(w->rng, 10))
		change_shaping(w, &c);
	bool wrong = rng_percent(w->rng, 10);
	if (wrong)
		change_wrong(w, &c);
	/* Valid ones are refused too: an object to be deleted may not exist. */
	bool accepted = harness_commit(&w->harness, &c);
	must(!(wrong && accepted), "a wrong change was accepted");
	w->commits += accepted;
	w->refusals += !accepted;
}

void topology_clear(struct topology *w)
{
	struct changes c = {0};
	const struct model *m = inspect_model(w->harness.b);
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		if (m->service[id])
			delete_service(&c, &m->service[id]->key);
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		if (m->local[id].used)
			delete_local(&c, &m->local[id].addr);
	clear_limits(w, &c);
	clear_shaping(w, &c);
	must(harness_commit(&w->harness, &c), w->harness.error);
}

void topology_commit_halfway(struct topology *w, void (*between)(void *ctx), void *ctx)
{
	struct sy_balance *b = w->harness.b;
	struct changes c = {0};
	struct sy_error err;
	topology_clear(w);
	struct service_key key = topology_special_service(SPECIAL_UNIFORM);
	struct sy_addr local = topology_local(0);
	put_local(&c, &local);
	put_special_service(&c, SPECIAL_UNIFORM);
	must(harness_commit(&w->harness, &c), w->harness.error);
	/* Local addresses are deleted before the service that needs them. */
	delete_service(&c, &key);
	delete_local(&c, &local);
	model_begin(b);
	for (size_t i = 0; i < c.count; i++)
		must(model_change_apply(b, c.change[i], &err) == 0, err.text);
	must(model_check(b, &err) == 0, err.text);
	model_publish_addresses(b);
	between(ctx);
	while (!model_publish(b, PUBLISH_PIECE))
		;
	model_finish(b);
	changes_free(&c);
	topology_restore(w);
}

bool topology_sent_is_right(const struct rte_mbuf *m, unsigned port, bool was_right,
                            struct sy_view *v)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	if (m->nb_segs != 1 || m->next || m->data_len != m->pkt_len ||
	    sy_packet_parse(frame, m->data_len, v) != SY_DROP_NONE ||
	    memcmp(((const struct sy_eth *)frame)->src, harness_mac[port], 6) != 0)
		return false;
	if (v->fragment != SY_FRAGMENT_NONE) /* the datagram's other fragments are not here */
		return true;
	bool own = v->proto != SY_PROTO_TCP && v->proto != SY_PROTO_UDP;
	return (!was_right && !own) || sy_packet_check_l4(frame, v) == SY_CSUM_OK;
}
