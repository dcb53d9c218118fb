// SPDX-License-Identifier: Apache-2.0
/*
 * Named sets of prefixes in the configuration. A set is an immutable object; its bit in masks stays
 * when it is put again, so lists that name it need no change. All sets of a version share one
 * table.
 */
#include <stdlib.h>

#include "access_model.h"

typedef Steelyard__Forwarder__V1__AccessSet pb_set;

#define SET_PREFIXES 4096u /* of a set in a message, at most */

int access_name_check(const char *what, const char *name, struct sy_error *err)
{
	for (const char *c = name; *c; c++)
		if (*c < ' ' || *c > '~')
			return sy_fail(err, EINVAL, "the name of %s is printable ASCII", what);
	if (*name == 0 || strlen(name) >= MODEL_NAME)
		return sy_fail(err, EINVAL, "the name of %s has 1 to %d bytes", what,
		               MODEL_NAME - 1);
	return 0;
}

unsigned access_set_find(const struct access_version *v, const char *name)
{
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		if (v->set[bit] && strcmp(v->set[bit]->name, name) == 0)
			return bit;
	return ADDRESS_SETS;
}

/* ---- holders --------------------------------------------------------------------------------- */

static void set_drop(struct model_set *s)
{
	if (!s || --s->holders > 0)
		return;
	free(s->packed);
	free(s->prefix);
	free(s);
}

static void ranges_free(void *ranges)
{
	address_ranges_free(ranges);
}

/* b: workers may still use the table; NULL: there are none. */
static void ranges_drop(struct sy_balance *b, struct model_ranges *r)
{
	if (!r || --r->holders > 0)
		return;
	if (b)
		sy_rcu_retire(b->rt, r->built, ranges_free);
	else
		address_ranges_free(r->built);
	free(r);
}

void access_sets_hold(struct access_version *v)
{
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		if (v->set[bit])
			v->set[bit]->holders++;
	if (v->ranges)
		v->ranges->holders++;
}

void access_sets_drop(struct sy_balance *b, struct access_version *v)
{
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		set_drop(v->set[bit]);
	ranges_drop(b, v->ranges);
}

void access_sets_destroy(struct access_version *v)
{
	access_sets_drop(NULL, v);
}

/* ---- changes --------------------------------------------------------------------------------- */

static int set_read(struct model_set *s, const pb_set *pb, struct sy_error *err)
{
	s->prefix = calloc(pb->n_prefixes + 1, sizeof(*s->prefix));
	s->packed_len = steelyard__forwarder__v1__access_set__get_packed_size(pb);
	s->packed = malloc(s->packed_len + 1);
	if (!s->prefix || !s->packed)
		return sy_fail(err, ENOMEM, "access set %s: no memory", pb->name);
	steelyard__forwarder__v1__access_set__pack(pb, s->packed);
	for (size_t i = 0; i < pb->n_prefixes; i++) {
		const Steelyard__Forwarder__V1__Prefix *p = pb->prefixes[i];
		struct sy_prefix *out = &s->prefix[i];
		if (sy_addr_from_bytes(p->address.data, p->address.len, &out->addr) < 0 ||
		    p->length > 8 * p->address.len)
			return sy_fail(err, EINVAL, "access set %s: prefix %zu is wrong", pb->name,
			               i + 1);
		out->bits = (uint8_t)p->length;
		s->prefixes4 += sy_addr_is_v4(&out->addr);
	}
	s->prefixes = (uint32_t)pb->n_prefixes;
	uint32_t bad;
	if (!prefix_list_is_sorted(&(struct prefix_list){s->prefix, s->prefixes}, &bad))
		return sy_fail(err, EINVAL,
		               "access set %s: prefix %u has bits behind its length, or is not "
		               "behind the one before it",
		               pb->name, bad + 1);
	return 0;
}

int access_set_put(struct sy_balance *b, const pb_set *pb, struct sy_error *err)
{
	struct access_model *m = b->ctl->access;
	int rc = access_name_check("an access set", pb->name, err);
	if (rc < 0)
		return rc;
	if (pb->n_prefixes > SET_PREFIXES)
		return sy_fail(err, EINVAL,
		               "access set %s has %zu prefixes, at most %u are possible", pb->name,
		               pb->n_prefixes, SET_PREFIXES);
	access_touch(m);
	unsigned bit = access_set_find(&m->now, pb->name);
	if (bit == ADDRESS_SETS) /* lists that this transaction replaces may use a freed bit */
		for (bit = 0; bit < ADDRESS_SETS && (m->now.set[bit] || m->before.set[bit]); bit++)
			;
	if (bit == ADDRESS_SETS)
		return sy_fail(err, EINVAL, "no room for another access set: there may be %u",
		               ADDRESS_SETS);
	struct model_set *s = calloc(1, sizeof(*s));
	if (!s)
		return sy_fail(err, ENOMEM, "access set %s: no memory", pb->name);
	s->holders = 1;
	memcpy(s->name, pb->name, strlen(pb->name) + 1);
	rc = set_read(s, pb, err);
	if (rc < 0) {
		set_drop(s);
		return rc;
	}
	set_drop(m->now.set[bit]);
	m->now.set[bit] = s;
	m->sets_touched = true;
	return 0;
}

int access_set_delete(struct sy_balance *b, const char *name, struct sy_error *err)
{
	struct access_model *m = b->ctl->access;
	access_touch(m);
	unsigned bit = access_set_find(&m->now, name);
	if (bit == ADDRESS_SETS)
		return sy_fail(err, EINVAL, "there is no access set %.63s", name);
	set_drop(m->now.set[bit]);
	m->now.set[bit] = NULL;
	m->sets_touched = m->sets_deleted = true;
	return 0;
}

/* ---- the table of all sets ------------------------------------------------------------------- */

int access_sets_check(struct access_model *m, struct sy_error *err)
{
	struct prefix_list list[ADDRESS_SETS] = {0};
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++) {
		const struct model_set *s = m->now.set[bit] ? m->now.set[bit] : m->before.set[bit];
		if (s)
			list[bit] = (struct prefix_list){s->prefix, s->prefixes};
	}
	struct model_ranges *r = calloc(1, sizeof(*r));
	int rc = r ? address_ranges_build(list, ADDRESS_SETS, &r->built) : -ENOMEM;
	if (rc < 0) {
		free(r);
		return rc == -E2BIG
		               ? sy_fail(err, ENOSPC,
		                         "the access sets overlap in more than 65 535 ways: use "
		                         "fewer sets")
		               : sy_fail(err, ENOMEM, "no memory for the access sets");
	}
	r->holders = 1;
	ranges_drop(NULL, m->now.ranges); /* the version before holds it */
	m->now.ranges = r;
	return 0;
}

void access_sets_finish(struct sy_balance *b, struct access_model *m)
{
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		if (m->now.set[bit])
			return; /* a deleted set's ranges stay until the next change of a set */
	ranges_drop(b, m->now.ranges);
	m->now.ranges = NULL;
}
