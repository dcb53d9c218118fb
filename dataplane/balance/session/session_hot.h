// SPDX-License-Identifier: Apache-2.0
/*
 * Hot halves of records as other workers read them while their owner has sessions begin and end
 * (docs/design/0017-remote-sessions.md):
 *
 *     0                16                                              32
 *     │ who: client    │ how: ports, ids, delta, seen, path, state, flags │
 *
 * Each half is read and written at once, which 16 aligned bytes are where there is AVX (Intel SDM
 * 3A 9.1.1, AMD APM 2 7.3.2). Of a record that is not free only seen, path, state and flags change.
 * A creation writes `who` before `how`, which says that it is not free; an end frees it by `how`,
 * then clears `who`. Whoever reads `how`, `who`, and `how` once more, finds both of one session,
 * unless the record was another's in between, and both times had the same ports, ids and delta.
 *
 * Writer: the owner of its slot, and of `seen` any worker. Readers: any worker.
 */
#ifndef SESSION_HOT_H
#define SESSION_HOT_H

#include "session.h"

#if defined(__x86_64__)

#define HOT_HALF  16
#define HOT_SEEN  (3u << 10) /* of a half's bytes, a bit each */
#define HOT_WHOLE 0xffffu
_Static_assert(offsetof(struct session, client_port) == HOT_HALF, "the client has a half");
_Static_assert(offsetof(struct session, seen) == HOT_HALF + 10, "bits of HOT_SEEN");

/* What the compiler may neither cut nor move: one access each, in this order. */
static inline __m128i hot_half(const struct session *s, unsigned half)
{
	return *((const volatile __m128i *)s + half);
}

static inline void hot_half_write(struct session *s, unsigned half, __m128i bytes)
{
	*((volatile __m128i *)s + half) = bytes;
}

static inline void hot_write(struct session *at, const struct session *hot)
{
	const __m128i *from = (const __m128i *)hot;
	__m128i who = _mm_loadu_si128(from), how = _mm_loadu_si128(from + 1);
	hot_half_write(at, 0, who);
	hot_half_write(at, 1, how);
}

static inline void hot_clear(struct session *at)
{
	hot_half_write(at, 1, _mm_setzero_si128());
	hot_half_write(at, 0, _mm_setzero_si128());
}

/* May other workers read records? */
static inline bool hot_is_shared(void)
{
	return __builtin_cpu_supports("avx");
}

/* Copies the record of another worker's slot. False: it is changing, or nobody's. */
static inline __attribute__((always_inline)) bool hot_read(const struct session *at,
                                                           struct session *out)
{
	__m128i how = hot_half(at, 1), who = hot_half(at, 0), again = hot_half(at, 1);
	unsigned same = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(how, again));
	unsigned none = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(who, _mm_setzero_si128()));
	_mm_storeu_si128((__m128i *)out, who);
	_mm_storeu_si128((__m128i *)out + 1, how);
	return (same | HOT_SEEN) == HOT_WHOLE && none != HOT_WHOLE;
}

#else

static inline void hot_write(struct session *at, const struct session *hot)
{
	*at = *hot;
}

static inline void hot_clear(struct session *at)
{
	*at = (struct session){.state = SESSION_FREE};
}

static inline bool hot_is_shared(void)
{
	return false;
}

static inline bool hot_read(const struct session *at, struct session *out)
{
	(void)at;
	(void)out;
	return false;
}

#endif

#endif
