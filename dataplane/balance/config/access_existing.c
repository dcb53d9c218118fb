// SPDX-License-Identifier: Apache-2.0
/* Lists with `existing: end`: when workers re-evaluate existing sessions, and how many have
 * ended. */
#include <inttypes.h>

#include "access_model.h"

bool access_list_may_end(const struct access_version *v, const struct access_list *l)
{
	if (!l->ends)
		return false;
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		if (l->sets >> bit & 1 && v->set[bit] && v->set[bit]->missing)
			return false; /* the set is empty until its data has come */
	return true;
}

void access_recheck_existing(struct sy_balance *b)
{
	struct access_model *m = b->ctl->access;
	bool ends = false;
	if (!m->changed)
		return;
	m->changed = false;
	for (unsigned id = 0; b->access && id < ACCESS_LISTS; id++)
		ends |= b->access->list[id] && b->access->ends[id];
	if (!ends)
		return;
	__atomic_store_n(&b->access_generation, b->access_generation + 1, __ATOMIC_RELEASE);
}

static uint64_t ended_sum(const struct sy_balance *b, unsigned id)
{
	uint64_t sum = 0;
	for (unsigned w = 0; w < b->workers; w++)
		sum += SY_READ(b->worker[w].access->ended[id]);
	return sum;
}

void access_ended_begin(const struct sy_balance *b, struct model_list *l,
                        const struct model_list *old)
{
	const uint64_t sum = ended_sum(b, l->built->id);
	l->ended_base = old ? old->ended_base : sum;
	l->ended_logged = old ? old->ended_logged : sum;
}

uint64_t access_ended(const struct sy_balance *b, const struct model_list *l)
{
	return ended_sum(b, l->built->id) - l->ended_base;
}

void access_ended_log(struct sy_balance *b)
{
	struct access_model *m = b->ctl->access;
	for (unsigned id = 0; id < ACCESS_LISTS; id++) {
		struct model_list *l = m->now.list[id];
		if (!l || !l->built->ends)
			continue;
		const uint64_t sum = ended_sum(b, id), before = l->ended_seen;
		l->ended_seen = sum;
		if (sum == l->ended_logged || sum != before)
			continue; /* none, or more may follow at once */
		sy_log(SY_LOG_INFO, "access",
		       "list %s: %" PRIu64 " sessions that it no longer accepts have ended",
		       l->name, sum - l->ended_logged);
		l->ended_logged = sum;
	}
}
