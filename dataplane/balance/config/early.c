// SPDX-License-Identifier: Apache-2.0
/*
 * Which ports of a VIP have a service, for early drops. A service counts from its publishing until
 * its id is free, because workers answer the ends of its sessions until then. A port that the flow
 * directors do not have yet is handled by workers, unless the directors already drop other ports of
 * its VIP: early_flush() therefore adds new services at once. With unknown_ports other than drop,
 * workers answer, and nothing is dropped early.
 */
#include "early.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include <rte_hash.h>

#include "model.h"

#define TICK_VIPS 512 /* of one early_tick() */

struct early_vip {
	struct sy_addr addr;
	unsigned count, capacity;
	struct sy_port_range *range; /* ports of its services */
	uint32_t *id;                /* by range: its service */
	bool due;                    /* on the list of VIPs to update in the flow directors */
	bool published; /* the flow directors have a list of ranges, and drop other ports */
};

/* The range of a service. */
struct early_place {
	struct early_vip *vip; /* NULL: none */
	unsigned at;
};

struct early {
	struct rte_hash *vip;      /* sy_addr → struct early_vip */
	struct early_place *place; /* [max_services] by id */
	struct early_vip **due;
	unsigned dues, capacity;
	bool warned;
};

struct early *early_create(const struct sy_balance *b)
{
	const uint32_t services = b->options.max_services;
	struct early *e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->place = calloc(services, sizeof(*e->place));
	e->vip = model_hash("sy_early_vip", services, sizeof(struct sy_addr));
	if (e->place && e->vip)
		return e;
	early_destroy(e);
	return NULL;
}

static void vip_free(struct early_vip *v)
{
	free(v->range);
	free(v->id);
	free(v);
}

void early_destroy(struct early *e)
{
	const void *key;
	void *vip;
	uint32_t next = 0;
	if (!e)
		return;
	while (e->vip && rte_hash_iterate(e->vip, &key, &vip, &next) >= 0)
		vip_free(vip);
	rte_hash_free(e->vip);
	free(e->place);
	free(e->due);
	free(e);
}

static struct early_vip *vip_find(const struct early *e, const struct sy_addr *addr)
{
	void *vip;
	return rte_hash_lookup_data(e->vip, addr, &vip) < 0 ? NULL : vip;
}

static struct early_vip *vip_get(struct early *e, const struct sy_addr *addr)
{
	struct early_vip *v = vip_find(e, addr);
	if (v)
		return v;
	v = calloc(1, sizeof(*v));
	if (!v || rte_hash_add_key_data(e->vip, addr, v) < 0) {
		free(v);
		return NULL;
	}
	v->addr = *addr;
	return v;
}

static bool vip_grow(struct early_vip *v)
{
	unsigned capacity = v->capacity ? 2 * v->capacity : 4;
	struct sy_port_range *range = realloc(v->range, capacity * sizeof(*range));
	uint32_t *id;
	if (!range)
		return false;
	v->range = range;
	id = realloc(v->id, capacity * sizeof(*id));
	if (!id)
		return false;
	v->id = id;
	v->capacity = capacity;
	return true;
}

static void vip_due(struct early *e, struct early_vip *v)
{
	if (v->due || !list_reserve((void **)&e->due, e->dues, &e->capacity, sizeof(*e->due)))
		return;
	e->due[e->dues++] = v;
	v->due = true;
}

/* Ends early drops for this VIP. */
static void vip_open(struct sy_balance *b, struct early_vip *v)
{
	/* workers answer; an earlier process may have dropped early */
	const bool answers = b->options.unknown_ports != SY_UNAVAILABLE_DROP;
	if ((v->published || answers) && address_is_known(b, &v->addr))
		sy_address_serve(b->rt, &v->addr, NULL, 0);
	v->published = false;
}

void early_add(struct sy_balance *b, const struct service_key *key, uint32_t id)
{
	struct early *e = b->ctl->early;
	struct early_vip *v = vip_get(e, &key->vip);
	const uint16_t first = ntohs(key->vport);
	if (!v || (v->count == v->capacity && !vip_grow(v))) {
		sy_log(SY_LOG_ERROR, "balance",
		       "no memory: packets to a VIP's other ports are "
		       "dropped by the workers alone");
		if (v)
			vip_open(b, v);
		return;
	}
	v->range[v->count] = (struct sy_port_range){first,
	                                            key->vport == 0  ? UINT16_MAX
	                                            : key->last_port ? ntohs(key->last_port)
	                                                             : first,
	                                            key->proto};
	v->id[v->count] = id;
	e->place[id] = (struct early_place){v, v->count++};
	vip_due(e, v);
}

void early_remove(struct sy_balance *b, uint32_t id)
{
	struct early *e = b->ctl->early;
	struct early_place *place = &e->place[id];
	struct early_vip *v = place->vip;
	if (!v)
		return;
	v->count--;
	v->range[place->at] = v->range[v->count];
	v->id[place->at] = v->id[v->count];
	e->place[v->id[place->at]].at = place->at;
	place->vip = NULL;
	vip_due(e, v);
}

void early_address_changed(struct sy_balance *b, const struct sy_addr *addr)
{
	struct early_vip *v = vip_find(b->ctl->early, addr);
	if (!v)
		return;
	vip_open(b, v);
	vip_due(b->ctl->early, v);
}

/* Is the VIP a local address too? Servers' packets to it belong to sessions. */
static bool is_local_too(const struct model *m, const struct sy_addr *addr)
{
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		if ((m->local[id].used || m->local_retired[id]) &&
		    sy_addr_equal(&m->local[id].addr, addr))
			return true;
	return false;
}

static void vip_publish(struct sy_balance *b, struct early_vip *v)
{
	struct early *e = b->ctl->early;
	char text[SY_ADDR_TEXT];
	if (address_kind(b, &v->addr) != ADDRESS_SET_VIP || is_local_too(b->ctl->model, &v->addr) ||
	    b->options.unknown_ports != SY_UNAVAILABLE_DROP) {
		vip_open(b, v);
		return;
	}
	int rc = sy_address_serve(b->rt, &v->addr, v->range, v->count);
	v->published = true;
	if (!rc)
		return;
	vip_open(b, v);
	if (!e->warned)
		sy_log(SY_LOG_WARN, "balance",
		       "the flow director does not accept the ports of %s that have a service: "
		       "%s; "
		       "the workers drop packets to the others",
		       sy_addr_format(&v->addr, text), strerror(-rc));
	e->warned = true;
}

/* Updates a VIP and removes it from the list; the last one fills its place. */
static void due_handle(struct sy_balance *b, unsigned at)
{
	struct early *e = b->ctl->early;
	struct early_vip *v = e->due[at];
	e->due[at] = e->due[--e->dues];
	v->due = false;
	vip_publish(b, v);
	if (v->count == 0) {
		rte_hash_del_key(e->vip, &v->addr);
		vip_free(v);
	}
}

void early_flush(struct sy_balance *b)
{
	struct early *e = b->ctl->early;
	for (unsigned i = e->dues; i-- > 0 && addresses_are_served(b);)
		if (e->due[i]->published)
			due_handle(b, i);
}

void early_tick(struct sy_balance *b)
{
	struct early *e = b->ctl->early;
	if (b->ctl->model->open || !b->ctl->model->settled || !addresses_are_served(b))
		return;
	for (unsigned n = 0; n < TICK_VIPS && e->dues > 0; n++)
		due_handle(b, e->dues - 1);
}
