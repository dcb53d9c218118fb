// SPDX-License-Identifier: Apache-2.0
/*
 * Hot halves of records, as other workers read them while the owner creates and ends sessions
 * (docs/design/0017-remote-sessions.md):
 *
 *     0                16                                              32
 *     │ client address │ rest: ports, ids, delta, seen, path, state, flags│
 *
 * Each 16-byte half is read and written in one access; with AVX, aligned 16-byte accesses are
 * atomic (Intel SDM 3A 9.1.1, AMD APM 2 7.3.2). In a used record only seen, path, state and flags
 * change. Creation writes the client before the rest, which marks the record as used. The end of a
 * session frees the record by the rest, then clears the client. A reader reads the rest, the
 * client, and the rest again. If both reads of the rest agree (apart from `seen`), both halves
 * belong to one session. Exception: the record had another session in between, and both sessions
 * had the same ports, ids and delta.
 *
 * Writer: the slot's owner; any worker writes `seen`. Readers: any worker.
 */
#ifndef SESSION_HOT_H
#define SESSION_HOT_H

#include "session.h"

#if defined(__x86_64__)

#define HOT_HALF  16
#define HOT_SEEN  (3u << 10) /* one bit for each byte of a half */
#define HOT_WHOLE 0xffffu
_Static_assert(offsetof(struct session, client_port) == HOT_HALF, "the client has a half");
_Static_assert(offsetof(struct session, seen) == HOT_HALF + 10, "bits of HOT_SEEN");

/* volatile: the compiler may neither split nor reorder these accesses. */
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
	__m128i client = _mm_loadu_si128(from), rest = _mm_loadu_si128(from + 1);
	hot_half_write(at, 0, client);
	hot_half_write(at, 1, rest);
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

/* Copies the record of another worker's slot. Returns false if it is changing or free. */
static inline __attribute__((always_inline)) bool hot_read(const struct session *at,
                                                           struct session *out)
{
	__m128i rest = hot_half(at, 1), client = hot_half(at, 0), again = hot_half(at, 1);
	unsigned same = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(rest, again));
	unsigned none = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(client, _mm_setzero_si128()));
	_mm_storeu_si128((__m128i *)out, client);
	_mm_storeu_si128((__m128i *)out + 1, rest);
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
