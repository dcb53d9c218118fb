// SPDX-License-Identifier: Apache-2.0
#include "watch.h"

#define SECOND_NS UINT64_C(1000000000)
/* Half-open sessions are a reason above both this number and 1/SHARE of the table. */
#define FEW_HALF_OPEN 1024u
#define SHARE         16u
/* Uncompleted handshakes per second that switch it on. An eighth of that keeps it on. */
#define UNFINISHED 1000.0F
#define UNRETURNED (UNFINISHED / 8)
/* New sessions per second and worker, and multiple of the usual rate, that switch it on. */
#define RATE  20000.0F
#define TIMES 8.0F
/* A reason must last this long, except SHARE; twice as long after each needless switch. */
#define PERSIST_NS   SECOND_NS
#define NEEDLESS_MAX 6u
/* Needless switches are forgotten after this long without a reason. */
#define CALM_NS (60 * SECOND_NS)
/* It stays on for this long after the last second with unreturned answers. */
#define HOLD_NS (10 * SECOND_NS)
/* The usual rate: average of the first seconds, then over five minutes. */
#define LEARN_NS (10 * SECOND_NS)
#define USUAL_NS (300 * SECOND_NS)

/* Rates per second since the previous pass. */
struct rates {
	float begun, unfinished, answered, unreturned;
};

static float rate_of(uint64_t now, uint64_t before, const struct watch_sample *sample)
{
	uint64_t more = now > before ? now - before : 0;
	return (float)more * (float)SECOND_NS /
	       (float)(sample->elapsed_ns ? sample->elapsed_ns : 1);
}

static float above(float a, float b)
{
	return a > b ? a - b : 0;
}

static struct rates rates_of(const struct watch_counts *last, const struct watch_counts *now,
                             const struct watch_sample *sample)
{
	struct rates r = {
	        .begun = rate_of(now->begun, last->begun, sample),
	        .answered = rate_of(now->answered, last->answered, sample),
	};
	r.unfinished = above(r.begun, rate_of(now->established, last->established, sample));
	r.unreturned = above(r.answered, rate_of(now->returned, last->returned, sample));
	return r;
}

/* Why the defence must be on; NONE: it need not be. */
static enum watch_reason reason_of(const struct watch_switch *s, const struct watch_counts *counts,
                                   const struct rates *r, const struct watch_sample *sample)
{
	if (counts->half_open > FEW_HALF_OPEN && counts->half_open > sample->capacity / SHARE &&
	    r->unfinished > UNRETURNED && r->unfinished * 4 > r->begun)
		return WATCH_SHARE;
	if (r->unfinished > UNFINISHED && r->unfinished * 2 > r->begun)
		return WATCH_UNFINISHED;
	if (s->learned_ns >= LEARN_NS && r->begun > RATE * (float)sample->workers &&
	    r->begun > TIMES * s->usual)
		return WATCH_RATE;
	return WATCH_NONE;
}

static void usual_follow(struct watch_switch *s, float rate, uint64_t elapsed_ns)
{
	uint64_t over = s->learned_ns < LEARN_NS ? s->learned_ns + elapsed_ns : USUAL_NS;
	float part = (float)elapsed_ns / (float)over;
	s->usual += (rate - s->usual) * (part < 1 ? part : 1);
	if (s->learned_ns < LEARN_NS)
		s->learned_ns += elapsed_ns;
}

/* How long this reason must last. */
static uint64_t persistence(const struct watch_switch *s, enum watch_reason reason)
{
	return reason == WATCH_SHARE && s->needless == 0 ? 0 : PERSIST_NS << s->needless;
}

static enum watch_change update_while_off(struct watch_switch *s, const struct watch_counts *counts,
                                          const struct rates *r, const struct watch_sample *sample)
{
	enum watch_reason reason = reason_of(s, counts, r, sample);
	if (reason == WATCH_NONE) {
		s->over_ns = 0;
		s->calm_ns += sample->elapsed_ns;
		if (s->calm_ns >= CALM_NS)
			s->needless = 0;
		usual_follow(s, r->begun, sample->elapsed_ns);
		return WATCH_STAYS;
	}
	s->calm_ns = 0;
	s->over_ns += sample->elapsed_ns;
	if (s->over_ns < persistence(s, reason))
		return WATCH_STAYS;
	s->on = true;
	s->forged = false;
	s->over_ns = 0;
	s->until_ns = sample->now_ns + HOLD_NS;
	s->reason = reason;
	return WATCH_ON;
}

static enum watch_change update_while_on(struct watch_switch *s, const struct rates *r,
                                         const struct watch_sample *sample)
{
	if (r->unreturned > UNRETURNED && r->unreturned * 8 > r->answered) {
		s->forged = true;
		s->until_ns = sample->now_ns + HOLD_NS;
	}
	if (sample->now_ns < s->until_ns)
		return WATCH_STAYS;
	s->on = false;
	s->reason = WATCH_CALM;
	if (s->forged) {
		s->needless = 0;
	} else { /* the clients are real, or there are none any more */
		s->needless += s->needless < NEEDLESS_MAX;
		s->usual = s->usual > r->begun ? s->usual : r->begun;
	}
	return WATCH_OFF;
}

enum watch_change watch_switch_update(struct watch_switch *s, const struct watch_counts *counts,
                                      const struct watch_sample *sample)
{
	const struct rates r = rates_of(&s->last, counts, sample);
	bool first = !s->seen;
	s->last = *counts;
	s->seen = true;
	if (first)
		return WATCH_STAYS;
	return s->on ? update_while_on(s, &r, sample) : update_while_off(s, counts, &r, sample);
}
