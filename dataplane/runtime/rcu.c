// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "runtime.h"

/* In the order of tokens: the first one that must wait delays the rest. */
struct retired {
	struct retired *next;
	uint64_t token;
	void *ptr;
	void (*free_fn)(void *ptr);
};

struct rcu {
	struct rte_rcu_qsbr *qsbr;
	struct retired *first, **last;
};

int rcu_open(unsigned workers, struct rcu **out)
{
	struct rcu *r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->last = &r->first;
	r->qsbr = aligned_alloc(SY_CACHE_LINE, rte_rcu_qsbr_get_memsize(workers));
	if (!r->qsbr || rte_rcu_qsbr_init(r->qsbr, workers)) {
		rcu_close(r);
		return -ENOMEM;
	}
	*out = r;
	return 0;
}

struct rte_rcu_qsbr *rcu_qsbr(struct rcu *r)
{
	return r->qsbr;
}

static void retired_free(struct rcu *r)
{
	struct retired *e = r->first;
	r->first = e->next;
	if (!r->first)
		r->last = &r->first;
	e->free_fn(e->ptr);
	free(e);
}

bool rcu_poll(struct rcu *r)
{
	while (r->first && rte_rcu_qsbr_check(r->qsbr, r->first->token, false) == 1)
		retired_free(r);
	return r->first;
}

void rcu_close(struct rcu *r)
{
	if (!r)
		return;
	while (r->first)
		retired_free(r);
	free(r->qsbr);
	free(r);
}

void sy_rcu_retire(struct sy_runtime *rt, void *ptr, void (*free_fn)(void *ptr))
{
	struct rcu *r = rt->rcu;
	struct retired *e = malloc(sizeof(*e));
	if (!e) { /* no memory for an entry: wait here; workers report quickly */
		rte_rcu_qsbr_synchronize(r->qsbr, RTE_QSBR_THRID_INVALID);
		free_fn(ptr);
		return;
	}
	*e = (struct retired){.token = rte_rcu_qsbr_start(r->qsbr), .ptr = ptr, .free_fn = free_fn};
	*r->last = e;
	r->last = &e->next;
}
