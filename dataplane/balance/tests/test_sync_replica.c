// SPDX-License-Identifier: Apache-2.0
/* What a peer may send that no honest one does: entries that cannot be read, and begins without an
 * end. Neither may stop a log, nor keep this node busy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sync_fixture.h"
#include "sync_part.h"
#include "sync_replica.h"

#define NODE   2
#define SLOT   5
#define NOW    UINT64_C(1000000000)
#define BROKEN 7 /* an object whose entries cannot be read */

static struct {
	unsigned applied, begins, ends;
} sink;

static enum sync_result apply(void *context, unsigned node, unsigned slot, const uint8_t *entry,
                              uint64_t *hash)
{
	struct object o;
	(void)context;
	(void)node;
	(void)slot;
	memcpy(&o, entry + sizeof(struct sync_entry_head), sizeof(o));
	*hash = object_hash(o.id);
	if (o.id == BROKEN)
		return SYNC_INVALID;
	sink.applied++;
	return SYNC_NEW;
}

static void copy_begin(void *context, unsigned node, unsigned slot)
{
	(void)context;
	(void)node;
	(void)slot;
	sink.begins++;
}

static void copy_end(void *context, unsigned node, unsigned slot)
{
	(void)context;
	(void)node;
	(void)slot;
	sink.ends++;
}

static const struct sync_sink counting = {NULL, apply, copy_begin, copy_end, NULL};

/* A log's end. */
struct entries {
	uint8_t bytes[SYNC_WINDOW];
	uint16_t len;
	uint32_t number;
	struct sync_sum sum;
};

static void entry_add(struct entries *e, const void *entry)
{
	const struct sync_entry_head *head = entry;
	memcpy(e->bytes + e->len, entry, head->len);
	e->len = (uint16_t)(e->len + head->len);
}

static void put_add(struct entries *e, uint32_t id)
{
	uint8_t entry[SYNC_ENTRY];
	uint64_t hash;
	object_write(entry, SYNC_PUT, &(struct object){id, 1}, &hash);
	sync_sum_add(&e->sum, hash);
	entry_add(e, entry);
}

static void head_add(struct entries *e, enum sync_entry_kind kind)
{
	entry_add(e, &(struct sync_entry_head){(uint8_t)kind, sizeof(struct sync_entry_head)});
}

static void sum_add(struct entries *e)
{
	const struct sync_sum_entry sum = {{SYNC_SUM, sizeof(sum)}, e->sum.hash, e->sum.count};
	entry_add(e, &sum);
}

/* Applies them, and forgets those that were applied. */
static enum sync_reply entries_apply(struct entries *e, struct sync_replica *r, uint64_t now_ns)
{
	const struct sync_part part = {.slot = SLOT,
	                               .kind = SYNC_ENTRIES,
	                               .generation = r->generation,
	                               .number = e->number,
	                               .bytes = e->bytes,
	                               .len = e->len};
	const enum sync_reply reply = sync_replica_apply(r, &counting, NODE, &part, now_ns);
	uint16_t at = 0;
	for (; e->number != r->expected; e->number++)
		at = (uint16_t)(at + ((struct sync_entry_head *)(e->bytes + at))->len);
	e->len = (uint16_t)(e->len - at);
	memmove(e->bytes, e->bytes + at, e->len);
	return reply;
}

static void begin(struct sync_replica *r, struct entries *e)
{
	memset(&sink, 0, sizeof(sink));
	*r = (struct sync_replica){0};
	*e = (struct entries){.number = 1};
	sync_replica_begin(r, 1, &(struct sync_sum){0}, NOW);
}

/* What follows is applied; the difference is reported, and a copy requested, but not again and
 * again. */
static void test_an_unreadable_entry_stops_no_log(void **state)
{
	struct sync_replica r;
	struct entries e;
	(void)state;
	begin(&r, &e);
	put_add(&e, 1);
	put_add(&e, BROKEN);
	put_add(&e, 2);
	assert_int_equal(entries_apply(&e, &r, NOW), SYNC_REPLY_APPLIED);
	assert_int_equal(e.len, 0);
	assert_int_equal(sink.applied, 2);
	unsigned copies = 0;
	for (unsigned s = 0; s < 180; s++) {
		sum_add(&e);
		if (entries_apply(&e, &r, NOW + s * UINT64_C(1000000000)) == SYNC_REPLY_COPY)
			copies++;
	}
	assert_int_equal(copies, 3);
	assert_false(r.verified);

	e.sum = (struct sync_sum){0}; /* a copy without it: another build has repaired it */
	head_add(&e, SYNC_COPY_BEGIN);
	put_add(&e, 1);
	put_add(&e, 2);
	head_add(&e, SYNC_COPY_END);
	sum_add(&e);
	assert_int_equal(entries_apply(&e, &r, NOW + UINT64_C(200000000000)), SYNC_REPLY_APPLIED);
	assert_true(r.verified);
	assert_int_equal(sink.ends, 1);
}

/* A copy's begin costs a pass over all records of the slot. */
static void test_begins_are_bounded(void **state)
{
	struct sync_replica r;
	struct entries e;
	(void)state;
	begin(&r, &e);
	for (unsigned i = 0; i < 100; i++) {
		head_add(&e, SYNC_COPY_BEGIN);
		put_add(&e, 1);
	}
	for (unsigned ms = 0; ms < 1000; ms++)
		entries_apply(&e, &r, NOW + ms * UINT64_C(1000000));
	assert_int_equal(sink.begins, 10);
	assert_int_equal(sink.applied, 10); /* what follows waits, in order */

	unsigned generations = 0;
	for (unsigned ms = 1000; ms < 2000; ms++) {
		const uint64_t now_ns = NOW + ms * UINT64_C(1000000);
		if (!sync_replica_may_begin(&r, now_ns))
			continue;
		sync_replica_begin(&r, r.generation + 1, &(struct sync_sum){0}, now_ns);
		generations++;
	}
	assert_int_equal(generations, 10);
}

/* The datagram with a request for a copy may be lost: each sum repeats it until the copy begins. */
static void test_a_request_for_a_copy_is_repeated(void **state)
{
	struct sync_replica r;
	struct entries e;
	(void)state;
	begin(&r, &e);
	put_add(&e, 1);
	sum_add(&e);
	assert_int_equal(entries_apply(&e, &r, NOW), SYNC_REPLY_APPLIED);
	assert_true(sync_replica_is_complete(&r, 0));
	sync_replica_request_copy(&r);
	for (unsigned s = 1; s < 4; s++) {
		assert_false(sync_replica_is_complete(&r, 0));
		sum_add(&e);
		assert_int_equal(entries_apply(&e, &r, NOW + s * UINT64_C(1000000000)),
		                 SYNC_REPLY_COPY);
	}
	assert_int_equal(r.mismatches, 0);
	e.sum = (struct sync_sum){0};
	head_add(&e, SYNC_COPY_BEGIN);
	put_add(&e, 1);
	assert_int_equal(entries_apply(&e, &r, NOW + UINT64_C(5000000000)), SYNC_REPLY_APPLIED);
	assert_false(sync_replica_is_complete(&r, 0));
	head_add(&e, SYNC_COPY_END);
	sum_add(&e);
	assert_int_equal(entries_apply(&e, &r, NOW + UINT64_C(6000000000)), SYNC_REPLY_APPLIED);
	assert_true(sync_replica_is_complete(&r, 0));
	assert_false(sync_replica_is_complete(&r, 1)); /* another incarnation may have others */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_an_unreadable_entry_stops_no_log),
	        cmocka_unit_test(test_begins_are_bounded),
	        cmocka_unit_test(test_a_request_for_a_copy_is_repeated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
