// SPDX-License-Identifier: Apache-2.0
/* Prepends bytes to a segment's payload, or removes the payload. */
#include "move.h"

/* Checksum sum of the 16-bit header words that change with the payload. */
static uint64_t words_sum(const struct sy_tcp *tcp, uint16_t l4_len)
{
	uint16_t offset_flags;

	memcpy(&offset_flags, &tcp->offset, sizeof(offset_flags));
	return (uint64_t)offset_flags + tcp->urgent + htons(l4_len);
}

uint8_t *sy_tcp_prepend(uint8_t *frame, struct sy_view *v, const void *data, uint16_t len)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);
	unsigned header;
	uint16_t payload;
	uint64_t old, new;

	if (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE ||
	    (uint32_t)v->frame_len + len > UINT16_MAX)
		return NULL;
	header = tcp->offset / 16 * 4u;
	payload = sy_csum_fold(sy_csum_sum(frame + v->l4 + header, v->l4_len - header));
	old = words_sum(tcp, v->l4_len) + payload;
	memmove(frame - len, frame, v->l4 + header);
	frame -= len;
	memcpy(frame + v->l4 + header, data, len);
	ip_length_add(frame + v->l3, v->v4, len);
	tcp = (struct sy_tcp *)(frame + v->l4);
	tcp->flags |= SY_TCP_PSH;
	if (tcp->flags & SY_TCP_URG)
		tcp->urgent = htons((uint16_t)(ntohs(tcp->urgent) + len));
	v->tcp_flags = tcp->flags;
	v->l4_len += len;
	v->frame_len += len;
	/* After an odd number of bytes the bytes of each word are swapped in the sum. */
	new = words_sum(tcp, v->l4_len) + sy_csum_sum(data, len) +
	      (len & 1 ? __builtin_bswap16(payload) : payload);
	tcp->checksum =
	        sy_csum_apply(tcp->checksum, sy_csum_delta(sy_csum_fold(old), sy_csum_fold(new)));
	return frame;
}

void sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);
	uint16_t header, payload;
	uint64_t old;

	if (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE)
		return;
	header = tcp->offset / 16 * 4u;
	payload = v->l4_len - header;
	old = words_sum(tcp, v->l4_len) + sy_csum_sum(frame + v->l4 + header, payload);
	ip_length_add(frame + v->l3, v->v4, (uint16_t)-payload);
	tcp->flags &= keep;
	if (!(tcp->flags & SY_TCP_URG))
		tcp->urgent = 0;
	v->tcp_flags = tcp->flags;
	v->l4_len = header;
	v->frame_len -= payload;
	tcp->checksum = sy_csum_apply(
	        tcp->checksum,
	        sy_csum_delta(sy_csum_fold(old), sy_csum_fold(words_sum(tcp, v->l4_len))));
}
