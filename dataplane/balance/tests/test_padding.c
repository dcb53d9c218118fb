// SPDX-License-Identifier: Apache-2.0
/* Bytes behind an IP packet, such as those by which Ethernet frames are padded to 60 bytes, stay
 * behind, in each mode and for each kind of packet. */
#include "ways.h"

static const struct way ways[] = WAYS_OF_MODES;

static int setup(void **state)
{
	return ways_setup(state, ways, SY_ARRAY_LEN(ways));
}

static void pad(struct frame *frame, unsigned padding)
{
	memset(frame->bytes + frame->len, 0x5a, padding);
	frame->len = (uint16_t)(frame->len + padding);
}

/* Checks that nothing is behind the packet. */
static void check_bare(const struct frame *out)
{
	const bool v4 = out->bytes[12] == 0x08;
	uint16_t len;
	memcpy(&len, out->bytes + SY_ETH_LEN + (v4 ? 2 : 4), sizeof(len));
	assert_int_equal(out->len, SY_ETH_LEN + ntohs(len) + (v4 ? 0 : sizeof(struct sy_ipv6)));
}

/* Passes a frame with this many bytes behind its packet: nothing is behind the packet that leaves.
 */
static void check_one(struct flows *f, unsigned port, const struct frame *in, unsigned padding,
                      struct frame *out)
{
	struct frame padded = *in;
	pad(&padded, padding);
	if (!flows_through(f, port, &padded, out))
		fail_msg("a frame of %u bytes, %u of them padding, is gone", padded.len, padding);
	check_bare(out);
}

/* The same several times, so that packets of each stage are checked. */
static void check(struct flows *f, unsigned port, const struct frame *in, struct frame *out)
{
	static const unsigned padding[] = {6, 0, 1, 46};
	for (unsigned n = 0; n < SY_ARRAY_LEN(padding); n++)
		check_one(f, port, in, padding[n], out);
}

/* Adds four bytes of IPv4 options, for a packet that is not plain. */
static void add_options(struct frame *in)
{
	static const uint8_t nops[4] = {1, 1, 1, 1};
	const unsigned l4 = SY_ETH_LEN + sizeof(struct sy_ipv4);
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(in->bytes + SY_ETH_LEN);
	memmove(in->bytes + l4 + sizeof(nops), in->bytes + l4, in->len - l4);
	memcpy(in->bytes + l4, nops, sizeof(nops));
	in->len = (uint16_t)(in->len + sizeof(nops));
	ip->version_ihl++;
	ip->total_length = htons((uint16_t)(in->len - SY_ETH_LEN));
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip) + sizeof(nops)));
}

static void test_padding_stays_behind(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 2 * SY_ARRAY_LEN(ways); n++) {
		const struct way *way = &ways[n / 2];
		const uint8_t proto = n % 2 ? SY_PROTO_UDP : SY_PROTO_TCP;
		const bool one_way = way->mode == MODE_DR || way->mode == MODE_IPIP;
		const struct sy_tuple t = client_of(way, proto, (uint16_t)(5000 + n));
		struct frame in, out;
		struct sy_view v;
		flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
		check(f, HARNESS_WAN, &in, &out);
		if (!one_way) {
			assert_int_equal(sy_packet_parse(out.bytes, out.len, &v), SY_DROP_NONE);
			const struct sy_tuple back = reversed(&v.tuple);
			flows_frame(f, &in, &back, SY_TCP_SYN | SY_TCP_ACK, 0, 0);
			check(f, HARNESS_LAN, &in, &out);
			flows_frame(f, &in, &t, SY_TCP_ACK, 2, 0);
			check(f, HARNESS_WAN, &in, &out);
			flows_frame(f, &in, &back, SY_TCP_ACK, 1, 3);
			check(f, HARNESS_LAN, &in, &out);
		}
		flows_frame(f, &in, &t, SY_TCP_ACK, 2, 1);
		check(f, HARNESS_WAN, &in, &out);
		if (way->client6)
			continue;
		add_options(&in);
		check(f, HARNESS_WAN, &in, &out);
	}
}

/* The last fragment of a datagram is short. */
static void test_fragments(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < SY_ARRAY_LEN(ways); n++) {
		const struct sy_tuple t = client_of(&ways[n], SY_PROTO_UDP, (uint16_t)(6000 + n));
		struct frame in, piece[2], out;
		flows_frame(f, &in, &t, 0, 0, 50);
		assert_int_equal(frame_cut(&in, 100 + n, 48, piece, 2), 2);
		pad(&piece[0], 1);
		pad(&piece[1], 30);
		assert_false(flows_through(f, HARNESS_WAN, &piece[0], &out));
		assert_true(harness_inject(&f->harness, HARNESS_WAN, piece[1].bytes, piece[1].len));
		harness_poll(&f->harness);
		for (unsigned i = 0; i < 2; i++) {
			struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_LAN);
			assert_non_null(m);
			out.len = rte_pktmbuf_data_len(m);
			memcpy(out.bytes, rte_pktmbuf_mtod(m, void *), out.len);
			rte_pktmbuf_free(m);
			check_bare(&out);
		}
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(padding_stays_behind),
	        TEST(fragments),
	};
	return cmocka_run_group_tests_name("padding", tests, NULL, NULL);
}
