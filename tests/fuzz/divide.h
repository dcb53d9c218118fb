// SPDX-License-Identifier: Apache-2.0
/* Fragmentation: packets can be reassembled from their fragments. */
#ifndef DIVIDE_H
#define DIVIDE_H

#include "fuzz.h"

#include <arpa/inet.h>
#include <sy_packet.h>

/* Returns the length and start of the part that fragments divide. */
static inline uint32_t divided_part(const uint8_t *frame, const struct sy_view *v, uint32_t *from)
{
	const uint8_t *l3 = frame + v->l3;
	*from = v->v4 ? v->l4 : v->l3 + 40u + (l3[6] == 44 ? 8 : 0);
	return v->frame_len - *from;
}

/* Each fragment fits the MTU, which leaves space for all headers; together they have each byte
 * once, at its offset. */
static inline bool fragments_reassemble(const uint8_t *frame, const struct sy_view *v, uint16_t mtu)
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
		HOLDS(len <= SY_ETH_LEN + (uint32_t)mtu && at > before && at <= all);
		HOLDS(len == SY_ETH_LEN + head + taken);
		HOLDS(memcmp(l3 + head, frame + from + before, taken) == 0);
		place = v->v4 ? ((l3[6] & 0x1fu) << 8 | l3[7]) * 8
		              : (l3[42] << 8 | l3[43]) & 0xfff8u;
		HOLDS(v->fragment_offset || place == before);
		/* The parser may refuse a small fragment. */
		if (sy_packet_parse(out, len, &piece) == SY_DROP_NONE)
			HOLDS(piece.frame_len == len &&
			      sy_addr_equal(&piece.tuple.dst, &v->tuple.dst));
		before = at;
	}
	HOLDS(at == all || pieces == 0);
	HOLDS(pieces > 0 || !v->v4 || all == 0);
	free(out);
	return true;
}

#endif
