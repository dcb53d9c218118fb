// SPDX-License-Identifier: Apache-2.0
/* Marks that route this host's health checks, addressed to the VIP, to servers. */
#include "model.h"

int check_read(const struct model_service *s, uint32_t mark, struct sy_error *err)
{
	if (!mark)
		return 0;
	if (s->mode != MODE_DR && s->mode != MODE_IPIP)
		return sy_fail(err, EINVAL,
		               "service %s: a check mark is for servers of DR and IPIP; others are "
		               "checked on their own address",
		               s->name);
	if (mark < SY_CHECK_MARK_FIRST || mark > SY_CHECK_MARK_LAST)
		return sy_fail(err, EINVAL, "service %s: check mark %#x is not within %#x–%#x",
		               s->name, mark, SY_CHECK_MARK_FIRST, SY_CHECK_MARK_LAST);
	return 0;
}

static struct sy_addr tunnel_source(const struct model *m, const struct sy_addr *server)
{
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		if (m->local[id].used && !m->local[id].of_peer &&
		    sy_addr_is_v4(&m->local[id].addr) == sy_addr_is_v4(server))
			return m->local[id].addr;
	return (struct sy_addr){0};
}

void check_publish(struct sy_balance *b, const struct model_service *before,
                   const struct model_service *after)
{
	const struct model *m = b->ctl->model;
	for (unsigned i = 0; after && i < after->servers; i++) {
		const struct model_server *server = &after->server[i];
		struct sy_check check = {.vip = after->key.vip, .server = server->addr};
		if (!server->check_mark)
			continue;
		if (after->mode == MODE_IPIP)
			check.source = tunnel_source(m, &server->addr);
		sy_check_set(b->rt, server->check_mark, &check, m->revision);
	}
	for (unsigned i = 0; before && i < before->servers; i++)
		if (before->server[i].check_mark)
			sy_check_clear(b->rt, before->server[i].check_mark, m->revision);
}

void check_publish_all(struct sy_balance *b)
{
	const struct model *m = b->ctl->model;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		if (m->service[id])
			check_publish(b, NULL, m->service[id]);
}
