// SPDX-License-Identifier: Apache-2.0
/* Shifts sequence numbers of streams into which the forwarder has inserted bytes. */
#include <arpa/inet.h>

#include "option.h"

#define SACK_EDGE 4 /* bytes */

/* Adds to the number at this offset of the TCP header. */
static void number_add(struct sy_tcp *tcp, unsigned offset, uint32_t by)
{
	uint8_t *at = (uint8_t *)tcp + offset;
	uint32_t old, new;
	uint16_t delta;

	memcpy(&old, at, sizeof(old));
	new = htonl(ntohl(old) + by);
	memcpy(at, &new, sizeof(new));
	delta = sy_csum_delta((old & UINT16_MAX) + (old >> 16), (new &UINT16_MAX) + (new >> 16));
	/* At an odd offset the bytes of each word are swapped in the sum. */
	tcp->checksum = sy_csum_apply(tcp->checksum, offset & 1 ? __builtin_bswap16(delta) : delta);
}

void sy_tcp_shift_seq(uint8_t *frame, const struct sy_view *v, uint32_t by)
{
	if (v->proto == SY_PROTO_TCP && sy_view_has_l4(v))
		number_add((struct sy_tcp *)(frame + v->l4), offsetof(struct sy_tcp, seq), by);
}

void sy_tcp_shift_ack(uint8_t *frame, const struct sy_view *v, uint32_t by)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);
	const uint8_t *header = frame + v->l4;

	if (v->proto != SY_PROTO_TCP || !sy_view_has_l4(v))
		return;
	if (v->tcp_flags & SY_TCP_ACK)
		number_add(tcp, offsetof(struct sy_tcp, ack), -by);
	for (unsigned at = sizeof(*tcp), len = 0; option_next(tcp, &at, &len);) {
		if (header[at] != OPTION_SACK)
			continue;
		for (unsigned edge = at + 2; edge + SACK_EDGE <= at + len; edge += SACK_EDGE)
			number_add(tcp, edge, -by);
	}
}

void sy_tcp_add_ack(uint8_t *frame, const struct sy_view *v, uint32_t by)
{
	if (v->proto == SY_PROTO_TCP && sy_view_has_l4(v) && v->tcp_flags & SY_TCP_ACK)
		number_add((struct sy_tcp *)(frame + v->l4), offsetof(struct sy_tcp, ack), by);
}
