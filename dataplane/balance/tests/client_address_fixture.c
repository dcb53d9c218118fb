// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client_address_fixture.h"
#include "end.h"

static const char v1_4[] = "PROXY TCP4 198.18.0.1 192.0.2.10 1025 80\r\n";
static const char v1_6[] = "PROXY TCP6 2001:db8:c::1 2001:db8:a::10 1025 80\r\n";
#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
static const char v2_4[] = SIGNATURE "\x21\x11\0\x0c\xc6\x12\0\x01\xc0\0\x02\x0a\x04\x01\0\x50";
static const char v2_6[] = SIGNATURE "\x21\x21\0\x24\x20\x01\x0d\xb8\0\x0c\0\0\0\0\0\0\0\0\0\x01"
                                     "\x20\x01\x0d\xb8\0\x0a\0\0\0\0\0\0\0\0\0\x10\x04\x01\0\x50";
static const char toa_4[] = "\xfe\x08\x04\x01\xc6\x12\0\x01";
static const char toa_6[] = "\xfe\x14\x04\x01\x20\x01\x0d\xb8\0\x0c\0\0\0\0\0\0\0\0\0\x01";

#define WAY(way, v6, text)                                                                         \
	{                                                                                          \
		way, v6, text, sizeof(text) - 1                                                    \
	}
const struct way ways[WAYS] = {
        WAY(PROXY_V1, 0, v1_4), WAY(PROXY_V1, 1, v1_6), WAY(PROXY_V2, 0, v2_4),
        WAY(PROXY_V2, 1, v2_6), WAY(TOA, 0, toa_4),     WAY(TOA, 1, toa_6),
};

void set_how(struct flows *f, int how)
{
	struct changes c = {0};
	for (unsigned v6 = 0; v6 < 2; v6++)
		put_service(&c, &f->service[2 * v6], "service", FLOW_RR, NULL)->client_address =
		        (Steelyard__Forwarder__V1__ClientAddress)how;
	flows_commit(f, &c);
}

static void collect(struct talk *k, unsigned port)
{
	struct rte_mbuf *m;
	for (k->count = 0; (m = harness_collect(&k->f->harness, port));) {
		struct part *p = &k->out[k->count];
		assert_true(k->count < SY_ARRAY_LEN(k->out));
		p->frame.len = rte_pktmbuf_data_len(m);
		memcpy(p->frame.bytes, rte_pktmbuf_mtod(m, void *), p->frame.len);
		rte_pktmbuf_free(m);
		assert_int_equal(sy_packet_parse(p->frame.bytes, p->frame.len, &p->v), 0);
		assert_int_equal(sy_packet_check_l4(p->frame.bytes, &p->v), SY_CSUM_OK);
		const struct sy_tcp *tcp = sy_packet_tcp(p->frame.bytes, &p->v);
		p->flags = tcp->flags;
		p->seq = ntohl(tcp->seq);
		p->ack = ntohl(tcp->ack);
		k->count += tcp->window != 0; /* otherwise an originated probe */
	}
}

void send_frame(struct talk *k, enum session_direction from, const struct frame *in)
{
	unsigned port = from == CLIENT ? HARNESS_WAN : HARNESS_LAN;
	assert_true(harness_inject(&k->f->harness, port, in->bytes, in->len));
	harness_poll(&k->f->harness);
	harness_attend(&k->f->harness);
	collect(k, 1 - port);
}

void send_segment(struct talk *k, enum session_direction from, uint8_t flags, uint32_t seq,
                  uint32_t ack, unsigned payload)
{
	const struct segment s = {flags, seq, ack, 0};
	struct frame in;
	frame_tcp(&in, &k->f->rng, &k->tuple[from], &s, payload);
	send_frame(k, from, &in);
}

void send_sack(struct talk *k, enum session_direction from, uint32_t seq, uint32_t ack,
               uint32_t left, uint32_t right)
{
	const struct segment s = {ACK, seq, ack, 0};
	uint8_t option[12] = {1, 1, 5, 10};
	struct sy_view v;
	struct frame in;
	left = htonl(left);
	right = htonl(right);
	memcpy(option + 4, &left, 4);
	memcpy(option + 8, &right, 4);
	frame_tcp(&in, &k->f->rng, &k->tuple[from], &s, sizeof(option));
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), 0);
	struct sy_tcp *tcp = (struct sy_tcp *)(in.bytes + v.l4);
	tcp->offset = (uint8_t)(tcp->offset + (sizeof(option) / 4 << 4));
	memcpy((uint8_t *)tcp + sizeof(*tcp), option, sizeof(option));
	frame_fix_l4(&in);
	send_frame(k, from, &in);
}

unsigned header_of(const struct part *p)
{
	return sy_packet_tcp(p->frame.bytes, &p->v)->offset / 16 * 4u;
}

static unsigned payload_of(const struct part *p)
{
	return p->v.l4_len - header_of(p);
}

void check_left(const struct talk *k, unsigned n, uint32_t seq, uint32_t ack, unsigned payload)
{
	assert_true(n < k->count);
	assert_int_equal(k->out[n].seq, seq);
	assert_int_equal(k->out[n].ack, ack);
	assert_int_equal(payload_of(&k->out[n]), payload);
}

unsigned inserted(const struct talk *k)
{
	return ways[k->way].how == TOA ? 0 : ways[k->way].len;
}

void check_address(const struct talk *k, unsigned n, unsigned data)
{
	const struct part *p = &k->out[n];
	const uint8_t *tcp = p->frame.bytes + p->v.l4;
	bool toa = ways[k->way].how == TOA;
	assert_true(n < k->count);
	assert_int_equal(p->seq, FIRST);
	assert_int_equal(payload_of(p), inserted(k) + data);
	assert_memory_equal(tcp + (toa ? sizeof(struct sy_tcp) : header_of(p)), ways[k->way].header,
	                    ways[k->way].len);
}

struct session *find(const struct talk *k)
{
	const struct flow flow = {.client = k->tuple[CLIENT]};
	return flow_session(k->f, &flow);
}

void check_state(const struct talk *k, enum session_state state, unsigned flags)
{
	const struct session *s = find(k);
	assert_non_null(s);
	assert_int_equal(s->state, state);
	assert_int_equal(s->flags & (SESSION_ADDRESS_PENDING | SESSION_SHIFTED), flags);
}

unsigned shift_flag(const struct talk *k)
{
	return ways[k->way].how == TOA ? 0 : SESSION_SHIFTED;
}

void talk_begin(struct flows *f, struct talk *k, unsigned way)
{
	const struct service_key *key = &f->service[2 * ways[way].v6];
	*k = (struct talk){.f = f, .way = way};
	k->tuple[CLIENT] =
	        (struct sy_tuple){harness_addr(ways[way].v6 ? "2001:db8:c::1" : "198.18.0.1"),
	                          key->vip, htons(1025), key->vport, SY_PROTO_TCP};
	set_how(f, ways[way].how);
	send_segment(k, CLIENT, SY_TCP_SYN, ISN, 0, 0);
	check_left(k, 0, ISN, 0, 0);
	const struct session *s = find(k);
	const struct session_cold *cold =
	        session_cold_beside(inspect_table(f->harness.b, sy_slot_of(&k->tuple[CLIENT].src,
	                                                                   k->tuple[CLIENT].sport)),
	                            s);
	k->tuple[BACK] = session_server_tuple(f->harness.b, s, cold,
	                                      inspect_endpoint(f->harness.b, s->server));
	set_how(f, 0); /* affects only later connections */
	send_segment(k, BACK, SY_TCP_SYN | ACK, SERVER, FIRST, 0);
	check_left(k, 0, SERVER, FIRST, 0);
	check_state(k, SESSION_SYN_RECEIVED, shift_flag(k) | SESSION_ADDRESS_PENDING);
}

void talk_end(struct talk *k)
{
	struct sy_balance *b = k->f->harness.b;
	struct session *s = find(k);
	struct session_table *t =
	        inspect_table(b, sy_slot_of(&k->tuple[CLIENT].src, k->tuple[CLIENT].sport));
	uint32_t cursor = 0;
	assert_non_null(s);
	session_end(&k->f->harness.rt->worker[0], t, session_next(t, &cursor));
	assert_null(find(k));
	harness_poll(&k->f->harness);
	collect(k, HARNESS_LAN);
}
