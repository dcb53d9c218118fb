// SPDX-License-Identifier: Apache-2.0
/* Objects of tests that replicate them, as entries of a log. */
#ifndef SYNC_FIXTURE_H
#define SYNC_FIXTURE_H

#include <stdlib.h>

#include "../../tcp/tests/random.h"
#include "sync_entry.h"

struct object {
	uint32_t id, value; /* id 0: the record is free */
};

struct __attribute__((packed)) object_entry {
	struct sync_entry_head head;
	uint32_t id, value;
};

static inline uint64_t object_hash(uint32_t id)
{
	return (id + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Entries have different lengths, so that windows fill in different ways. */
static inline void object_write(uint8_t *to, uint8_t kind, const struct object *o, uint64_t *hash)
{
	struct object_entry e = {
	        .head = {kind, (uint8_t)(sizeof(e) + o->id % 50)}, .id = o->id, .value = o->value};

	memset(to, 0, SYNC_ENTRY);
	memcpy(to, &e, sizeof(e));
	*hash = object_hash(o->id);
}

/* A number of the environment. */
static inline uint64_t number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

#endif
