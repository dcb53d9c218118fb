// SPDX-License-Identifier: Apache-2.0
/* Packets in several buffers, and LRO packets. */
#include <rte_ether.h>

#include "duo.h"

#define MSS  1448
#define SIZE (MSS + 66) /* of a full segment's frame */

static const struct sy_stack_options none;

static const struct sy_stack_counters *counters(void)
{
	return sy_stack_counters(duo.b);
}

static struct connection *receiver(void)
{
	return connection_of(duo.b, duo.to);
}

static void give(struct rte_mbuf **m, unsigned count)
{
	sy_stack_receive(duo.b, m, count, duo.now);
}

/* Counts b's packets and delivers them to a. */
static unsigned answers(void)
{
	struct rte_mbuf *m[DUO_MAX];
	unsigned count = sy_stack_transmit(duo.b, m, DUO_MAX, duo.now);

	sy_stack_receive(duo.a, m, count, duo.now);
	return count;
}

/* An LRO packet of full segments. */
static struct rte_mbuf *joined(unsigned segments)
{
	struct rte_mbuf *m[DUO_MAX];

	duo_write(segments * MSS, 0);
	assert_int_equal(duo_fetch(m), segments);
	assert_int_equal(large_join(m, segments), 1);
	assert_int_equal(m[0]->nb_segs, segments);
	return m[0];
}

/* ---- in order -------------------------------------------------------------------------------- */

/* Eight joined segments arrive as one and get one ACK. */
static void test_joined(void **state)
{
	for (unsigned v4 = 0; v4 < 2; v4++) {
		duo_begin(none, none, v4);
		unsigned mss = duo_sender()->mss, before = (unsigned)counters()->packets_in;
		struct rte_mbuf *m[DUO_MAX];
		duo_write(8 * mss, 0);
		assert_int_equal(duo_fetch(m), 8);
		assert_int_equal(large_join(m, 8), 1);
		give(m, 1);
		assert_int_equal(counters()->packets_in - before, 1);
		assert_int_equal(counters()->lro_packets, 1);
		assert_int_equal(counters()->fast, 1);
		assert_int_equal(receiver()->rcv_mss, mss);
		assert_int_equal(answers(), 1);
		assert_int_equal(duo_sender()->snd_una, duo_sender()->snd_nxt);
		assert_int_equal(duo_read(), 8 * mss);
		duo_end();
	}
}

/* Every second full segment is acknowledged at once (RFC 9293 3.8.6.3), however they come: two at
 * once do not wait for the timer, and one does. */
static void test_delayed_acks(void **state)
{
	struct rte_mbuf *m[2];

	duo_begin(none, none, true);
	m[0] = joined(2);
	give(m, 1);
	assert_int_equal(answers(), 1);
	duo_write(MSS, 0);
	assert_int_equal(duo_fetch(m), 1);
	give(m, 1);
	assert_int_equal(answers(), 0);
	duo_pass(50);
	assert_int_equal(answers(), 1);
	assert_int_equal(duo_read(), 3 * MSS);
	/* If the port does not report the number, no segment exceeds the offered MSS. */
	m[0] = joined(4);
	m[0]->tso_segsz = 0;
	give(m, 1);
	assert_int_equal(receiver()->rcv_mss, connection_local_mss(duo.b, receiver()));
	assert_int_equal(answers(), 1);
	assert_int_equal(duo_read(), 4 * MSS);
	duo_end();
}

/* Zero-copy reads. */
static void test_peek(void **state)
{
	struct iovec v[8];
	struct rte_mbuf *m, *held[8];

	duo_begin(none, none, true);
	m = joined(4);
	give(&m, 1);
	assert_int_equal(sy_stack_peek_referenced(duo.b, duo.to, v, held, 8), 4 * MSS);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(v[i].iov_len, MSS);
	assert_int_equal(duo_read(), 4 * MSS);
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned k = 0; k < MSS; k++)
			assert_int_equal(((uint8_t *)v[i].iov_base)[k], duo_byte_of(i * MSS + k));
		rte_pktmbuf_free_seg(held[i]);
	}
	duo_end();
}

/* Trims data beyond the window, within a buffer. */
static void test_edges(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	duo_begin(none, none, true);
	m[0] = joined(6);
	receiver()->rcv_edge = receiver()->rcv_nxt + 4 * MSS + 10;
	give(m, 1);
	assert_int_equal(duo_read(), 4 * MSS + 10);
	answers();
	duo_end();
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Any split into buffers, even within headers; the checksum is not verified by the device. */
static void test_buffers(void **state)
{
	struct rte_mbuf *m;

	for (unsigned v4 = 0; v4 < 2; v4++) {
		duo_begin(none, none, v4);
		for (uint16_t at = 1; at < 200; at++) {
			duo_write(301, 0);
			assert_int_equal(duo_fetch(&m), 1);
			large_split(m, at);
			large_split(m, (uint16_t)(1 + at % 7));
			assert_int_equal(m->nb_segs, at > 1 + at % 7 ? 3 : 2);
			give(&m, 1);
			assert_int_equal(duo_read(), 301);
			duo_back();
			duo_pass(50);
			duo_back();
		}
		assert_int_equal(counters()->malformed + counters()->bad_checksums, 0);
		duo_end();
	}
}

/* A wrong checksum is detected, wherever the wrong byte is. */
static void test_wrong_checksum(void **state)
{
	struct rte_mbuf *m, *sent;

	duo_begin(none, none, true);
	duo_write(500, 0);
	assert_int_equal(duo_fetch(&sent), 1);
	for (uint16_t byte = 40; byte < sent->pkt_len; byte += 3) {
		m = rte_pktmbuf_copy(sent, sent->pool, 0, UINT32_MAX);
		rte_pktmbuf_mtod(m, uint8_t *)[byte] ^= 1;
		large_split(m, 333);
		large_split(m, 101);
		give(&m, 1);
	}
	assert_int_equal(counters()->bad_checksums, (sent->pkt_len - 40 + 2) / 3);
	assert_int_equal(duo_read(), 0);
	give(&sent, 1);
	assert_int_equal(duo_read(), 500);
	duo_end();
}

/* All packets have unfinished checksums, from the handshake on; then a byte of the sum is wrong. */
static void test_unfinished(void **state)
{
	const struct sy_stack_options computes = {.offload_checksum = true},
	                              bears = {.unfinished = true};
	struct rte_mbuf *m;

	for (unsigned v4 = 0; v4 < 2; v4++) {
		duo_begin(computes, bears, v4);
		sy_stack_set(duo.a, duo.from, SY_STACK_NO_DELAY, 1, duo.now);
		for (unsigned wrong = 0; wrong < 2; wrong++) {
			duo_write(500, 0);
			assert_int_equal(duo_fetch(&m), 1);
			rte_pktmbuf_mtod_offset(m, uint8_t *, m->l2_len + m->l3_len)[16] ^= wrong;
			m->ol_flags = 0;
			large_split(m, 333);
			large_split(m, 101);
			give(&m, 1);
			assert_int_equal(duo_read(), wrong ? 0 : 500);
			assert_int_equal(counters()->bad_checksums, wrong);
		}
		duo_end();
	}
}

/* The device's result applies here, too. */
static void test_checksum_by_the_device(void **state)
{
	struct rte_mbuf *m;

	duo_begin(none, none, true);
	m = joined(3);
	m->ol_flags &= ~RTE_MBUF_F_RX_L4_CKSUM_MASK;
	m->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_BAD;
	give(&m, 1);
	assert_int_equal(counters()->bad_checksums, 1);
	assert_int_equal(duo_read(), 0);
	duo_end();
}

/* Non-TCP is linearized if it fits one buffer; otherwise it is malformed. */
static void test_no_tcp(void **state)
{
	struct rte_mbuf *m, *more;

	duo_begin(none, none, true);
	for (unsigned fits = 0; fits < 2; fits++) {
		m = joined(3);
		struct rte_ipv4_hdr *ip =
		        rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, SY_ETH_LEN);
		ip->next_proto_id = SY_PROTO_UDP;
		if (fits) {
			more = m->next;
			m->next = NULL;
			m->nb_segs = 1;
			m->pkt_len = m->data_len;
			rte_pktmbuf_free(more);
			ip->total_length = htons((uint16_t)(m->pkt_len - SY_ETH_LEN));
			large_split(m, 20);
		}
		ip->hdr_checksum = 0;
		ip->hdr_checksum = rte_ipv4_cksum(ip);
		give(&m, 1);
		assert_int_equal(counters()->malformed, fits ? 2 : 1); /* no UDP that long */
	}
	duo_settle();
	duo_pass(300);
	duo_settle();
	duo_end();
}

/* ARP and multicast are expected, not malformed. */
static void test_not_ours(void **state)
{
	static const struct {
		uint8_t destination;
		uint16_t type;
		bool ours;
	} all[] = {
	        {2, RTE_ETHER_TYPE_ARP, false}, {0x33, SY_ETH_IPV6, false}, {2, SY_ETH_IPV6, true}};

	duo_begin(none, none, true);
	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++) {
		struct rte_mbuf *m = joined(1);
		struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
		uint64_t before = counters()->not_ours;
		eth->dst_addr.addr_bytes[0] = all[i].destination;
		eth->ether_type = htons(all[i].type); /* IPv6 it is not */
		give(&m, 1);
		assert_int_equal(counters()->not_ours - before, !all[i].ours);
	}
	assert_int_equal(counters()->malformed, 1);
	duo_end();
}

/* Lengths beyond the packet. */
static void test_cut_short(void **state)
{
	struct rte_mbuf *m;

	duo_begin(none, none, true);
	m = joined(3);
	struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, SY_ETH_LEN);
	ip->total_length = htons((uint16_t)(m->pkt_len - SY_ETH_LEN + 1));
	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	give(&m, 1);
	assert_int_equal(counters()->malformed, 1);
	duo_end();
	duo_begin(none, none, true); /* and less: the rest is padding */
	m = joined(3);
	ip = rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, SY_ETH_LEN);
	ip->total_length = htons((uint16_t)(m->pkt_len - SY_ETH_LEN - MSS - 9));
	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	give(&m, 1);
	assert_int_equal(duo_read(), 2 * MSS - 9);
	duo_end();
}

/* ---- out of order ---------------------------------------------------------------------------- */

/* An LRO packet after a gap: SACK reports all of it, and it is delivered when the gap is filled. */
static void test_out_of_order(void **state)
{
	struct rte_mbuf *gap, *m;

	duo_begin(none, none, true);
	duo_write(MSS, 0);
	assert_int_equal(duo_fetch(&gap), 1);
	m = joined(5);
	give(&m, 1);
	assert_int_equal(counters()->out_of_order, 5); /* buffers */
	assert_int_equal(answers(), 1);
	assert_int_equal(flight_of(duo.a, duo_sender())->sent.sacked, 5 * MSS);
	assert_int_equal(duo_read(), 0);
	give(&gap, 1);
	assert_int_equal(duo_read(), 6 * MSS);
	duo_settle();
	duo_end();
}

/* A peer without SACK counts duplicates (RFC 5681 3.2): one for each segment. */
static void test_out_of_order_without_sack(void **state)
{
	struct rte_mbuf *gap, *m;

	duo_begin((struct sy_stack_options){.no_sack = true}, none, true);
	duo_write(MSS, 0);
	assert_int_equal(duo_fetch(&gap), 1);
	rte_pktmbuf_free(gap);
	m = joined(4);
	give(&m, 1);
	assert_int_equal(answers(), 4);
	assert_int_equal(sy_stack_counters(duo.a)->recoveries, 1);
	duo_settle();
	assert_int_equal(duo_read(), 5 * MSS);
	assert_int_equal(sy_stack_counters(duo.a)->timeouts, 0);
	duo_end();
}

/* If neither the peer's first segment (one byte) nor the port reveals the segment size, the number
 * of ACKs is bounded. */
static void test_out_of_order_after_a_byte(void **state)
{
	struct rte_mbuf *gap, *m;
	unsigned count, all = 0;

	duo_begin((struct sy_stack_options){.no_sack = true}, none, true);
	duo_write(MSS, 0);
	assert_int_equal(duo_fetch(&gap), 1);
	m = joined(7);
	m->tso_segsz = 0;
	receiver()->rcv_mss = 1;
	give(&m, 1);
	while ((count = answers()) > 0)
		all += count;
	assert_int_equal(all, 64);
	give(&gap, 1);
	assert_int_equal(duo_read(), 8 * MSS);
	duo_end();
}

/* Trims duplicate data, within a buffer. */
static void test_overlap(void **state)
{
	struct rte_mbuf *m, *first;

	duo_begin(none, none, true);
	m = joined(4);
	first = rte_pktmbuf_copy(m, m->pool, 0, SIZE + 700);
	assert_non_null(first);
	struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(first, struct rte_ipv4_hdr *, SY_ETH_LEN);
	ip->total_length = htons((uint16_t)(first->pkt_len - SY_ETH_LEN));
	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	give(&first, 1);
	assert_int_equal(duo_read(), MSS + 700);
	give(&m, 1);
	assert_int_equal(duo_read(), 3 * MSS - 700);
	duo_end();
}

/* A part is already queued: the rest fills the gaps, no byte twice. */
static void test_gaps(void **state)
{
	struct rte_mbuf *m[8];

	duo_begin(none, none, true);
	duo_write(8 * MSS, 0);
	assert_int_equal(duo_fetch(m), 8);
	give(&m[3], 1);
	give(&m[6], 1);
	struct rte_mbuf *rest[6] = {m[1], m[2], NULL, m[4], m[5], m[7]};
	assert_int_equal(large_join(rest, 2), 1);
	assert_int_equal(large_join(rest + 3, 2), 1);
	give(&rest[0], 1);
	give(&rest[3], 1);
	give(&rest[5], 1);
	assert_int_equal(duo_read(), 0);
	give(&m[0], 1);
	assert_int_equal(duo_read(), 8 * MSS);
	duo_end();
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* While buffers are scarce, each buffer is copied; without copies the rest of a packet is dropped
 * and retransmitted. */
static void test_scarce(void **state)
{
	struct rte_mbuf *m;

	duo_begin(none, (struct sy_stack_options){.copies = tests_copies()}, true);
	unsigned copies = rte_mempool_avail_count(tests_copies());
	duo.b->scarce = true;
	duo.b->checked_ms = duo.b->now_ms; /* it is not looked at again in this millisecond */
	m = joined(5);
	give(&m, 1);
	assert_int_equal(counters()->copied, copies);
	assert_true(copies > 0 && copies < 5);
	assert_int_equal(duo_read(), copies * MSS);
	assert_int_equal(rte_mempool_avail_count(tests_copies()), copies);
	duo.b->scarce = false;
	assert_int_equal(answers(), 1);
	duo_pass(300);
	duo_settle();
	duo_pass(300);
	duo_settle();
	assert_int_equal(duo_read(), (5 - copies) * MSS);
	duo_end();
}

/* The part that was queued closes the gap to out-of-order data. */
static void test_scarce_before_a_gap(void **state)
{
	struct rte_mbuf *m[5], *later;

	duo_begin(none, (struct sy_stack_options){.copies = tests_copies()}, true);
	unsigned copies = rte_mempool_avail_count(tests_copies());
	assert_int_equal(copies, 3);
	duo_write(5 * MSS, 0);
	assert_int_equal(duo_fetch(m), 5);
	later = rte_pktmbuf_copy(m[3], m[3]->pool, 0, UINT32_MAX);
	assert_non_null(later);
	give(&later, 1);
	assert_int_equal(answers(), 1);
	duo.b->scarce = true;
	duo.b->checked_ms = duo.b->now_ms; /* it is not looked at again in this millisecond */
	assert_int_equal(large_join(m, 5), 1);
	give(m, 1);
	assert_int_equal(counters()->copied, copies);
	assert_int_equal(receiver()->arrived.blocks, 0);
	assert_int_equal(duo_read(), 4 * MSS);
	duo.b->scarce = false;
	assert_int_equal(answers(), 1);
	for (unsigned i = 0; i < 2; i++) {
		duo_pass(300);
		duo_settle();
	}
	assert_int_equal(duo_read(), MSS);
	duo_end();
}

/* ---- priorities ------------------------------------------------------------------------------ */

static struct {
	unsigned asked;
	uint64_t offset[16];
	uint16_t len[16];
	uint8_t first[16];
} hook;

static uint8_t segment_hook(struct sy_hook_segment *view, const uint8_t *payload)
{
	unsigned n = hook.asked++ % 16;

	hook.offset[n] = view->offset;
	hook.len[n] = view->packet.payload_len;
	hook.first[n] = payload[0];
	return n == 1 ? 3 : 5;
}

/* A segment hook sees all bytes in their order, one buffer after the other. */
static void test_hook(void **state)
{
	struct rte_mbuf *m;

	duo_begin(none, none, true);
	int number = sy_hooks_load(sy_stack_hooks(duo.b), "each",
	                           &(struct sy_hook_source){.segment = segment_hook}, NULL);
	assert_true(number > 0);
	assert_int_equal(sy_stack_segment_hook(duo.b, SY_STACK_NONE, (unsigned)number), 0);
	hook.asked = 0;
	m = joined(4);
	give(&m, 1);
	assert_int_equal(hook.asked, 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(hook.offset[i], i * MSS);
		assert_int_equal(hook.len[i], MSS);
		assert_int_equal(hook.first[i], duo_byte_of(i * MSS));
	}
	assert_int_equal(sy_stack_level(duo.b, duo.to), 3);
	assert_int_equal(duo_read(), 4 * MSS);
	duo_end();
}

static uint8_t packet_hook(struct sy_hook_packet *view, const uint8_t *payload)
{
	return view->payload_len > 0 && payload[0] == duo_byte_of(2 * MSS) ? 1 : 6;
}

/* The most urgent result of a packet hook applies to an LRO packet. */
static void test_packet_hook(void **state)
{
	struct sy_stack_levels levels;
	struct rte_mbuf *m;

	duo_begin(none, none, true);
	int number = sy_hooks_load(sy_stack_hooks(duo.b), "third",
	                           &(struct sy_hook_source){.packet = packet_hook}, NULL);
	assert_true(number > 0);
	assert_int_equal(sy_stack_packet_hook(duo.b, (unsigned)number), 0);
	m = joined(4);
	give(&m, 1);
	sy_stack_levels(duo.b, &levels);
	assert_int_equal(levels.waiting[1], 1);
	assert_int_equal(levels.waiting[6], 0);
	assert_int_equal(sy_stack_process(duo.b, 1, duo.now), 0);
	assert_int_equal(duo_read(), 4 * MSS);
	assert_int_equal(sy_stack_packet_hook(duo.b, SY_HOOK_NONE), 0);
	duo_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_joined),
	        cmocka_unit_test(test_delayed_acks),
	        cmocka_unit_test(test_peek),
	        cmocka_unit_test(test_edges),
	        cmocka_unit_test(test_buffers),
	        cmocka_unit_test(test_wrong_checksum),
	        cmocka_unit_test(test_unfinished),
	        cmocka_unit_test(test_checksum_by_the_device),
	        cmocka_unit_test(test_no_tcp),
	        cmocka_unit_test(test_not_ours),
	        cmocka_unit_test(test_cut_short),
	        cmocka_unit_test(test_out_of_order),
	        cmocka_unit_test(test_out_of_order_without_sack),
	        cmocka_unit_test(test_out_of_order_after_a_byte),
	        cmocka_unit_test(test_overlap),
	        cmocka_unit_test(test_gaps),
	        cmocka_unit_test(test_scarce),
	        cmocka_unit_test(test_scarce_before_a_gap),
	        cmocka_unit_test(test_hook),
	        cmocka_unit_test(test_packet_hook),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
