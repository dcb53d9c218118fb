// SPDX-License-Identifier: Apache-2.0
/* Client addresses reported to servers by TCP option and by PROXY protocol, packet by packet. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client_address_fixture.h"
#include "service_dropped.h"

/* Sends a hand-made client segment: its payload and its options (a multiple of 4). */
static void send_made(struct talk *k, uint8_t flags, uint32_t seq, const char *payload,
                      unsigned len, const char *options, unsigned options_len)
{
	const struct segment s = {flags, seq, flags & ACK ? SERVER + 1 : 0, 0};
	struct frame in;
	struct sy_view v;
	frame_tcp(&in, &k->f->rng, &k->tuple[CLIENT], &s, options_len + len);
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), 0);
	in.bytes[v.l4 + 12] = (uint8_t)((5 + options_len / 4) << 4);
	memcpy(in.bytes + v.l4 + sizeof(struct sy_tcp), options, options_len);
	memcpy(in.bytes + v.l4 + sizeof(struct sy_tcp) + options_len, payload, len);
	frame_fix_l4(&in);
	send_frame(k, CLIENT, &in);
}

/* A whole connection without losses. */
static void test_a_connection(void **state)
{
	for (unsigned way = 0; way < WAYS; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		const uint32_t shift = inserted(&k);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0);
		check_address(&k, 0, 0);
		assert_int_equal(k.count, 1);
		assert_int_equal(!!(k.out[0].flags & SY_TCP_PSH), shift > 0);
		check_state(&k, SESSION_ESTABLISHED, shift_flag(&k) | SESSION_ADDRESS_PENDING);
		send_segment(&k, CLIENT, ACK | SY_TCP_PSH, FIRST, SERVER + 1, 100);
		check_address(&k, 0, 100);
		/* The server has all of it and sends data. */
		send_segment(&k, BACK, ACK, SERVER + 1, FIRST + shift, 50);
		check_left(&k, 0, SERVER + 1, FIRST, 50);
		check_state(&k, SESSION_ESTABLISHED, shift_flag(&k));
		send_segment(&k, BACK, ACK, SERVER + 51, FIRST + shift + 100, 0);
		check_left(&k, 0, SERVER + 51, FIRST + 100, 0);
		send_segment(&k, CLIENT, ACK, FIRST + 100, SERVER + 51, 1300);
		check_left(&k, 0, FIRST + shift + 100, SERVER + 51, 1300);
		assert_int_equal(header_of(&k.out[0]), 20);
		/* Each side acknowledges the FIN in its own numbers. */
		send_segment(&k, CLIENT, ACK | SY_TCP_FIN, FIRST + 1400, SERVER + 51, 0);
		check_left(&k, 0, FIRST + shift + 1400, SERVER + 51, 0);
		send_segment(&k, BACK, ACK, SERVER + 51, FIRST + shift + 1400, 0);
		check_state(&k, SESSION_FIN_WAIT, shift_flag(&k));
		send_segment(&k, BACK, ACK | SY_TCP_FIN, SERVER + 51, FIRST + shift + 1401, 0);
		check_left(&k, 0, SERVER + 51, FIRST + 1401, 0);
		check_state(&k, SESSION_CLOSING, shift_flag(&k));
		send_segment(&k, CLIENT, ACK, FIRST + 1401, SERVER + 52, 0);
		check_left(&k, 0, FIRST + shift + 1401, SERVER + 52, 0);
		check_state(&k, SESSION_TIME_WAIT, shift_flag(&k));
		talk_end(&k);
	}
}

/* Each packet of the handshake is lost once, and so is the first data. */
static void test_losses(void **state)
{
	for (unsigned way = 0; way < WAYS; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		const uint32_t shift = inserted(&k);
		send_segment(&k, CLIENT, SY_TCP_SYN, ISN, 0, 0); /* the SYN-ACK was lost */
		check_left(&k, 0, ISN, 0, 0);
		send_segment(&k, BACK, SY_TCP_SYN | ACK, SERVER, FIRST, 0);
		check_left(&k, 0, SERVER, FIRST, 0);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0); /* lost after the balancer */
		send_segment(&k, BACK, SY_TCP_SYN | ACK, SERVER, FIRST, 0);
		check_left(&k, 0, SERVER, FIRST, 0);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0); /* lost again */
		check_address(&k, 0, 0);
		send_segment(&k, CLIENT, ACK, FIRST + 500, SERVER + 1,
		             500); /* arrives before the first */
		check_left(&k, 0, FIRST + shift + 500, SERVER + 1, 500);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 500); /* lost */
		check_address(&k, 0, 500);
		/* The server has only the second. */
		send_sack(&k, BACK, SERVER + 1, FIRST, FIRST + shift + 500, FIRST + shift + 1000);
		check_left(&k, 0, SERVER + 1, FIRST, 0);
		const uint8_t *edges = k.out[0].frame.bytes + k.out[0].v.l4 + 24;
		uint32_t edge[2];
		memcpy(edge, edges, sizeof(edge));
		assert_int_equal(ntohl(edge[0]), FIRST + 500);
		assert_int_equal(ntohl(edge[1]), FIRST + 1000);
		check_state(&k, SESSION_ESTABLISHED, shift_flag(&k) | SESSION_ADDRESS_PENDING);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 500);
		check_address(&k, 0, 500);
		/* Now the server has all of it. */
		send_segment(&k, BACK, ACK, SERVER + 1, FIRST + shift + 1000, 0);
		check_left(&k, 0, SERVER + 1, FIRST + 1000, 0);
		check_state(&k, SESSION_ESTABLISHED, shift_flag(&k));
		talk_end(&k);
	}
}

/* The server acknowledges part of the header: the client gets no acknowledgement below its first
 * byte. */
static void test_partial_acknowledgements(void **state)
{
	for (unsigned way = 0; way < PROXIES; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		const uint32_t shift = inserted(&k);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0);
		for (uint32_t n = 0; n < shift; n++) {
			send_segment(&k, BACK, ACK, SERVER + 1, FIRST + n, n % 3);
			check_left(&k, 0, SERVER + 1, FIRST, n % 3);
			check_state(&k, SESSION_ESTABLISHED,
			            SESSION_SHIFTED | SESSION_ADDRESS_PENDING);
		}
		send_segment(&k, BACK, ACK, SERVER + 1, FIRST - 1, 0); /* an old keep-alive probe */
		check_left(&k, 0, SERVER + 1, FIRST - 1 - shift, 0);
		check_state(&k, SESSION_ESTABLISHED, SESSION_SHIFTED | SESSION_ADDRESS_PENDING);
		/* A keep-alive probe, sent while no byte of the client's is outstanding. */
		send_segment(&k, CLIENT, ACK, FIRST - 1, SERVER + 1, 1);
		assert_int_equal(k.count, 2);
		check_address(&k, 0, 0);
		check_left(&k, 1, FIRST + shift - 1, SERVER + 1, 1);
		send_segment(&k, BACK, ACK, SERVER + 1, FIRST + shift, 0);
		check_left(&k, 0, SERVER + 1, FIRST, 0);
		check_state(&k, SESSION_ESTABLISHED, SESSION_SHIFTED);
		talk_end(&k);
	}
}

/* A damaged acknowledgement shows nothing: the address is sent again. */
static void test_damaged_acknowledgements(void **state)
{
	for (unsigned way = 0; way < WAYS; way++) {
		struct talk k;
		struct frame in;
		struct sy_view v;
		talk_begin(*state, &k, way);
		const uint32_t shift = inserted(&k);
		const struct segment s = {ACK, SERVER + 1, FIRST + shift + 100, 0};
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0);
		frame_tcp(&in, &k.f->rng, &k.tuple[BACK], &s, 0);
		assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), 0);
		in.bytes[v.l4 + 16] ^= 1; /* of the checksum */
		assert_true(harness_inject(&k.f->harness, HARNESS_LAN, in.bytes, in.len));
		harness_poll(&k.f->harness);
		rte_pktmbuf_free(harness_collect(&k.f->harness, HARNESS_WAN));
		check_state(&k, SESSION_ESTABLISHED, shift_flag(&k) | SESSION_ADDRESS_PENDING);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 100);
		check_address(&k, 0, 100);
		talk_end(&k);
	}
}

/* The first data fills the MTU: the header is sent in a packet before it. */
static void test_full_segments(void **state)
{
	for (unsigned way = 0; way < WAYS; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		unsigned full = HARNESS_LAN_MTU - (ways[way].v6 ? 60 : 40);
		for (unsigned capacity = 0; capacity <= ways[way].len; capacity += ways[way].len) {
			send_segment(&k, CLIENT, ACK | SY_TCP_PSH | SY_TCP_FIN, FIRST, SERVER + 1,
			             full - capacity);
			if (capacity > 0) {
				check_address(&k, 0, full - capacity);
				assert_int_equal(k.count, 1);
				continue;
			}
			check_address(&k, 0, 0);
			check_left(&k, 1, FIRST + inserted(&k), SERVER + 1, full);
			assert_int_equal(k.out[0].flags & (SY_TCP_FIN | SY_TCP_ACK), ACK);
			assert_true(k.out[1].flags & SY_TCP_FIN);
		}
		talk_end(&k);
	}
}

/* The first segment that the server gets after its SYN-ACK is a full one, and not the first data:
 * the segments before it were lost. */
static void test_full_segments_first(void **state)
{
	for (unsigned way = PROXIES; way < WAYS; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		unsigned full = HARNESS_LAN_MTU - (ways[way].v6 ? 60 : 40);
		for (unsigned n = 1; n < 4; n++) {
			send_segment(&k, CLIENT, ACK | SY_TCP_PSH, FIRST + n * full, SERVER + 1,
			             full);
			assert_int_equal(k.count, 2);
			check_left(&k, 0, FIRST + n * full, SERVER + 1, 0);
			assert_memory_equal(k.out[0].frame.bytes + k.out[0].v.l4 + 20,
			                    ways[way].header, ways[way].len);
			assert_int_equal(k.out[0].flags, ACK);
			check_left(&k, 1, FIRST + n * full, SERVER + 1, full);
		}
		/* The server has part of it: full segments pass unchanged. */
		send_segment(&k, BACK, ACK, SERVER + 1, FIRST + full, 0);
		send_segment(&k, CLIENT, ACK | SY_TCP_PSH, FIRST + 4 * full, SERVER + 1, full);
		assert_int_equal(k.count, 1);
		assert_int_equal(harness_drops(&k.f->harness, SY_DROP_NO_CLIENT_ADDRESS), 0);
		talk_end(&k);
	}
}

/* Resets carry the sequence number that their receiver expects. */
static void test_resets(void **state)
{
	for (unsigned way = 0; way < WAYS; way++) {
		struct talk k;
		/* The server refuses the connection. */
		talk_begin(*state, &k, way);
		const uint32_t shift = inserted(&k);
		send_segment(&k, BACK, SY_TCP_RST | ACK, 0, FIRST, 0);
		check_left(&k, 0, 0, FIRST, 0);
		talk_end(&k);
		/* The client does not know the connection and resets it in answer to the
		 * SYN-ACK. */
		talk_begin(*state, &k, way);
		send_segment(&k, CLIENT, SY_TCP_RST, FIRST, 0, 0);
		check_left(&k, 0, FIRST, 0, 0);
		talk_end(&k);
		/* The client aborts: the header is sent before the reset, so the reset's number is
		 * right. */
		talk_begin(*state, &k, way);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0);
		send_segment(&k, CLIENT, SY_TCP_RST | ACK, FIRST, SERVER + 1, 0);
		assert_int_equal(k.count, shift ? 2 : 1);
		if (shift)
			check_address(&k, 0, 0);
		check_left(&k, k.count - 1, FIRST + shift, SERVER + 1, 0);
		talk_end(&k);
		/* A later reset, from either side. */
		talk_begin(*state, &k, way);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 10);
		send_segment(&k, BACK, ACK, SERVER + 1, FIRST + shift + 10, 0);
		send_segment(&k, CLIENT, SY_TCP_RST, FIRST + 10, 0, 0);
		check_left(&k, 0, FIRST + shift + 10, 0, 0);
		send_segment(&k, BACK, SY_TCP_RST | ACK, SERVER + 1, FIRST + shift + 10, 0);
		check_left(&k, 0, SERVER + 1, FIRST + 10, 0);
		talk_end(&k);
	}
}

/* The client resets and connects again with the same tuple before its reset has been validated. */
static void test_again_after_a_reset(void **state)
{
	for (unsigned way = 0; way < PROXIES; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		const uint32_t shift = inserted(&k);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 10);
		send_segment(&k, BACK, ACK, SERVER + 1, FIRST + shift + 10, 0);
		check_state(&k, SESSION_ESTABLISHED, SESSION_SHIFTED);
		send_segment(&k, CLIENT, SY_TCP_RST, FIRST + 10, 0, 0);
		check_state(&k, SESSION_RESET_BY_CLIENT, SESSION_SHIFTED);
		/* Its data would arrive before the header. */
		send_segment(&k, CLIENT, SY_TCP_SYN, ISN, 0, 99);
		check_left(&k, 0, ISN, 0, 0);
		send_segment(&k, BACK, SY_TCP_SYN | ACK, SERVER, FIRST, 0);
		check_left(&k, 0, SERVER, FIRST, 0);
		check_state(&k, SESSION_SYN_RECEIVED, SESSION_SHIFTED | SESSION_ADDRESS_PENDING);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 10);
		check_address(&k, 0, 10);
		talk_end(&k);
	}
}

/* One side closes before the server has the header. */
static void test_early_ends(void **state)
{
	for (unsigned way = 0; way < PROXIES; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		const uint32_t shift = inserted(&k);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0);
		send_segment(&k, BACK, ACK | SY_TCP_FIN, SERVER + 1, FIRST, 0);
		check_left(&k, 0, SERVER + 1, FIRST, 0);
		check_state(&k, SESSION_ESTABLISHED, SESSION_SHIFTED | SESSION_ADDRESS_PENDING);
		send_segment(&k, CLIENT, ACK | SY_TCP_FIN, FIRST, SERVER + 2, 7);
		check_address(&k, 0, 7);
		assert_true(k.out[0].flags & SY_TCP_FIN);
		check_state(&k, SESSION_FIN_WAIT, SESSION_SHIFTED | SESSION_ADDRESS_PENDING);
		/* The FIN again, acknowledging all that the client has sent. */
		send_segment(&k, BACK, ACK | SY_TCP_FIN, SERVER + 1, FIRST + shift + 8, 0);
		check_left(&k, 0, SERVER + 1, FIRST + 8, 0);
		check_state(&k, SESSION_CLOSING, SESSION_SHIFTED);
		send_segment(&k, CLIENT, ACK, FIRST + 8, SERVER + 2, 0);
		check_state(&k, SESSION_TIME_WAIT, SESSION_SHIFTED);
		talk_end(&k);
	}
}

/* Data in the SYN has to wait for the header. */
static void test_data_in_the_syn(void **state)
{
	for (unsigned way = 0; way < WAYS; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		talk_end(&k);
		set_how(*state, ways[way].how);
		send_segment(&k, CLIENT, SY_TCP_SYN, ISN, 0, 99);
		check_left(&k, 0, ISN, 0, inserted(&k) ? 0 : 99);
		assert_int_equal(k.out[0].frame.len, k.out[0].v.frame_len);
		/* Another connection with the same tuple, because the server did not answer. */
		send_segment(&k, CLIENT, SY_TCP_SYN, 5000, 0, 0);
		struct session *s = find(&k);
		const struct session_table *t = inspect_table(
		        k.f->harness.b, sy_slot_of(&k.tuple[CLIENT].src, k.tuple[CLIENT].sport));
		uint32_t cursor = 0;
		assert_int_equal(session_cold_at(t, session_next(t, &cursor))->fin_seq[BACK], 5001);
		assert_true(s->flags & SESSION_ADDRESS_PENDING);
		talk_end(&k);
	}
}

/* A forwarder is replaced, in every phase of the connection. */
static void test_restart(void **state)
{
	for (unsigned cycle = 0; cycle < 3; cycle++)
		for (unsigned way = 0; way < WAYS; way++) {
			struct flows *f = *state;
			struct talk k;
			talk_begin(f, &k, way);
			const uint32_t shift = inserted(&k);
			flows_reopen(f, 1, cycle == 2 ? 77 : 0, cycle == 0);
			send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0);
			check_address(&k, 0, 0);
			flows_reopen(f, 1, cycle == 2 ? 78 : 0, cycle == 0);
			send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 9);
			check_address(&k, 0, 9);
			send_segment(&k, BACK, ACK, SERVER + 1, FIRST + shift + 9, 0);
			check_left(&k, 0, SERVER + 1, FIRST + 9, 0);
			flows_reopen(f, 1, cycle == 2 ? 79 : 0, cycle == 0);
			send_segment(&k, CLIENT, ACK, FIRST + 9, SERVER + 1, 9);
			check_left(&k, 0, FIRST + shift + 9, SERVER + 1, 9);
			check_state(&k, SESSION_ESTABLISHED, shift_flag(&k));
			talk_end(&k);
		}
}

/* A TCP header full of options has no space for another one. */
static void test_full_headers(void **state)
{
	struct talk k;
	struct frame in;
	struct sy_view v;
	const struct segment s = {ACK, FIRST, SERVER + 1, 0};
	talk_begin(*state, &k, PROXIES);
	frame_tcp(&in, &k.f->rng, &k.tuple[CLIENT], &s, 40);
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), 0);
	in.bytes[v.l4 + 12] = 15 << 4;
	memset(in.bytes + v.l4 + 20, 1, 40);
	frame_fix_l4(&in);
	send_frame(&k, CLIENT, &in);
	assert_int_equal(k.count, 1);
	check_left(&k, 0, FIRST, SERVER + 1, 0);
	assert_int_equal(harness_drops(&k.f->harness, SY_DROP_NO_CLIENT_ADDRESS), 1);
	assert_int_equal(services_dropped(k.f, SY_DROP_NO_CLIENT_ADDRESS), 1);
	check_state(&k, SESSION_ESTABLISHED, SESSION_ADDRESS_PENDING);
	talk_end(&k);
}

/* A client that sends a header of its own where the server expects the balancer's. */
static void test_forged_headers(void **state)
{
	for (unsigned way = 0; way < PROXIES; way++) {
		struct talk k;
		talk_begin(*state, &k, way);
		const uint32_t shift = inserted(&k);
		uint64_t before = harness_drops(&k.f->harness, SY_DROP_BAD_TCP_STATE);
		for (uint32_t back = 1; back <= shift + 2; back++) {
			char forged[64];
			memset(forged, 'x', sizeof(forged));
			send_made(&k, ACK, FIRST - back, forged, shift < 40 ? shift : 40, "", 0);
			assert_int_equal(k.count, 0);
			assert_int_equal(harness_drops(&k.f->harness, SY_DROP_BAD_TCP_STATE),
			                 before + back);
			assert_int_equal(services_dropped(k.f, SY_DROP_BAD_TCP_STATE),
			                 before + back);
		}
		check_state(&k, SESSION_ESTABLISHED, SESSION_SHIFTED | SESSION_ADDRESS_PENDING);
		send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 10);
		check_address(&k, 0, 10);
		talk_end(&k);
	}
}

/* A client's own address option, anywhere in the header: the server sees padding. */
static void test_forged_options(void **state)
{
	static const char own[] = "\x01\x01\xfe\x08\x04\x01\x0a\0\0\x01\x01\x01"
	                          "\xfd\x14\x04\x01\x20\x01\x0d\xb8\0\x66\0\0\0\0\0\0\0\0\0\x01"
	                          "\xfe\x08\x04\x01\x0a\0\0\x02";
	const uint8_t flags[] = {ACK, ACK, SY_TCP_SYN, ACK | SY_TCP_FIN};
	const uint32_t seq[] = {FIRST, FIRST + 1, ISN, FIRST - 1};
	for (unsigned n = 0; n < 2 * SY_ARRAY_LEN(seq); n++) {
		struct talk k;
		unsigned len = n < SY_ARRAY_LEN(seq) ? 40 : 12, i = n % SY_ARRAY_LEN(seq);
		talk_begin(*state, &k, PROXIES);
		send_made(&k, flags[i], seq[i], "", 0, own, len);
		assert_int_equal(k.count, 1);
		const struct part *p = &k.out[0];
		const uint8_t *tcp = p->frame.bytes + p->v.l4;
		unsigned added = header_of(p) - 20 - len;
		for (unsigned at = 20 + added; at < header_of(p); at++)
			assert_int_equal(tcp[at], 1);
		if (added)
			assert_memory_equal(tcp + 20, ways[PROXIES].header, added);
		talk_end(&k);
	}
}

/* Nor has it one that begins again where both sides have closed: the server decides whether it
 * does, and a SYN must not name the client to a half-open connection. */
static void test_forged_options_at_the_end(void **state)
{
	static const char own[] = "\xfe\x08\x04\x01\x0a\0\0\x02";
	struct talk k;
	talk_begin(*state, &k, PROXIES);
	send_segment(&k, CLIENT, ACK | SY_TCP_FIN, FIRST, SERVER + 1, 0);
	send_segment(&k, BACK, ACK | SY_TCP_FIN, SERVER + 1, FIRST + 1, 0);
	check_state(&k, SESSION_CLOSING, 0);
	for (unsigned n = 0; n < 2; n++) {
		send_made(&k, SY_TCP_SYN, ISN + 100000, "", 0, own, 8);
		assert_int_equal(k.count, 1);
		check_state(&k, SESSION_CLOSING, 0);
		const struct part *p = &k.out[0];
		for (unsigned at = 20; at < header_of(p); at++)
			assert_int_equal(p->frame.bytes[p->v.l4 + at], 1);
	}
	talk_end(&k);
}

/* From IPv6 to IPv4, with the longest text form. */
static void test_other_family(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key =
	        harness_key("2001:db8:1111:2222:3333:4444:5555:6666", 80, SY_PROTO_TCP);
	struct talk k = {.f = f};
	put_service(&c, &key, "long", FLOW_RR, NULL)->client_address = PROXY_V1;
	put_server(&c, &key, &f->server[0][0], 80, 1, FLOW_UP);
	flows_commit(f, &c);
	k.tuple[CLIENT] = (struct sy_tuple){harness_addr("2001:db8:c:ffff:ffff:ffff:ffff:fffe"),
	                                    key.vip, htons(60000), key.vport, SY_PROTO_TCP};
	send_segment(&k, CLIENT, SY_TCP_SYN, ISN, 0, 0);
	assert_int_equal(k.count, 1);
	k.tuple[BACK] =
	        (struct sy_tuple){k.out[0].v.tuple.dst, k.out[0].v.tuple.src,
	                          k.out[0].v.tuple.dport, k.out[0].v.tuple.sport, SY_PROTO_TCP};
	send_segment(&k, BACK, SY_TCP_SYN | ACK, SERVER, FIRST, 0);
	send_segment(&k, CLIENT, ACK, FIRST, SERVER + 1, 0);
	static const char header[] = "PROXY TCP6 2001:db8:c:ffff:ffff:ffff:ffff:fffe "
	                             "2001:db8:1111:2222:3333:4444:5555:6666 60000 80\r\n";
	check_left(&k, 0, FIRST, SERVER + 1, sizeof(header) - 1);
	assert_memory_equal(k.out[0].frame.bytes + k.out[0].v.l4 + 20, header, sizeof(header) - 1);
}

static void check_refused(struct flows *f, unsigned service, enum mode mode, int how,
                          const char *text)
{
	struct changes c = {0};
	const struct service_key key = harness_key("192.0.2.77", 80, f->service[service].proto);
	put_service(&c, &key, "x", FLOW_RR, NULL)->client_address =
	        (Steelyard__Forwarder__V1__ClientAddress)how;
	set_mode(&c, mode);
	assert_false(harness_commit(&f->harness, &c));
	assert_string_equal(f->harness.error, text);
}

static void test_refusals(void **state)
{
	static const char text[] =
	        "service x: client_address is for TCP and fnat, whose servers do "
	        "not see the client's address";
	for (int how = TOA; how <= PROXY_V2; how++) {
		check_refused(*state, 1, MODE_FNAT, how, text);
		check_refused(*state, 0, MODE_NAT, how, text);
		check_refused(*state, 0, MODE_DR, how, text);
		check_refused(*state, 0, MODE_IPIP, how, text);
	}
	check_refused(*state, 0, MODE_FNAT, PROXY_V2 + 1,
	              "service x: unknown client_address 4; known: toa, proxy_v1, proxy_v2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_a_connection, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_losses, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_damaged_acknowledgements, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_partial_acknowledgements, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_full_segments, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_full_segments_first, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_resets, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_again_after_a_reset, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_early_ends, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_data_in_the_syn, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_restart, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_full_headers, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_forged_headers, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_forged_options, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_forged_options_at_the_end, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_other_family, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_refusals, flows_setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
