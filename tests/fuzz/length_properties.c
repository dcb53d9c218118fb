// SPDX-License-Identifier: Apache-2.0
/* Operations that change a packet's length, and those on TCP. */
#include <sy_tcp_segment.h>

#include "packet_properties.h"

#include <arpa/inet.h>

/* ---- packets that change their length -------------------------------------------------------- */

/* A copy with exactly the required space before it; *block is to be freed. */
static uint8_t *frame_copy_padded(const uint8_t *data, size_t size, uint8_t **block)
{
	*block = malloc(size + SY_PACKET_HEADROOM);
	CHECK(*block);
	memcpy(*block + SY_PACKET_HEADROOM, data, size);
	return *block + SY_PACKET_HEADROOM;
}

/* The returned view equals the parsed frame. */
static bool view_equals_parsed(const uint8_t *frame, const struct sy_view *v)
{
	struct sy_view parsed;

	HOLDS(sy_packet_parse(frame, v->frame_len, &parsed) == SY_DROP_NONE);
	HOLDS(memcmp(&parsed, v, sizeof(parsed)) == 0);
	return true;
}

bool encapsulation_keeps_the_packet(const uint8_t *data, size_t size, const struct sy_view *v,
                                    bool v4)
{
	struct sy_addr src = addr_of(v4 ? "192.0.2.1" : "2001:db8::1");
	struct sy_addr dst = addr_of(v4 ? "192.0.2.2" : "2001:db8::2");
	uint8_t *block, *frame = frame_copy_padded(data, size, &block);
	uint8_t *at = sy_packet_encapsulate(frame, v, &src, &dst, 7, 0xdeadbeef);
	struct sy_view outer, inner;

	if (at) {
		uint32_t len =
		        (uint32_t)(v->frame_len - v->l3 + SY_ETH_LEN) + sy_tunnel_overhead(&dst);
		HOLDS(sy_packet_parse(at, len, &outer) == SY_DROP_UNKNOWN_PROTOCOL);
		HOLDS(outer.frame_len == len && outer.proto == (v->v4 ? 4 : 41));
		/* the inner packet, after an Ethernet header */
		memcpy(at + outer.l4 - 2, data + v->l3 - 2, 2);
		HOLDS(sy_packet_parse(at + outer.l4 - SY_ETH_LEN, outer.l4_len + SY_ETH_LEN,
		                      &inner) == SY_DROP_NONE);
		HOLDS(memcmp(&inner.tuple, &v->tuple, sizeof(inner.tuple)) == 0);
		HOLDS(sy_packet_ttl(at + outer.l4 - SY_ETH_LEN, &inner) + 1 ==
		      sy_packet_ttl(data, v));
		HOLDS(memcmp(at + outer.l4 + (inner.l4 - inner.l3), data + v->l4, v->l4_len) == 0);
	}
	free(block);
	return true;
}

bool translation_is_reversible(const uint8_t *data, size_t size, const struct sy_view *v)
{
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK, l4 = sy_view_has_l4(v);
	uint8_t *block, *frame = frame_copy_padded(data, size, &block);
	struct sy_tuple to = {
	        .src = addr_of(v->v4 ? "2001:db8::1:2:3" : "10.1.2.3"),
	        .dst = addr_of(v->v4 ? "fd00::ffff:1" : "10.250.0.1"),
	        .sport = l4 ? htons(40001) : 0,
	        .dport = l4 ? htons(443) : 0,
	        .proto = v->proto,
	};
	struct sy_rewrite r;
	struct sy_view there = *v;
	uint8_t *at;

	sy_rewrite_prepare(&v->tuple, &to, &r);
	at = sy_packet_translate(frame, &there, &r, 99);
	if (!at) {
		HOLDS(memcmp(frame, data, size) == 0 && memcmp(&there, v, sizeof(there)) == 0);
		free(block);
		return true;
	}
	HOLDS(view_equals_parsed(at, &there));
	HOLDS(memcmp(&there.tuple, &to, sizeof(to)) == 0);
	HOLDS(there.l4_len == v->l4_len && there.fragment == v->fragment);
	HOLDS((sy_packet_check_l4(at, &there) == SY_CSUM_OK) == ok);
	/* and back: the transport is unchanged */
	if (sy_packet_ttl(at, &there) > 1) {
		uint16_t udp_length = v->proto == SY_PROTO_UDP && l4 ? 6 : 0;
		uint8_t *block2, *again = frame_copy_padded(at, there.frame_len, &block2);
		sy_rewrite_prepare(&to, &v->tuple, &r);
		again = sy_packet_translate(again, &there, &r, 99);
		HOLDS(again);
		HOLDS(view_equals_parsed(again, &there));
		HOLDS(memcmp(&there.tuple, &v->tuple, sizeof(to)) == 0);
		if (udp_length == 0) /* a UDP checksum of zero has two forms */
			HOLDS(sy_csum_fold(sy_csum_sum(again + there.l4, there.l4_len)) ==
			      sy_csum_fold(sy_csum_sum(data + v->l4, v->l4_len)));
		free(block2);
	}
	free(block);
	return true;
}

bool toa_insertion_keeps_the_checksum(const uint8_t *data, size_t size, const struct sy_view *v,
                                      const char *text)
{
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	uint8_t *block, *frame = frame_copy_padded(data, size, &block), *at;
	struct sy_addr addr = addr_of(text);
	struct sy_view after = *v;

	at = sy_tcp_insert_toa(frame, &after, SY_TOA, &addr, htons(1025));
	if (at) {
		unsigned grown = (unsigned)(frame - at), header = v->l4 + 20u;
		HOLDS(view_equals_parsed(at, &after));
		HOLDS((sy_packet_check_l4(at, &after) == SY_CSUM_OK) == ok);
		HOLDS(at[header] == SY_TOA && at[header + 1] == grown);
		HOLDS(memcmp(at + header + grown, data + header, v->frame_len - header) == 0);
	} else {
		HOLDS(memcmp(frame, data, size) == 0);
	}
	free(block);
	return true;
}

/* ---- TCP ------------------------------------------------------------------------------------- */

bool payload_changes_are_valid(const uint8_t *data, size_t size, const struct sy_view *v,
                               uint16_t len)
{
	static const uint8_t line[SY_PACKET_HEADROOM] = "PROXY UNKNOWN is what it says here\r\n";
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	uint8_t *block, *frame = frame_copy_padded(data, size, &block), *at;
	struct sy_view after = *v;

	at = sy_tcp_prepend(frame, &after, line, len);
	if (at) {
		unsigned head = v->l4 + sy_packet_tcp(at, v)->offset / 16 * 4u;
		HOLDS(frame - at == len && after.frame_len == v->frame_len + len);
		HOLDS(view_equals_parsed(at, &after));
		HOLDS((sy_packet_check_l4(at, &after) == SY_CSUM_OK) == ok);
		HOLDS(memcmp(at + head, line, len) == 0);
		HOLDS(memcmp(at + head + len, data + head, v->frame_len - head) == 0);
		sy_tcp_strip(at, &after, UINT8_MAX);
		HOLDS(view_equals_parsed(at, &after));
		HOLDS(after.frame_len == head);
		HOLDS((sy_packet_check_l4(at, &after) == SY_CSUM_OK) == ok);
		sy_tcp_strip(at, &after, SY_TCP_ACK);
		HOLDS((sy_packet_tcp(at, &after)->flags | SY_TCP_ACK) == SY_TCP_ACK);
		HOLDS((sy_packet_check_l4(at, &after) == SY_CSUM_OK) == ok);
	} else {
		sy_tcp_strip(frame, &after, 0);
		HOLDS(v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE ||
		      v->frame_len + len > UINT16_MAX);
		if (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE)
			HOLDS(memcmp(frame, data, size) == 0);
	}
	free(block);
	return true;
}

bool sequence_shift_is_reversible(const uint8_t *data, size_t size, const struct sy_view *v)
{
	if (v->proto != SY_PROTO_TCP || !sy_view_has_l4(v))
		return true;
	uint8_t *frame = copy_make(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	struct sy_view after;

	sy_tcp_shift_seq(frame, v, 0x89abcdef);
	sy_tcp_shift_ack(frame, v, 0x12345677);
	HOLDS(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
	HOLDS(memcmp(&after, v, sizeof(after)) == 0);
	HOLDS((sy_packet_check_l4(frame, v) == SY_CSUM_OK) == ok);
	sy_tcp_shift_seq(frame, v, -0x89abcdefu);
	sy_tcp_shift_ack(frame, v, -0x12345677u);
	HOLDS(memcmp(frame + v->l4, data + v->l4, 16) == 0);
	HOLDS(memcmp(frame + v->l4 + 18, data + v->l4 + 18, v->frame_len - v->l4 - 18u) == 0);
	free(frame);
	return true;
}

bool reset_answers_once(const uint8_t *data, const struct sy_view *v)
{
	uint8_t out[SY_ETH_LEN + 60];
	uint32_t len = sy_tcp_reset_answer(out, sizeof(out), data, v);
	struct sy_view reset;

	HOLDS((len == 0) == (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE ||
	                     (v->tcp_flags & SY_TCP_RST) != 0));
	if (len > 0 && !sy_addr_is_bogus_source(&v->tuple.dst)) {
		HOLDS(sy_packet_parse(out, len, &reset) == SY_DROP_NONE);
		HOLDS(sy_packet_check_l4(out, &reset) == SY_CSUM_OK && reset.frame_len == len);
		HOLDS(sy_tcp_reset_answer(out, sizeof(out), out, &reset) == 0);
	}
	return true;
}

bool proxy_headers_fit(const struct sy_view *v)
{
	uint8_t out[SY_PROXY_V1_MAX];
	uint32_t len = sy_proxy_v1(out, &v->tuple);

	HOLDS(len <= sizeof(out) && memcmp(out + len - 2, "\r\n", 2) == 0);
	HOLDS(sy_proxy_v2(out, &v->tuple) == (v->v4 ? 28 : 52));
	return true;
}
