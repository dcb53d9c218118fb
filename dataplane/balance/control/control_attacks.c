// SPDX-License-Identifier: Apache-2.0
/* Replies to read requests for attacks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "attacks.h"
#include "control.h"
#include "control_plane.h"
#include "model.h"
#include "model_message.h"
#include "watch.h"

#define DONE_TEXT 160u

/* Is `syn_defence: auto` on, for an attack in progress? */
static const char *defence_state(const struct sy_balance *b, const struct attack *at)
{
	const struct model_service *s = b->ctl->model->service[at->service];
	if (at->ended_ms || !s || s->policy.syn_defence != DEFENCE_AUTO)
		return "";
	return b->ctl->watch->of_service[at->service].now.on ? "; it is on (auto)"
	                                                     : "; it is off again (auto)";
}

/* Outcome of the packets to a service so far. */
static int reply_done(const struct sy_balance *b, const struct attack *at, struct arena *a,
                      Steelyard__Forwarder__V1__Attack *pb)
{
	const char *fixed = attack_kind_done(at->kind);
	pb->done = arena_alloc(a, 2 * sizeof(*pb->done));
	char *text = arena_alloc(a, DONE_TEXT);
	if (!pb->done || !text)
		return -ENOMEM;
	if (*fixed) {
		pb->done[pb->n_done++] = (char *)(uintptr_t)fixed;
		return 0;
	}
	struct service_counts now = at->ended_ms ? at->after : attacks_counts(b, at->service);
	const uint64_t *before = at->before.refused;
	snprintf(text, DONE_TEXT,
	         "%" PRIu64 " got a session, %" PRIu64 " no record or local port, %" PRIu64
	         " no server; the longest idle sessions are evicted",
	         now.begun - at->before.begun, now.refused[REFUSED_FULL] - before[REFUSED_FULL],
	         now.refused[REFUSED_SERVER] - before[REFUSED_SERVER]);
	pb->done[pb->n_done++] = text;
	uint64_t answered = now.answered - at->before.answered;
	if (answered == 0)
		return 0;
	char *defence = arena_alloc(a, DONE_TEXT);
	if (!defence)
		return -ENOMEM;
	snprintf(defence, DONE_TEXT,
	         "the SYN defence answered %" PRIu64 " SYNs; %" PRIu64
	         " clients returned its answer%s",
	         answered, now.right - at->before.right, defence_state(b, at));
	pb->done[pb->n_done++] = defence;
	return 0;
}

static int reply_attack(const struct sy_balance *b, const struct attack *at, struct arena *a,
                        Steelyard__Forwarder__V1__Attack **out)
{
	Steelyard__Forwarder__V1__Attack *pb = arena_alloc(a, sizeof(*pb));
	if (!pb)
		return -ENOMEM;
	steelyard__forwarder__v1__attack__init(pb);
	*out = pb;
	pb->kind = (char *)(uintptr_t)attack_kind_name(at->kind);
	pb->help = (char *)(uintptr_t)attack_kind_help(at->kind);
	pb->began_unix_ms = at->began_ms;
	pb->ended_unix_ms = at->ended_ms;
	pb->packets = at->packets;
	pb->rate = at->rate;
	pb->peak = at->peak;
	pb->usual = at->usual;
	pb->subsided = !at->ended_ms && at->subsided;
	if (at->service != SERVICE_NONE) {
		pb->service_name = (char *)(uintptr_t)at->name;
		if (reply_key(a, &at->key, &pb->service, NULL) < 0)
			return -ENOMEM;
	}
	return reply_done(b, at, a, pb);
}

static int newest_first(const void *a, const void *b)
{
	const struct attack *const *x = a, *const *y = b;
	return ((*x)->began_ms < (*y)->began_ms) - ((*x)->began_ms > (*y)->began_ms);
}

int list_attacks(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                 struct sy_error *err)
{
	const struct attacks *all = b->ctl->attacks;
	const struct attack *sorted[ATTACKS_KEPT];
	size_t count = 0;
	Steelyard__Forwarder__V1__AttackList *l = arena_alloc(a, sizeof(*l));
	(void)q;
	if (!l)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	steelyard__forwarder__v1__attack_list__init(l);
	l->left_out = all->left_out;
	for (unsigned i = 0; i < ATTACKS_KEPT; i++)
		if (all->attack[i].began_ms)
			sorted[count++] = &all->attack[i];
	qsort(sorted, count, sizeof(*sorted), newest_first);
	l->attacks = arena_alloc(a, (count + 1) * sizeof(*l->attacks));
	if (!l->attacks)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	for (size_t i = 0; i < count; i++)
		if (reply_attack(b, sorted[i], a, &l->attacks[l->n_attacks++]) < 0)
			return sy_fail(err, ENOMEM, "no memory for the answer");
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_ATTACKS;
	out->list_attacks = l;
	return 0;
}
