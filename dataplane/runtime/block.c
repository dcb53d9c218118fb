// SPDX-License-Identifier: Apache-2.0
/* Distributes a list of blocked sources to all flow directors, in pieces: the control thread does
 * other work in between. */
#include <errno.h>
#include <stdlib.h>

#include "runtime.h"

static void block_continue(void *ctx)
{
	struct sy_runtime *rt = ctx;
	bool more = false;
	rt->blocking = rt->blocking_later = false;
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_director(rt->port[i]);
		int rc = d ? sy_director_block_step(d) : 0;
		more |= rc > 0;
		rt->blocking_later |= rc == -EAGAIN;
		if (rc < 0 && rc != -EAGAIN)
			sy_log(SY_LOG_WARN, "runtime",
			       "port %s: not all blocked sources fit the flow director: %s; the "
			       "workers drop the others",
			       rt->port[i]->name, strerror(-rc));
	}
	if (more)
		block_begin(rt);
}

void block_begin(struct sy_runtime *rt)
{
	if (!rt->blocking)
		loop_defer(rt->loop, block_continue, rt);
	rt->blocking = true;
}

void block_tick(struct sy_runtime *rt)
{
	if (rt->blocking_later)
		block_begin(rt);
}

static int block_all(struct sy_runtime *rt, struct sy_blocked_list *list, bool all)
{
	int first = 0;
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_director(rt->port[i]);
		int rc = d ? sy_director_block(d, list, all) : 0;
		first = first ? first : rc;
	}
	block_begin(rt);
	return first;
}

int sy_sources_block(struct sy_runtime *rt, struct sy_blocked_list *list, bool all)
{
	if (!rt->remembering)
		return block_all(rt, list, all);
	block_forget(rt);
	rt->blocked = sy_blocked_list_hold(list);
	rt->blocked_all = all;
	return 0;
}

void block_claim(struct sy_runtime *rt)
{
	if (rt->blocked && block_all(rt, rt->blocked, rt->blocked_all))
		sy_log(SY_LOG_WARN, "runtime",
		       "the flow director does not take the blocked sources: the workers drop "
		       "their packets");
	block_forget(rt);
}

void block_forget(struct sy_runtime *rt)
{
	sy_blocked_list_drop(rt->blocked);
	rt->blocked = NULL;
}
