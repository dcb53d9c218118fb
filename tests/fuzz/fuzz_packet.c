// SPDX-License-Identifier: Apache-2.0
/*
 * Everything that acts on a frame from the wire. Built for libFuzzer, so that sanitizers see what
 * goes beyond the frame; what may not happen inside it is checked here.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sy_packet.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

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

/* Random input seldom carries a right header checksum; the rest would hardly be reached. */
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
	CHECK(v->fragment == SY_FRAGMENT_NONE || sy_packet_check_l4(frame, v) == SY_CSUM_UNKNOWN);
	CHECK(sy_addr_is_v4(&v->tuple.src) == (v->v4 != 0));
	CHECK(sy_addr_is_v4(&v->tuple.dst) == (v->v4 != 0));
	CHECK(v->tuple.proto == v->proto);
}

/* A right checksum stays right, a wrong one wrong; the header stays one that parses. */
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
	struct sy_view after;
	struct sy_rewrite r;

	sy_rewrite_prepare(&v->tuple, &to, &r);
	sy_packet_rewrite(frame, v, &r);
	CHECK(sy_packet_parse(frame, (uint32_t)size, &after) == SY_DROP_NONE);
	CHECK(memcmp(&after.tuple, &to, sizeof(to)) == 0);
	CHECK(after.frame_len == v->frame_len && after.tcp_flags == v->tcp_flags);
	CHECK(sy_packet_ttl(frame, &after) + 1 == sy_packet_ttl(data, v));
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
	/* the address asked may have been a group or loopback */
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
	/* not a size that always fits: the capacity is tested as well */
	uint32_t cap = SY_ETH_LEN + 1000, len;
	uint8_t *out = malloc(cap);
	struct sy_addr source = addr_of(v->v4 ? "198.51.100.1" : "2001:db8:ffff::1");
	struct sy_view error, again;

	CHECK(out);
	len = sy_packet_icmp_error(out, cap, data, v, kind, &source, 1400);
	CHECK(len <= cap);
	/* a sender that claims our address would make it a land attack */
	if (len > 0 && !sy_addr_equal(&source, &v->tuple.src)) {
		CHECK(sy_packet_parse(out, len, &error) == SY_DROP_NONE);
		CHECK(error.frame_len == len);
		CHECK(sy_packet_check_l4(out, &error) == SY_CSUM_OK);
		CHECK(sy_addr_equal(&error.tuple.dst, &v->tuple.src));
		/* errors are not answered by errors */
		memset(&again, 0, sizeof(again));
		CHECK(sy_packet_icmp_error((uint8_t *)&again, sizeof(again), out, &error, kind,
		                           &source, 1400) == 0);
	}
	free(out);
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
	if (sy_packet_parse(frame, (uint32_t)size, &v) == SY_DROP_NONE) {
		view_check(frame, &v, size);
		bool forwarded = v.proto == SY_PROTO_TCP || v.proto == SY_PROTO_UDP;
		if (forwarded && sy_packet_ttl(frame, &v) > 1)
			rewrite_check(frame, size, &v);
		if (!forwarded && v.icmp_type == (v.v4 ? 8 : 128) && v.icmp_code == 0)
			echo_check(frame, size, &v);
		clamp_check(frame, size, &v);
		for (enum sy_icmp_error kind = 0; kind <= SY_ICMP_PROHIBITED; kind++)
			error_check(frame, &v, kind);
	}
	free(frame);
	return 0;
}
