// SPDX-License-Identifier: Apache-2.0
/* What clients get while a service is unavailable, or a VIP has no service on their port: every
 * mode, family, cause and setting, with one and two workers, with and without the SYN defence. */
#include "ways.h"

enum setting { BY_DEFAULT, DROP, RESET, ICMP, SETTINGS };
enum cause { DOWN, DRAIN, WEIGHT_0, KILL, NO_SERVERS, SERVER_FULL, SERVICE_FULL, CAUSES };
enum answer { NOTHING, A_RESET, AN_ERROR };

static const struct way ways[] = {
        {MODE_FNAT, false, false, 60, "10.3.0.1"},
        {MODE_NAT, false, false, 61, "10.3.0.1"},
        {MODE_DR, false, false, 62, "10.3.0.1"},
        {MODE_IPIP, false, false, 63, "10.0.0.91"},
        {MODE_IPIP, false, true, 64, "2001:db8:b::91"},
        {MODE_FNAT, false, true, 65, "2001:db8:d::1"},
        {MODE_FNAT, true, false, 66, "10.3.0.1"},
        {MODE_FNAT, true, true, 67, "2001:db8:d::1"},
        {MODE_NAT, true, true, 68, "2001:db8:d::1"},
        {MODE_DR, true, true, 69, "2001:db8:d::1"},
        {MODE_IPIP, true, true, 70, "2001:db8:b::91"},
};
#define WAYS SY_ARRAY_LEN(ways)

static const int on_wire[SETTINGS] = {
        STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_UNSPECIFIED,
        STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_DROP,
        STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_RESET,
        STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_ICMP,
};

/* What a service has so far, as ListServices says. */
struct counted {
	uint64_t resets, icmp;
};

static struct counted counted(struct flows *f, const struct service_key *key)
{
	pb_response *response;
	const Steelyard__Forwarder__V1__ServiceStats *s = flows_stats(f, key, &response);
	struct counted c = {0, 0};
	if (s && s->unavailable)
		c = (struct counted){s->unavailable->resets, s->unavailable->icmp};
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return c;
}

static struct counted counted_unknown(struct flows *f)
{
	Steelyard__Forwarder__V1__StatusRequest ask =
	        STEELYARD__FORWARDER__V1__STATUS_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	struct counted c = {0, 0};
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS;
	q.status = &ask;
	pb_response *response = harness_request(&f->harness, &q);
	assert_null(response->error);
	if (response->status->unknown_ports)
		c = (struct counted){response->status->unknown_ports->resets,
		                     response->status->unknown_ports->icmp};
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return c;
}

/* ---- packets in, answers out ----------------------------------------------------------------- */

static void inject(struct flows *f, const struct frame *in)
{
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in->bytes, in->len));
}

static void ignore_sent(struct flows *f)
{
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port));)
			rte_pktmbuf_free(m);
}

static uint64_t drops_all(const struct flows *f)
{
	uint64_t sum = 0;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		sum += harness_drops(&f->harness, reason);
	return sum;
}

/* RFC 9293 3.10.7.1. */
static void check_reset(const struct frame *in, const struct sy_view *before,
                        const struct frame *out, const struct sy_view *v)
{
	const struct sy_tcp *asked = sy_packet_tcp(in->bytes, before);
	const struct sy_tcp *reset = sy_packet_tcp(out->bytes, v);
	assert_int_equal(v->proto, SY_PROTO_TCP);
	if (asked->flags & SY_TCP_ACK) {
		assert_int_equal(reset->flags, SY_TCP_RST);
		assert_int_equal(reset->seq, asked->ack);
		return;
	}
	assert_int_equal(reset->flags, SY_TCP_RST | SY_TCP_ACK);
	assert_int_equal(reset->seq, 0);
	assert_int_equal(ntohl(reset->ack),
	                 ntohl(asked->seq) + before->l4_len - (asked->offset >> 4) * 4u + 1);
}

/* Port unreachable, which quotes the packet. */
static void check_error(const struct frame *in, const struct sy_view *before,
                        const struct frame *out, const struct sy_view *v)
{
	assert_int_equal(v->proto, v->v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6);
	assert_int_equal(v->icmp_type, v->v4 ? 3 : 1);
	assert_int_equal(v->icmp_code, v->v4 ? 3 : 4);
	assert_memory_equal(out->bytes + v->l4 + 8, in->bytes + before->l3, 28);
	assert_true(v->l4_len <= before->frame_len - before->l3 + 8);
}

/* Sends a client's packet; checks its answer, and that it is dropped once, by this name. */
static void check(struct flows *f, const struct frame *in, enum answer want, enum sy_drop reason)
{
	const uint64_t named = harness_drops(&f->harness, reason), all = drops_all(f);
	struct sy_view before, v;
	struct frame out;
	assert_int_equal(sy_packet_parse(in->bytes, in->len, &before), SY_DROP_NONE);
	inject(f, in);
	harness_poll(&f->harness);
	assert_int_equal(harness_drops(&f->harness, reason), named + 1);
	assert_int_equal(drops_all(f), all + 1);
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
	assert_int_equal(m != NULL, want != NOTHING);
	if (m) {
		out.len = rte_pktmbuf_data_len(m);
		memcpy(out.bytes, rte_pktmbuf_mtod(m, void *), out.len);
		rte_pktmbuf_free(m);
		assert_int_equal(sy_packet_parse(out.bytes, out.len, &v), SY_DROP_NONE);
		assert_int_equal(sy_packet_check_l4(out.bytes, &v), SY_CSUM_OK);
		assert_memory_equal(out.bytes, in->bytes + 6, 6); /* to the MAC of its sender */
		assert_true(sy_addr_equal(&v.tuple.src, &before.tuple.dst));
		assert_true(sy_addr_equal(&v.tuple.dst, &before.tuple.src));
		(want == A_RESET ? check_reset : check_error)(in, &before, &out, &v);
	}
	assert_null(harness_collect(&f->harness, HARNESS_WAN));
	assert_null(harness_collect(&f->harness, HARNESS_LAN));
}

static enum answer answer_of(enum setting setting, uint8_t proto)
{
	if (setting == DROP)
		return NOTHING;
	return setting == ICMP || proto == SY_PROTO_UDP ? AN_ERROR : A_RESET;
}

/* An echo request to the VIP is answered all the same. */
static void check_echo(struct flows *f, const struct sy_tuple *client)
{
	struct sy_tuple t = *client;
	const bool v4 = sy_addr_is_v4(&t.src);
	struct frame in;
	t.proto = v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6;
	frame_icmp(&in, &f->rng, &t, v4 ? 8 : 128, 0, 20);
	inject(f, &in);
	harness_poll(&f->harness);
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
	assert_non_null(m);
	rte_pktmbuf_free(m);
}

/* ---- causes ---------------------------------------------------------------------------------- */

struct trial {
	struct flows *f;
	const struct way *way;
	enum setting setting;
	enum cause cause;
	bool defended;
	uint8_t proto;
	uint16_t port; /* of the next client */
};

static struct sy_tuple next_client(struct trial *t)
{
	return client_of(t->way, t->proto, t->port++);
}

static void configure(struct trial *t, enum cause cause, bool defended)
{
	static const int states[CAUSES] = {
	        [DOWN] = STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN,
	        [DRAIN] = STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN,
	        [KILL] = STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_KILL,
	        [WEIGHT_0] = FLOW_UP,
	        [NO_SERVERS] = FLOW_UP,
	        [SERVER_FULL] = FLOW_UP,
	        [SERVICE_FULL] = FLOW_UP,
	};
	const struct service_key key = key_of(t->way, t->proto);
	const struct sy_addr server = harness_addr(t->way->server);
	const bool moves = t->way->mode == MODE_FNAT || t->way->mode == MODE_NAT;
	const uint16_t port = moves ? 8080 + t->way->vip : 80;
	struct changes c = {0};
	pb_service *s = put_service(&c, &key, "way", FLOW_RR, NULL);
	set_mode(&c, t->way->mode);
	s->when_unavailable = on_wire[t->setting];
	s->max_sessions = cause == SERVICE_FULL;
	if (defended)
		s->syn_defence = STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS;
	if (cause == NO_SERVERS)
		delete_server(&c, &key, &server, port);
	else
		put_server(&c, &key, &server, port, cause != WEIGHT_0, states[cause])
		        ->max_sessions = cause == SERVER_FULL;
	flows_commit(t->f, &c);
}

/* Makes the service unavailable; full ones by a session. Returns by which name packets drop. */
static enum sy_drop begin(struct trial *t)
{
	struct frame in;
	if (t->cause != SERVER_FULL && t->cause != SERVICE_FULL) {
		configure(t, t->cause, t->defended);
		return SY_DROP_NO_SERVER;
	}
	const struct sy_tuple client = next_client(t);
	configure(t, t->cause, false);
	flows_frame(t->f, &in, &client, SY_TCP_SYN, 1, 0);
	inject(t->f, &in);
	harness_poll(&t->f->harness);
	assert_non_null(flows_find(t->f, &client));
	ignore_sent(t->f);
	if (t->defended)
		configure(t, t->cause, true);
	return SY_DROP_CONNECTION_LIMIT;
}

/* The service has a server again, which the next client reaches. */
static void end(struct trial *t)
{
	const struct sy_tuple client = next_client(t);
	struct frame in;
	const struct service_key key = key_of(t->way, t->proto);
	const struct sy_addr server = harness_addr(t->way->server);
	const bool moves = t->way->mode == MODE_FNAT || t->way->mode == MODE_NAT;
	struct changes c = {0};
	put_service(&c, &key, "way", FLOW_RR, NULL);
	set_mode(&c, t->way->mode);
	put_server(&c, &key, &server, moves ? 8080 + t->way->vip : 80, 1, FLOW_UP);
	flows_commit(t->f, &c);
	flows_frame(t->f, &in, &client, SY_TCP_SYN, 1, 0);
	inject(t->f, &in);
	harness_poll(&t->f->harness);
	struct rte_mbuf *m = harness_collect(&t->f->harness, HARNESS_LAN);
	assert_non_null(m);
	rte_pktmbuf_free(m);
	assert_null(harness_collect(&t->f->harness, HARNESS_WAN));
}

/* TCP segments of no session: answered while no server is up. A reset never is. */
static void check_midstream(struct trial *t)
{
	const bool none = t->cause != SERVER_FULL && t->cause != SERVICE_FULL;
	const enum sy_drop reason =
	        t->defended && (t->way->mode == MODE_FNAT || t->way->mode == MODE_NAT)
	                ? SY_DROP_BAD_COOKIE
	                : SY_DROP_NO_SESSION;
	const enum answer want = none ? answer_of(t->setting, SY_PROTO_TCP) : NOTHING;
	struct sy_tuple client = next_client(t);
	struct frame in;
	flows_frame(t->f, &in, &client, SY_TCP_ACK, 77, 100);
	check(t->f, &in, want, reason);
	flows_frame(t->f, &in, &client, SY_TCP_ACK | SY_TCP_FIN, 77, 0);
	check(t->f, &in, want, reason);
	flows_frame(t->f, &in, &client, SY_TCP_RST, 77, 0);
	check(t->f, &in, NOTHING, SY_DROP_NO_SESSION);
	flows_frame(t->f, &in, &client, SY_TCP_RST | SY_TCP_ACK, 77, 0);
	check(t->f, &in, NOTHING, SY_DROP_NO_SESSION);
	flows_frame(t->f, &in, &client, SY_TCP_ACK, 77, 100);
	in.bytes[in.len - 1] ^= 1; /* damaged on its way */
	struct sy_view v;
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
	check(t->f, &in, NOTHING, SY_DROP_NO_SESSION);
}

static void trial_run(struct trial *t)
{
	const struct service_key key = key_of(t->way, t->proto);
	const enum answer want = answer_of(t->setting, t->proto);
	/* Whether a server is full shows when it is chosen: after the cookie. */
	const bool late = t->defended && t->cause == SERVER_FULL;
	flows_advance(t->f, 1); /* the rates are full again */
	const enum sy_drop reason = begin(t);
	const struct counted before = counted(t->f, &key);
	const struct sy_tuple client = next_client(t);
	struct frame in;
	flows_frame(t->f, &in, &client, SY_TCP_SYN, 41, 0);
	if (!late) {
		check(t->f, &in, want, reason);
		const struct counted after = counted(t->f, &key);
		assert_int_equal(after.resets - before.resets, want == A_RESET);
		assert_int_equal(after.icmp - before.icmp, want == AN_ERROR);
		check(t->f, &in, want, reason); /* repeated */
	}
	if (t->proto == SY_PROTO_TCP)
		check_midstream(t);
	check_echo(t->f, &client);
	if (t->cause == KILL) /* its sessions are over */
		flows_advance(t->f, RESET_BOTH_SECONDS + 1);
	ignore_sent(t->f);
	end(t);
}

static void run_all(struct flows *f, uint8_t proto, bool defended)
{
	for (unsigned w = 0; w < WAYS; w++) {
		uint16_t port = 2000;
		for (unsigned cause = 0; cause < CAUSES; cause++)
			for (unsigned setting = 0; setting < SETTINGS; setting++) {
				struct trial t = {.f = f,
				                  .way = &ways[w],
				                  .setting = setting,
				                  .cause = cause,
				                  .defended = defended,
				                  .proto = proto,
				                  .port = port};
				/* Sessions of the trial before are over. */
				flows_advance(f, proto == SY_PROTO_TCP ? 12 : 32);
				trial_run(&t);
				port = t.port;
			}
	}
}

static void test_tcp(void **state)
{
	run_all(*state, SY_PROTO_TCP, false);
}

static void test_udp(void **state)
{
	run_all(*state, SY_PROTO_UDP, false);
}

static void test_defended(void **state)
{
	run_all(*state, SY_PROTO_TCP, true);
}

/* ---- fragments ------------------------------------------------------------------------------- */

/* Sends a datagram in two pieces. The first fragment is answered once the datagram is complete; the
 * later one is not, in either order. */
static void check_pieces(struct flows *f, const struct frame piece[2], bool late_first,
                         enum answer want, enum sy_drop reason)
{
	const uint64_t named = harness_drops(&f->harness, reason), all = drops_all(f);
	inject(f, &piece[late_first]);
	harness_poll(&f->harness);
	assert_null(harness_collect(&f->harness, HARNESS_WAN));
	inject(f, &piece[!late_first]);
	harness_poll(&f->harness);
	assert_true(harness_drops(&f->harness, reason) > named);
	assert_int_equal(drops_all(f), all + 2);
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
	assert_int_equal(m != NULL, want != NOTHING);
	if (m) {
		struct sy_view v;
		assert_int_equal(sy_packet_parse(sy_frame(m), rte_pktmbuf_data_len(m), &v),
		                 SY_DROP_NONE);
		assert_int_equal(v.proto, v.v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6);
		rte_pktmbuf_free(m);
	}
	assert_null(harness_collect(&f->harness, HARNESS_WAN));
	assert_null(harness_collect(&f->harness, HARNESS_LAN));
}

/* By ICMP, over TCP too. */
static void test_fragments(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 8 * WAYS; n++) {
		struct trial t = {.f = f,
		                  .way = &ways[n / 8],
		                  .setting = n & 1 ? ICMP : RESET,
		                  .cause = DOWN,
		                  .proto = n & 2 ? SY_PROTO_TCP : SY_PROTO_UDP,
		                  .port = (uint16_t)(3000 + n)};
		const bool late_first = n & 4;
		struct frame whole, piece[2];
		flows_advance(f, 1);
		const enum sy_drop reason = begin(&t);
		const struct service_key key = key_of(t.way, t.proto);
		const struct counted before = counted(f, &key);
		const struct sy_tuple client = next_client(&t);
		const struct segment s = {SY_TCP_SYN, 41, 0, 0};
		if (t.proto == SY_PROTO_TCP)
			frame_tcp(&whole, &f->rng, &client, &s, 300);
		else
			frame_udp(&whole, &f->rng, &client, 300);
		assert_int_equal(frame_cut(&whole, 7 + n, 200, piece, 2), 2);
		check_pieces(f, piece, late_first, AN_ERROR, reason);
		const struct counted after = counted(f, &key);
		assert_int_equal(after.icmp, before.icmp + 1);
		assert_int_equal(after.resets, before.resets);
	}
}

/* ---- ports without a service ----------------------------------------------------------------- */

static void test_unknown_ports(void **state)
{
	static const enum sy_unavailable options[] = {SY_UNAVAILABLE_DROP, SY_UNAVAILABLE_RESET,
	                                              SY_UNAVAILABLE_ICMP};
	static const enum setting as[] = {DROP, RESET, ICMP};
	struct flows *f = *state;
	assert_int_equal(f->harness.b->options.unknown_ports, SY_UNAVAILABLE_DROP);
	for (unsigned n = 0; n < SY_ARRAY_LEN(options) * WAYS; n++) {
		const struct way *way = &ways[n / 3];
		const struct counted before = counted_unknown(f);
		struct sy_tuple tcp = client_of(way, SY_PROTO_TCP, 4000);
		struct frame in, piece[2];
		f->harness.b->options.unknown_ports = options[n % 3];
		flows_advance(f, 1);
		tcp.dport = htons(4444);
		struct sy_tuple udp = tcp;
		udp.proto = SY_PROTO_UDP;
		const enum answer want = answer_of(as[n % 3], SY_PROTO_TCP);
		const enum answer error = answer_of(as[n % 3], SY_PROTO_UDP);

		flows_frame(f, &in, &tcp, SY_TCP_SYN, 41, 0);
		check(f, &in, want, SY_DROP_NO_SERVICE);
		flows_frame(f, &in, &tcp, SY_TCP_ACK, 41, 10);
		check(f, &in, want, SY_DROP_NO_SERVICE);
		flows_frame(f, &in, &tcp, SY_TCP_RST, 41, 0);
		check(f, &in, NOTHING, SY_DROP_NO_SERVICE);
		flows_frame(f, &in, &udp, 0, 0, 100);
		check(f, &in, error, SY_DROP_NO_SERVICE);
		in.bytes[in.len - 1] ^= 1; /* damaged on its way */
		check(f, &in, NOTHING, SY_DROP_NO_SERVICE);
		flows_frame(f, &in, &udp, 0, 0, 300);
		assert_int_equal(frame_cut(&in, 100 + n, 200, piece, 2), 2);
		check_pieces(f, piece, n & 1, error, SY_DROP_NO_SERVICE);
		udp.src = key_of(&ways[way->client6 ? 8 : 1], SY_PROTO_UDP).vip; /* forged: a VIP */
		if (!sy_addr_equal(&udp.src, &udp.dst)) {
			flows_frame(f, &in, &udp, 0, 0, 100);
			check(f, &in, NOTHING, SY_DROP_NO_SERVICE);
		}
		check_echo(f, &tcp);
		const struct counted after = counted_unknown(f);
		const unsigned tcps = want == NOTHING ? 0 : 2, udps = error == NOTHING ? 0 : 2;
		assert_int_equal(after.resets - before.resets, want == A_RESET ? tcps : 0);
		assert_int_equal(after.icmp - before.icmp, udps + (want == AN_ERROR ? tcps : 0));
	}
}

/* ---- others ---------------------------------------------------------------------------------- */

/* Each packet is answered, or suppressed by the rate and counted. */
static void test_rate(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 2; n++) {
		struct trial t = {.f = f,
		                  .way = &ways[0],
		                  .setting = RESET,
		                  .cause = DOWN,
		                  .proto = n ? SY_PROTO_UDP : SY_PROTO_TCP,
		                  .port = 5000};
		const enum sy_drop suppressed = n ? SY_DROP_ICMP_RATE : SY_DROP_RESET_RATE;
		const struct service_key key = key_of(t.way, t.proto);
		const unsigned packets = 2000;
		unsigned answered = 0;
		flows_advance(f, 1);
		begin(&t);
		const uint64_t before = harness_drops(&f->harness, suppressed);
		for (unsigned k = 0; k < packets; k++) {
			const struct sy_tuple client = next_client(&t);
			struct frame in;
			flows_frame(f, &in, &client, SY_TCP_SYN, 41, 0);
			inject(f, &in);
			harness_poll(&f->harness);
			for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_WAN));) {
				answered++;
				rte_pktmbuf_free(m);
			}
		}
		const struct counted sent = counted(f, &key);
		assert_true(answered > 0 && answered < packets / 2);
		assert_int_equal(n ? sent.icmp : sent.resets, answered);
		assert_int_equal(harness_drops(&f->harness, suppressed) - before,
		                 packets - answered);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SERVER), packets * (n + 1));
	}
}

/* All ports towards the server have connections. */
static void test_no_local_port(void **state)
{
	struct flows *f = *state;
	const struct sy_addr client = harness_addr("198.18.0.1");
	const uint8_t slot = sy_slot_of(&client, htons(2000));
	struct changes c = {0};
	struct flow flow;
	unsigned opened = 0;
	put_server(&c, &f->service[0], &f->server[0][1], 8080, 1,
	           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN);
	flows_commit(f, &c);
	f->options.sessions = 1024 * SY_SLOTS;
	flows_reopen(f, f->options.workers, 0, false);
	for (unsigned n = 0; n < SY_SLOT_PORTS - 4; n++, opened++) {
		f->client = n / 100;
		struct sy_addr from = client;
		from.h[7] ^= htons((uint16_t)f->client);
		flow_open(f, &flow, 0, ntohs(sy_slot_port(slot, &from, n % 100 + 8)));
	}
	for (unsigned setting = 0; setting < SETTINGS; setting++) {
		struct frame in;
		struct sy_tuple t = flow.client;
		put_service(&c, &f->service[0], "service", FLOW_RR, NULL)->when_unavailable =
		        on_wire[setting];
		flows_commit(f, &c);
		t.src.h[7] ^= htons(0x700);
		t.sport = sy_slot_port(slot, &t.src, 20);
		flows_frame(f, &in, &t, SY_TCP_SYN, 41, 0);
		check(f, &in, answer_of(setting, SY_PROTO_TCP), SY_DROP_NO_LOCAL_PORT);
	}
}

/* A client's session stays on a server that is down; its SYN from the same port is refused. */
static void test_reopened(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct frame in;
	struct flow flow, udp;
	flow_open(f, &flow, 0, 6000);
	flow_open(f, &udp, 1, 6000);
	for (unsigned n = 0; n < 2 * FLOW_SERVERS; n++)
		put_server(&c, &f->service[n % 2], &f->server[n % 2][n / 2], n % 2 ? 5353 : 8080, 1,
		           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN);
	flows_commit(f, &c);
	flows_frame(f, &in, &flow.client, SY_TCP_SYN, 41, 0);
	check(f, &in, A_RESET, SY_DROP_NO_SERVER);
	assert_non_null(flow_session(f, &flow));
	flows_frame(f, &in, &udp.client, 0, 0, 100);
	check(f, &in, AN_ERROR, SY_DROP_NO_SERVER);
	assert_null(flow_session(f, &udp));
}

/* With `resets: unknown` a segment gets one reset, not two. */
static void test_resets_unknown(void **state)
{
	struct trial t = {.f = *state,
	                  .way = &ways[0],
	                  .setting = RESET,
	                  .cause = DOWN,
	                  .proto = SY_PROTO_TCP,
	                  .port = 7000};
	const struct service_key key = key_of(t.way, t.proto);
	struct changes c = {0};
	struct frame in;
	begin(&t);
	pb_service *s = put_service(&c, &key, "way", FLOW_RR, NULL);
	set_resets(&c, s, false, false, true);
	flows_commit(t.f, &c);
	const struct sy_tuple client = next_client(&t);
	flows_frame(t.f, &in, &client, SY_TCP_ACK, 77, 100);
	check(t.f, &in, A_RESET, SY_DROP_NO_SESSION);
}

/* The next process answers as this one did, whether it reads the snapshot or the journal; a setting
 * that no forwarder knows is refused. */
static void test_saved(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	const struct sy_addr server = harness_addr(ways[0].server);
	const struct service_key key = key_of(&ways[0], SY_PROTO_TCP);
	for (unsigned setting = 0; setting < SETTINGS; setting++)
		for (unsigned crash = 0; crash < 2; crash++) {
			struct trial t = {.f = f,
			                  .way = &ways[0],
			                  .setting = setting,
			                  .cause = DOWN,
			                  .proto = SY_PROTO_TCP,
			                  .port = 8000};
			begin(&t);
			flows_reopen(f, 1 + crash, crash ? 0 : 7, crash);
			const struct sy_tuple client = next_client(&t);
			struct frame in;
			flows_frame(f, &in, &client, SY_TCP_SYN, 41, 0);
			check(f, &in, answer_of(setting, SY_PROTO_TCP), SY_DROP_NO_SERVER);
		}
	pb_service *s = put_service(&c, &key, "way", FLOW_RR, NULL);
	s->when_unavailable = 9;
	put_server(&c, &key, &server, 8140, 1, FLOW_UP);
	flows_check_refused(f, &c, "unknown when_unavailable 9; known: drop, reset, icmp");
}

static int setup(void **state)
{
	return ways_setup(state, ways, WAYS);
}

static int setup_two(void **state)
{
	int rc = setup(state);
	flows_reopen(*state, 2, 0, false);
	return rc;
}

#define TEST(name)                                                                                 \
	cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown),                       \
	{                                                                                          \
		"test_" #name ", two workers", test_##name, setup_two, flows_teardown, NULL        \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(tcp),           TEST(udp),      TEST(defended),
	        TEST(fragments),     TEST(rate),     TEST(unknown_ports),
	        TEST(no_local_port), TEST(reopened), TEST(resets_unknown),
	        TEST(saved),
	};
	return cmocka_run_group_tests_name("unavailable", tests, NULL, NULL);
}
