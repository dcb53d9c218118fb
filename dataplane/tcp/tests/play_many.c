// SPDX-License-Identifier: Apache-2.0
/* Steps of many segments, which would otherwise take a line per segment. */
#include "play.h"

/* Takes the stack's next segment. Returns false if there is none. */
static bool next_take(struct play *p, struct segment *seg)
{
	struct rte_mbuf *m;
	struct sy_view v;
	uint8_t *frame;

	pump(p);
	if (p->first == p->count)
		return false;
	m = p->out[p->first++];
	frame = rte_pktmbuf_mtod(m, uint8_t *);
	WANT(p, sy_packet_parse(frame, m->data_len, &v) == SY_DROP_NONE);
	segment_read(seg, m, &v);
	seg->seq -= p->ours[0];
	for (uint32_t i = 0; i < seg->len; i++)
		WANT(p, frame[seg->data + i] == script_byte(seg->seq + i));
	rte_pktmbuf_free(m);
	return true;
}

void run_expect(struct play *p, char *words)
{
	struct segment seg;
	unsigned first, end, len;
	char flags[2];

	WANT(p, sscanf(words, "%1[A] %u:%u %u", flags, &first, &end, &len) == 4);
	for (; first < end; first += len) {
		if (!next_take(p, &seg))
			FAIL(p, "the stack does not send %u:%u", first, first + len);
		WANT(p, (seg.flags & ~SY_TCP_PSH) == SY_TCP_ACK);
		if (seg.seq != first || seg.len != len)
			FAIL(p, "the stack sends %u:%u, not %u:%u", seg.seq, seg.seq + seg.len,
			     first, first + len);
	}
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void say(struct play *p, const char *format, ...)
{
	char words[128];
	va_list args;

	va_start(args, format);
	vsnprintf(words, sizeof(words), format, args);
	va_end(args);
	inject(p, words);
}

/* Writes up to max bytes that the window permits, sent immediately. Returns the rest. */
static uint32_t fill(struct play *p, uint32_t max)
{
	struct sy_stack_info info;
	struct segment seg;
	uint32_t end = 1 + p->written, len;

	WANT(p, sy_stack_info(p->s, p->c, &info) == 0);
	len = info.window > info.in_flight ? info.window - info.in_flight : 0;
	len = len / info.mss * info.mss;
	len = len < max ? len : max;
	uint8_t *bytes = malloc(len + 1);
	for (uint32_t i = 0; i < len; i++)
		bytes[i] = script_byte(end + i);
	if (len > 0)
		WANT(p, sy_stack_send(p->s, p->c, bytes, len, 0, p->now) == (int64_t)len);
	free(bytes);
	p->written += len;
	while (next_take(p, &seg)) {
		WANT(p, seg.seq == end && seg.len > 0 && p->ends < ENDS);
		end += seg.len;
		p->end[p->ends++] = end;
	}
	if (end != 1 + p->written)
		FAIL(p, "of the window, %u bytes do not leave", 1 + p->written - end);
	return max - len;
}

/* Delivers the segments in flight. Returns their number and ends. */
static unsigned round_pass(struct play *p, uint32_t ms, uint32_t *end)
{
	unsigned count = p->ends;
	char words[16];

	snprintf(words, sizeof(words), "%u", ms);
	pass(p, words, false);
	nothing_left(p);
	memcpy(end, p->end, count * sizeof(*end));
	p->ends = 0;
	return count;
}

void do_rounds(struct play *p, char *words)
{
	unsigned times, ms, max = UINT32_MAX, count;
	uint32_t end[ENDS], left;

	WANT(p, sscanf(words, "%u %u %u", &times, &ms, &max) >= 2);
	if (p->ends == 0)
		fill(p, max);
	for (; times > 0; times--) {
		count = round_pass(p, ms, end);
		left = max;
		for (unsigned i = 0; i < count; i++) {
			say(p, "A 1 ack %u", end[i]);
			left = fill(p, left);
		}
	}
}

void do_lost(struct play *p, char *words)
{
	unsigned ms = (unsigned)strtoul(words, NULL, 0), again = 0, count;
	uint32_t end[ENDS], first;
	struct segment seg;

	if (p->ends == 0)
		fill(p, UINT32_MAX);
	count = round_pass(p, ms, end);
	WANT(p, count > 3);
	first = end[0] - (end[1] - end[0]);
	for (unsigned i = 1; i < count; i++) {
		say(p, "A 1 ack %u sack %u-%u", first, end[0], end[i]);
		for (; next_take(p, &seg); again++)
			WANT(p, seg.seq == first && seg.seq + seg.len == end[0]);
	}
	WANT(p, again == 1);
	first = end[count - 1];
	WANT(p, round_pass(p, ms, end) == 0);
	say(p, "A 1 ack %u", first);
}

/* ---- what comes out of order ----------------------------------------------------------------- */

void do_gaps(struct play *p, char *words)
{
	unsigned count = (unsigned)strtoul(words, NULL, 0);
	struct segment seg;

	for (unsigned i = 1; i <= count; i++) {
		say(p, "A %u:%u ack 1", 1 + 2 * i, 2 + 2 * i);
		if (!next_take(p, &seg))
			FAIL(p, "the stack does not tell of byte %u", 1 + 2 * i);
		WANT(p, seg.flags == SY_TCP_ACK && seg.len == 0);
		nothing_left(p);
	}
}
