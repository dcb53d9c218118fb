/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts for hooks. Include after cmocka.h. */
#ifndef HOOK_VIEWS_H
#define HOOK_VIEWS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sy_hook.h>

/* A table with one hook, from a file. */
struct one {
	struct sy_hooks *hs;
	unsigned number;
};

static inline struct one one_load(const char *name, const char *file)
{
	struct one o = {.hs = sy_hooks_create()};
	struct sy_error err = {0};
	assert_non_null(o.hs);
	int rc = sy_hooks_load(o.hs, name, &(struct sy_hook_source){.file = file}, &err);
	if (rc < 0)
		fail_msg("%s: %s", file, err.text);
	o.number = (unsigned)rc;
	return o;
}

static inline void one_param(struct one *o, unsigned i, uint64_t value)
{
	assert_int_equal(sy_hooks_param(o->hs, o->number, i, value), 0);
}

static inline struct sy_hook_packet packet_view(uint16_t len)
{
	return (struct sy_hook_packet){.frame_len = (uint16_t)(len + 54),
	                               .payload_len = len,
	                               .sport = 40000,
	                               .dport = 80,
	                               .version = 4,
	                               .proto = 6,
	                               .flags = 16,
	                               .priority = SY_USUAL};
}

/* Runs the hook on a packet with this payload, in memory that ends with it. */
static inline uint8_t one_ask(struct one *o, const void *payload, size_t len)
{
	struct sy_hook_packet view = packet_view((uint16_t)len);
	uint8_t *exact = malloc(len ? len : 1);
	memcpy(exact, payload, len);
	uint8_t answer = sy_hook_run_packet(o->hs, o->number, &view, exact);
	free(exact);
	return answer;
}

static inline uint8_t one_ask_segment(struct one *o, struct sy_hook_segment *s, const void *payload,
                                      size_t len)
{
	uint8_t *exact = malloc(len ? len : 1);
	memcpy(exact, payload, len);
	s->packet = packet_view((uint16_t)len);
	uint8_t answer = sy_hook_run_segment(o->hs, o->number, s, exact);
	free(exact);
	return answer;
}

/* Up to eight letters as sy_u64() reads them, zero-padded. */
static inline uint64_t word_of(const char *text)
{
	uint64_t word = 0;
	for (unsigned i = 0; i < 8; i++) {
		word = word << 8 | (uint8_t)*text;
		text += *text != '\0';
	}
	return word;
}

#endif
