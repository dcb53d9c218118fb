// SPDX-License-Identifier: Apache-2.0
/*
 * TCP segments that the forwarder or the stack originates: their options, SYN cookies, resets and
 * probes, and the PROXY header, which is a connection's first bytes.
 */
#ifndef SY_TCP_SEGMENT_H
#define SY_TCP_SEGMENT_H

#include <sy_packet.h>

/* ---- options and segments (tcp_segment.c) ---------------------------------------------------- */

#define SY_TCP_SCALE_MAX   14 /* RFC 7323 2.3 */
#define SY_TCP_NO_SCALE    15
#define SY_TCP_OPTIONS_MAX 20 /* bytes that sy_tcp_segment_make() writes at most */

struct sy_tcp_options {
	uint16_t mss;          /* 0: none */
	uint8_t scale;         /* of windows, in bits; SY_TCP_NO_SCALE: none */
	bool sack, timestamps; /* SACK permitted; has timestamps */
	uint32_t time, echo;   /* the timestamps */
};

struct sy_tcp_segment {
	uint32_t seq, ack; /* host order; ack only with SY_TCP_ACK */
	uint16_t window;   /* as in the header; host order */
	uint8_t flags;
	struct sy_tcp_options options; /* without SY_TCP_SYN only the timestamps */
};

/* Reads a segment's options, up to the first malformed one. Of several alike the last one counts;
 * a larger scale counts as the largest (RFC 7323 2.3). */
void sy_tcp_options_read(const uint8_t *frame, const struct sy_view *v, struct sy_tcp_options *out);

/* A block of bytes that have arrived out of order, or of duplicates (RFC 2018 3, RFC 2883 4). */
struct sy_tcp_block {
	uint32_t from, to; /* host order; `to` is after the last byte */
};
#define SY_TCP_BLOCKS_MAX 4 /* that fit a header */

/* Reads a segment's SACK option, up to the first malformed one. Returns the number of blocks. */
unsigned sy_tcp_blocks_read(const uint8_t *frame, const struct sy_view *v,
                            struct sy_tcp_block out[static SY_TCP_BLOCKS_MAX]);

/* Writes a segment's options, without SYN only the timestamps. Returns their length, at most
 * SY_TCP_OPTIONS_MAX, a multiple of 4. */
unsigned sy_tcp_options_put(uint8_t *at, const struct sy_tcp_options *o, bool syn);

/* Builds in out a segment without data from t->src to t->dst, with TTL 64 and without IP options.
 * Leaves the MAC addresses as they are. Returns the frame's length; 0: cap is too small, where
 * a segment with options counts as the longest of them. */
uint32_t sy_tcp_segment_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t,
                             const struct sy_tcp_segment *s);
/* The same for a SYN in a buffer of its own. MACs are zero. */
uint32_t sy_tcp_syn_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t,
                         const struct sy_tcp_segment *s);
/* Overwrites the segment that *v describes by an answer to it: addresses, ports and MACs swapped.
 * The frame has no VLAN tags. */
uint32_t sy_tcp_segment_answer(uint8_t *frame, uint32_t cap, const struct sy_view *v,
                               const struct sy_tcp_segment *s);

/* ---- SYN cookies (cookie.c; docs/design/0025-syn-defence.md) --------------------------------- */

/* The hash behind the cookie for a client's SYN with this tuple and sequence number. */
uint64_t sy_cookie_hash(const struct sy_siphash_key *key, const struct sy_tuple *t,
                        uint32_t number);
/* The cookie with the epoch's lowest bit and these options: MSS and scale rounded down to values
 * that it can carry, SACK. v4: the family of the addresses. */
uint32_t sy_cookie_make(uint64_t hash, unsigned epoch, bool v4, const struct sy_tcp_options *o);
/* The MSS that a cookie carries by 2 bits, and the bits for the largest that is not above this one.
 */
uint16_t sy_cookie_mss(bool v4, unsigned code);
unsigned sy_cookie_mss_code(bool v4, uint16_t mss);
/* The lowest bit of the epoch that a cookie names. */
static inline unsigned sy_cookie_epoch(uint32_t cookie)
{
	return cookie >> 31;
}
/* Is it a cookie of this hash? Then writes mss, sack and scale. */
bool sy_cookie_check(uint64_t hash, uint32_t cookie, bool v4, struct sy_tcp_options *o);
/* The timestamp of a cookie's segment: milliseconds with a secret offset, up to 31 behind the clock
 * and never ahead of it, for the exact scale is in the low bits. */
uint32_t sy_cookie_time(uint64_t hash, uint64_t now_ns, const struct sy_tcp_options *o);
/* Reads the scale from such a timestamp, which the client has echoed. */
void sy_cookie_time_options(uint32_t time, struct sy_tcp_options *o);

/* ---- resets and probes (tcp_reset.c) --------------------------------------------------------- */

/*
 * Builds in out the reset that answers an unexpected segment (RFC 9293 3.10.7.1), MACs and
 * addresses swapped. Returns the frame's length. 0: the segment is itself a reset, not TCP or a
 * fragment, or cap is too small.
 */
uint32_t sy_tcp_reset_answer(uint8_t *out, uint32_t cap, const uint8_t *frame,
                             const struct sy_view *v);

/* Builds in out a reset from t->src to t->dst with these numbers (host order), as an endpoint of
 * the connection would send it: RST, and ACK if with_ack. MACs are zero. Returns its length; 0: cap
 * is too small. */
uint32_t sy_tcp_reset_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t, uint32_t seq,
                           uint32_t ack, bool with_ack);

/* Builds in out an empty ACK from t->src to t->dst with these numbers (host order). If t->dst still
 * has the connection, an ACK outside its window makes it answer with the numbers it expects
 * (RFC 9293 3.10.7.4). Otherwise t->dst sends a reset with `ack` as its sequence number. MACs are
 * zero. Returns its length; 0: cap is too small. */
uint32_t sy_tcp_probe_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t, uint32_t seq,
                           uint32_t ack);

/* How a receiver treats a reset (RFC 5961 3.2): it accepts only the next expected number. */
enum sy_tcp_reset { SY_TCP_RESET_VALID, SY_TCP_RESET_CHALLENGE, SY_TCP_RESET_IGNORE };

static inline bool sy_tcp_in_window(uint32_t seq, uint32_t next, uint32_t window)
{
	return seq - next < window;
}

static inline enum sy_tcp_reset sy_tcp_check_reset(uint32_t seq, uint32_t next, uint32_t window)
{
	if (seq == next)
		return SY_TCP_RESET_VALID;
	return sy_tcp_in_window(seq, next, window) ? SY_TCP_RESET_CHALLENGE : SY_TCP_RESET_IGNORE;
}

/* Is an acknowledgement acceptable (RFC 5961 5.2)? unacked, next: SND.UNA and SND.NXT; window: the
 * largest that the receiver was ever offered. */
static inline bool sy_tcp_check_ack(uint32_t ack, uint32_t unacked, uint32_t next, uint32_t window)
{
	return ack - (unacked - window) <= next - (unacked - window);
}

/* ---- PROXY protocol (proxy.c) ---------------------------------------------------------------- */

#define SY_PROXY_V1_MAX 107 /* bytes, without a terminating zero */
#define SY_PROXY_V2_MAX 52

/* Write the PROXY protocol's header for a connection of tuple *t as its client sees it; v2 uses
 * STREAM or DGRAM by t->proto. t NULL: a connection that we opened, UNKNOWN in v1 and LOCAL in v2.
 * Both return the length; v1's text is not terminated. */
uint32_t sy_proxy_v1(uint8_t out[static SY_PROXY_V1_MAX], const struct sy_tuple *t);
uint32_t sy_proxy_v2(uint8_t out[static SY_PROXY_V2_MAX], const struct sy_tuple *t);

#endif
