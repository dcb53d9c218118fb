// SPDX-License-Identifier: Apache-2.0
/* Order of events. Without priorities, one FIFO list. */
#include <errno.h>

#include "priority.h"

/* ---- lists by level -------------------------------------------------------------------------- */

static void listed_leave(struct sy_stack *s, struct connection *c, unsigned level)
{
	list_remove(s, &s->event[level], LIST_EVENT, c);
	if (s->event[level].count == 0)
		s->event_levels &= ~(1u << level);
}

void event_place(struct sy_stack *s, struct connection *c)
{
	struct rank *r = rank_of(s, c);

	if (list_has(s, LIST_EVENT, c)) {
		if (r->listed == r->level)
			return;
		listed_leave(s, c, r->listed);
	}
	r->listed = r->level;
	list_append(s, &s->event[r->level], LIST_EVENT, c);
	s->event_levels |= 1u << r->level;
}

void event_leave(struct sy_stack *s, struct connection *c)
{
	space_acknowledge(s, c);
	if (list_has(s, LIST_EVENT, c))
		listed_leave(s, c, s->ranked ? rank_of(s, c)->listed : SY_USUAL);
}

void events_unranked(struct sy_stack *s)
{
	struct connection *c;

	for (unsigned level = 0; level < SY_PRIORITIES; level++)
		while (level != SY_USUAL && (c = list_first(s, &s->event[level])) != NULL) {
			list_remove(s, &s->event[level], LIST_EVENT, c);
			list_append(s, &s->event[SY_USUAL], LIST_EVENT, c);
		}
	s->event_levels = 0;
}

/* ---- fetching -------------------------------------------------------------------------------- */

static unsigned listener_events(struct sy_stack *s, struct sy_stack_event *event, unsigned max)
{
	const struct listener *l;
	unsigned count = 0;

	while (count < max && (l = listener_next_news(s)) != NULL)
		if (l->ready.count > 0)
			event[count++] = (struct sy_stack_event){.id = listener_id(s, l),
			                                         .what = SY_STACK_READABLE,
			                                         .cookie = l->cookie};
	return count;
}

/* The third of three points where priorities apply: delivery of an event; sy_stack_events_of()
 * selects it. */
static inline void event_deliver(struct sy_stack *s, unsigned level, struct sy_stack_event *out)
{
	struct connection *c = list_first(s, &s->event[level]);

	list_remove(s, &s->event[level], LIST_EVENT, c);
	space_acknowledge(s, c);
	*out = (struct sy_stack_event){.id = connection_id(s, c),
	                               .what = c->events,
	                               .cookie = c->cookie,
	                               .level = (uint8_t)level};
	s->event_counts[level]++;
	c->events = 0;
}

static unsigned events_by_level(struct sy_stack *s, unsigned levels, struct sy_stack_event *event,
                                unsigned max)
{
	unsigned count = 0;

	while (count < max && s->event_levels & levels) {
		unsigned level = shares_next(&s->shares, s->event_levels & levels);
		shares_fetched(&s->shares, s->event_levels, level);
		event_deliver(s, level, &event[count++]);
		if (s->event[level].count == 0)
			s->event_levels &= ~(1u << level);
	}
	return count;
}

static unsigned events_fetch(struct sy_stack *s, unsigned levels, struct sy_stack_event *event,
                             unsigned max)
{
	unsigned count = levels & 1 ? listener_events(s, event, max) : 0;

	if (SY_UNLIKELY(s->ranked != NULL))
		return count + events_by_level(s, levels, event + count, max - count);
	while (count < max && levels & 1u << SY_USUAL && s->event[SY_USUAL].count > 0)
		event_deliver(s, SY_USUAL, &event[count++]);
	return count;
}

unsigned sy_stack_events_of(struct sy_stack *s, unsigned levels, struct sy_stack_event *event,
                            unsigned max)
{
	unsigned count;

	if (SY_UNLIKELY(s->space.count > 0)) /* notified connections may not have used the space */
		space_notify(s);
	count = events_fetch(s, levels, event, max);
	/* Waiting connections of other levels are notified while there is space. */
	while (SY_UNLIKELY(s->space.count > 0) && count == 0 && max > 0 && space_notify_next(s))
		count = events_fetch(s, levels, event, max);
	return count;
}

unsigned sy_stack_events(struct sy_stack *s, struct sy_stack_event *event, unsigned max)
{
	return sy_stack_events_of(s, SY_STACK_LEVELS, event, max);
}

int sy_stack_shares(struct sy_stack *s, const uint8_t percent[SY_PRIORITIES])
{
	return shares_set(&s->shares, percent) ? 0 : -EINVAL;
}
