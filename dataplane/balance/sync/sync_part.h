// SPDX-License-Identifier: Apache-2.0
/*
 * A datagram's contents, sealed or not: parts, each about one slot
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
	SYNC_ENTRIES = 1, /* whole entries of the log, the first one is `number` */
	SYNC_APPLIED,     /* the receiver has applied all entries before `number` */
	SYNC_GAP,         /* the same, and a later entry came: what is between them was lost */
	SYNC_COPY,        /* the sums differ: the sender is to copy the slot */
};

struct sync_part {
	uint16_t slot;       /* below SYNC_SLOTS */
	uint8_t kind;        /* may be one that this build does not know: skip it */
	uint32_t generation; /* of the log: its numbers begin again with each one */
	uint32_t number;
	const uint8_t *bytes;
	uint16_t len;
};

#define SYNC_PART_HEAD 13

/* What fits into one datagram; sealing and its header are not counted. */
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

/* Where the bytes of the next part begin: its writer stores them there before sync_part_end(). */
static inline uint8_t *sync_part_bytes(struct sync_payload *p)
{
	return p->bytes + p->len + SYNC_PART_HEAD;
}

/* Completes a part of which `part->len` bytes, at most sync_payload_space(), are stored. */
void sync_part_end(struct sync_payload *p, const struct sync_part *part);

/* Is generation `a` later than `b`? */
static inline bool sync_generation_is_later(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* Appends a part without bytes. Returns false if the datagram is full. */
bool sync_part_add(struct sync_payload *p, enum sync_part_kind kind, unsigned slot,
                   uint32_t generation, uint32_t number);

/* The part at *at, which it advances. Returns 1; 0 at the end; -EINVAL if the bytes are no parts,
 * or the entries in it are not whole. */
int sync_part_next(const uint8_t *bytes, size_t len, size_t *at, struct sync_part *out);

#endif
