// SPDX-License-Identifier: Apache-2.0
/* A byte-wise model of out-of-order data, to compare arrived.c with. The including test defines
 * CHECK(). */
#ifndef TCP_TESTS_ARRIVED_MODEL_H
#define TCP_TESTS_ARRIVED_MODEL_H

#include <string.h>

#include "arrived.h"

#define MODEL_BYTES   512
#define MODEL_CELLS   96
#define MODEL_BUFFERS 1024

struct model_byte {
	uint16_t buffer; /* 0: missing */
	uint32_t touched;
};

struct model {
	struct arrived arrived;
	struct pool pool;
	union arrived_cell cells[MODEL_CELLS];
	uint32_t next;                        /* RCV.NXT */
	struct model_byte bytes[MODEL_BYTES]; /* from `next` */
	uint32_t origins[MODEL_BUFFERS];      /* of buffers */
	uint32_t references[MODEL_BUFFERS];   /* pieces of each */
	char buffers[MODEL_BUFFERS];          /* only their addresses are used */
	uint16_t last;                        /* buffer that was used */
	struct sack_block duplicate;
};

static void model_init(struct model *m, uint32_t next)
{
	memset(m, 0, sizeof(*m));
	m->next = next;
	pool_init(&m->pool, m->cells, sizeof(*m->cells), MODEL_CELLS);
}

static uint32_t model_pieces(const struct model *m)
{
	uint32_t pieces = 0;
	for (unsigned n = 0; n < MODEL_BUFFERS; n++)
		pieces += m->references[n];
	return pieces;
}

static uint16_t model_buffer(struct model *m)
{
	do
		m->last = (uint16_t)(m->last % (MODEL_BUFFERS - 1) + 1);
	while (m->references[m->last]);
	return m->last;
}

/* Marks the block around a byte as touched. */
static void model_touch(struct model *m, int at)
{
	int from = at, to = at;
	while (from > 0 && m->bytes[from - 1].buffer)
		from--;
	while (to < MODEL_BYTES && m->bytes[to].buffer)
		to++;
	for (; from < to; from++)
		m->bytes[from].touched = m->arrived.touches;
}

/* The first duplicate part of a segment. */
static struct sack_block model_duplicate(const struct model *m, int from, int to)
{
	int at = from, end;
	if (from >= 0)
		while (at < to && !m->bytes[at].buffer)
			at++;
	for (end = at; end < to && (end < 0 || m->bytes[end].buffer); end++)
		if (end == 0 && at < 0)
			break;
	return (struct sack_block){m->next + (uint32_t)at, m->next + (uint32_t)end};
}

/* If there was capacity for a part only: takes over which part; nothing else may have changed. */
static void model_adopt(struct model *m, int from, int to, uint16_t buffer, uint32_t kept)
{
	static struct model_byte now[MODEL_BYTES];
	uint32_t pieces = 0;
	memset(now, 0, sizeof(now));
	for (uint32_t b = m->arrived.first; b; b = m->cells[b].block.next) {
		const struct arrived_block *block = &m->cells[b].block;
		for (uint32_t n = block->first; n; n = m->cells[n].piece.next) {
			const struct arrived_piece *piece = &m->cells[n].piece;
			uint16_t of = (uint16_t)((char *)piece->buffer - m->buffers);
			pieces += of == buffer;
			for (uint32_t at = piece->from - m->next; at < piece->to - m->next; at++)
				now[at] = (struct model_byte){of, block->touched};
		}
	}
	for (int at = 0; at < MODEL_BYTES; at++)
		CHECK(m->bytes[at].buffer == now[at].buffer ||
		      (m->bytes[at].buffer == 0 && at >= from && at < to &&
		       now[at].buffer == buffer));
	CHECK(pieces == kept);
	memcpy(m->bytes, now, sizeof(now));
}

/* from and to: relative to next, from -MODEL_BYTES to MODEL_BYTES; not empty. */
static void model_add(struct model *m, int from, int to)
{
	struct sack_block duplicate = model_duplicate(m, from, to);
	uint16_t buffer = model_buffer(m);
	struct arrived_news outcome =
	        arrived_add(&m->arrived, &m->pool, m->next, m->next + (uint32_t)from,
	                    m->next + (uint32_t)to, &m->buffers[buffer]);

	m->origins[buffer] = m->next + (uint32_t)from;
	m->references[buffer] = outcome.kept;
	if (outcome.duplicate)
		m->duplicate = duplicate;
	CHECK(!outcome.duplicate || duplicate.from != duplicate.to);
	if (outcome.refused) {
		CHECK(m->pool.taken + 2 > MODEL_CELLS - 1);
		model_adopt(m, from, to, buffer, outcome.kept);
		return;
	}
	CHECK(outcome.duplicate == (duplicate.from != duplicate.to));
	for (int at = from > 0 ? from : 0; at < to; at++) {
		if (m->bytes[at].buffer)
			continue;
		outcome.kept -= at == from || at == 0 || m->bytes[at - 1].buffer != buffer;
		m->bytes[at].buffer = buffer;
	}
	CHECK(outcome.kept == 0);
	if (to > 0)
		model_touch(m, from > 0 ? from : 0);
}

static void model_take(struct model *m)
{
	struct arrived_cut cut;
	char *buffer = (char *)arrived_take(&m->arrived, &m->pool, m->next, &cut);
	uint16_t want = m->bytes[0].buffer;
	if (!buffer) {
		CHECK(!want);
		return;
	}
	uint32_t n = (uint32_t)(buffer - m->buffers);
	CHECK(n > 0 && n < MODEL_BUFFERS && m->references[n]-- > 0);
	if (cut.length == 0)
		return;
	CHECK(n == want && m->origins[n] + cut.skip == m->next && cut.length <= MODEL_BYTES);
	for (uint32_t at = 0; at < cut.length; at++)
		CHECK(m->bytes[at].buffer == n);
	memmove(m->bytes, m->bytes + cut.length, (MODEL_BYTES - cut.length) * sizeof(*m->bytes));
	memset(m->bytes + MODEL_BYTES - cut.length, 0, cut.length * sizeof(*m->bytes));
	m->next += cut.length;
}

/* The stack consumed in-order bytes. */
static void model_advance(struct model *m, unsigned bytes)
{
	m->next += bytes;
	memmove(m->bytes, m->bytes + bytes, (MODEL_BYTES - bytes) * sizeof(*m->bytes));
	memset(m->bytes + MODEL_BYTES - bytes, 0, bytes * sizeof(*m->bytes));
	while (m->bytes[0].buffer ||
	       (m->arrived.first && (int32_t)(m->cells[m->arrived.first].block.from - m->next) < 0))
		model_take(m);
}

/* Drops the first piece of the last block. */
static void model_drop(struct model *m)
{
	int to = MODEL_BYTES, from;
	char *buffer = (char *)arrived_drop(&m->arrived, &m->pool);
	while (to > 0 && !m->bytes[to - 1].buffer)
		to--;
	CHECK(!buffer == (to == 0));
	if (!buffer)
		return;
	for (from = to; from > 0 && m->bytes[from - 1].buffer;)
		from--;
	uint32_t n = (uint32_t)(buffer - m->buffers);
	CHECK(n == m->bytes[from].buffer && m->references[n]-- > 0);
	for (; from < to && m->bytes[from].buffer == n; from++)
		m->bytes[from].buffer = 0;
}

/* The blocks of an ACK. */
static void model_tell(struct model *m, unsigned max)
{
	struct sack_block out[SACK_BLOCKS];
	unsigned count = arrived_blocks(&m->arrived, &m->pool, out, max), n = 0, blocks = 0;
	uint32_t last = UINT32_MAX;

	if (max > 0 && m->duplicate.from != m->duplicate.to) {
		CHECK(count > 0 && out[0].from == m->duplicate.from &&
		      out[0].to == m->duplicate.to);
		m->duplicate = (struct sack_block){0};
		n++;
	}
	for (int at = 0; at < MODEL_BYTES; at++)
		blocks += m->bytes[at].buffer && (at == 0 || !m->bytes[at - 1].buffer);
	CHECK(blocks == m->arrived.blocks);
	CHECK(count - n == (blocks < max - n ? blocks : max - n));
	for (; n < count; n++) { /* each the next that was touched, and whole */
		uint32_t from = out[n].from - m->next, to = out[n].to - m->next, newest = 0;
		CHECK(from < to && to <= MODEL_BYTES);
		for (uint32_t at = 0; at < MODEL_BYTES; at++)
			if (m->bytes[at].buffer && m->bytes[at].touched < last &&
			    m->bytes[at].touched > newest)
				newest = m->bytes[at].touched;
		for (uint32_t at = from; at < to; at++)
			CHECK(m->bytes[at].buffer && m->bytes[at].touched == newest);
		CHECK(from == 0 || !m->bytes[from - 1].buffer);
		CHECK(to == MODEL_BYTES || !m->bytes[to].buffer);
		last = newest;
	}
}

/* Returns whether no cell and no reference is lost. The operations above compare their results. */
static bool model_agrees(const struct model *m)
{
	return m->arrived.pieces == model_pieces(m) &&
	       m->pool.taken == m->arrived.pieces + m->arrived.blocks;
}

#endif
