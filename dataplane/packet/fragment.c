// SPDX-License-Identifier: Apache-2.0
/* What is particular to fragments. */
#include "fragment.h"

#include <arpa/inet.h>

#include "extension.h"

/* Where the fragment header of an IPv6 fragment begins in the frame. */
static uint16_t fragment_header(const uint8_t *frame, const struct sy_view *v)
{
	const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + v->l3);
	uint16_t behind = v->l3 + (uint16_t)sizeof(*ip);

	return behind + extensions_skip(frame + behind, v->l4 - behind, ip->next_header).fragment;
}

uint16_t sy_packet_fragment_len(const uint8_t *frame, const struct sy_view *v)
{
	if (v->v4)
		return v->l4_len;
	return (uint16_t)(v->frame_len - fragment_header(frame, v) - sizeof(struct ipv6_fragment));
}

void fragment_renumber(uint8_t *frame, const struct sy_view *v)
{
	if (v->v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + v->l3);
		uint16_t id = htons((uint16_t)v->fragment_id);
		ip->checksum = sy_csum_apply(ip->checksum, sy_csum_delta(ip->id, id));
		ip->id = id;
	} else {
		struct ipv6_fragment *f =
		        (struct ipv6_fragment *)(frame + fragment_header(frame, v));
		f->id = htonl(v->fragment_id);
	}
}
