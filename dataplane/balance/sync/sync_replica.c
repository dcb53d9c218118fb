// SPDX-License-Identifier: Apache-2.0
#include "sync_replica.h"

static bool is_soon(uint64_t last_ns, uint64_t now_ns, uint64_t interval_ns)
{
	return last_ns && now_ns - last_ns < interval_ns;
}

bool sync_replica_may_begin(const struct sync_replica *r, uint64_t now_ns)
{
	return !is_soon(r->generation_ns, now_ns, SYNC_BEGIN_NS);
}

void sync_replica_begin(struct sync_replica *r, uint32_t generation, const struct sync_sum *stored,
                        uint64_t now_ns)
{
	*r = (struct sync_replica){.expected = 1,
	                           .generation = generation,
	                           .stored = *stored,
	                           .mismatches = r->mismatches,
	                           .asked_ns = r->asked_ns,
	                           .generation_ns = now_ns,
	                           .copy_ns = r->copy_ns};
}

static enum sync_result object_apply(struct sync_replica *r, const struct sync_sink *sink,
                                     unsigned node, unsigned slot, const uint8_t *entry)
{
	uint8_t kind = ((const struct sync_entry_head *)entry)->kind;
	uint64_t hash = 0;
	enum sync_result result = sink->apply(sink->context, node, slot, entry, &hash);

	if (result == SYNC_MISSING && kind == SYNC_DELETE)
		sync_sum_subtract(&r->refused, hash); /* its put was refused */
	else if (result == SYNC_REFUSED)
		sync_sum_add(&r->refused, hash);
	else if (result == SYNC_NEW && kind != SYNC_DELETE)
		sync_sum_add(&r->stored, hash);
	else if (result == SYNC_DONE && kind == SYNC_DELETE)
		sync_sum_subtract(&r->stored, hash);
	return result;
}

/* Returns whether the sums are equal, and no copy is due. */
static bool sum_compare(struct sync_replica *r, const uint8_t *entry, uint64_t now_ns)
{
	struct sync_sum_entry e;

	memcpy(&e, entry, sizeof(e));
	const struct sync_sum sent = {e.hash, e.count};
	if (r->copy_due) /* the request was lost, or came during a copy */
		return false;
	const struct sync_sum known = {r->stored.hash + r->refused.hash,
	                               r->stored.count + r->refused.count};
	if (!sync_sum_equal(&sent, &known)) {
		r->mismatches++;
		r->verified = false;
		return false;
	}
	r->verified = true;
	r->verified_ns = now_ns;
	return true;
}

static enum sync_result entry_apply(struct sync_replica *r, const struct sync_sink *sink,
                                    unsigned node, unsigned slot, const uint8_t *entry,
                                    uint64_t now_ns, bool *differs)
{
	const struct sync_entry_head *head = (const void *)entry;

	switch (head->kind) {
	case SYNC_PUT:
	case SYNC_CHANGE:
	case SYNC_DELETE:
		return object_apply(r, sink, node, slot, entry);
	case SYNC_COPY_BEGIN:
		if (is_soon(r->copy_ns, now_ns, SYNC_BEGIN_NS))
			return SYNC_LATER;
		r->stored = r->refused = (struct sync_sum){0};
		r->unreadable = 0;
		r->copy_due = false;
		r->copying = true;
		r->copy_ns = now_ns;
		sink->copy_begin(sink->context, node, slot);
		return SYNC_DONE;
	case SYNC_COPY_END:
		if (r->copying)
			sink->copy_end(sink->context, node, slot);
		r->copying = false;
		return SYNC_DONE;
	case SYNC_SUM:
		if (head->len < sizeof(struct sync_sum_entry))
			return SYNC_INVALID;
		*differs = !sum_compare(r, entry, now_ns) || *differs;
		return SYNC_DONE;
	default: /* of a later version */
		return SYNC_DONE;
	}
}

/* The sums differ. Would a copy make them equal? */
static bool copy_is_due(struct sync_replica *r, uint64_t now_ns)
{
	if (r->copying || (r->unreadable && is_soon(r->asked_ns, now_ns, SYNC_UNREADABLE_NS)))
		return false;
	r->asked_ns = now_ns;
	return true;
}

enum sync_reply sync_replica_apply(struct sync_replica *r, const struct sync_sink *sink,
                                   unsigned node, const struct sync_part *part, uint64_t now_ns)
{
	uint32_t number = part->number;
	bool differs = false;

	r->part_ns = now_ns;
	if ((int32_t)(number - r->expected) > 0)
		return SYNC_REPLY_GAP;
	for (size_t at = 0; at < part->len; number++) {
		const uint8_t *entry = part->bytes + at;
		at += ((const struct sync_entry_head *)entry)->len;
		if (number != r->expected) /* a duplicate */
			continue;
		enum sync_result result =
		        entry_apply(r, sink, node, part->slot, entry, now_ns, &differs);
		if (result == SYNC_LATER)
			break;
		r->unreadable += result == SYNC_INVALID;
		r->expected++;
	}
	return differs && copy_is_due(r, now_ns) ? SYNC_REPLY_COPY : SYNC_REPLY_APPLIED;
}
