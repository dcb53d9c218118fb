// SPDX-License-Identifier: Apache-2.0
#include "rule.h"

#include <string.h>

#include "priority_serve.h"

static const struct rule rules[] = {
        {"type", 0, 6, SY_KEEP},
        {"label", 0, 6, 6},
        {"swapped", 6, 0, SY_KEEP},
        {"equal", SY_USUAL, SY_USUAL, SY_USUAL},
        {"nothing", SY_KEEP, SY_KEEP, SY_KEEP},
};

/* Writer: the thread that executes orders. Readers: the contexts; relaxed. */
static const struct rule *used = &rules[0];
static uint64_t slower_ns;

const struct rule *rule_named(const char *name)
{
	for (size_t i = 0; i < SY_ARRAY_LEN(rules); i++)
		if (!strcmp(rules[i].name, name))
			return &rules[i];
	return NULL;
}

void rule_use(const struct rule *r, uint64_t stack_ns)
{
	__atomic_store_n(&slower_ns, stack_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&used, r, __ATOMIC_RELAXED);
}

static uint8_t level_of(const struct rule *r, const uint8_t *request)
{
	return request_type(request) == RULE_URGENT_TYPE ? r->urgent : r->other;
}

uint8_t rule_packet(struct sy_hook_packet *p, const uint8_t *payload)
{
	const struct rule *r = __atomic_load_n(&used, __ATOMIC_RELAXED);

	if (p->payload_len == 0)
		return SY_KEEP;
	return request_begins(payload, p->payload_len) ? level_of(r, payload) : r->rest;
}

/* The header is in a request's first segment: requests do not overlap. */
static void request_follow(struct sy_hook_segment *s, const uint8_t *payload, struct note *n)
{
	const struct rule *r = __atomic_load_n(&used, __ATOMIC_RELAXED);
	struct raw_header h;

	serve_busy(__atomic_load_n(&slower_ns, __ATOMIC_RELAXED));
	if (s->offset >= n->next && request_begins(payload, s->packet.payload_len) &&
	    raw_read(payload, &h) == 0) {
		n->next = s->offset + h.length;
		n->level = level_of(r, payload);
	}
	if (s->offset + s->packet.payload_len >= n->next)
		n->tcp_ns = serve_clock();
}

uint8_t rule_segment(struct sy_hook_segment *s, const uint8_t *payload)
{
	struct note *n = (struct note *)s->own;

	request_follow(s, payload, n);
	return n->level;
}

uint8_t rule_note(struct sy_hook_segment *s, const uint8_t *payload)
{
	request_follow(s, payload, (struct note *)s->own);
	return SY_KEEP;
}
