// SPDX-License-Identifier: Apache-2.0
/* Clamps the MSS option of SYNs. */
#include <arpa/inet.h>

#include "tcp_option.h"

#define MSS_LEN     4                           /* bytes of the option */
#define FIRST_VALUE (sizeof(struct sy_tcp) + 2) /* offset of its value if it is the first */

/* value: the option's two bytes, at this offset into the TCP header. */
static bool value_lower(struct sy_tcp *tcp, uint8_t *value, unsigned offset, uint16_t mss)
{
	uint16_t old, new = htons(mss);

	memcpy(&old, value, sizeof(old));
	if (ntohs(old) <= mss)
		return false;
	memcpy(value, &new, sizeof(new));
	/* At an odd offset the value spans two words, with its bytes swapped. */
	if (offset & 1) {
		old = __builtin_bswap16(old);
		new = __builtin_bswap16(new);
	}
	/* RFC 1624, eqn. 3 */
	tcp->checksum =
	        (uint16_t)~sy_csum_fold((uint32_t)(uint16_t)~tcp->checksum + (uint16_t)~old + new);
	return true;
}

#define WORD(a, b, c, d)                                                                           \
	((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

static inline uint32_t word_at(const uint8_t *header, unsigned at)
{
	uint32_t word;
	memcpy(&word, header + at, sizeof(word));
	return word;
}

/* Is the MSS the first option, and are the others those that nearly all senders put after it?
 * Compares a word at a time. True: there is no other MSS option. False: not known. */
static inline bool options_are_usual(const uint8_t *header, unsigned end)
{
	unsigned at = sizeof(struct sy_tcp);

	if (end == at || (word_at(header, at) & 0xffff) != WORD(OPTION_MSS, MSS_LEN, 0, 0))
		return false;
	while ((at += sizeof(uint32_t)) < end) {
		uint32_t word = word_at(header, at);
		if (word == WORD(OPTION_NOP, OPTION_NOP, OPTION_SACK_PERMITTED, 2) ||
		    (word & 0xffffff) == WORD(OPTION_NOP, OPTION_WINDOW_SCALE, 3, 0))
			continue;
		if (word != WORD(OPTION_SACK_PERMITTED, 2, OPTION_TIMESTAMPS, 10) &&
		    word != WORD(OPTION_NOP, OPTION_NOP, OPTION_TIMESTAMPS, 10))
			return false;
		at += 2 * sizeof(uint32_t); /* the timestamps */
	}
	return true;
}

bool sy_packet_clamp_mss(uint8_t *frame, const struct sy_view *v, uint16_t mss)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);
	uint8_t *header = frame + v->l4;
	bool changed = false;

	if (v->proto != SY_PROTO_TCP || !(v->tcp_flags & SY_TCP_SYN))
		return false;
	if (SY_LIKELY(options_are_usual(header, tcp->offset >> 4 << 2)))
		return value_lower(tcp, header + FIRST_VALUE, FIRST_VALUE, mss);
	/* Continues after a hit: of several options, receivers use the last one. */
	for (unsigned at = sizeof(*tcp), len = 0; option_next(tcp, &at, &len);)
		if (header[at] == OPTION_MSS && len == MSS_LEN)
			changed |= value_lower(tcp, header + at + 2, at + 2, mss);
	return changed;
}
