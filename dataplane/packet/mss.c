// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>

#include "option.h"

#define MSS_LEN 4 /* bytes of the option */

/* value: the option's two bytes, at this offset into the TCP header. */
static bool value_lower(struct sy_tcp *tcp, uint8_t *value, unsigned offset, uint16_t mss)
{
	uint16_t old, new = htons(mss);

	memcpy(&old, value, sizeof(old));
	if (ntohs(old) <= mss)
		return false;
	memcpy(value, &new, sizeof(new));
	/* At an odd offset the bytes lie in two words, each in the place of the other. */
	if (offset & 1) {
		old = __builtin_bswap16(old);
		new = __builtin_bswap16(new);
	}
	tcp->checksum = sy_csum_apply(tcp->checksum, sy_csum_delta(old, new));
	return true;
}

bool sy_packet_clamp_mss(uint8_t *frame, const struct sy_view *v, uint16_t mss)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);
	uint8_t *header = frame + v->l4;
	bool changed = false;

	if (v->proto != SY_PROTO_TCP || !(v->tcp_flags & SY_TCP_SYN))
		return false;
	/* To the end even after a hit: of several, receivers take the last one. */
	for (unsigned at = sizeof(*tcp), len = 0; option_next(tcp, &at, &len);)
		if (header[at] == OPTION_MSS && len == MSS_LEN)
			changed |= value_lower(tcp, header + at + 2, at + 2, mss);
	return changed;
}
