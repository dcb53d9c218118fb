// SPDX-License-Identifier: Apache-2.0
/* SYN cookies (docs/design/0025-syn-defence.md):
 *
 *     32 bits   │ epoch 1 │ MSS 2 │ SACK 1 │ window scale 3 │ check 25 │
 *                         └─ XORed with 6 bits of the hash ─┘   25 others of the hash
 */
#include <sy_tcp_segment.h>

#define CHECK_BITS   25
#define OPTION_BITS  6
#define CHECK_MASK   ((UINT32_C(1) << CHECK_BITS) - 1)
#define OPTION_MASK  ((UINT32_C(1) << OPTION_BITS) - 1)
#define EPOCH_SHIFT  31
#define TIME_OPTIONS 31 /* the bits of a timestamp that carry options */

/* By family of the addresses: [1]: IPv4. The first of each is what a host may always send. */
static const uint16_t mss_of[2][4] = {{1220, 1360, 1420, 1440}, {536, 1300, 1440, 1460}};
/* The first is "none". */
static const uint8_t scale_of[8] = {SY_TCP_NO_SCALE, 0, 2, 5, 6, 7, 8, 10};

uint64_t sy_cookie_hash(const struct sy_siphash_key *key, const struct sy_tuple *t, uint32_t number)
{
	if (SY_LIKELY(sy_addr_is_v4(&t->src))) {
		const uint32_t words[4] = {t->src.w[3], t->dst.w[3],
		                           t->sport | (uint32_t)t->dport << 16, number};
		return sy_siphash(key, words, sizeof(words));
	}
	const uint64_t words[5] = {t->src.d[0], t->src.d[1], t->dst.d[0], t->dst.d[1],
	                           t->sport | (uint64_t)t->dport << 16 | (uint64_t)number << 32};
	return sy_siphash(key, words, sizeof(words));
}

uint16_t sy_cookie_mss(bool v4, unsigned code)
{
	return mss_of[v4][code & 3];
}

unsigned sy_cookie_mss_code(bool v4, uint16_t mss)
{
	unsigned code = 3;
	while (code > 0 && mss_of[v4][code] > mss)
		code--;
	return code;
}

static uint32_t scale_code(uint8_t scale)
{
	uint32_t code = 7;
	if (scale == SY_TCP_NO_SCALE)
		return 0;
	while (code > 1 && scale_of[code] > scale)
		code--;
	return code;
}

uint32_t sy_cookie_make(uint64_t hash, unsigned epoch, bool v4, const struct sy_tcp_options *o)
{
	uint32_t options =
	        sy_cookie_mss_code(v4, o->mss) | (o->sack ? 4u : 0) | scale_code(o->scale) << 3;
	uint32_t hidden = (uint32_t)(hash >> CHECK_BITS) & OPTION_MASK;
	return (uint32_t)(epoch & 1) << EPOCH_SHIFT | (options ^ hidden) << CHECK_BITS |
	       ((uint32_t)hash & CHECK_MASK);
}

bool sy_cookie_check(uint64_t hash, uint32_t cookie, bool v4, struct sy_tcp_options *o)
{
	if (((cookie ^ (uint32_t)hash) & CHECK_MASK) != 0)
		return false;
	uint32_t options = (cookie >> CHECK_BITS ^ (uint32_t)(hash >> CHECK_BITS)) & OPTION_MASK;
	o->mss = sy_cookie_mss(v4, options & 3);
	o->sack = options & 4;
	o->scale = scale_of[options >> 3];
	return true;
}

uint32_t sy_cookie_time(uint64_t hash, uint64_t now_ns, const struct sy_tcp_options *o)
{
	uint32_t now = (uint32_t)(now_ns / 1000000) + (uint32_t)(hash >> 32);
	uint32_t time = (now & ~(uint32_t)TIME_OPTIONS) | o->scale;

	/* Never ahead of the clock: what follows at once would be older (RFC 7323 5.4). */
	return sy_seq_before(now, time) ? time - (TIME_OPTIONS + 1) : time;
}

void sy_cookie_time_options(uint32_t time, struct sy_tcp_options *o)
{
	uint8_t scale = time & TIME_OPTIONS;
	if (scale <= SY_TCP_SCALE_MAX || scale == SY_TCP_NO_SCALE)
		o->scale = scale;
}
