// SPDX-License-Identifier: Apache-2.0
/* Services in every mode that become unavailable, and checks of what their clients get. */
#ifndef UNAVAILABLE_FIXTURE_H
#define UNAVAILABLE_FIXTURE_H

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

static inline struct counted counted(struct flows *f, const struct service_key *key)
{
	pb_response *response;
	const Steelyard__Forwarder__V1__ServiceStats *s = flows_stats(f, key, &response);
	struct counted c = {0, 0};
	if (s && s->unavailable)
		c = (struct counted){s->unavailable->resets, s->unavailable->icmp};
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return c;
}

static inline struct counted counted_unknown(struct flows *f)
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

static inline void inject(struct flows *f, const struct frame *in)
{
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in->bytes, in->len));
}

static inline void ignore_sent(struct flows *f)
{
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port));)
			rte_pktmbuf_free(m);
}

static inline uint64_t drops_all(const struct flows *f)
{
	uint64_t sum = 0;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		sum += harness_drops(&f->harness, reason);
	return sum;
}

/* RFC 9293 3.10.7.1. */
static inline void check_reset(const struct frame *in, const struct sy_view *before,
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
static inline void check_error(const struct frame *in, const struct sy_view *before,
                               const struct frame *out, const struct sy_view *v)
{
	assert_int_equal(v->proto, v->v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6);
	assert_int_equal(v->icmp_type, v->v4 ? 3 : 1);
	assert_int_equal(v->icmp_code, v->v4 ? 3 : 4);
	assert_memory_equal(out->bytes + v->l4 + 8, in->bytes + before->l3, 28);
	assert_true(v->l4_len <= before->frame_len - before->l3 + 8);
}

/* Sends a client's packet; checks its answer, and that it is dropped once, by this name. */
static inline void check(struct flows *f, const struct frame *in, enum answer want,
                         enum sy_drop reason)
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

static inline enum answer answer_of(enum setting setting, uint8_t proto)
{
	if (setting == DROP)
		return NOTHING;
	return setting == ICMP || proto == SY_PROTO_UDP ? AN_ERROR : A_RESET;
}

/* An echo request to the VIP is answered all the same. */
static inline void check_echo(struct flows *f, const struct sy_tuple *client)
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

static inline struct sy_tuple next_client(struct trial *t)
{
	return client_of(t->way, t->proto, t->port++);
}

static inline void configure(struct trial *t, enum cause cause, bool defended)
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
static inline enum sy_drop begin(struct trial *t)
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
static inline void end(struct trial *t)
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

static inline int setup(void **state)
{
	return ways_setup(state, ways, WAYS);
}

static inline int setup_two(void **state)
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

#endif
