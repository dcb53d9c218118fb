// SPDX-License-Identifier: Apache-2.0
/* Segments that arrive in IP fragments, in virtual time. */
#include <arpa/inet.h>

#include <sy_packet.h>

#include "duo.h"
#include "random.h"

#define PIECE_MTU 576
#define PARTS     8
#define SIZE      1400 /* of a segment */

static const struct sy_stack_options none;

static const struct sy_stack_counters *counters(void)
{
	return sy_stack_counters(duo.b);
}

static struct rte_mbuf *packet_of(const uint8_t *frame, uint32_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(tests_pool());

	assert_non_null(m);
	memcpy(rte_pktmbuf_append(m, (uint16_t)len), frame, len);
	return m;
}

/* The fragments of what `a` sends now: one segment. */
static unsigned parts_fetch(struct rte_mbuf **part, uint32_t id)
{
	uint8_t out[2048];
	struct rte_mbuf *m[DUO_MAX];
	uint16_t at = 0;
	unsigned count = 0;
	uint32_t len;

	duo_write(SIZE, 0);
	assert_int_equal(duo_fetch(m), 1);
	const uint8_t *frame = rte_pktmbuf_mtod(m[0], const uint8_t *);
	while ((len = sy_packet_fragment(out, sizeof(out), frame, PIECE_MTU, id, &at)) > 0)
		part[count++] = packet_of(out, len);
	rte_pktmbuf_free(m[0]);
	assert_true(count >= 3);
	return count;
}

static void give(struct rte_mbuf *m)
{
	sy_stack_receive(duo.b, &m, 1, duo.now);
}

/* A retransmission arrives whole. */
static void recover(void)
{
	struct rte_mbuf *m[DUO_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < 100 && !count; i++) {
		duo_pass(100);
		count = duo_fetch(m);
	}
	assert_true(count > 0);
	sy_stack_receive(duo.b, m, count, duo.now);
	duo_back();
	duo_read();
}

/* In any order, some of them twice. */
static void test_orders(void **state)
{
	for (unsigned turn = 0; turn < 400; turn++) {
		struct rte_mbuf *part[PARTS];
		duo_begin(none, none, turn % 2);
		unsigned count = parts_fetch(part, turn), twice = turn / 2 % 2;
		for (unsigned left = count; left > 0; left--) {
			unsigned i = random_below(left);
			if (twice && left > 1)
				give(rte_pktmbuf_copy(part[i], tests_pool(), 0, UINT32_MAX));
			give(part[i]);
			part[i] = part[left - 1];
		}
		assert_int_equal(counters()->reassembled, 1);
		assert_int_equal(counters()->fragments, count + twice * (count - 1));
		assert_int_equal(counters()->fragments_duplicate, twice * (count - 1));
		duo_read();
		assert_int_equal(duo.read, SIZE);
		duo_end();
	}
}

/* RFC 5722: of such a datagram nothing is used, also later. */
static void test_overlap(void **state)
{
	for (unsigned v4 = 0; v4 < 2; v4++) {
		struct rte_mbuf *part[PARTS];
		duo_begin(none, none, v4);
		unsigned count = parts_fetch(part, 7);
		struct rte_mbuf *bad = rte_pktmbuf_copy(part[1], tests_pool(), 0, UINT32_MAX);
		uint8_t *place = rte_pktmbuf_mtod_offset(bad, uint8_t *, v4 ? 14 + 6 : 14 + 40 + 2);
		uint16_t units = v4 ? 1 : 8, field;
		memcpy(&field, place, sizeof(field));
		field = htons(ntohs(field) - units);
		memcpy(place, &field, sizeof(field));
		if (v4) {
			struct sy_ipv4 *ip = rte_pktmbuf_mtod_offset(bad, struct sy_ipv4 *, 14);
			ip->checksum = 0;
			ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
		}
		give(part[0]);
		give(bad);
		for (unsigned i = 1; i < count; i++)
			give(part[i]);
		assert_int_equal(counters()->fragments_overlap, count);
		assert_int_equal(counters()->reassembled, 0);
		recover();
		assert_int_equal(duo.read, SIZE);
		duo_end();
	}
}

/* A datagram expires two seconds after its first fragment. */
static void test_timeout(void **state)
{
	for (unsigned v4 = 0; v4 < 2; v4++) {
		struct rte_mbuf *part[PARTS];
		duo_begin(none, none, v4);
		unsigned count = parts_fetch(part, 7);
		for (unsigned i = 1; i < count; i++)
			give(part[i]);
		duo.now += 1999 * DUO_MS;
		give(rte_pktmbuf_copy(part[0], tests_pool(), 0, UINT32_MAX));
		assert_int_equal(counters()->reassembled, 1);
		duo_read();
		rte_pktmbuf_free(part[0]);
		duo_end();
		duo_begin(none, none, v4);
		count = parts_fetch(part, 8);
		give(part[0]);
		duo.now += 2000 * DUO_MS;
		for (unsigned i = 1; i < count; i++)
			give(part[i]);
		assert_int_equal(counters()->fragments_timeout, 1);
		assert_int_equal(counters()->reassembled, 0);
		duo_end();
	}
}

/* Limits: eight datagrams per source, 64 in total; evicts the oldest. */
static void test_shares(void **state)
{
	struct rte_mbuf *part[PARTS];

	duo_begin(none, none, true);
	unsigned count = parts_fetch(part, 7);
	give(part[0]);
	for (unsigned source = 0; source < 80; source++) {
		for (unsigned id = 0; id < 10 && source < 7; id++) {
			struct rte_mbuf *m = rte_pktmbuf_copy(part[1], tests_pool(), 0, UINT32_MAX);
			struct sy_ipv4 *ip = rte_pktmbuf_mtod_offset(m, struct sy_ipv4 *, 14);
			ip->src = htonl(0x0b000001 + source);
			ip->id = htons((uint16_t)id);
			ip->checksum = 0;
			ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
			duo.now += DUO_MS;
			give(m);
		}
	}
	assert_int_equal(counters()->fragments_evicted, 7 * 2);
	for (unsigned i = 1; i < count; i++)
		give(part[i]);
	assert_int_equal(counters()->reassembled, 1);
	duo_read();
	assert_int_equal(duo.read, SIZE);
	duo_end();
}

/* A segment cannot be longer than what an interface has sent. */
static void test_length(void **state)
{
	struct rte_mbuf *part[PARTS];

	duo_begin(none, none, true);
	unsigned count = parts_fetch(part, 7);
	struct sy_ipv4 *ip = rte_pktmbuf_mtod_offset(part[count - 1], struct sy_ipv4 *, 14);
	ip->fragment = htons(ntohs(ip->fragment) + 64);
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
	for (unsigned i = 0; i < count; i++)
		give(part[i]);
	assert_int_equal(counters()->fragments_too_long, 1);
	assert_int_equal(counters()->reassembled, 0);
	recover();
	duo_end();
}

/* ---- nonsense -------------------------------------------------------------------------------- */

/* Mostly a third of a datagram, so that some become whole. */
static void part_draw(unsigned *units, unsigned *more, unsigned *len)
{
	*units = random_below(3) * 20;
	*more = *units < 40;
	*len = 160;
	if (random_below(8))
		return;
	*units = random_below(400);
	*more = random_below(2);
	*len = random_below(160) * 8 + random_below(8);
}

/* Behind the headers: no first fragment without a header of TCP passes the parser. */
static struct rte_mbuf *nonsense_of(uint8_t *frame, unsigned at, unsigned len)
{
	frame[0] = 2;
	frame[at + 12] = 0x50;
	frame[at + 13] = SY_TCP_ACK;
	return packet_of(frame, at + len);
}

static struct rte_mbuf *nonsense_v4(uint8_t *frame)
{
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + 14);
	unsigned words = 5 + random_below(3) * 5, units, more, len;

	part_draw(&units, &more, &len);
	frame[12] = 0x08;
	frame[13] = 0x00;
	*ip = (struct sy_ipv4){.version_ihl = (uint8_t)(0x40 | words),
	                       .tos = (uint8_t)random_below(4),
	                       .total_length = htons((uint16_t)(words * 4 + len)),
	                       .id = htons((uint16_t)random_below(4)),
	                       .fragment = htons((uint16_t)(more << 13 | units)),
	                       .ttl = 64,
	                       .proto = SY_PROTO_TCP,
	                       .src = htonl(0x0a000001 + random_below(3)),
	                       .dst = htonl(0x0a000002)};
	memset(frame + 34, 1, (words - 5) * 4); /* no operation */
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, words * 4));
	return nonsense_of(frame, 14 + words * 4, len);
}

static struct rte_mbuf *nonsense_v6(uint8_t *frame)
{
	struct sy_ipv6 *ip = (struct sy_ipv6 *)(frame + 14);
	unsigned at = 54, units, more, len;
	uint8_t *next = &ip->next_header;

	part_draw(&units, &more, &len);
	frame[12] = 0x86;
	frame[13] = 0xdd;
	memset(ip, 0, sizeof(*ip));
	ip->version_class_flow = htonl(6u << 28 | random_below(4) << 20);
	ip->hop_limit = 64;
	ip->src[0] = ip->dst[0] = 0xfd;
	ip->src[15] = (uint8_t)(1 + random_below(3));
	ip->dst[15] = 9;
	for (unsigned n = random_below(3); n > 0; n--) {
		unsigned size = (random_below(20) + 1) * 8;
		*next = 60;
		next = frame + at;
		memset(frame + at, 0, size);
		frame[at + 1] = (uint8_t)(size / 8 - 1);
		at += size;
	}
	*next = 44;
	uint16_t place = htons((uint16_t)(units * 8 | more));
	memset(frame + at, 0, 8);
	frame[at] = random_below(4) ? SY_PROTO_TCP : 60;
	memcpy(frame + at + 2, &place, sizeof(place));
	frame[at + 7] = (uint8_t)random_below(4);
	at += 8;
	ip->payload_length = htons((uint16_t)(at - 54 + len));
	return nonsense_of(frame, at, len);
}

/* Whatever arrives, the table keeps to its bounds, and all buffers come back (duo_end()). */
static void test_nonsense(void **state)
{
	static uint8_t frame[4096];

	for (unsigned v4 = 0; v4 < 2; v4++) {
		duo_begin(none, none, v4);
		for (unsigned i = 0; i < sizeof(frame); i++)
			frame[i] = (uint8_t)random_below(256);
		for (unsigned i = 0; i < 60000; i++) {
			duo.now += random_below(40) * DUO_MS / 10;
			give(v4 ? nonsense_v4(frame) : nonsense_v6(frame));
		}
		assert_true(counters()->fragments > 10000 && counters()->reassembled > 0);
		assert_true(counters()->fragments_overlap > 0 &&
		            counters()->fragments_too_long > 0);
		duo_end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_orders),  cmocka_unit_test(test_overlap),
	        cmocka_unit_test(test_timeout), cmocka_unit_test(test_shares),
	        cmocka_unit_test(test_length),  cmocka_unit_test(test_nonsense),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
