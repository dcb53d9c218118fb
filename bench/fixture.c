// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure.h"

#define BRIEF_PORT 53
#define MEMORY_MB  256
#define SLOT_MIN   64 /* least number of sessions in a slot's table */

struct fixture_options fixture_defaults(uint64_t sessions)
{
	return (struct fixture_options){.mode = MODE_FNAT,
	                                .sessions = sessions,
	                                .fill = 0.85,
	                                .servers = 64,
	                                .locals = 16,
	                                .frame_len = 60,
	                                .workers = 1,
	                                .seed = 1};
}

/* ---- addresses ------------------------------------------------------------------------------- */

static struct sy_addr address(bool v6, uint32_t v4_net, const char *v6_net, uint32_t host)
{
	if (!v6)
		return sy_addr_v4(htonl(v4_net + host));
	struct sy_addr a = harness_addr(v6_net);
	a.w[3] = htonl(host);
	return a;
}

struct sy_addr fixture_server(const struct fixture *s, unsigned n)
{
	return address(s->options.server_v6, 0x0a000001, "fd00::", n + 1);
}

static struct sy_addr local_address(const struct fixture *s, unsigned n)
{
	return address(s->options.server_v6, 0x0a010001, "fd00:0:0:1::", n + 1);
}

/* Each session has a client of its own, out of 2^29. */
static struct sy_tuple client_tuple(struct fixture *s)
{
	const struct fixture_options *o = &s->options;
	uint32_t host = (uint32_t)(s->clients++ * 0x9e3779b1u) & 0x1fffffff;
	uint64_t random = measure_random(&s->random);
	struct sy_tuple t = {.sport = htons((uint16_t)(1024 + random % 64512)),
	                     .dport = htons(FIXTURE_PORT),
	                     .proto = o->tcp ? SY_PROTO_TCP : SY_PROTO_UDP};
	t.src = address(o->client_v6, 0x20000000, "2001:db8::", host);
	if (o->mode == MODE_SNAT) {
		t.src = address(o->client_v6, 0x0c000000, "fd01::", host & 0xffffff);
		t.dst = address(o->client_v6, 0x20000000,
		                "2001:db8::", (uint32_t)(random >> 32) % o->servers);
	} else {
		t.dst = address(o->client_v6, 0xc6336401, "2001:db8:1::", 1);
	}
	return t;
}

/* ---- the forwarder --------------------------------------------------------------------------- */

static const char *const port_name[HARNESS_PORTS] = {"net_ring_wan", "net_ring_lan"};

static void neighbour_set(struct sy_static_neigh *n, unsigned port, struct sy_addr addr)
{
	static uint8_t last;
	*n = (struct sy_static_neigh){.addr = addr, .mac = {2, 0, 0, 0, 1, ++last}};
	strcpy(n->port, port_name[port]);
}

static void route_set(struct sy_static_route *r, unsigned port, struct sy_addr prefix,
                      uint8_t prefix_len, struct sy_addr via)
{
	*r = (struct sy_static_route){.prefix = prefix, .prefix_len = prefix_len, .via = via};
	strcpy(r->port, port_name[port]);
}

/* Clients and SNAT's remote hosts are behind one router, servers on link, and SNAT's inside hosts
 * behind another router. */
static bool harness_make(struct fixture *s)
{
	static struct sy_static_neigh neigh[FIXTURE_SERVERS + 5];
	static struct sy_static_route route[8];
	const struct fixture_options *o = &s->options;
	unsigned neighs = 0, routes = 0;
	struct sy_error err;

	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct sy_addr any = v6 ? (struct sy_addr){0} : sy_addr_v4(0);
		struct sy_addr wan = address(v6, 0xc0000201, "2001:db8:2::", 1);
		struct sy_addr lan = address(v6, 0x0a0000fe, "fd00:0:0:ff::", 1);
		neighbour_set(&neigh[neighs++], HARNESS_WAN, wan);
		neighbour_set(&neigh[neighs++], HARNESS_LAN, lan);
		route_set(&route[routes++], HARNESS_WAN, any, 0, wan);
		route_set(&route[routes++], HARNESS_LAN, address(v6, 0x0a000000, "fd00::", 0),
		          v6 ? 64 : 16, (struct sy_addr){0});
		route_set(&route[routes++], HARNESS_LAN, address(v6, 0x0c000000, "fd01::", 0),
		          v6 ? 64 : 8, lan);
	}
	for (unsigned i = 0; i <= o->servers; i++)
		neighbour_set(&neigh[neighs++], HARNESS_LAN, fixture_server(s, i));
	const struct harness_options options = {
	        .sessions =
	                (uint64_t)((double)o->sessions / o->fill) * (o->mode == MODE_SNAT ? 2 : 1) +
	                o->room + SLOT_MIN * SY_SLOTS,
	        .workers = o->workers,
	        .mbufs = o->workers > 1 ? o->workers * 16384 - 1 : 8191,
	        .memory_mb = MEMORY_MB,
	        .huge = o->store != NULL,
	        .store_directory = o->store,
	        .event_device = o->device,
	        .event_model = o->model,
	        .start_ns = sy_clock_ns(), /* workers continue from this time */
	        .neigh = neigh,
	        .neighs = neighs,
	        .route = route,
	        .routes = routes};
	if (harness_open(&s->harness, &options, &err) == 0)
		return true;
	fprintf(stderr, "the forwarder cannot be made: %s\n", err.text);
	return false;
}

static void service_configure(const struct fixture *s, struct changes *c, const char *name,
                              const struct service_key *key, const pb_timeouts *timeouts)
{
	pb_service *service = put_service(
	        c, key, name, STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR, timeouts);
	if (s->options.defended)
		service->syn_defence = STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS;
	set_mode(c, s->options.mode);
	for (unsigned i = 0; i < s->options.servers; i++) {
		struct sy_addr server = fixture_server(s, i);
		put_server(c, key, &server, FIXTURE_PORT, 1,
		           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP);
	}
}

static int engine_find(const char *name)
{
	static const char *const names[] = {"", "cas", "lock", "light-lock", "atomic"};
	int n = 0;
	while (name && strcmp(names[n], name) != 0)
		n++;
	return n;
}

/* So high that no packet is above them. */
static void limits_configure(const struct fixture *s, struct changes *c)
{
	const struct fixture_options *o = &s->options;
	for (unsigned i = 0; i < o->limits; i++) {
		char name[24];
		const bool packets = i % 2;
		snprintf(name, sizeof(name), "limit %u", i);
		Steelyard__Forwarder__V1__Limit *l =
		        put_limit(c, name,
		                  packets ? STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_PACKETS
		                          : STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_BITS,
		                  packets ? 1000000000 : UINT64_C(400000000000),
		                  packets ? 1000000000 : UINT64_C(100000000000));
		l->engine = engine_find(o->engine);
		add_limit_service(c, l, &s->service);
		if (i == 0 && o->clients)
			set_limit_clients(c, l, o->clients);
	}
}

/* So fast that no packet waits for long. */
static void shaping_configure(const struct fixture *s, struct changes *c)
{
	for (unsigned port = 0; port < HARNESS_PORTS; port++) {
		pb_shaping *shaping =
		        put_shaping(c, harness_port_name[port], UINT64_C(400000000000), 1000000000);
		add_shaping_class(c, shaping, "default", 0);
		add_shaping_service(c, add_shaping_tenant(c, shaping, "tenant"), "service",
		                    &s->service);
	}
}

/* For all services: drops members of a set, and lets all others pass. */
static void list_configure(const struct fixture *s, struct changes *c)
{
	const struct fixture_options *o = &s->options;
	char from[SY_ADDR_TEXT];
	add_access_prefix(c, put_access_set(c, "blocked"), "203.0.113.1", 32);
	Steelyard__Forwarder__V1__AccessList *l = put_access_list(
	        c, "edge", STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW);
	for (unsigned i = 0; i < o->list_rules; i++) {
		const struct sy_addr net = address(o->client_v6, 0x40000000, "2400::", i << 16);
		Steelyard__Forwarder__V1__AccessRule *one = add_access_rule(
		        c, l, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP,
		        sy_addr_format(&net, from), o->client_v6 ? 112 : 24);
		set_access_ports(c, one, 1024 + i, 1024 + i);
	}
	Steelyard__Forwarder__V1__AccessRule *last = add_access_rule(
	        c, l, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP, NULL, 0);
	add_access_from_set(c, last, "blocked");
	if (o->list_ports)
		set_access_ports(c, last, 1, 1023);
	put_global_access(c, "edge");
}

static bool configure(struct fixture *s)
{
	const struct fixture_options *o = &s->options;
	struct changes c = {0};
	const pb_timeouts long_ones = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	pb_timeouts short_ones = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	if (o->mode == MODE_SNAT) {
		static char text[FIXTURE_LOCALS][SY_ADDR_TEXT];
		const char *pool[FIXTURE_LOCALS];
		for (unsigned i = 0; i < o->locals; i++) {
			struct sy_addr a = local_address(s, i);
			sy_addr_format(&a, text[i]);
			pool[i] = text[i];
		}
		put_snat(&c, "bench", o->client_v6 ? "fd01::" : "12.0.0.0", o->client_v6 ? 64 : 8,
		         pool, o->locals);
	} else {
		struct sy_tuple t = client_tuple(s);
		s->service = (struct service_key){t.dst, t.dport, t.proto, 0, 0};
		service_configure(s, &c, "bench", &s->service, &long_ones);
		struct service_key brief = {t.dst, htons(BRIEF_PORT), SY_PROTO_UDP, 0, 0};
		short_ones.udp_one_way_s = 1;
		if (o->brief)
			service_configure(s, &c, "brief", &brief, &short_ones);
		for (unsigned i = 0; i < o->locals; i++) {
			struct sy_addr local = local_address(s, i);
			put_local(&c, &local);
		}
	}
	if (o->listed)
		list_configure(s, &c);
	limits_configure(s, &c);
	if (o->shaped)
		shaping_configure(s, &c);
	if (harness_commit(&s->harness, &c))
		return true;
	fprintf(stderr, "the configuration is refused: %s\n", s->harness.error);
	return false;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void frame_make(uint8_t *to, uint32_t len, const struct sy_tuple *t, unsigned port,
                       uint8_t tcp_flags)
{
	struct rng rng = {1};
	struct frame f;
	bool tcp = t->proto == SY_PROTO_TCP;
	unsigned headers = SY_ETH_LEN +
	                   (unsigned)(sy_addr_is_v4(&t->src) ? sizeof(struct sy_ipv4)
	                                                     : sizeof(struct sy_ipv6)) +
	                   (unsigned)(tcp ? sizeof(struct sy_tcp) : sizeof(struct sy_udp));
	if (tcp)
		frame_tcp(&f, &rng, t, &(struct segment){tcp_flags, 1, 2, 0}, len - headers);
	else
		frame_udp(&f, &rng, t, len - headers);
	memcpy(f.bytes, harness_mac[port], 6);
	memcpy(to, f.bytes, len);
}

/* The result of one round of first packets. */
struct outcome {
	unsigned count;
	struct sy_tuple tuple[SY_BURST];
};

static void outcome_note(void *ctx, const uint8_t *frame, unsigned len)
{
	struct outcome *o = ctx;
	struct sy_view v;
	if (o->count == SY_BURST)
		return;
	if (sy_packet_parse(frame, len, &v) == SY_DROP_NONE) /* otherwise a tunnel's */
		o->tuple[o->count] = v.tuple;
	o->count++;
}

/* Sends in n frames of these tuples, and collects what comes out. */
static bool round_pass(struct fixture *s, struct injector_stream *few, const struct sy_tuple *tuple,
                       unsigned n, enum session_direction from, uint8_t flags, struct outcome *out)
{
	*out = (struct outcome){0};
	injector_listen(&s->injector, outcome_note, out);
	for (unsigned i = 0; i < n; i++)
		frame_make(injector_frame(few, i), few->len, &tuple[i], s->port[from], flags);
	few->count = n;
	s->injector.queue[s->port[from]][0].stream = NULL; /* restart at its first frame */
	injector_give(&s->injector, s->port[from], 0, few, n);
	harness_poll(&s->harness);
	injector_listen(&s->injector, NULL, NULL);
	return out->count == n;
}

static struct sy_tuple tuple_reverse(const struct sy_tuple *t)
{
	return (struct sy_tuple){t->dst, t->src, t->dport, t->sport, t->proto};
}

/* The packets of session n, if it is one of those kept: one session in `every`. */
static void frames_keep(struct fixture *s, uint64_t n, const struct sy_tuple *client,
                        const struct sy_tuple *server)
{
	const struct sy_tuple *tuple[2] = {client, server};
	if (n % s->every != 0)
		return;
	for (unsigned side = 0; side < 2; side++) {
		const struct injector_stream *to = &s->stream[side];
		if (to->frames)
			frame_make(injector_frame(to, n / s->every), to->len, tuple[side],
			           s->port[side], SY_TCP_ACK);
	}
}

static bool sessions_begin(struct fixture *s, struct injector_stream few[2], uint64_t at,
                           unsigned n)
{
	struct sy_tuple client[SY_BURST], server[SY_BURST];
	struct outcome out;
	bool two_way = !fixture_is_one_way(s);

	for (unsigned i = 0; i < n; i++)
		client[i] = client_tuple(s);
	if (!round_pass(s, &few[SESSION_CLIENT], client, n, SESSION_CLIENT, SY_TCP_SYN, &out))
		return false;
	for (unsigned i = 0; two_way && i < n; i++)
		server[i] = tuple_reverse(&out.tuple[i]);
	if (two_way && !round_pass(s, &few[SESSION_SERVER], server, n, SESSION_SERVER,
	                           SY_TCP_SYN | SY_TCP_ACK, &out))
		return false;
	/* A datagram after an answer proves a session of UDP, as an ACK does for TCP. */
	if ((s->options.tcp || two_way) &&
	    !round_pass(s, &few[SESSION_CLIENT], client, n, SESSION_CLIENT, SY_TCP_ACK, &out))
		return false;
	for (unsigned i = 0; i < n; i++)
		frames_keep(s, at + i, &client[i], &server[i]);
	return true;
}

/* At least 20 bytes of transport: tests/soak/soak_frame.h makes no checksum for less. */
static uint32_t frame_len(const struct fixture *s, bool v6)
{
	unsigned min = SY_ETH_LEN + (v6 ? sizeof(struct sy_ipv6) : sizeof(struct sy_ipv4)) +
	               sizeof(struct sy_tcp);
	return s->options.frame_len > min ? s->options.frame_len : min;
}

static void drops_report(const struct fixture *s)
{
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++) {
		uint64_t n = harness_drops(&s->harness, (enum sy_drop)reason);
		if (n)
			fprintf(stderr, " %llu %s", (unsigned long long)n,
			        sy_drop_name((enum sy_drop)reason));
	}
	fprintf(stderr, "\n");
}

static bool sessions_make(struct fixture *s)
{
	const struct fixture_options *o = &s->options;
	struct injector_stream few[2] = {{0}};
	const uint32_t len[2] = {frame_len(s, o->client_v6), frame_len(s, o->server_v6)};
	bool ok = true;

	if (o->sessions == 0)
		return true;
	s->every = (o->sessions + FIXTURE_FRAMES - 1) / FIXTURE_FRAMES;
	for (unsigned side = 0; side < (fixture_is_one_way(s) ? 1 : 2); side++)
		ok = ok && injector_stream_open(&few[side], SY_BURST, len[side]) &&
		     injector_stream_open(&s->stream[side], (o->sessions + s->every - 1) / s->every,
		                          len[side]);
	if (!ok)
		fprintf(stderr, "no memory for the packets of the sessions\n");
	for (uint64_t at = 0; ok && at < o->sessions; at += SY_BURST) {
		uint64_t left = o->sessions - at;
		ok = sessions_begin(s, few, at, left < SY_BURST ? (unsigned)left : SY_BURST);
		if (!ok) {
			fprintf(stderr, "session %llu or the next ones were not made:",
			        (unsigned long long)at);
			drops_report(s);
		}
	}
	for (unsigned side = 0; side < 2; side++)
		injector_stream_close(&few[side]);
	return ok;
}

bool fixture_brief(struct fixture *s, struct injector_stream *to, uint64_t count)
{
	if (!injector_stream_open(to, count, frame_len(s, s->options.client_v6)))
		return false;
	for (uint64_t n = 0; n < count; n++) {
		struct sy_tuple t = client_tuple(s);
		t.dport = htons(BRIEF_PORT);
		t.proto = SY_PROTO_UDP;
		frame_make(injector_frame(to, n), to->len, &t, s->port[SESSION_CLIENT], 0);
	}
	return true;
}

bool fixture_open(struct fixture *s, const struct fixture_options *o)
{
	bool snat = o->mode == MODE_SNAT;
	*s = (struct fixture){.options = *o, .random = o->seed};
	s->port[SESSION_CLIENT] = snat ? HARNESS_LAN : HARNESS_WAN;
	s->port[SESSION_SERVER] = snat ? HARNESS_WAN : HARNESS_LAN;
	sy_slot_init();
	if (!harness_make(s) || !configure(s))
		return false;
	if (!injector_open(&s->injector, &s->harness)) {
		fprintf(stderr, "no packet buffers\n");
		return false;
	}
	return sessions_make(s);
}

void fixture_close(struct fixture *s)
{
	injector_close(&s->injector);
	for (unsigned side = 0; side < 2; side++)
		injector_stream_close(&s->stream[side]);
	harness_discard(&s->harness);
}

/* ---- packet order ---------------------------------------------------------------------------- */

void fixture_shuffle(struct fixture *s, enum session_direction from)
{
	struct injector_stream *all = &s->stream[from];
	uint8_t hand[2048];
	for (uint64_t n = all->count; n > 1; n--) {
		uint8_t *a = injector_frame(all, n - 1);
		uint8_t *b = injector_frame(all, measure_random(&s->random) % n);
		memcpy(hand, a, all->stride);
		memcpy(a, b, all->stride);
		memcpy(b, hand, all->stride);
	}
}

bool fixture_draw_zipf(struct fixture *s, enum session_direction from, uint64_t count)
{
	struct injector_stream drawn, *all = &s->stream[from];
	double sessions = (double)all->count;
	if (!injector_stream_open(&drawn, count, all->len))
		return false;
	for (uint64_t n = 0; n < count; n++) {
		/* Rank r: log((r + 1) / r), close to 1/r, out of log(sessions + 1). */
		double u = (double)(measure_random(&s->random) >> 11) * 0x1p-53;
		uint64_t rank = (uint64_t)pow(sessions + 1, u) - 1;
		memcpy(injector_frame(&drawn, n), injector_frame(all, rank % all->count),
		       all->stride);
	}
	injector_stream_close(all);
	*all = drawn;
	return true;
}

/* ---- evidence -------------------------------------------------------------------------------- */

uint64_t fixture_drops(const struct fixture *s)
{
	uint64_t all = 0;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		all += harness_drops(&s->harness, (enum sy_drop)reason);
	return all;
}

/* Between fast and slow path, in this file's own pipeline. */
static uint64_t slow_packets;

static void slow_count(struct sy_worker *w, struct sy_burst *burst)
{
	for (unsigned i = 0; i < burst->count; i++)
		slow_packets += burst->next[i] == SY_NEXT_SLOW;
}

bool fixture_check(struct fixture *s, uint64_t n)
{
	const struct sy_stage *as_ever = s->harness.rt->options.pipeline;
	struct sy_stage checked[] = {{"classify", sy_classify_stage}, {"look up", sy_lookup_stage},
	                             {"fast path", sy_fast_stage},    {"count", slow_count},
	                             {"slow path", sy_slow_stage},    {"event", sy_event_stage},
	                             {"transmit", sy_transmit_stage}, {NULL, NULL}};
	uint64_t sent = 0, due = 0, drops = fixture_drops(s);
	slow_packets = 0;
	for (unsigned side = 0; side < 2; side++) {
		if (!s->stream[side].frames)
			continue;
		injector_give(&s->injector, s->port[side], 0, &s->stream[side], n);
		due += n;
	}
	for (unsigned p = 0; p < HARNESS_PORTS; p++)
		sent -= s->injector.queue[p][0].sent;
	s->harness.rt->options.pipeline = checked;
	harness_poll(&s->harness);
	s->harness.rt->options.pipeline = as_ever;
	for (unsigned p = 0; p < HARNESS_PORTS; p++)
		sent += s->injector.queue[p][0].sent;
	if (sent == due && slow_packets == 0 && fixture_drops(s) == drops)
		return true;
	fprintf(stderr, "of %llu packets %llu were sent, %llu took the slow path\n",
	        (unsigned long long)due, (unsigned long long)sent,
	        (unsigned long long)slow_packets);
	return false;
}
