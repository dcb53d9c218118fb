// SPDX-License-Identifier: Apache-2.0
/* Inserts and removes the client's address as a TCP option. */
#include "option.h"
#include "move.h"

#define HEADER_MAX 60 /* longest header that the data offset can express */

struct toa {
	uint8_t kind, len;
	uint16_t port;
	uint8_t addr[16];
};

uint8_t *sy_tcp_insert_toa(uint8_t *frame, struct sy_view *v, uint8_t kind,
                           const struct sy_addr *addr, uint16_t port)
{
	struct toa toa = {.kind = kind, .port = port};
	uint16_t len = (uint16_t)(offsetof(struct toa, addr) + sy_addr_to_bytes(addr, toa.addr));
	unsigned header = v->l4 + (unsigned)sizeof(struct sy_tcp);
	struct sy_tcp *tcp;
	uint16_t old, new;
	uint64_t sum;

	if (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE ||
	    ((const struct sy_tcp *)(frame + v->l4))->offset / 16 * 4u + len > HEADER_MAX ||
	    (uint32_t)v->frame_len + len > UINT16_MAX)
		return NULL;
	toa.len = (uint8_t)len;
	memmove(frame - len, frame, header);
	frame -= len;
	memcpy(frame + header, &toa, len);
	ip_length_add(frame + v->l3, v->v4, len);
	tcp = (struct sy_tcp *)(frame + v->l4);
	memcpy(&old, &tcp->offset, sizeof(old));
	tcp->offset = (uint8_t)(tcp->offset + (len / 4 << 4));
	memcpy(&new, &tcp->offset, sizeof(new));
	/* Changed: the option, the data offset, and the length in the pseudo header. */
	sum = sy_csum_sum(&toa, len) + new + htons(v->l4_len + len);
	tcp->checksum = sy_csum_apply(
	        tcp->checksum, sy_csum_delta((uint32_t)old + htons(v->l4_len), sy_csum_fold(sum)));
	v->l4_len += len;
	v->frame_len += len;
	return frame;
}

void sy_tcp_blank_option(uint8_t *frame, const struct sy_view *v, uint8_t kind)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);
	unsigned header, found = 0;
	uint16_t old;

	if (v->proto != SY_PROTO_TCP || !sy_view_has_l4(v))
		return;
	header = tcp->offset / 16 * 4u;
	old = sy_csum_fold(sy_csum_sum(tcp, header));
	for (unsigned at = sizeof(*tcp), len = 0; option_next(tcp, &at, &len);) {
		if (((uint8_t *)tcp)[at] != kind)
			continue;
		memset((uint8_t *)tcp + at, OPTION_NOP, len);
		found++;
	}
	if (found)
		tcp->checksum = sy_csum_apply(
		        tcp->checksum, sy_csum_delta(old, sy_csum_fold(sy_csum_sum(tcp, header))));
}
