// SPDX-License-Identifier: Apache-2.0
#include "existing.h"

#include "access.h"
#include "address_ranges.h"

const struct access *existing_begin(struct sy_worker *w, const struct session_table *t)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	/* Published after the lists (release): a worker that reads it also reads the new lists. */
	uint32_t now = __atomic_load_n(&b->access_generation, __ATOMIC_ACQUIRE);
	if (t->sweep_at == 0)
		bw->rechecking[t->slot] = now;
	return bw->rechecking[t->slot] == bw->rechecked[t->slot] ? NULL : SY_RCU_READ(b->access);
}

void existing_end(struct sy_worker *w, const struct session_table *t)
{
	struct balance_worker *bw = balance_worker_of(w);
	bw->rechecked[t->slot] = bw->rechecking[t->slot];
}

static bool list_refuses(const struct access *a, const struct access_list *l,
                         const struct sy_tuple *client)
{
	struct access_query query;
	struct access_answer answer;
	query.count = 1;
	query.proto[0] = (uint8_t)client->proto;
	query.client[0] = &client->src;
	query.sets[0] = 0;
	if (a->ranges)
		address_ranges_find(a->ranges, query.client, query.sets, 1);
	query.members = query.sets[0] != 0;
	return access_list_evaluate(l, &query, NULL, &answer);
}

bool existing_is_refused(struct sy_worker *w, const struct access *a, const struct session_table *t,
                         uint32_t record)
{
	const struct sy_balance *b = w->app;
	const struct session *s = session_at(t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	/* RESET is excluded: the server's packets may show that the connection goes on. */
	const uint32_t over = 1u << SESSION_TIME_WAIT | 1u << SESSION_DYING;
	if (!service || e->mode == MODE_SNAT || over >> s->state & 1)
		return false;
	const uint16_t id = service->policy.access;
	const struct access_list *list[2] = {a->global, id ? a->list[id - 1] : NULL};
	const struct sy_tuple client = session_client_tuple(s, session_cold_at(t, record), e);
	for (unsigned i = 0; i < 2; i++)
		if (list[i] && a->ends[list[i]->id] && list_refuses(a, list[i], &client)) {
			SY_COUNT(balance_worker_of(w)->access->ended[list[i]->id], 1);
			return true;
		}
	return false;
}
