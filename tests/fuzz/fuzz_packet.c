// SPDX-License-Identifier: Apache-2.0
/* All code that handles a frame from the wire. Built for libFuzzer, so sanitizers detect accesses
 * beyond the frame; errors inside the frame are checked here. */
#include <arpa/inet.h>
#include <sy_plain.h>

#include "divide.h"
#include "fuzz.h"

static uint8_t *frame_copy(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size);
	CHECK(copy);
	memcpy(copy, data, size);
	return copy;
}

static struct sy_addr addr_of(const char *text)
{
	struct sy_addr a;
	CHECK(sy_addr_parse(text, &a) == 0);
	return a;
}

/* Random input seldom has a right header checksum; without this the rest would hardly be
 * reached. */
static void ipv4_mend(uint8_t *frame, size_t size)
{
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
	size_t len;

	if (size < SY_ETH_LEN + sizeof(*ip) || ((struct sy_eth *)frame)->type != htons(SY_ETH_IPV4))
		return;
	len = (ip->version_ihl & 0xfu) << 2;
	if (len < sizeof(*ip) || len > size - SY_ETH_LEN)
		return;
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, len));
}

static void view_check(const uint8_t *frame, const struct sy_view *v, size_t size)
{
	CHECK(v->frame_len <= size && v->vlans <= 2 && v->l4 > v->l3);
	CHECK(v->l3 == SY_ETH_LEN + v->vlans * SY_VLAN_LEN);
	CHECK(v->l4 + v->l4_len == v->frame_len);
	CHECK((v->fragment_offset != 0) == (v->fragment > SY_FRAGMENT_FIRST));
	CHECK(v->fragment || v->fragment_id == 0);
	if (v->fragment != SY_FRAGMENT_NONE) {
		uint32_t len = sy_packet_fragment_len(frame, v);
		CHECK(sy_packet_check_l4(frame, v) == SY_CSUM_UNKNOWN);
		CHECK(len >= v->l4_len && v->fragment_offset + len <= UINT16_MAX);
		CHECK(v->l3 + len < v->frame_len);
	}
	CHECK(sy_addr_is_v4(&v->tuple.src) == (v->v4 != 0));
	CHECK(sy_addr_is_v4(&v->tuple.dst) == (v->v4 != 0));
	CHECK(v->tuple.proto == v->proto);
}

/* Without its tags it is the same packet. */
static void untag_check(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = frame_copy(data, size), *at;
	struct sy_view untagged = *v, again;
	at = sy_packet_untag(frame, &untagged);
	if (at) {
		size_t len = size - (size_t)(at - frame);
		CHECK(sy_packet_parse(at, (uint32_t)len, &again) == SY_DROP_NONE);
		CHECK(memcmp(&again, &untagged, sizeof(again)) == 0);
		CHECK(memcmp(at, data, 12) == 0 &&
		      memcmp(at + 12, data + size - len + 12, len - 12) == 0);
	} else {
		CHECK(v->vlans > 0 && memcmp(frame, data, size) == 0 && untagged.vlans == v->vlans);
	}
	free(frame);
}

/* A packet that the plain parser accepts is valid, and the full parser sees the same. */
static void plain_check(const uint8_t *frame, size_t size, enum sy_drop drop,
                        const struct sy_view *v)
{
	struct sy_view view;
	unsigned plain = sy_plain_parse(frame, (uint32_t)size);
	if (!plain)
		return;
	sy_plain_view(frame, plain, &view);
	CHECK(drop == SY_DROP_NONE && memcmp(&view, v, sizeof(view)) == 0);
}

/* A right checksum stays right, a wrong one wrong; the header can still be parsed. */
static void rewrite_check(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = frame_copy(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	struct sy_tuple to = {
	        .src = addr_of(v->v4 ? "10.1.2.3" : "2001:db8::1:2:3"),
	        .dst = addr_of(v->v4 ? "10.250.0.1" : "fd00::ffff:1"),
	        .sport = sy_view_has_l4(v) ? htons(40001) : 0,
	        .dport = v->tuple.sport,
	        .proto = v->proto,
	};
	struct sy_view after, renumbered = *v;
	struct sy_rewrite r;

	renumbered.fragment_id ^= v->fragment != SY_FRAGMENT_NONE ? 0x5a5a : 0;
	sy_rewrite_prepare(&v->tuple, &to, &r);
	sy_packet_rewrite(frame, &renumbered, &r);
	unsigned kind = sy_plain_parse(data, (uint32_t)size);
	if (kind) {
		uint8_t *plain = frame_copy(data, size);
		sy_plain_rewrite(plain, kind, &to.src, &to.dst, to.sport | (uint32_t)to.dport << 16,
		                 r.l4_delta);
		CHECK(memcmp(plain, frame, size) == 0);
		free(plain);
	}
	CHECK(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
	CHECK(memcmp(&after.tuple, &to, sizeof(to)) == 0);
	CHECK(after.fragment_id == renumbered.fragment_id);
	CHECK(after.frame_len == v->frame_len && after.tcp_flags == v->tcp_flags);
	CHECK(sy_packet_ttl(frame, &after) + 1 == sy_packet_ttl(data, v));
	CHECK((sy_packet_check_l4(frame, &after) == SY_CSUM_OK) == ok);
	if (sy_packet_ttl(frame, &after) > 1) { /* and back */
		unsigned hole = sy_view_has_l4(v) ? (v->proto == SY_PROTO_TCP ? 16 : 6) : 0;
		sy_rewrite_prepare(&to, &v->tuple, &r);
		after.fragment_id = v->fragment_id;
		sy_packet_rewrite(frame, &after, &r);
		CHECK(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
		CHECK(memcmp(&after, v, sizeof(after)) == 0);
		/* all but the checksum, which has two forms of zero */
		CHECK(memcmp(frame + v->l4, data + v->l4, hole) == 0);
		if (v->l4_len > hole + 2)
			CHECK(memcmp(frame + v->l4 + hole + 2, data + v->l4 + hole + 2,
			             v->l4_len - hole - 2u) == 0);
	}
	free(frame);
}

static void rewrite_echo_check(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = frame_copy(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	const struct sy_rewrite r = {
	        .src = addr_of(v->v4 ? "10.1.2.3" : "2001:db8::1:2:3"),
	        .dst = addr_of(v->v4 ? "10.250.0.1" : "fd00::ffff:1"),
	        .sport = htons(40001),
	};
	struct sy_view after;

	sy_packet_rewrite_echo(frame, v, &r);
	CHECK(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
	CHECK(sy_addr_equal(&after.tuple.src, &r.src) && sy_addr_equal(&after.tuple.dst, &r.dst));
	CHECK(after.icmp_id == htons(40001));
	CHECK((sy_packet_check_l4(frame, &after) == SY_CSUM_OK) == ok);
	free(frame);
}

static void clamp_check(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = frame_copy(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	bool changed = sy_packet_clamp_mss(frame, v, 1200);

	CHECK(changed == (memcmp(frame, data, size) != 0));
	CHECK(!sy_packet_clamp_mss(frame, v, 1200));
	CHECK((sy_packet_check_l4(frame, v) == SY_CSUM_OK) == ok);
	free(frame);
}

static void echo_check(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = frame_copy(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	struct sy_view after;
	enum sy_drop drop;

	sy_packet_echo_reply(frame, v);
	drop = sy_packet_parse(frame, (uint32_t)size, &after);
	/* the echo request's destination may have been a multicast or loopback address */
	CHECK(drop == SY_DROP_NONE || drop == SY_DROP_BAD_SOURCE);
	if (drop == SY_DROP_NONE) {
		CHECK(after.icmp_type == (v->v4 ? 0 : 129));
		CHECK(sy_addr_equal(&after.tuple.src, &v->tuple.dst));
		CHECK(sy_addr_equal(&after.tuple.dst, &v->tuple.src));
		CHECK((sy_packet_check_l4(frame, &after) == SY_CSUM_OK) == ok);
	}
	free(frame);
}

static void error_check(const uint8_t *data, const struct sy_view *v, enum sy_icmp_error kind)
{
	/* not a size that always fits: the capacity check is tested as well */
	uint32_t cap = SY_ETH_LEN + 1000, len;
	uint8_t *out = malloc(cap);
	struct sy_addr source = addr_of(v->v4 ? "198.51.100.1" : "2001:db8:ffff::1");
	struct sy_view error, again;

	CHECK(out);
	len = sy_packet_icmp_error(out, cap, data, v, kind, &source, 1400);
	CHECK(len <= cap);
	/* if the sender claimed the balancer's address, this would be a land attack */
	if (len > 0 && !sy_addr_equal(&source, &v->tuple.src)) {
		CHECK(sy_packet_parse(out, len, &error) == SY_DROP_NONE);
		CHECK(error.frame_len == len);
		CHECK(sy_packet_check_l4(out, &error) == SY_CSUM_OK);
		CHECK(sy_addr_equal(&error.tuple.dst, &v->tuple.src));
		/* an error never answers an error */
		memset(&again, 0, sizeof(again));
		CHECK(sy_packet_icmp_error((uint8_t *)&again, sizeof(again), out, &error, kind,
		                           &source, 1400) == 0);
	}
	free(out);
}

/* ---- ICMP errors from others ----------------------------------------------------------------- */

static void error_is_sound(const uint8_t *frame, uint32_t len, const struct sy_addr *src,
                           const struct sy_addr *dst, struct sy_quote *q)
{
	struct sy_view v;

	if (sy_packet_parse(frame, len, &v) != SY_DROP_NONE)
		return; /* to or from itself, or multicast */
	CHECK(v.frame_len == len || v.vlans);
	CHECK(sy_addr_equal(&v.tuple.src, src) && sy_addr_equal(&v.tuple.dst, dst));
	CHECK(sy_packet_parse_quote(frame, &v, q) == SY_DROP_NONE);
}

static struct sy_tuple tuple_for(const struct sy_quote *q, bool v4)
{
	bool ports = q->tuple.sport || q->tuple.dport;
	return (struct sy_tuple){
	        .src = addr_of(v4 ? "10.1.2.3" : "2001:db8::1:2:3"),
	        .dst = addr_of(v4 ? "10.250.0.1" : "fd00::ffff:1"),
	        .sport = ports ? htons(40001) : 0,
	        .dport = ports && q->tuple.dport ? htons(443) : 0,
	        .proto = q->tuple.proto,
	};
}

/* A number shifted and shifted back is the same again, and the checksum is as valid as before. */
static void shift_quote_check(const uint8_t *data, size_t size, const struct sy_view *v,
                              const struct sy_quote *q)
{
	uint8_t *frame = frame_copy(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;

	sy_packet_shift_quote(frame, v, q, 0x89abcdef);
	CHECK((sy_packet_check_l4(frame, v) == SY_CSUM_OK) == ok);
	CHECK((memcmp(frame, data, size) != 0) ==
	      (q->proto == SY_PROTO_TCP && q->fragment != SY_FRAGMENT_LATER));
	sy_packet_shift_quote(frame, v, q, -0x89abcdef);
	CHECK((sy_packet_check_l4(frame, v) == SY_CSUM_OK) == ok);
	CHECK(memcmp(frame + q->l4, data + q->l4, 8) == 0);
	free(frame);
}

/* Translating in place and back restores the frame, except for TTLs and a checksum's two forms of
 * zero. */
static void translate_error_check(const uint8_t *data, size_t size, const struct sy_view *v,
                                  const struct sy_quote *q)
{
	uint8_t *frame = frame_copy(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	struct sy_addr src = addr_of(v->v4 ? "198.51.100.7" : "2001:db8:7::7");
	struct sy_tuple to = tuple_for(q, q->v4);
	struct sy_view again;
	struct sy_quote back;
	struct sy_rewrite r;

	sy_rewrite_prepare(&q->tuple, &to, &r);
	sy_packet_translate_error(frame, v, q, &r, &src);
	if (sy_packet_parse(frame, (uint32_t)size, &again) == SY_DROP_NONE) {
		CHECK((sy_packet_check_l4(frame, &again) == SY_CSUM_OK) == ok);
		CHECK(sy_packet_parse_quote(frame, &again, &back) == SY_DROP_NONE);
		if (q->fragment != SY_FRAGMENT_LATER && q->proto != SY_PROTO_IPV4 &&
		    q->proto != SY_PROTO_IPV6)
			CHECK(memcmp(&back.tuple, &to, sizeof(to)) == 0);
		CHECK(back.l4 == q->l4 && back.mtu == q->mtu && back.kind == q->kind);
		sy_rewrite_prepare(&back.tuple, &q->tuple, &r);
		sy_packet_translate_error(frame, &again, &back, &r, &v->tuple.src);
		CHECK(sy_packet_parse_quote(frame, v, &back) == SY_DROP_NONE);
		CHECK(memcmp(&back.tuple, &q->tuple, sizeof(back.tuple)) == 0);
		CHECK(memcmp(frame + v->frame_len, data + v->frame_len, size - v->frame_len) == 0);
	}
	free(frame);
}

static void rebuild_check(const uint8_t *data, const struct sy_view *v, const struct sy_quote *q,
                          bool v4, uint32_t cap)
{
	uint8_t *out = malloc(cap);
	struct sy_addr src = addr_of(v4 ? "198.51.100.7" : "2001:db8:7::7");
	struct sy_tuple to = tuple_for(q, v4);
	struct sy_quote again;
	struct sy_view view;
	uint32_t len;

	CHECK(out);
	len = sy_packet_rebuild_error(out, cap, data, v, q, &to, &src);
	CHECK(len <= cap);
	if (len > 0) {
		CHECK(sy_packet_parse(out, len, &view) == SY_DROP_NONE && view.v4 == v4);
		CHECK(sy_packet_check_l4(out, &view) == SY_CSUM_OK);
		error_is_sound(out, len, &src, &to.src, &again);
		CHECK(again.v4 == v4);
		if (q->proto != SY_PROTO_IPV4 && q->proto != SY_PROTO_IPV6 && !again.fragment)
			CHECK(memcmp(&again.tuple, &to, sizeof(to)) == 0);
	}
	free(out);
}

static void quote_check(const uint8_t *data, size_t size, const struct sy_view *v)
{
	struct sy_quote q, inner;

	if (sy_packet_parse_quote(data, v, &q) != SY_DROP_NONE)
		return;
	CHECK(q.l3 == v->l4 + 8 && q.l4 > q.l3 && q.l4_len >= 8 && q.l4 + q.l4_len <= v->frame_len);
	if (sy_packet_ttl(data, v) > 1)
		translate_error_check(data, size, v, &q);
	shift_quote_check(data, size, v, &q);
	for (unsigned n = 0; n < 4; n++)
		rebuild_check(data, v, &q, n & 1, n & 2 ? 1500 : 150);
	if (sy_packet_parse_tunnelled(data, &q, &inner) != SY_DROP_NONE)
		return;
	CHECK(inner.l3 == q.l4 && inner.l4 + inner.l4_len <= v->frame_len);
	shift_quote_check(data, size, v, &inner);
	for (unsigned n = 0; n < 4; n++)
		rebuild_check(data, v, &inner, n & 1, n & 2 ? 1500 : 150);
}

/* ---- packets that change their length -------------------------------------------------------- */

/* A copy with exactly the required space before it; *block is to be freed. */
static uint8_t *frame_copy_padded(const uint8_t *data, size_t size, uint8_t **block)
{
	*block = malloc(size + SY_PACKET_HEADROOM);
	CHECK(*block);
	memcpy(*block + SY_PACKET_HEADROOM, data, size);
	return *block + SY_PACKET_HEADROOM;
}

/* The returned view is what parsing the new frame gives. */
static void view_is_true(const uint8_t *frame, const struct sy_view *v)
{
	struct sy_view parsed;

	CHECK(sy_packet_parse(frame, v->frame_len, &parsed) == SY_DROP_NONE);
	CHECK(memcmp(&parsed, v, sizeof(parsed)) == 0);
}

static void encapsulate_check(const uint8_t *data, size_t size, const struct sy_view *v, bool v4)
{
	struct sy_addr src = addr_of(v4 ? "192.0.2.1" : "2001:db8::1");
	struct sy_addr dst = addr_of(v4 ? "192.0.2.2" : "2001:db8::2");
	uint8_t *block, *frame = frame_copy_padded(data, size, &block);
	uint8_t *at = sy_packet_encapsulate(frame, v, &src, &dst, 7, 0xdeadbeef);
	struct sy_view outer, inner;

	if (at) {
		uint32_t len =
		        (uint32_t)(v->frame_len - v->l3 + SY_ETH_LEN) + sy_tunnel_overhead(&dst);
		CHECK(sy_packet_parse(at, len, &outer) == SY_DROP_UNKNOWN_PROTOCOL);
		CHECK(outer.frame_len == len && outer.proto == (v->v4 ? 4 : 41));
		/* the inner packet, after an Ethernet header */
		memcpy(at + outer.l4 - 2, data + v->l3 - 2, 2);
		CHECK(sy_packet_parse(at + outer.l4 - SY_ETH_LEN, outer.l4_len + SY_ETH_LEN,
		                      &inner) == SY_DROP_NONE);
		CHECK(memcmp(&inner.tuple, &v->tuple, sizeof(inner.tuple)) == 0);
		CHECK(sy_packet_ttl(at + outer.l4 - SY_ETH_LEN, &inner) + 1 ==
		      sy_packet_ttl(data, v));
		CHECK(memcmp(at + outer.l4 + (inner.l4 - inner.l3), data + v->l4, v->l4_len) == 0);
	}
	free(block);
}

static void translate_check(const uint8_t *data, size_t size, const struct sy_view *v)
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
		CHECK(memcmp(frame, data, size) == 0 && memcmp(&there, v, sizeof(there)) == 0);
		free(block);
		return;
	}
	view_is_true(at, &there);
	CHECK(memcmp(&there.tuple, &to, sizeof(to)) == 0);
	CHECK(there.l4_len == v->l4_len && there.fragment == v->fragment);
	CHECK((sy_packet_check_l4(at, &there) == SY_CSUM_OK) == ok);
	/* and back: the transport is unchanged */
	if (sy_packet_ttl(at, &there) > 1) {
		uint16_t udp_length = v->proto == SY_PROTO_UDP && l4 ? 6 : 0;
		uint8_t *block2, *again = frame_copy_padded(at, there.frame_len, &block2);
		sy_rewrite_prepare(&to, &v->tuple, &r);
		again = sy_packet_translate(again, &there, &r, 99);
		CHECK(again);
		view_is_true(again, &there);
		CHECK(memcmp(&there.tuple, &v->tuple, sizeof(to)) == 0);
		if (udp_length == 0) /* a UDP checksum of zero may take its other form */
			CHECK(sy_csum_fold(sy_csum_sum(again + there.l4, there.l4_len)) ==
			      sy_csum_fold(sy_csum_sum(data + v->l4, v->l4_len)));
		free(block2);
	}
	free(block);
}

static void toa_check(const uint8_t *data, size_t size, const struct sy_view *v, const char *text)
{
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	uint8_t *block, *frame = frame_copy_padded(data, size, &block), *at;
	struct sy_addr addr = addr_of(text);
	struct sy_view after = *v;

	at = sy_tcp_insert_toa(frame, &after, SY_TOA, &addr, htons(1025));
	if (at) {
		unsigned grown = (unsigned)(frame - at), header = v->l4 + 20u;
		view_is_true(at, &after);
		CHECK((sy_packet_check_l4(at, &after) == SY_CSUM_OK) == ok);
		CHECK(at[header] == SY_TOA && at[header + 1] == grown);
		CHECK(memcmp(at + header + grown, data + header, v->frame_len - header) == 0);
	} else {
		CHECK(memcmp(frame, data, size) == 0);
	}
	free(block);
}

/* ---- TCP ------------------------------------------------------------------------------------- */

/* Inserts bytes before the payload; removes the whole payload, flags included. */
static void payload_check(const uint8_t *data, size_t size, const struct sy_view *v, uint16_t len)
{
	static const uint8_t line[SY_PACKET_HEADROOM] = "PROXY UNKNOWN is what it says here\r\n";
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	uint8_t *block, *frame = frame_copy_padded(data, size, &block), *at;
	struct sy_view after = *v;

	at = sy_tcp_prepend(frame, &after, line, len);
	if (at) {
		unsigned head = v->l4 + sy_packet_tcp(at, v)->offset / 16 * 4u;
		CHECK(frame - at == len && after.frame_len == v->frame_len + len);
		view_is_true(at, &after);
		CHECK((sy_packet_check_l4(at, &after) == SY_CSUM_OK) == ok);
		CHECK(memcmp(at + head, line, len) == 0);
		CHECK(memcmp(at + head + len, data + head, v->frame_len - head) == 0);
		sy_tcp_strip(at, &after, UINT8_MAX);
		view_is_true(at, &after);
		CHECK(after.frame_len == head);
		CHECK((sy_packet_check_l4(at, &after) == SY_CSUM_OK) == ok);
		sy_tcp_strip(at, &after, SY_TCP_ACK);
		CHECK((sy_packet_tcp(at, &after)->flags | SY_TCP_ACK) == SY_TCP_ACK);
		CHECK((sy_packet_check_l4(at, &after) == SY_CSUM_OK) == ok);
	} else {
		sy_tcp_strip(frame, &after, 0);
		CHECK(v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE ||
		      v->frame_len + len > UINT16_MAX);
		if (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE)
			CHECK(memcmp(frame, data, size) == 0);
	}
	free(block);
}

static void shift_check(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = frame_copy(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	struct sy_view after;

	sy_tcp_shift_seq(frame, v, 0x89abcdef);
	sy_tcp_shift_ack(frame, v, 0x12345677);
	CHECK(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
	CHECK(memcmp(&after, v, sizeof(after)) == 0);
	CHECK((sy_packet_check_l4(frame, v) == SY_CSUM_OK) == ok);
	sy_tcp_shift_seq(frame, v, -0x89abcdefu);
	sy_tcp_shift_ack(frame, v, -0x12345677u);
	CHECK(memcmp(frame + v->l4, data + v->l4, 16) == 0);
	CHECK(memcmp(frame + v->l4 + 18, data + v->l4 + 18, v->frame_len - v->l4 - 18u) == 0);
	free(frame);
}

static void reset_check(const uint8_t *data, const struct sy_view *v)
{
	uint8_t out[SY_ETH_LEN + 60];
	uint32_t len = sy_tcp_reset_answer(out, sizeof(out), data, v);
	struct sy_view reset;

	CHECK((len == 0) == (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE ||
	                     (v->tcp_flags & SY_TCP_RST) != 0));
	if (len > 0 && !sy_addr_is_bogus_source(&v->tuple.dst)) {
		CHECK(sy_packet_parse(out, len, &reset) == SY_DROP_NONE);
		CHECK(sy_packet_check_l4(out, &reset) == SY_CSUM_OK && reset.frame_len == len);
		CHECK(sy_tcp_reset_answer(out, sizeof(out), out, &reset) == 0);
	}
}

static void proxy_check(const struct sy_view *v)
{
	uint8_t out[SY_PROXY_V1_MAX];
	uint32_t len = sy_proxy_v1(out, &v->tuple);

	CHECK(len <= sizeof(out) && memcmp(out + len - 2, "\r\n", 2) == 0);
	CHECK(sy_proxy_v2(out, &v->tuple) == (v->v4 ? 28 : 52));
}

static void frame_check(const uint8_t *frame, size_t size, const struct sy_view *v)
{
	bool forwarded = v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP;

	view_check(frame, v, size);
	clamp_check(frame, size, v);
	quote_check(frame, size, v);
	proxy_check(v);
	for (enum sy_icmp_error kind = 0; kind <= SY_ICMP_PROHIBITED; kind++)
		error_check(frame, v, kind);
	if (v->icmp_type == (v->v4 ? 8 : 128) && v->icmp_code == 0)
		echo_check(frame, size, v);
	reset_check(frame, v);
	if (v->proto == SY_PROTO_TCP && sy_view_has_l4(v))
		shift_check(frame, size, v);
	payload_check(frame, size, v, 28);
	payload_check(frame, size, v, 37);
	toa_check(frame, size, v, "192.0.2.99");
	toa_check(frame, size, v, "2001:db8::99");
	if (v->vlans == 0)
		divide_check(frame, v, (uint16_t)(76 + frame[7] * 4));
	if (sy_packet_ttl(frame, v) < 2)
		return;
	if (forwarded)
		rewrite_check(frame, size, v);
	else if (v->icmp_type == (v->v4 ? 8 : 128))
		rewrite_echo_check(frame, size, v);
	translate_check(frame, size, v);
	encapsulate_check(frame, size, v, true);
	encapsulate_check(frame, size, v, false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *frame = malloc(size + !size);
	struct sy_view v;

	CHECK(frame);
	if (size > 0)
		memcpy(frame, data, size);
	/* the low bit of a source MAC lets the fuzzer choose */
	if (size > 6 && frame[6] & 1)
		ipv4_mend(frame, size);
	enum sy_drop drop = sy_packet_parse(frame, (uint32_t)size, &v);
	plain_check(frame, size, drop, &v);
	if (drop == SY_DROP_NONE && size <= UINT16_MAX)
		untag_check(frame, size, &v);
	if (drop == SY_DROP_NONE)
		frame_check(frame, size, &v);
	free(frame);
	return 0;
}
