// SPDX-License-Identifier: Apache-2.0
/*
 * Toeplitz: for every bit n of the input that is set, counted from the most significant one of the
 * first byte, the hash is XORed with bits n … n+31 of the key. Under 6d5a6d5a… only n mod 16
 * matters, so the hash of an input is that of the XOR of its 16-bit words.
 */
#include <sy_base.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "sy_slot_of() takes the low byte as first");

uint8_t sy_slot_table[2][256];
uint16_t sy_slot_words[SY_SLOTS][SY_SLOT_PORTS];

/* Bits n+24 … n+31 of the key: what bit n of a word adds to the hash's low byte. */
static uint8_t key_low_byte(unsigned n)
{
	uint32_t key = 0x6d5a6d5a;
	return (uint8_t)(key >> (24 - (n + 24) % 16));
}

void sy_slot_init(void)
{
	unsigned used[SY_SLOTS] = {0};

	for (unsigned place = 0; place < 2; place++) {
		for (unsigned byte = 0; byte < 256; byte++) {
			uint8_t hash = 0;
			for (unsigned bit = 0; bit < 8; bit++) {
				if (byte & 0x80 >> bit)
					hash ^= key_low_byte(8 * place + bit);
			}
			sy_slot_table[place][byte] = hash;
		}
	}
	/* The 16 key bytes have rank 8, so every slot gets the same share: 65536 / 256 words. */
	for (unsigned host = 0; host <= UINT16_MAX; host++) {
		uint8_t first = (uint8_t)(host >> 8), second = (uint8_t)host;
		uint8_t slot = sy_slot_table[0][first] ^ sy_slot_table[1][second];
		uint8_t bytes[2] = {first, second};
		memcpy(&sy_slot_words[slot][used[slot]++], bytes, sizeof(bytes));
	}
}
