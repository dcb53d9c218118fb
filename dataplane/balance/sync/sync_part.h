// SPDX-License-Identifier: Apache-2.0
/*
 * The plain text of a datagram: a sequence of parts, each about one slot
 * (docs/design/0068-session-sync.md).
 *
 *     0       2       3            7            11      13
 *     ┌───────┬───────┬────────────┬────────────┬───────┬──────────────┐
 *     │ slot  │ kind  │ generation │ number     │ len   │ len bytes    │   little endian, packed
 *     └───────┴───────┴────────────┴────────────┴───────┴──────────────┘
 */
#ifndef SYNC_PART_H
#define SYNC_PART_H

#include <sy_base.h>

#define SYNC_SLOTS      (SY_SLOTS + 1) /* each has a log */
#define SYNC_DICTIONARY SY_SLOTS       /* the last log: what the sender's ids mean */

enum sync_part_kind {
	SYNC_ENTRIES = 1, /* complete entries of the log; `number`: that of the first one */
	SYNC_APPLIED,     /* acknowledges all entries before `number` */
	SYNC_GAP,         /* acknowledges likewise, and reports that entry `number` was lost */
	SYNC_COPY,        /* requests a copy of the slot: the sums differ */
	SYNC_OWNED, /* a put of the receiver was refused, as node `number` serves the session: its
	               entry, with the receiver's ids */
};

struct sync_part {
	uint16_t slot;       /* below SYNC_SLOTS */
	uint8_t kind;        /* enum sync_part_kind; skip kinds of later versions */
	uint32_t generation; /* of the log: each generation numbers its entries from 1 */
	uint32_t number;
	const uint8_t *bytes;
	uint16_t len;
};

#define SYNC_PART_HEAD 13

/* Max bytes of parts in one datagram, without header and tag. */
#define SYNC_PAYLOAD 1344

struct sync_payload {
	uint16_t len;
	uint8_t bytes[SYNC_PAYLOAD];
};

static inline size_t sync_payload_space(const struct sync_payload *p)
{
	size_t left = sizeof(p->bytes) - p->len;

	return left > SYNC_PART_HEAD ? left - SYNC_PART_HEAD : 0;
}

/* Returns where the writer of the next part stores its bytes, before sync_part_end(). */
static inline uint8_t *sync_part_bytes(struct sync_payload *p)
{
	return p->bytes + p->len + SYNC_PART_HEAD;
}

/* Completes a part of which `part->len` bytes, at most sync_payload_space(), are stored. */
void sync_part_end(struct sync_payload *p, const struct sync_part *part);

/* Returns true if generation a is later than b. */
static inline bool sync_generation_is_later(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* Appends a part without bytes. Returns false if the datagram is full. */
bool sync_part_add(struct sync_payload *p, enum sync_part_kind kind, unsigned slot,
                   uint32_t generation, uint32_t number);

/* Parses the part at *at and advances *at. Returns 1, or 0 at the end. Fails with -EINVAL if the
 * part or an entry in it is truncated or malformed. */
int sync_part_next(const uint8_t *bytes, size_t len, size_t *at, struct sync_part *out);

#endif
