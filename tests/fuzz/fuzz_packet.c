// SPDX-License-Identifier: Apache-2.0
/* Input: a frame from the wire, for all functions of the packet module. Sanitizers detect accesses
 * beyond the frame; LLVMFuzzerTestOneInput() says what must hold inside. */
#include <arpa/inet.h>
#include <sy_plain.h>

#include "divide.h"
#include "packet_properties.h"

struct sy_addr addr_of(const char *text)
{
	struct sy_addr a;
	CHECK(sy_addr_parse(text, &a) == 0);
	return a;
}

/* Random input seldom has a valid header checksum; without this, the rest would hardly be
 * reached. */
static void ipv4_checksum_fix(uint8_t *frame, size_t size)
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

static bool view_is_valid(const uint8_t *frame, const struct sy_view *v, size_t size)
{
	HOLDS(v->frame_len <= size && v->vlans <= 2 && v->l4 > v->l3);
	HOLDS(v->l3 == SY_ETH_LEN + v->vlans * SY_VLAN_LEN);
	HOLDS(v->l4 + v->l4_len == v->frame_len);
	HOLDS((v->fragment_offset != 0) == (v->fragment > SY_FRAGMENT_FIRST));
	HOLDS(v->fragment || v->fragment_id == 0);
	if (v->fragment != SY_FRAGMENT_NONE) {
		uint32_t len = sy_packet_fragment_len(frame, v);
		HOLDS(sy_packet_check_l4(frame, v) == SY_CSUM_UNKNOWN);
		HOLDS(len >= v->l4_len && v->fragment_offset + len <= UINT16_MAX);
		HOLDS(v->l3 + len < v->frame_len);
	}
	HOLDS(sy_addr_is_v4(&v->tuple.src) == (v->v4 != 0));
	HOLDS(sy_addr_is_v4(&v->tuple.dst) == (v->v4 != 0));
	HOLDS(v->tuple.proto == v->proto);
	return true;
}

/* Without its tags it is the same packet. */
static bool untagging_keeps_the_packet(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = copy_make(data, size), *at;
	struct sy_view untagged = *v, again;
	at = sy_packet_untag(frame, &untagged);
	if (at) {
		size_t len = size - (size_t)(at - frame);
		HOLDS(sy_packet_parse(at, (uint32_t)len, &again) == SY_DROP_NONE);
		HOLDS(memcmp(&again, &untagged, sizeof(again)) == 0);
		HOLDS(memcmp(at, data, 12) == 0 &&
		      memcmp(at + 12, data + size - len + 12, len - 12) == 0);
	} else {
		HOLDS(v->vlans > 0 && memcmp(frame, data, size) == 0 && untagged.vlans == v->vlans);
	}
	free(frame);
	return true;
}

/* A packet that the plain parser accepts is valid, and both parsers return the same. */
static bool plain_parser_agrees(const uint8_t *frame, size_t size, enum sy_drop drop,
                                const struct sy_view *v)
{
	struct sy_view view;
	unsigned plain = sy_plain_parse(frame, (uint32_t)size);
	if (!plain)
		return true;
	sy_plain_view(frame, plain, &view);
	HOLDS(drop == SY_DROP_NONE && memcmp(&view, v, sizeof(view)) == 0);
	return true;
}

/* A valid checksum stays valid, an invalid one invalid; the header can still be parsed. */
static bool rewriting_is_reversible(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = copy_make(data, size);
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
		uint8_t *plain = copy_make(data, size);
		sy_plain_rewrite(plain, kind, &to.src, &to.dst, to.sport | (uint32_t)to.dport << 16,
		                 r.l4_delta);
		HOLDS(memcmp(plain, frame, size) == 0);
		free(plain);
	}
	HOLDS(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
	HOLDS(memcmp(&after.tuple, &to, sizeof(to)) == 0);
	HOLDS(after.fragment_id == renumbered.fragment_id);
	HOLDS(after.frame_len == v->frame_len && after.tcp_flags == v->tcp_flags);
	HOLDS(sy_packet_ttl(frame, &after) + 1 == sy_packet_ttl(data, v));
	HOLDS((sy_packet_check_l4(frame, &after) == SY_CSUM_OK) == ok);
	if (sy_packet_ttl(frame, &after) > 1) { /* and back */
		unsigned hole = sy_view_has_l4(v) ? (v->proto == SY_PROTO_TCP ? 16 : 6) : 0;
		sy_rewrite_prepare(&to, &v->tuple, &r);
		after.fragment_id = v->fragment_id;
		sy_packet_rewrite(frame, &after, &r);
		HOLDS(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
		HOLDS(memcmp(&after, v, sizeof(after)) == 0);
		/* all but the checksum, which has two forms of zero */
		HOLDS(memcmp(frame + v->l4, data + v->l4, hole) == 0);
		if (v->l4_len > hole + 2)
			HOLDS(memcmp(frame + v->l4 + hole + 2, data + v->l4 + hole + 2,
			             v->l4_len - hole - 2u) == 0);
	}
	free(frame);
	return true;
}

static bool echo_rewriting_keeps_the_checksum(const uint8_t *data, size_t size,
                                              const struct sy_view *v)
{
	uint8_t *frame = copy_make(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	const struct sy_rewrite r = {
	        .src = addr_of(v->v4 ? "10.1.2.3" : "2001:db8::1:2:3"),
	        .dst = addr_of(v->v4 ? "10.250.0.1" : "fd00::ffff:1"),
	        .sport = htons(40001),
	};
	struct sy_view after;

	sy_packet_rewrite_echo(frame, v, &r);
	HOLDS(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
	HOLDS(sy_addr_equal(&after.tuple.src, &r.src) && sy_addr_equal(&after.tuple.dst, &r.dst));
	HOLDS(after.icmp_id == htons(40001));
	HOLDS((sy_packet_check_l4(frame, &after) == SY_CSUM_OK) == ok);
	free(frame);
	return true;
}

static bool clamping_keeps_the_checksum(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = copy_make(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	bool changed = sy_packet_clamp_mss(frame, v, 1200);

	HOLDS(changed == (memcmp(frame, data, size) != 0));
	HOLDS(!sy_packet_clamp_mss(frame, v, 1200));
	HOLDS((sy_packet_check_l4(frame, v) == SY_CSUM_OK) == ok);
	free(frame);
	return true;
}

static bool echo_reply_is_valid(const uint8_t *data, size_t size, const struct sy_view *v)
{
	uint8_t *frame = copy_make(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	struct sy_view after;
	enum sy_drop drop;

	sy_packet_echo_reply(frame, v);
	drop = sy_packet_parse(frame, (uint32_t)size, &after);
	/* the echo request's destination may have been a multicast or loopback address */
	HOLDS(drop == SY_DROP_NONE || drop == SY_DROP_BAD_SOURCE);
	if (drop == SY_DROP_NONE) {
		HOLDS(after.icmp_type == (v->v4 ? 0 : 129));
		HOLDS(sy_addr_equal(&after.tuple.src, &v->tuple.dst));
		HOLDS(sy_addr_equal(&after.tuple.dst, &v->tuple.src));
		HOLDS((sy_packet_check_l4(frame, &after) == SY_CSUM_OK) == ok);
	}
	free(frame);
	return true;
}

static bool icmp_error_is_valid(const uint8_t *data, const struct sy_view *v,
                                enum sy_icmp_error kind)
{
	/* not a size that always fits: the capacity check is tested as well */
	uint32_t cap = SY_ETH_LEN + 1000, len;
	uint8_t *out = malloc(cap);
	struct sy_addr source = addr_of(v->v4 ? "198.51.100.1" : "2001:db8:ffff::1");
	struct sy_view error, again;

	CHECK(out);
	len = sy_packet_icmp_error(out, cap, data, v, kind, &source, 1400);
	HOLDS(len <= cap);
	/* if the sender claimed the balancer's address, this would be a land attack */
	if (len > 0 && !sy_addr_equal(&source, &v->tuple.src)) {
		HOLDS(sy_packet_parse(out, len, &error) == SY_DROP_NONE);
		HOLDS(error.frame_len == len);
		HOLDS(sy_packet_check_l4(out, &error) == SY_CSUM_OK);
		HOLDS(sy_addr_equal(&error.tuple.dst, &v->tuple.src));
		/* an error never answers an error */
		memset(&again, 0, sizeof(again));
		HOLDS(sy_packet_icmp_error((uint8_t *)&again, sizeof(again), out, &error, kind,
		                           &source, 1400) == 0);
	}
	free(out);
	return true;
}

/* What must hold for every packet, whether or not the forwarder may forward it. */
static bool packet_is_answered_validly(const uint8_t *frame, size_t size, const struct sy_view *v)
{
	for (enum sy_icmp_error kind = 0; kind <= SY_ICMP_PROHIBITED; kind++)
		HOLDS(icmp_error_is_valid(frame, v, kind));
	if (v->icmp_type == (v->v4 ? 8 : 128) && v->icmp_code == 0)
		HOLDS(echo_reply_is_valid(frame, size, v));
	HOLDS(reset_answers_once(frame, v));
	return true;
}

static bool is_echo_request(const struct sy_view *v)
{
	return v->icmp_type == (v->v4 ? 8 : 128);
}

static bool is_tcp_or_udp(const struct sy_view *v)
{
	return v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *frame = copy_make(data, size);
	struct sy_view v;

	/* the low bit of a source MAC lets the fuzzer choose */
	if (size > 6 && frame[6] & 1)
		ipv4_checksum_fix(frame, size);
	enum sy_drop drop = sy_packet_parse(frame, (uint32_t)size, &v);
	CHECK(plain_parser_agrees(frame, size, drop, &v));
	if (drop == SY_DROP_NONE && size <= UINT16_MAX)
		CHECK(untagging_keeps_the_packet(frame, size, &v));
	if (drop == SY_DROP_NONE) {
		CHECK(view_is_valid(frame, &v, size));
		CHECK(clamping_keeps_the_checksum(frame, size, &v));
		CHECK(quote_is_translated(frame, size, &v));
		CHECK(proxy_headers_fit(&v));
		CHECK(packet_is_answered_validly(frame, size, &v));
		CHECK(sequence_shift_is_reversible(frame, size, &v));
		CHECK(payload_changes_are_valid(frame, size, &v, 28));
		CHECK(payload_changes_are_valid(frame, size, &v, 37));
		CHECK(toa_insertion_keeps_the_checksum(frame, size, &v, "192.0.2.99"));
		CHECK(toa_insertion_keeps_the_checksum(frame, size, &v, "2001:db8::99"));
		if (v.vlans == 0)
			CHECK(fragments_reassemble(frame, &v, (uint16_t)(76 + frame[7] * 4)));
		if (sy_packet_ttl(frame, &v) > 1) {
			if (is_tcp_or_udp(&v))
				CHECK(rewriting_is_reversible(frame, size, &v));
			else if (is_echo_request(&v))
				CHECK(echo_rewriting_keeps_the_checksum(frame, size, &v));
			CHECK(translation_is_reversible(frame, size, &v));
			CHECK(encapsulation_keeps_the_packet(frame, size, &v, true));
			CHECK(encapsulation_keeps_the_packet(frame, size, &v, false));
		}
	}
	free(frame);
	return 0;
}
