// SPDX-License-Identifier: Apache-2.0
/* Inserts the client's address as a TCP option, and blanks clients' forged ones. */
#include "tcp_option.h"
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

static bool option_is_toa(uint8_t kind)
{
	return kind == SY_TOA || kind == SY_TOA_IPV6 || kind == SY_TOA_OLD;
}

/* Overwrites the option of len bytes at `at` of a header with NOPs, which have the same kind in
 * TCP and IPv4, and returns the checksum that the header has then. */
static uint16_t option_blank(uint8_t *header, unsigned at, unsigned len, uint16_t checksum)
{
	uint8_t before[HEADER_MAX + 2] = {0}, after[HEADER_MAX + 2] = {0};
	/* An odd offset swaps the bytes of each word (RFC 1071 2B). */
	memcpy(before + at % 2, header + at, len);
	memset(header + at, OPTION_NOP, len);
	memcpy(after + at % 2, header + at, len);
	unsigned sum_len = (at % 2 + len + 1) & ~1u;
	return sy_csum_apply(checksum, sy_csum_delta(sy_csum_fold(sy_csum_sum(before, sum_len)),
	                                             sy_csum_fold(sy_csum_sum(after, sum_len))));
}

void sy_tcp_blank_toa(uint8_t *frame, const struct sy_view *v)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);

	if (v->proto != SY_PROTO_TCP || !sy_view_has_l4(v))
		return;
	for (unsigned at = sizeof(*tcp), len = 0; option_next(tcp, &at, &len);)
		if (SY_UNLIKELY(option_is_toa(((uint8_t *)tcp)[at])))
			tcp->checksum = option_blank((uint8_t *)tcp, at, len, tcp->checksum);
}

void sy_ipv4_blank_uoa(uint8_t *frame, const struct sy_view *v)
{
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + v->l3);
	uint8_t *header = (uint8_t *)ip;
	unsigned end = v->l4 - v->l3, at = sizeof(*ip);

	if (!v->v4)
		return;
	/* sy_packet_parse() has checked the lengths. */
	while (at < end && header[at] != OPTION_END) {
		unsigned len = header[at] == OPTION_NOP ? 1 : header[at + 1];
		if (header[at] == SY_UOA)
			ip->checksum = option_blank(header, at, len, ip->checksum);
		at += len;
	}
}
