// SPDX-License-Identifier: Apache-2.0
/* A byte-wise model of sent data by the RFCs' pseudo-code, to compare sent*.c with. The including
 * test defines CHECK(). */
#ifndef TCP_TESTS_SENT_MODEL_H
#define TCP_TESTS_SENT_MODEL_H

#include <string.h>

#include "sent.h"

#define MODEL_MAX   512 /* max. bytes in flight */
#define MODEL_CELLS 600
#define MODEL_MSS   10

struct model_byte {
	uint64_t ns;
	bool sacked, lost, again, ambiguous;
};

struct model {
	struct sent sent;
	struct pool pool;
	struct sent_range cells[MODEL_CELLS];
	struct rtt rtt;
	uint64_t now;
	uint32_t una, nxt;
	struct model_byte bytes[MODEL_MAX]; /* by their number, modulo this */
	uint64_t rack_ns;
	uint32_t rack_to, rack_us, fack;
	uint32_t dsack_round, widened, persist;
	bool reordered, in_dsack_round, timed_out, rto_ambiguous;
	uint32_t timed_out_to, undo_bytes, undo_from, probe_to;
	uint64_t undo_ns;
	bool probing, probe_is_retransmission;
};

static struct model_byte *model_at(struct model *m, uint32_t number)
{
	return &m->bytes[number % MODEL_MAX];
}

static void model_init(struct model *m, uint32_t first)
{
	memset(m, 0, sizeof(*m));
	pool_init(&m->pool, m->cells, sizeof(*m->cells), MODEL_CELLS);
	sent_init(&m->sent, first);
	rtt_init(&m->rtt);
	m->una = m->nxt = m->fack = first;
	m->widened = 1;
	m->now = 1000000000;
}

static uint32_t model_count(struct model *m, bool sacked, bool lost)
{
	uint32_t count = 0;
	for (uint32_t n = m->una; n != m->nxt; n++)
		count += (sacked && model_at(m, n)->sacked) || (lost && model_at(m, n)->lost);
	return count;
}

/* In a function that returns whether something holds; a fuzz target's HOLDS() also prints it. */
#ifndef HOLDS
#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return false;                                                              \
	} while (0)
#endif

/* Returns whether counters and ranges equal the model's. The operations below compare their
 * results. */
static bool model_agrees(struct model *m)
{
	const struct sent *s = &m->sent;
	uint32_t at = m->una, count = 0, timed = 0, before = 0;
	uint64_t last = 0;

	HOLDS(s->una == m->una && s->nxt == m->nxt);
	for (uint32_t index = s->first; index; index = m->cells[index].next, count++) {
		const struct sent_range *r = &m->cells[index];
		HOLDS(r->from == at && r->prev == before && r->to != at);
		for (; at != r->to; at++) {
			const struct model_byte *b = model_at(m, at);
			HOLDS(b->sacked == !!(r->marks & SENT_SACKED));
			HOLDS(b->lost == !!(r->marks & SENT_LOST));
			HOLDS(b->sacked || b->again == !!(r->marks & SENT_RETRANSMITTED));
			HOLDS(b->sacked || b->ambiguous || b->ns == r->sent_ns);
		}
		before = index;
		timed += !(r->marks & (SENT_SACKED | SENT_LOST));
	}
	HOLDS(at == m->nxt && s->last == before);
	HOLDS(count == s->ranges && count == m->pool.taken);
	for (uint32_t index = s->soonest; index; index = m->cells[index].later, timed--) {
		HOLDS(m->cells[index].sent_ns >= last);
		HOLDS(!(m->cells[index].marks & (SENT_SACKED | SENT_LOST)));
		last = m->cells[index].sent_ns;
	}
	HOLDS(timed == 0);
	HOLDS(s->sacked == model_count(m, true, false) && s->lost == model_count(m, false, true));
	HOLDS(sent_in_flight(s) == m->nxt - m->una - model_count(m, true, true));
	HOLDS(s->rack_ns == m->rack_ns && s->rack_to == m->rack_to && s->rack_us == m->rack_us);
	HOLDS(s->fack == m->fack && s->reordered == m->reordered);
	HOLDS(s->widened == m->widened && s->persist == m->persist);
	HOLDS(s->undo_bytes == m->undo_bytes && s->timed_out == m->timed_out &&
	      s->rto_ambiguous == m->rto_ambiguous && s->probing == m->probing);
	return true;
}

static void model_add(struct model *m, uint32_t bytes)
{
	if (m->nxt - m->una + bytes > MODEL_MAX)
		return;
	CHECK(sent_add(&m->sent, &m->pool, bytes, m->now));
	/* Recently sent data was merged. */
	for (uint32_t n = m->cells[m->sent.last].from; n != m->nxt; n++) {
		CHECK(model_at(m, n)->ns == m->now ||
		      m->now - model_at(m, n)->ns <= m->rack_us * UINT64_C(1000) / 128);
		model_at(m, n)->ns = m->now;
	}
	for (; bytes > 0; bytes--)
		*model_at(m, m->nxt++) = (struct model_byte){.ns = m->now};
}

static void model_again(struct model *m, uint32_t from, uint32_t to)
{
	sent_retransmitted(&m->sent, &m->pool, from, to, m->now);
	if (m->undo_ns == 0) {
		m->undo_ns = m->now;
		m->undo_from = m->una;
	}
	for (; from != to; from++) {
		struct model_byte *b = model_at(m, from);
		if (b->sacked)
			continue;
		m->undo_bytes++;
		*b = (struct model_byte){.ns = m->now, .again = true};
	}
}

/* Retransmits the first lost segment. */
static void model_again_lost(struct model *m)
{
	uint32_t from, to, first = m->una;
	bool found = sent_next_lost(&m->sent, &m->pool, &from, &to);
	while (first != m->nxt && !model_at(m, first)->lost)
		first++;
	CHECK(found == (first != m->nxt));
	if (!found)
		return;
	CHECK(from == first);
	for (; first != to; first++)
		CHECK(model_at(m, first)->lost);
	model_again(m, from, to - from > MODEL_MSS ? from + MODEL_MSS : to);
}

static void model_probe(struct model *m, bool again)
{
	uint32_t from, to;
	if (m->una == m->nxt)
		return;
	sent_probe_range(&m->sent, MODEL_MSS, &from, &to);
	CHECK(to == m->nxt && to - from <= MODEL_MSS && from - m->una < MODEL_MAX);
	if (again)
		model_again(m, from, to);
	else
		model_add(m, MODEL_MSS);
	sent_probed(&m->sent, again);
	m->probe_to = m->nxt;
	m->probing = true;
	m->probe_is_retransmission = again;
	m->undo_bytes = 0;
	m->undo_ns = 0;
}

/* RACK_update and RACK_detect_reordering of RFC 8985, and the samples, for one byte. */
static void model_deliver(struct model *m, const struct sent_ack *in, uint32_t number,
                          bool cumulative, struct sent_outcome *want, uint32_t *sack_us)
{
	struct model_byte *b = model_at(m, number);
	uint64_t ns = in->now_ns - b->ns;
	uint32_t us = ns == 0 ? 1 : (uint32_t)((ns + 999) / 1000), to = number + 1;
	us = us < MAX_RTT_US ? us : MAX_RTT_US;

	want->delivered++;
	bool before = (int32_t)(m->timed_out_to - to) >= 0;
	if (!b->again && !b->ambiguous && (cumulative || !(m->rto_ambiguous && before))) {
		uint32_t *slowest = cumulative ? &want->rtt_us : sack_us;
		*slowest = us > *slowest ? us : *slowest;
		want->min_us = want->min_us && want->min_us < us ? want->min_us : us;
	}
	if ((int32_t)(to - m->fack) >= 0)
		m->fack = to;
	else if (!b->again)
		m->reordered = true;
	want->original |= !b->again && m->timed_out && before;
	want->spurious |= b->again && !b->ambiguous && cumulative && in->echo_ns && m->undo_ns &&
	                  b->ns >= m->undo_ns && in->echo_ns <= m->undo_ns;
	if (b->ambiguous ||
	    (b->again && ((in->echo_ns && b->ns >= in->echo_ns) || us < rtt_min_us(&m->rtt))))
		return;
	m->rack_us = us;
	if (b->ns > m->rack_ns || (b->ns == m->rack_ns && (int32_t)(to - m->rack_to) > 0)) {
		m->rack_ns = b->ns;
		m->rack_to = to;
	}
}

/* The blocks' bytes, the lowest first. */
static void model_sack(struct model *m, const struct sent_ack *in, bool dsack,
                       struct sent_outcome *want, uint32_t *sack_us)
{
	for (uint32_t n = m->una; n != m->nxt; n++) {
		bool told = false;
		for (unsigned i = dsack; i < in->count; i++) {
			const struct sack_block *b = &in->blocks[i];
			bool whole = (int32_t)(b->to - b->from) > 0 &&
			             (int32_t)(m->nxt - b->to) >= 0 &&
			             (int32_t)(b->to - m->una) > 0;
			told |= whole && (int32_t)(n - b->from) >= 0 && (int32_t)(b->to - n) > 0;
		}
		if (!told || model_at(m, n)->sacked)
			continue;
		model_deliver(m, in, n, false, want, sack_us);
		want->sacked++;
		model_at(m, n)->sacked = true;
		model_at(m, n)->lost = false;
	}
}

static bool model_is_dsack(const struct model *m, const struct sent_ack *in)
{
	const struct sack_block *b = in->blocks;
	uint32_t ack = (int32_t)(in->ack - m->una) > 0 ? in->ack : m->una;
	if (in->count == 0 || (int32_t)(b->to - b->from) <= 0)
		return false;
	return (int32_t)(ack - b->to) >= 0 ||
	       (in->count > 1 && (int32_t)(b[0].from - b[1].from) >= 0 &&
	        (int32_t)(b[1].to - b[0].to) >= 0);
}

static void model_dsack(struct model *m, const struct sack_block *b, struct sent_outcome *want)
{
	if (m->undo_bytes == 0 || (int32_t)(b->from - m->undo_from) < 0 ||
	    (int32_t)(m->nxt - b->to) < 0)
		return;
	m->undo_bytes -= b->to - b->from < m->undo_bytes ? b->to - b->from : m->undo_bytes;
	want->undone = m->undo_bytes == 0;
}

/* TLP_process_ack and the first half of RACK_update_reo_wnd. */
static void model_rounds(struct model *m, const struct sent_ack *in, struct sent_outcome *want)
{
	bool twice = want->dsack && m->probing && m->probe_is_retransmission &&
	             in->blocks[0].to == m->probe_to && (int32_t)(m->una - m->probe_to) >= 0;
	if (m->probing && (int32_t)(m->una - m->probe_to) >= 0) {
		want->probe_lost = m->probe_is_retransmission && !twice && m->una != m->probe_to;
		if (!m->probe_is_retransmission || twice || want->probe_lost ||
		    (want->acked == 0 && in->count == 0 && in->pure))
			m->probing = false;
	}
	if (m->in_dsack_round && (int32_t)(m->una - m->dsack_round) >= 0)
		m->in_dsack_round = false;
	if (want->dsack && !twice && !m->in_dsack_round) {
		m->in_dsack_round = true;
		m->dsack_round = m->nxt;
		m->widened += m->widened < 250;
		m->persist = 16;
	}
}

static void model_ack(struct model *m, const struct sent_ack *in)
{
	struct sent_outcome outcome, want = {.dsack = model_is_dsack(m, in)};
	uint32_t sack_us = 0;

	sent_acked(&m->sent, &m->pool, &m->rtt, in, &outcome);
	if (want.dsack)
		model_dsack(m, in->blocks, &want);
	bool again = false;
	while ((int32_t)(in->ack - m->una) > 0) {
		if (!model_at(m, m->una)->sacked) {
			again |= model_at(m, m->una)->again;
			model_deliver(m, in, m->una, true, &want, &sack_us);
		}
		m->una++;
		want.acked++;
	}
	if (again) { /* Karn's rule for the whole */
		want.rtt_us = want.min_us = 0;
		want.original = false;
	}
	if ((int32_t)(m->una - m->fack) > 0)
		m->fack = m->una;
	model_sack(m, in, want.dsack, &want, &sack_us);
	want.rtt_us = want.rtt_us ? want.rtt_us : sack_us;
	model_rounds(m, in, &want);
	if (m->rto_ambiguous && (int32_t)(m->una - m->timed_out_to) >= 0)
		m->timed_out = m->rto_ambiguous = false;
	CHECK(outcome.acked == want.acked && outcome.sacked == want.sacked);
	CHECK(outcome.delivered == want.delivered);
	CHECK(outcome.rtt_us == want.rtt_us && outcome.min_us == want.min_us);
	CHECK(outcome.dsack == want.dsack && outcome.probe_lost == want.probe_lost);
	CHECK(outcome.undone == want.undone && outcome.spurious == want.spurious);
	CHECK(outcome.original == want.original);
	if (want.rtt_us) {
		rtt_sample(&m->rtt, want.rtt_us, 1, m->now / 1000000);
		rtt_min_sample(&m->rtt, want.min_us, m->now / 1000000);
	}
}

static uint64_t model_window(struct model *m, bool recovering)
{
	uint64_t us = (uint64_t)m->widened * rtt_min_us(&m->rtt) / 4;
	if (!m->reordered && (recovering || model_count(m, true, false) > 2 * MODEL_MSS))
		return 0;
	return 1000 * (us < rtt_smoothed_us(&m->rtt) ? us : rtt_smoothed_us(&m->rtt));
}

/* RACK_detect_loss */
static void model_detect(struct model *m, bool recovering)
{
	uint64_t look, want = 0, window = model_window(m, recovering);
	uint32_t lost = 0, told = sent_detect(&m->sent, &m->pool, &m->rtt, MODEL_MSS, recovering,
	                                      m->now, &look);
	uint32_t range = m->sent.first;
	for (uint32_t n = m->una; n != m->nxt && m->rack_ns; n++) {
		struct model_byte *b = model_at(m, n);
		while (m->cells[range].to - n - 1 >= MODEL_MAX)
			range = m->cells[range].next;
		if (b->sacked || b->lost || b->ns > m->rack_ns ||
		    (b->ns == m->rack_ns && (int32_t)(m->rack_to - m->cells[range].to) <= 0))
			continue;
		uint64_t until = b->ns + m->rack_us * UINT64_C(1000) + window;
		if (until <= m->now) {
			b->lost = true;
			lost++;
		} else {
			want = want && want < until ? want : until;
		}
	}
	CHECK(told == lost && look == want);
}

/* Merged SACKed ranges count as retransmitted if a part was. */
static void model_adopt_again(struct model *m)
{
	for (uint32_t index = m->sent.first; index; index = m->cells[index].next) {
		const struct sent_range *r = &m->cells[index];
		for (uint32_t n = r->from; r->marks & SENT_SACKED && n != r->to; n++) {
			CHECK(!model_at(m, n)->again || r->marks & SENT_RETRANSMITTED);
			model_at(m, n)->again = r->marks & SENT_RETRANSMITTED;
		}
	}
}

/* RACK_mark_losses_on_RTO, and RFC 2018, 8 */
static void model_time_out(struct model *m, bool repeated)
{
	uint64_t window = model_window(m, true);
	/* Everything sent with the first byte counts as the first segment. */
	uint32_t first = m->sent.first ? m->cells[m->sent.first].to : m->una;
	model_adopt_again(m);
	sent_timed_out(&m->sent, &m->pool, &m->rtt, MODEL_MSS, repeated, m->now);
	m->probing = false;
	if (m->una == m->nxt)
		return;
	m->timed_out = m->rto_ambiguous = true;
	m->timed_out_to = m->nxt;
	bool all = repeated || model_at(m, m->una)->sacked;
	for (uint32_t n = m->una; n != m->nxt; n++) {
		struct model_byte *b = model_at(m, n);
		if (all) {
			b->ambiguous |= b->sacked;
			b->sacked = false;
		}
		b->lost |= all || (int32_t)(first - n) > 0 ||
		           (!b->sacked && b->ns + m->rack_us * UINT64_C(1000) + window <= m->now);
	}
	m->fack = all ? m->una : m->fack;
}

static void model_found(struct model *m)
{
	const struct sent_range *r;

	sent_undo_losses(&m->sent, &m->pool);
	if (m->timed_out)
		m->rack_ns = 0;
	for (uint32_t n = m->una, index = m->sent.first; index; index = r->next)
		for (r = &m->cells[index]; n != r->to; n++) {
			struct model_byte *b = model_at(m, n);
			b->lost = false;
			if (b->ambiguous) /* whenever it was */
				b->ns = r->sent_ns;
		}
}

static void model_recovered(struct model *m)
{
	sent_recovered(&m->sent);
	m->undo_bytes = 0;
	m->undo_ns = 0;
	m->timed_out = false;
	if (m->persist > 0 && --m->persist == 0)
		m->widened = 1;
}

#endif
