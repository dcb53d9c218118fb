// SPDX-License-Identifier: Apache-2.0
/* Millions of forged packets against live connections in every mode: none ends, none reaches
 * another server, and all carry data both ways as before. The attacker knows the client's addresses
 * and ports or guesses them, and tries windows one after the other. The ends answer as RFC 5961
 * says. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <sy_tcp_segment.h>

#include "flows.h"

#define SYN SY_TCP_SYN
#define ACK SY_TCP_ACK
#define RST SY_TCP_RST
#define FIN SY_TCP_FIN

#ifdef __SANITIZE_ADDRESS__
#define FORGED 300000u
#define STEP   5000u
#else
#define FORGED 10000000u
#define STEP   50000u
#endif

#define WINDOW   65535u
#define C_NUMBER 0xfffff000u
#define S_NUMBER 0xffffff00u
#define TWINS    2 /* connections of each kind */

#define TOA STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA
#define V2  STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2

static const struct kind {
	const char *vip, *server;
	enum mode mode;
	int how; /* client address */
	bool defended;
} kinds[] = {
        {"192.0.2.20", "10.0.0.21", MODE_FNAT, 0, false},
        {"2001:db8:a::20", "2001:db8:b::21", MODE_FNAT, 0, false},
        {"2001:db8:a::21", "10.0.0.22", MODE_FNAT, 0, false},
        {"192.0.2.21", "2001:db8:b::22", MODE_FNAT, 0, false},
        {"192.0.2.22", "10.0.0.23", MODE_NAT, 0, false},
        {"192.0.2.23", "10.0.0.24", MODE_FNAT, TOA, false},
        {"192.0.2.24", "10.0.0.25", MODE_FNAT, V2, false},
        {"192.0.2.30", "10.0.0.31", MODE_FNAT, 0, true},
        {"2001:db8:a::30", "2001:db8:b::31", MODE_FNAT, 0, true},
        {"2001:db8:a::31", "10.0.0.32", MODE_FNAT, 0, true},
        {"192.0.2.32", "10.0.0.33", MODE_NAT, 0, true},
        {"192.0.2.33", "10.0.0.34", MODE_FNAT, TOA, true},
        {"192.0.2.34", "10.0.0.35", MODE_FNAT, V2, true},
        {"192.0.2.40", "10.3.0.1", MODE_DR, 0, false},
        {"2001:db8:a::40", "2001:db8:d::1", MODE_DR, 0, false},
        {"192.0.2.41", "10.0.0.42", MODE_IPIP, 0, false},
        {"2001:db8:a::41", "2001:db8:b::42", MODE_IPIP, 0, false},
        {"198.18.9.9", NULL, MODE_SNAT, 0, false},
};

/* One end of a connection; numbers as it counts. */
struct end {
	struct sy_tuple sends, gets;
	uint32_t next, expects;
	bool owes; /* an ACK, as it got a segment that is not acceptable */
};

struct life {
	const struct kind *kind;
	struct end end[2]; /* by enum session_direction */
	bool one_way;
	uint32_t server; /* id */
	uint16_t local_port;
	uint32_t window; /* that the attacker tries next */
};

static struct life lives[TWINS * SY_ARRAY_LEN(kinds)];

static bool is_snat(const struct life *l)
{
	return l->kind->mode == MODE_SNAT;
}

/* The port at which an end is. */
static unsigned port_of(const struct life *l, unsigned side)
{
	return (side == SESSION_CLIENT) != is_snat(l) ? HARNESS_WAN : HARNESS_LAN;
}

static struct sy_tuple reversed(const struct sy_tuple *t)
{
	return (struct sy_tuple){t->dst, t->src, t->dport, t->sport, t->proto};
}

/* ---- segments -------------------------------------------------------------------------------- */

static void inject(struct flows *f, unsigned port, const struct sy_tuple *t, uint8_t flags,
                   uint32_t seq, uint32_t ack, unsigned payload)
{
	static const uint8_t peer[6] = {2, 0, 0, 0, 9, 9};
	const struct sy_tcp_segment s = {
	        .seq = seq,
	        .ack = ack,
	        .flags = flags,
	        .window = 1000,
	        .options = {.mss = flags & SYN ? 1460 : 0, .scale = SY_TCP_NO_SCALE}};
	struct frame in = {.len = 0};
	struct sy_view v;
	memcpy(in.bytes, harness_mac[HARNESS_WAN], 6);
	memcpy(in.bytes + 6, peer, 6);
	in.len = (uint16_t)sy_tcp_segment_make(in.bytes, sizeof(in.bytes), t, &s);
	if (payload) {
		assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
		if (v.v4)
			((struct sy_ipv4 *)(in.bytes + v.l3))->total_length =
			        htons((uint16_t)(in.len - SY_ETH_LEN + payload));
		else
			((struct sy_ipv6 *)(in.bytes + v.l3))->payload_length =
			        htons((uint16_t)(v.l4_len + payload));
		memset(in.bytes + in.len, (int)seq, payload);
		in.len = (uint16_t)(in.len + payload);
		frame_fix_ip(&in);
		frame_fix_l4(&in);
	}
	assert_true(harness_inject(&f->harness, port, in.bytes, in.len));
}

static void send_from(struct flows *f, struct life *l, unsigned side, uint8_t flags, uint32_t seq,
                      uint32_t ack, unsigned payload)
{
	inject(f, port_of(l, side), &l->end[side].sends, flags, seq, ack, payload);
	harness_poll(&f->harness);
}

struct got {
	struct sy_tuple tuple;
	struct sy_tcp tcp;
	unsigned payload;
};

/* Takes a tunnel's header off; both packets have one address family. Returns the new length. */
static uint32_t unwrap(uint8_t *frame, uint32_t len)
{
	bool v4 = frame[12] == 0x08;
	uint8_t proto = frame[SY_ETH_LEN + (v4 ? offsetof(struct sy_ipv4, proto) : 6)];
	uint32_t outer = v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
	if (proto != (v4 ? 4 : 41))
		return len;
	memmove(frame + SY_ETH_LEN, frame + SY_ETH_LEN + outer, len - SY_ETH_LEN - outer);
	return len - outer;
}

static bool collect(struct flows *f, unsigned port, struct got *g)
{
	for (;;) {
		struct rte_mbuf *m = harness_collect(&f->harness, port);
		struct sy_view v;
		if (!m)
			return false;
		uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
		uint32_t len = rte_pktmbuf_data_len(m);
		len = unwrap(frame, len);
		assert_int_equal(sy_packet_parse(frame, len, &v), SY_DROP_NONE);
		bool tcp = v.proto == SY_PROTO_TCP;
		if (tcp) {
			g->tuple = v.tuple;
			g->tcp = *sy_packet_tcp(frame, &v);
			g->payload = v.l4_len - (g->tcp.offset >> 4) * 4u;
		}
		rte_pktmbuf_free(m);
		if (tcp)
			return true;
	}
}

/* The next segment must be this. */
static void take(struct flows *f, unsigned port, struct got *g, uint8_t flags)
{
	assert_true(collect(f, port, g));
	assert_int_equal(g->tcp.flags & ~SY_TCP_PSH, flags);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* What an end does with a segment that the other end did not send. */
static void end_get(struct end *e, const struct got *g)
{
	uint32_t seq = ntohl(g->tcp.seq), ack = ntohl(g->tcp.ack);
	if (g->tcp.flags & RST) {
		assert_int_not_equal(seq, e->expects); /* the attacker has guessed 32 bits */
		e->owes |= seq - e->expects < WINDOW;
		return;
	}
	e->owes |= g->tcp.flags & SYN || seq - e->expects >= WINDOW || e->next - ack > WINDOW;
}

/* Delivers frames to the ends, except one that matches *want. Returns whether that came. */
static bool deliver(struct flows *f, const struct end *to, uint32_t seq, unsigned payload,
                    uint32_t *ack)
{
	struct got g;
	bool came = false;
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		while (collect(f, port, &g)) {
			for (unsigned n = 0; n < 2 * SY_ARRAY_LEN(lives); n++) {
				struct end *e = &lives[n / 2].end[n % 2];
				if (memcmp(&e->gets, &g.tuple, sizeof(g.tuple)) != 0)
					continue;
				if (e == to && ntohl(g.tcp.seq) == seq && g.payload == payload &&
				    (g.tcp.flags & ~SY_TCP_PSH) == ACK) {
					came = true;
					*ack = ntohl(g.tcp.ack);
				} else {
					end_get(e, &g);
				}
				break;
			}
		}
	return came;
}

static void answer(struct flows *f)
{
	for (unsigned n = 0; n < 2 * SY_ARRAY_LEN(lives); n++) {
		struct life *l = &lives[n / 2];
		struct end *e = &l->end[n % 2];
		if (!e->owes)
			continue;
		e->owes = false;
		/* a one-way server's answers take another way */
		if (n % 2 == SESSION_CLIENT || !l->one_way)
			inject(f, port_of(l, n % 2), &e->sends, ACK, e->next, e->expects, 0);
	}
}

/* Sends data from one end, which must reach the other with its numbers. */
static void pass(struct flows *f, struct life *l, unsigned side, unsigned payload)
{
	struct end *from = &l->end[side], *to = &l->end[!side];
	uint32_t ack = 0;
	deliver(f, NULL, 0, 0, &ack);
	send_from(f, l, side, ACK, from->next, from->expects, payload);
	if (!deliver(f, to, to->expects, payload, &ack)) {
		const struct session *s = flows_find(f, &l->end[SESSION_CLIENT].sends);
		fail_msg("%s: data of side %u does not arrive; state %s", l->kind->vip, side,
		         s ? session_state_name(s->state) : "none");
	}
	if (!l->one_way)
		assert_int_equal(ack, to->next);
	from->next += payload;
	to->expects += payload;
}

static void check_life(struct flows *f, struct life *l)
{
	const uint32_t alive =
	        1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT | 1u << SESSION_CLOSING;
	if (!l->one_way)
		pass(f, l, SESSION_SERVER, 50);
	pass(f, l, SESSION_CLIENT, 100);
	const struct session *s = flows_find(f, &l->end[SESSION_CLIENT].sends);
	assert_non_null(s);
	assert_int_equal(s->server, l->server);
	assert_int_equal(s->local_port, l->local_port);
	if (!(alive >> s->state & 1))
		fail_msg("%s: state %s", l->kind->vip, session_state_name(s->state));
}

/* The client's SYN, and its ACK to a cookie. Returns the SYN that the server gets. */
static struct got open_client(struct flows *f, struct life *l)
{
	struct end *client = &l->end[SESSION_CLIENT];
	struct got g;
	send_from(f, l, SESSION_CLIENT, SYN, C_NUMBER, 0, 0);
	client->next = C_NUMBER + 1;
	if (l->kind->defended) {
		take(f, HARNESS_WAN, &g, SYN | ACK);
		client->expects = ntohl(g.tcp.seq) + 1;
		send_from(f, l, SESSION_CLIENT, ACK, client->next, client->expects, 0);
	}
	take(f, port_of(l, SESSION_SERVER), &g, SYN);
	return g;
}

static void open_life(struct flows *f, struct life *l)
{
	struct end *client = &l->end[SESSION_CLIENT], *server = &l->end[SESSION_SERVER];
	struct got g = open_client(f, l);
	server->gets = g.tuple;
	server->next = S_NUMBER + 1;
	server->expects = ntohl(g.tcp.seq) + 1;
	if (l->one_way) {
		client->expects = S_NUMBER + 1;
	} else {
		server->sends = reversed(&g.tuple);
		send_from(f, l, SESSION_SERVER, SYN | ACK, S_NUMBER, server->expects, 0);
		if (!l->kind->defended) {
			take(f, port_of(l, SESSION_CLIENT), &g, SYN | ACK);
			client->expects = ntohl(g.tcp.seq) + 1;
		}
	}
	if (!l->kind->defended)
		send_from(f, l, SESSION_CLIENT, ACK, client->next, client->expects, 0);
	while (collect(f, port_of(l, SESSION_SERVER), &g)) /* perhaps with a PROXY header */
		server->expects = ntohl(g.tcp.seq) + g.payload;
	if (!l->one_way)
		send_from(f, l, SESSION_SERVER, ACK, server->next, server->expects, 0);
	while (collect(f, port_of(l, SESSION_CLIENT), &g))
		;
	const struct session *s = flows_find(f, &client->sends);
	assert_non_null(s);
	assert_int_equal(s->state, SESSION_ESTABLISHED);
	l->server = s->server;
	l->local_port = s->local_port;
}

static void put_kinds(struct flows *f)
{
	static const char *const pool[] = {"192.0.2.50"};
	struct changes c = {0};
	for (unsigned i = 0; i < SY_ARRAY_LEN(kinds); i++) {
		const struct kind *k = &kinds[i];
		if (!k->server) {
			put_snat(&c, "out", "10.3.0.0", 24, pool, 1);
			continue;
		}
		const struct service_key key = harness_key(k->vip, 80, SY_PROTO_TCP);
		const struct sy_addr server = harness_addr(k->server);
		bool direct = k->mode == MODE_DR || k->mode == MODE_IPIP;
		pb_service *s = put_service(&c, &key, k->vip, FLOW_RR, NULL);
		if (k->defended)
			s->syn_defence = STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS;
		s->client_address = (Steelyard__Forwarder__V1__ClientAddress)k->how;
		set_mode(&c, k->mode);
		put_server(&c, &key, &server, direct ? 80 : 8080, 1, FLOW_UP);
	}
	flows_commit(f, &c);
}

static int setup(void **state)
{
	int rc = flows_setup(state);
	if (rc)
		return rc;
	put_kinds(*state);
	memset(lives, 0, sizeof(lives));
	for (unsigned n = 0; n < SY_ARRAY_LEN(lives); n++) {
		struct life *l = &lives[n];
		l->kind = &kinds[n / TWINS];
		l->one_way = l->kind->mode == MODE_DR || l->kind->mode == MODE_IPIP;
		const struct sy_addr vip = harness_addr(l->kind->vip);
		const char *client = is_snat(l)            ? "10.3.0.1"
		                     : sy_addr_is_v4(&vip) ? "198.18.0.1"
		                                           : "2001:db8:c::1";
		l->end[SESSION_CLIENT].sends =
		        (struct sy_tuple){harness_addr(client), vip, htons((uint16_t)(40000 + n)),
		                          htons(80), SY_PROTO_TCP};
		l->end[SESSION_CLIENT].gets = reversed(&l->end[SESSION_CLIENT].sends);
		open_life(*state, l);
	}
	return 0;
}

/* ---- the attacker ---------------------------------------------------------------------------- */

static uint32_t number(struct rng *r)
{
	return rng_below(r, 65536) << 16 | rng_below(r, 65536);
}

/* Windows one after the other: whatever the real number is, one of 131 072 tries is near. Never the
 * number itself. */
static uint32_t next_window(struct life *l, uint32_t real)
{
	l->window += 32749;
	return l->window - real + 8 <= 16 ? l->window + 100 : l->window;
}

/* In the name of one end, whose addresses and ports the attacker knows: under SNAT the remote's;
 * otherwise the client's, or its twin's server's. */
static void forge_known(struct flows *f, struct life *l)
{
	static const uint8_t kinds_of_flags[] = {RST, RST | ACK, FIN | ACK, FIN | ACK,       ACK,
	                                         ACK, SYN,       SYN,       SYN | ACK,       FIN,
	                                         0,   RST | SYN, FIN | RST, SY_TCP_PSH | ACK};
	bool twin = (l - lives) % 2;
	unsigned side = is_snat(l) || (twin && !l->one_way) ? SESSION_SERVER : SESSION_CLIENT;
	const struct end *e = &l->end[side];
	uint8_t flags = kinds_of_flags[rng_below(&f->rng, SY_ARRAY_LEN(kinds_of_flags))];
	uint32_t seq = rng_percent(&f->rng, 50) ? number(&f->rng) : next_window(l, e->next);
	uint32_t ack = rng_percent(&f->rng, 50) ? number(&f->rng) : next_window(l, e->expects);
	unsigned payload = flags & ACK && rng_percent(&f->rng, 10) ? 20 : 0;
	inject(f, port_of(l, side), &e->sends, flags, seq, ack, payload);
}

/* To a live connection's ends, with addresses or ports that are guessed. */
static void forge_guess(struct flows *f, struct life *l)
{
	static const uint8_t flags[] = {RST, SYN, ACK, FIN | ACK, SYN | ACK, RST | ACK};
	unsigned side = rng_below(&f->rng, 2);
	struct sy_tuple t = l->end[side].sends;
	if (l->one_way || is_snat(l))
		t = l->end[SESSION_CLIENT].sends;
	uint32_t port = rng_below(&f->rng, 65536);
	if (side == SESSION_SERVER && !l->one_way)
		t.dport = (uint16_t)port;
	else if (rng_percent(&f->rng, 50))
		t.sport = (uint16_t)port;
	else
		t.src.b[15] = (uint8_t)(2 + rng_below(&f->rng, 250));
	for (unsigned n = 0; n < 2 * SY_ARRAY_LEN(lives); n++)
		if (memcmp(&lives[n / 2].end[n % 2].sends, &t, sizeof(t)) == 0)
			return; /* the right guess: forge_known() does that */
	inject(f, side == SESSION_SERVER ? HARNESS_LAN : HARNESS_WAN, &t,
	       flags[rng_below(&f->rng, SY_ARRAY_LEN(flags))], number(&f->rng), number(&f->rng), 0);
}

static void test_forged_packets(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < SY_ARRAY_LEN(lives); n++)
		check_life(f, &lives[n]);
	for (unsigned n = 0; n < FORGED;) {
		uint32_t ack;
		for (unsigned end = n + SY_BURST; n < end; n++) {
			struct life *l = &lives[rng_below(&f->rng, SY_ARRAY_LEN(lives))];
			if (rng_percent(&f->rng, 70))
				forge_known(f, l);
			else
				forge_guess(f, l);
		}
		harness_poll(&f->harness);
		deliver(f, NULL, 0, 0, &ack);
		answer(f);
		harness_poll(&f->harness);
		if (n % STEP >= SY_BURST)
			continue;
		for (unsigned i = 0; i < SY_ARRAY_LEN(lives); i++)
			check_life(f, &lives[i]);
		flows_advance(f, 1);
	}
	for (unsigned second = 0; second < 5; second++) { /* the last probes are answered */
		uint32_t ack;
		flows_advance(f, 1);
		deliver(f, NULL, 0, 0, &ack);
		answer(f);
		harness_poll(&f->harness);
	}
	for (unsigned i = 0; i < SY_ARRAY_LEN(lives); i++)
		check_life(f, &lives[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_forged_packets, setup, flows_teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
