// SPDX-License-Identifier: Apache-2.0
/* steelyard-packet-cost: nanoseconds to parse and rewrite a plain packet, by family and protocol.
 * The frames are in the cache, so that the code is measured and not memory. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sy_packet.h>

#include "measure.h"

#define FRAMES 64
#define STRIDE 128
#define ROUNDS 20000
#define RUNS   15

static void frame_fill(uint8_t *frame, bool v4, uint8_t proto, unsigned n)
{
	unsigned l4_len = proto == SY_PROTO_TCP ? sizeof(struct sy_tcp) : sizeof(struct sy_udp);
	uint8_t *l4 = frame + SY_ETH_LEN + (v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6));

	if (v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
		((struct sy_eth *)frame)->type = htons(SY_ETH_IPV4);
		*ip = (struct sy_ipv4){.version_ihl = 0x45,
		                       .total_length = htons((uint16_t)(sizeof(*ip) + l4_len)),
		                       .ttl = 64,
		                       .proto = proto,
		                       .src = htonl(0x0a000001 + n),
		                       .dst = htonl(0xc0000201)};
		ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)(frame + SY_ETH_LEN);
		((struct sy_eth *)frame)->type = htons(SY_ETH_IPV6);
		*ip = (struct sy_ipv6){.version_class_flow = htonl(6u << 28),
		                       .payload_length = htons((uint16_t)l4_len),
		                       .next_header = proto,
		                       .hop_limit = 64,
		                       .src = {0x20, 1, [15] = (uint8_t)(n + 1)},
		                       .dst = {0x20, 2, [15] = 1}};
	}
	if (proto == SY_PROTO_TCP)
		*(struct sy_tcp *)l4 = (struct sy_tcp){.sport = htons(40000),
		                                       .dport = htons(80),
		                                       .offset = 0x50,
		                                       .flags = SY_TCP_ACK};
	else
		*(struct sy_udp *)l4 = (struct sy_udp){htons(40000), htons(53), htons(8), 1};
}

/* Median over the runs, for a packet that is rewritten back and forth and therefore stays valid. */
static double cost_measure(bool v4, uint8_t proto)
{
	static uint8_t frame[FRAMES][STRIDE];
	static struct sy_rewrite there[FRAMES], back[FRAMES];
	double ns[RUNS];

	for (unsigned n = 0; n < FRAMES; n++) {
		struct sy_view v;
		struct sy_tuple to;
		memset(frame[n], 0, STRIDE);
		frame_fill(frame[n], v4, proto, n);
		if (sy_packet_parse(frame[n], STRIDE, &v) != SY_DROP_NONE)
			abort();
		to = v.tuple;
		to.src.b[14] ^= 7;
		to.dport = htons(8080);
		sy_rewrite_prepare(&v.tuple, &to, &there[n]);
		sy_rewrite_prepare(&to, &v.tuple, &back[n]);
	}
	for (unsigned run = 0; run < RUNS; run++) {
		uint64_t begin = sy_clock_ns();
		for (unsigned round = 0; round < ROUNDS; round++) {
			for (unsigned n = 0; n < FRAMES; n++) {
				struct sy_view v;
				if (sy_packet_parse(frame[n], STRIDE, &v) != SY_DROP_NONE)
					abort();
				sy_packet_rewrite(frame[n], &v, round & 1 ? &back[n] : &there[n]);
				if (round % 32 == 31) /* it is back, with a TTL of 32 */
					frame_fill(frame[n], v4, proto, n);
			}
		}
		ns[run] = (double)(sy_clock_ns() - begin) / ROUNDS / FRAMES;
	}
	return measure_median(ns, RUNS);
}

int main(void)
{
	printf("parse + rewrite, ns a packet: tcp4 %.1f  udp4 %.1f  tcp6 %.1f  udp6 %.1f\n",
	       cost_measure(true, SY_PROTO_TCP), cost_measure(true, SY_PROTO_UDP),
	       cost_measure(false, SY_PROTO_TCP), cost_measure(false, SY_PROTO_UDP));
	return EXIT_SUCCESS;
}
