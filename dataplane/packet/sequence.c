// SPDX-License-Identifier: Apache-2.0
/* Converts sequence numbers, timestamps and windows between the two ends of a spliced session. */
#include <arpa/inet.h>

#include "tcp_option.h"

#define SACK_EDGE 4  /* bytes */
#define TIME_LEN  10 /* of the timestamps option */

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

/* The offset of the timestamps option in the TCP header, where nearly all senders put it or
 * elsewhere; 0: there is none. */
static unsigned time_find(const struct sy_tcp *tcp)
{
	static const uint8_t usual[4] = {OPTION_NOP, OPTION_NOP, OPTION_TIMESTAMPS, TIME_LEN};
	const uint8_t *header = (const uint8_t *)tcp;

	if (SY_LIKELY(tcp->offset >= (sizeof(*tcp) + sizeof(usual) + 8) / 4 << 4 &&
	              memcmp(tcp + 1, usual, sizeof(usual)) == 0))
		return sizeof(*tcp) + 2;
	for (unsigned at = sizeof(*tcp), len = 0; option_next(tcp, &at, &len);)
		if (header[at] == OPTION_TIMESTAMPS && len == TIME_LEN)
			return at;
	return 0;
}

void sy_tcp_shift_time(uint8_t *frame, const struct sy_view *v, uint32_t own, uint32_t echo)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);

	if (v->proto != SY_PROTO_TCP || !sy_view_has_l4(v))
		return;
	unsigned at = time_find(tcp);
	if (!at)
		return;
	number_add(tcp, at + 2, own);
	if (v->tcp_flags & SY_TCP_ACK)
		number_add(tcp, at + 6, echo);
}

void sy_tcp_scale_window(uint8_t *frame, const struct sy_view *v, int by)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);

	if (by == 0 || v->proto != SY_PROTO_TCP || !sy_view_has_l4(v))
		return;
	uint16_t old = tcp->window;
	uint32_t window = by > 0 ? (uint32_t)ntohs(old) << by : (uint32_t)ntohs(old) >> -by;
	tcp->window = htons(window < UINT16_MAX ? (uint16_t)window : UINT16_MAX);
	tcp->checksum = sy_csum_apply(tcp->checksum, sy_csum_delta(old, tcp->window));
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
