// SPDX-License-Identifier: Apache-2.0
/* Checks that packets become fragments from which the packets can be reassembled. */
#ifndef DIVIDE_H
#define DIVIDE_H

#include "fuzz.h"

#include <arpa/inet.h>
#include <sy_packet.h>

/* The part of the frame's IP packet that its fragments divide, and its start. */
static inline uint32_t divided_part(const uint8_t *frame, const struct sy_view *v, uint32_t *from)
{
	const uint8_t *l3 = frame + v->l3;
	*from = v->v4 ? v->l4 : v->l3 + 40u + (l3[6] == 44 ? 8 : 0);
	return v->frame_len - *from;
}

/* Each fragment fits the MTU, which leaves space for all headers; together they hold each byte
 * once, at its offset. */
static inline void divide_check(const uint8_t *frame, const struct sy_view *v, uint16_t mtu)
{
	uint32_t from, all = divided_part(frame, v, &from), len;
	uint8_t *out = malloc(SY_ETH_LEN + mtu);
	uint16_t at = 0, before = 0;
	unsigned pieces = 0;

	CHECK(out);
	for (; (len = sy_packet_fragment(out, SY_ETH_LEN + mtu, frame, mtu, 7, &at)); pieces++) {
		const uint8_t *l3 = out + SY_ETH_LEN;
		uint32_t head = v->v4 ? (l3[0] & 15u) * 4 : 48, place;
		uint32_t taken = at - before;
		struct sy_view piece;
		CHECK(len <= SY_ETH_LEN + (uint32_t)mtu && at > before && at <= all);
		CHECK(len == SY_ETH_LEN + head + taken);
		CHECK(memcmp(l3 + head, frame + from + before, taken) == 0);
		place = v->v4 ? ((l3[6] & 0x1fu) << 8 | l3[7]) * 8
		              : (l3[42] << 8 | l3[43]) & 0xfff8u;
		CHECK(v->fragment_offset || place == before);
		/* A small one may be a packet that the parser refuses. */
		if (sy_packet_parse(out, len, &piece) == SY_DROP_NONE)
			CHECK(piece.frame_len == len &&
			      sy_addr_equal(&piece.tuple.dst, &v->tuple.dst));
		before = at;
	}
	CHECK(at == all || pieces == 0);
	CHECK(pieces > 0 || !v->v4 || all == 0);
	free(out);
}

#endif
