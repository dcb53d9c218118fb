// SPDX-License-Identifier: Apache-2.0
#include "sync_part.h"

#include <errno.h>

#include "sync_window.h"

struct __attribute__((packed)) head {
	uint16_t slot;
	uint8_t kind;
	uint32_t generation, number;
	uint16_t len;
};
_Static_assert(sizeof(struct head) == SYNC_PART_HEAD, "a wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied without conversion");

void sync_part_end(struct sync_payload *p, const struct sync_part *part)
{
	const struct head h = {.slot = part->slot,
	                       .kind = part->kind,
	                       .generation = part->generation,
	                       .number = part->number,
	                       .len = part->len};

	memcpy(p->bytes + p->len, &h, sizeof(h));
	p->len = (uint16_t)(p->len + sizeof(h) + part->len);
}

bool sync_part_add(struct sync_payload *p, enum sync_part_kind kind, unsigned slot,
                   uint32_t generation, uint32_t number)
{
	const struct sync_part part = {.slot = (uint16_t)slot,
	                               .kind = (uint8_t)kind,
	                               .generation = generation,
	                               .number = number};

	if (sizeof(p->bytes) - p->len < SYNC_PART_HEAD)
		return false;
	sync_part_end(p, &part);
	return true;
}

static bool entries_are_complete(const uint8_t *bytes, size_t len)
{
	size_t at = 0;

	while (at < len) {
		const struct sync_entry_head *e = (const void *)(bytes + at);
		if (len - at < sizeof(*e) || e->len < sizeof(*e) || e->len > len - at)
			return false;
		at += e->len;
	}
	return true;
}

int sync_part_next(const uint8_t *bytes, size_t len, size_t *at, struct sync_part *out)
{
	struct head h;

	if (*at == len)
		return 0;
	if (len - *at < sizeof(h))
		return -EINVAL;
	memcpy(&h, bytes + *at, sizeof(h));
	*out = (struct sync_part){h.slot, h.kind, h.generation, h.number, bytes + *at + sizeof(h),
	                          h.len};
	if (h.slot >= SYNC_SLOTS || h.len > len - *at - sizeof(h) ||
	    (h.kind == SYNC_ENTRIES && !entries_are_complete(out->bytes, h.len)))
		return -EINVAL;
	*at += sizeof(h) + h.len;
	return 1;
}
