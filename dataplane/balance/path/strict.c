// SPDX-License-Identifier: Apache-2.0
#include "strict.h"

#include "delay.h"
#include "opening_queue.h"
#include "service_drop.h"
#include "sync_members.h"

static bool peer_is_alive(const struct sy_worker *w, unsigned slot)
{
	const struct sy_balance *b = w->app;
	return sync_node_is_alive(b->sync, sync_node_target(b->sync, slot), w->now_ns);
}

/* Adds the session, unless it waits already. */
static bool strict_add(struct strict *s, uint8_t slot, uint32_t record)
{
	for (unsigned k = 0; k < s->count; k++)
		if (s->at[k].record == record && s->at[k].slot == slot)
			return true;
	if (s->count == STRICT_SESSIONS)
		return false;
	s->at[s->count++] = (struct strict_session){.record = record, .slot = slot};
	return true;
}

bool strict_holds(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                  const struct session *session)
{
	const struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[session->server];
	const struct service *service = endpoint_service(b, e);
	struct rte_mbuf *m = burst->mbuf[i];
	const uint8_t slot = burst->slot[i];
	if (!b->sync || session->state != SESSION_SYN_SENT ||
	    burst->direction[i] != SESSION_CLIENT || !service ||
	    service->policy.sync != SYNC_STRICT || m->ol_flags & b->strict_flag ||
	    !peer_is_alive(w, slot))
		return false;
	if (!strict_add(balance_worker_of(w)->strict, slot, burst->session[i])) {
		service_packet_drop(w, burst, i, service, SY_DROP_OPENING);
		return true;
	}
	m->ol_flags |= b->strict_flag; /* it has waited */
	delay_clear(w, slot, burst->session[i]);
	burst->next[i] = SY_NEXT_PENDING;
	opening_queue_add(w, slot, burst->session[i], service->id, m);
	synced_poll_soon(w);
	return true;
}

void strict_forget(struct sy_worker *w, uint8_t slot, uint32_t record)
{
	struct strict *s = balance_worker_of(w)->strict;
	for (unsigned k = 0; k < s->count; k++) {
		if (s->at[k].record != record || s->at[k].slot != slot)
			continue;
		s->at[k] = s->at[--s->count];
		opening_queue_drop(w, slot, record);
		return;
	}
}

/* Does a peer have the session, or refuse it, or is there none? The log numbers entries as it
 * writes them: once it has written the session's state, all that it has written so far is waited
 * for. It numbers anew when the peer has restarted or another one keeps the slot's replicas. */
static bool is_acknowledged(struct sy_worker *w, struct strict_session *s)
{
	const struct sy_balance *b = w->app;
	const struct sync_log *log = sync_node_log(b->sync, s->slot);
	if (!peer_is_alive(w, s->slot))
		return true;
	if (*session_mark_at(b, s->slot, s->record) & SYNC_CHANGED)
		return false;
	if (!s->number || s->generation != log->generation) {
		s->number = log->window.next;
		s->generation = log->generation;
	}
	return (int32_t)(log->window.first - s->number) >= 0;
}

void strict_poll(struct sy_worker *w)
{
	struct strict *s = balance_worker_of(w)->strict;
	unsigned kept = 0;
	for (unsigned k = 0; k < s->count; k++) {
		struct strict_session one = s->at[k];
		if (is_acknowledged(w, &one))
			opening_queue_release(w, one.slot, one.record);
		else
			s->at[kept++] = one;
	}
	s->count = kept;
}
