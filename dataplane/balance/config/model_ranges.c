// SPDX-License-Identifier: Apache-2.0
/* Checks services with many ports: two ranges may nest, but not overlap partially. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "model.h"
#include "ranges.h"

static uint16_t last_of(const struct service_key *key)
{
	return key->vport == 0 ? UINT16_MAX : ntohs(key->last_port);
}

static int service_compare(const void *one, const void *other)
{
	const struct service_key *a = &(*(struct model_service *const *)one)->key,
	                         *b = &(*(struct model_service *const *)other)->key;
	int order = memcmp(&a->vip, &b->vip, sizeof(a->vip));
	if (order == 0)
		order = (int)a->proto - (int)b->proto;
	return order ? order
	             : range_compare(ntohs(a->vport), last_of(a), ntohs(b->vport), last_of(b));
}

/* s[]: sorted by service_compare(). A range that begins within an open one must also end there. */
static int check_sorted(struct model_service *const *s, uint32_t count, struct sy_error *err)
{
	struct model_service **open = malloc((count + 1) * sizeof(*open));
	char ports[PORTS_TEXT], others[PORTS_TEXT];
	uint32_t depth = 0;
	int rc = open ? 0 : sy_fail(err, ENOMEM, "no memory for the transaction");
	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		const struct service_key *key = &s[i]->key;
		if (i > 0 && (key->proto != s[i - 1]->key.proto ||
		              !sy_addr_equal(&key->vip, &s[i - 1]->key.vip)))
			depth = 0;
		while (depth > 0 && last_of(&open[depth - 1]->key) < ntohs(key->vport))
			depth--;
		if (depth > 0 && open[depth - 1]->key.vport == 0 && ntohs(key->vport) == 1 &&
		    last_of(key) == UINT16_MAX) { /* port 0 is not used */
			rc = sy_fail(
			        err, EINVAL,
			        "service %s: its %s are all ports, and service %s already has all "
			        "ports: merge the two",
			        s[i]->name, ports_format(key, ports), open[depth - 1]->name);
			break;
		}
		if (depth > 0 && last_of(&open[depth - 1]->key) < last_of(key))
			rc = sy_fail(err, EINVAL,
			             "service %s: its %s overlap with the %s of service %s: put "
			             "one range within the other, or separate them",
			             s[i]->name, ports_format(key, ports),
			             ports_format(&open[depth - 1]->key, others),
			             open[depth - 1]->name);
		open[depth++] = s[i];
	}
	free(open);
	return rc;
}

int ranges_check(struct sy_balance *b, struct sy_error *err)
{
	const struct model *m = b->ctl->model;
	struct model_service **list = malloc((m->services + 1) * sizeof(*list));
	uint32_t count = 0;
	if (!list)
		return sy_fail(err, ENOMEM, "no memory for the transaction");
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		if (m->service[id] && !m->service[id]->snat && key_is_range(&m->service[id]->key))
			list[count++] = m->service[id];
	qsort(list, count, sizeof(*list), service_compare);
	int rc = check_sorted(list, count, err);
	free(list);
	return rc;
}

const char *ports_format(const struct service_key *key, char text[static PORTS_TEXT])
{
	if (!key_is_range(key))
		snprintf(text, PORTS_TEXT, "port %u", ntohs(key->vport));
	else if (key->vport == 0)
		snprintf(text, PORTS_TEXT, "ports (all)");
	else
		snprintf(text, PORTS_TEXT, "ports %u-%u", ntohs(key->vport), ntohs(key->last_port));
	return text;
}
