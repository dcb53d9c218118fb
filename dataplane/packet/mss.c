// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <sy_packet.h>

enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_MSS = 2, OPTION_MSS_LEN = 4 };

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
	unsigned end, at, len;

	if (v->proto != SY_PROTO_TCP || !(v->tcp_flags & SY_TCP_SYN))
		return false;
	end = tcp->offset >> 4 << 2;
	/* To the end even after a hit: of several, receivers take the last one. */
	for (at = sizeof(*tcp); at < end && header[at] != OPTION_END; at += len) {
		len = 1;
		if (header[at] == OPTION_NOP)
			continue;
		if (at + 1 == end)
			break;
		len = header[at + 1];
		if (len < 2 || len > end - at)
			break;
		if (header[at] == OPTION_MSS && len == OPTION_MSS_LEN)
			changed |= value_lower(tcp, header + at + 2, at + 2, mss);
	}
	return changed;
}
