// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include "link_frame.h"
#include "packets.h"

#define DF          0x4000u
#define MF          0x2000u
#define UDP         17
#define ICMPV6      58
#define HOP_OPTIONS 0

static uint8_t bytes[ROOM];

static void test_frames_are_parsed(void **state)
{
	uint32_t length = packet_v4(bytes, 100, 0, 0);
	struct frame f = frame_look(bytes, length + 4); /* padded */
	assert_int_equal(f.version, 4);
	assert_int_equal(f.length, 100);
	assert_ptr_equal(f.ip, bytes + ETHERNET);
	assert_false(f.spared);

	length = packet_v6(bytes, 60, UDP);
	f = frame_look(bytes, length);
	assert_int_equal(f.version, 6);
	assert_int_equal(f.length, 60);
	assert_false(f.spared);

	/* Two tags in front. */
	memmove(bytes + ETHERNET + 8, bytes + ETHERNET, length - ETHERNET);
	memcpy(bytes + 12, "\x88\xa8\0\1\x81\0\0\2\x86\xdd", 10);
	f = frame_look(bytes, length + 8);
	assert_int_equal(f.version, 6);
	assert_int_equal(f.before, ETHERNET + 8);
	assert_int_equal(f.length, 60);
}

static void test_control_frames_are_spared(void **state)
{
	ethernet(bytes, 0x0806);
	assert_true(frame_look(bytes, 60).spared); /* ARP */
	assert_int_equal(frame_look(bytes, 60).version, 0);
	uint32_t length = packet_v6(bytes, 72, ICMPV6);
	static const struct {
		uint8_t type;
		bool spared;
	} types[] = {{1, false},  {128, false}, {129, false}, {130, true},
	             {135, true}, {137, true},  {138, false}, {143, true}};
	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		bytes[ETHERNET + 40] = types[i].type;
		assert_int_equal(frame_look(bytes, length).spared, types[i].spared);
	}
	/* A listener report behind hop-by-hop options. */
	packet_v6(bytes, 72, HOP_OPTIONS);
	memcpy(bytes + ETHERNET + 40, "\x3a\0\5\2\0\0\1\0\x8f", 9);
	assert_true(frame_look(bytes, length).spared);
	packet_v4(bytes, 60, 0, 0);
	bytes[ETHERNET + 9] = 2; /* IGMP */
	assert_true(frame_look(bytes, 74).spared);
}

/* Cut off, and lengths that lie: nothing is read behind the end. */
static void test_truncated_frames_are_read_within_bounds(void **state)
{
	for (unsigned version = 4; version <= 6; version += 2) {
		uint32_t length =
		        version == 4 ? packet_v4(bytes, 60, 0, 0) : packet_v6(bytes, 60, 0);
		for (uint32_t end = 0; end < length; end++) {
			uint8_t *exact = malloc(end + 1);
			memcpy(exact, bytes, end);
			struct frame f = frame_look(exact, end);
			assert_int_equal(f.version, 0);
			frame_flip(&f, UINT64_MAX);
			free(exact);
		}
	}
	packet_v4(bytes, 60, 0, 0);
	bytes[ETHERNET] = 0x44; /* a header of 16 bytes */
	assert_int_equal(frame_look(bytes, 74).version, 0);
}

static void test_ecn_capable_packets_are_marked(void **state)
{
	for (unsigned ecn = 0; ecn < 4; ecn++) {
		packet_v4(bytes, 60, 0, 0);
		bytes[ETHERNET + 1] = (uint8_t)(0xb8 | ecn);
		put16(bytes + ETHERNET + 10, 0);
		put16(bytes + ETHERNET + 10, summed(bytes + ETHERNET, 20, 0));
		struct frame f = frame_look(bytes, 74);
		assert_int_equal(frame_mark(&f), ecn != 0);
		assert_int_equal(bytes[ETHERNET + 1], 0xb8 | (ecn ? 3 : 0));
		assert_int_equal(summed(bytes + ETHERNET, 20, 0), 0);

		packet_v6(bytes, 60, UDP);
		bytes[ETHERNET + 1] = (uint8_t)(0x8f | ecn << 4);
		f = frame_look(bytes, 74);
		assert_int_equal(frame_mark(&f), ecn != 0);
		assert_int_equal(bytes[ETHERNET + 1], 0x8f | (ecn ? 0x30 : 0));
	}
}

/* Each draw flips one bit, behind Ethernet and before the padding, and all of them occur. */
static void test_each_draw_flips_one_bit(void **state)
{
	static uint8_t seen[60 * 8];
	uint8_t before[ROOM];
	uint32_t length = packet_v4(bytes, 60, 0, 0);
	memcpy(before, bytes, sizeof(before));
	struct frame f = frame_look(bytes, length + 4);
	for (uint64_t draw = 0; draw < 10000; draw++) {
		unsigned flipped = 0;
		frame_flip(&f, draw * 0x9e3779b97f4a7c15);
		for (unsigned bit = 0; bit < ROOM * 8; bit++)
			if ((bytes[bit / 8] ^ before[bit / 8]) >> bit % 8 & 1) {
				assert_in_range(bit, ETHERNET * 8, (ETHERNET + 60) * 8 - 1);
				seen[bit - ETHERNET * 8] = 1;
				flipped++;
			}
		assert_int_equal(flipped, 1);
		frame_flip(&f, draw * 0x9e3779b97f4a7c15); /* back */
	}
	for (unsigned bit = 0; bit < sizeof(seen); bit++)
		assert_int_equal(seen[bit], 1);
}

/* ---- fragments ------------------------------------------------------------------------------- */

/* Fragments a packet, reassembles it, and returns the number of fragments. */
static unsigned cut_and_join(uint32_t length, unsigned mtu, unsigned flags)
{
	struct frame f = frame_look(bytes, length);
	unsigned header = (bytes[ETHERNET] & 15u) * 4, parts = 0;
	uint8_t part[ROOM], joined[ROOM] = {0};
	uint32_t offset = 0, end = 0;
	assert_true(frame_may_fragment(&f));
	do {
		uint32_t size = frame_fragment(&f, mtu, &offset, part);
		const uint8_t *ip = part + ETHERNET;
		assert_int_equal(get16(ip + 2), size - ETHERNET);
		assert_true(size - ETHERNET <= mtu);
		assert_int_equal(summed(ip, header, 0), 0);
		assert_memory_equal(part, bytes, ETHERNET);
		assert_memory_equal(ip + 12, bytes + ETHERNET + 12, 8);
		unsigned word = get16(ip + 6), at = ((word & 0x1fff) - (flags & 0x1fff)) * 8;
		assert_int_equal(at, end);
		assert_int_equal(!!(word & MF), offset || flags & MF);
		assert_int_equal((size - ETHERNET - header) % 8 && offset, 0);
		memcpy(joined + at, ip + header, size - ETHERNET - header);
		end += size - ETHERNET - header;
		if (header > 20) /* a copied option, and one that is for the first alone */
			assert_memory_equal(ip + 20,
			                    parts ? "\x94\4\0\0\1\1\1\1" : "\x94\4\0\0\7\4\4\0", 8);
		parts++;
	} while (offset);
	assert_int_equal(end, length - ETHERNET - header);
	assert_memory_equal(joined, bytes + ETHERNET + header, end);
	return parts;
}

static void test_fragments_reassemble(void **state)
{
	assert_int_equal(cut_and_join(packet_v4(bytes, 1500, 0, 0), 1000, 0), 2);
	assert_int_equal(cut_and_join(packet_v4(bytes, 1500, 0, 0), 576, 0), 3);
	assert_int_equal(cut_and_join(packet_v4(bytes, 1500, 0, 0), 68, 0), 31);
	assert_int_equal(cut_and_join(packet_v4(bytes, 1001, 0, 0), 1000, 0), 2);
	/* A fragment from the middle of a packet. */
	assert_int_equal(cut_and_join(packet_v4(bytes, 1500, MF | 100, 0), 1000, MF | 100), 2);
	packet_v4(bytes, 1500, 0, 8);
	memcpy(bytes + ETHERNET + 20, "\x94\4\0\0\7\4\4\0", 8);
	assert_int_equal(cut_and_join(1514, 1000, 0), 2);
	packet_v4(bytes, 1500, DF, 0);
	struct frame f = frame_look(bytes, 1514);
	assert_false(frame_may_fragment(&f));
	packet_v6(bytes, 1500, UDP);
	f = frame_look(bytes, 1514);
	assert_false(frame_may_fragment(&f));
}

/* ---- "too big" ------------------------------------------------------------------------------- */

static struct in_addr router4;
static struct in6_addr router6;

static uint32_t ask(uint32_t length, uint8_t *out)
{
	struct frame f = frame_look(bytes, length);
	inet_pton(AF_INET, "192.0.0.8", &router4);
	inet_pton(AF_INET6, "fd00::9", &router6);
	return frame_too_big(&f, 1280, &router4, &router6, out);
}

static void check_ethernet(const uint8_t *out)
{
	assert_memory_equal(out, bytes + 6, 6);
	assert_memory_equal(out + 6, bytes, 6);
	assert_memory_equal(out + 12, bytes + 12, 2);
}

static void test_too_big_is_answered_for_ipv4(void **state)
{
	uint8_t out[FRAME_ANSWER];
	uint32_t length = packet_v4(bytes, 1500, DF, 0), size = ask(length, out);
	const uint8_t *ip = out + ETHERNET, *icmp = ip + 20;
	assert_int_equal(size, ETHERNET + 576);
	check_ethernet(out);
	assert_int_equal(get16(ip + 2), 576);
	assert_int_equal(ip[9], 1);
	assert_memory_equal(ip + 12, &router4, 4);
	assert_memory_equal(ip + 16, "\x0a\0\0\1", 4);
	assert_int_equal(summed(ip, 20, 0), 0);
	assert_memory_equal(icmp, "\3\4", 2);
	assert_int_equal(get16(icmp + 6), 1280);
	assert_int_equal(summed(icmp, 556, 0), 0);
	assert_memory_equal(icmp + 8, bytes + ETHERNET, 548);
}

static void test_too_big_is_answered_for_ipv6(void **state)
{
	uint8_t out[FRAME_ANSWER];
	uint32_t length = packet_v6(bytes, 1500, UDP), size = ask(length, out);
	const uint8_t *ip = out + ETHERNET, *icmp = ip + 40;
	assert_int_equal(size, ETHERNET + 1280);
	check_ethernet(out);
	assert_int_equal(get16(ip + 4), 1240);
	assert_int_equal(ip[6], ICMPV6);
	assert_memory_equal(ip + 8, &router6, 16);
	assert_memory_equal(ip + 24, bytes + ETHERNET + 8, 16);
	assert_memory_equal(icmp, "\2\0", 2);
	assert_int_equal(icmp[4] << 24 | icmp[5] << 16 | get16(icmp + 6), 1280);
	/* The pseudo-header, RFC 8200 section 8.1. */
	assert_int_equal(summed(icmp, 1240, (uint16_t)~summed(ip + 8, 32, 1240 + ICMPV6)), 0);
	assert_memory_equal(icmp + 8, bytes + ETHERNET, 1232);
}

static void test_errors_and_multicast_get_no_answer(void **state)
{
	uint8_t out[FRAME_ANSWER], *ip = bytes + ETHERNET;
	uint32_t length = packet_v4(bytes, 1500, DF | 5, 0);
	assert_int_equal(ask(length, out), 0); /* a later fragment */
	packet_v4(bytes, 1500, DF, 0);
	ip[9] = 1;
	ip[20] = 3; /* an ICMP error */
	assert_int_equal(ask(length, out), 0);
	ip[20] = 8; /* an echo */
	assert_int_equal(ask(length, out), ETHERNET + 576);
	ip[16] = 224; /* multicast */
	assert_int_equal(ask(length, out), 0);
	packet_v4(bytes, 1500, DF, 0);
	bytes[0] |= 1; /* broadcast, below */
	assert_int_equal(ask(length, out), 0);
	packet_v6(bytes, 1500, ICMPV6);
	ip[40] = 1;
	assert_int_equal(ask(length, out), 0);
	ip[40] = 128;
	assert_int_equal(ask(length, out), ETHERNET + 1280);
	ip[8] = 0xff; /* from a multicast address */
	assert_int_equal(ask(length, out), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_frames_are_parsed),
	        cmocka_unit_test(test_control_frames_are_spared),
	        cmocka_unit_test(test_truncated_frames_are_read_within_bounds),
	        cmocka_unit_test(test_ecn_capable_packets_are_marked),
	        cmocka_unit_test(test_each_draw_flips_one_bit),
	        cmocka_unit_test(test_fragments_reassemble),
	        cmocka_unit_test(test_too_big_is_answered_for_ipv4),
	        cmocka_unit_test(test_too_big_is_answered_for_ipv6),
	        cmocka_unit_test(test_errors_and_multicast_get_no_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
