// SPDX-License-Identifier: Apache-2.0
/*
 * Named sets of prefixes in the configuration. A set is an immutable object; its bit in masks stays
 * when it is replaced, so that lists with the set do not change. All sets of a version share one
 * table.
 */
#include <stdlib.h>

#include "access_model.h"
#include "job.h"

typedef Steelyard__Forwarder__V1__AccessSet pb_set;

#define MESSAGE_PREFIXES 4096u /* max prefixes of a set in a message */

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
	if (s->data)
		s->data->holders--; /* set_data_collect() frees it */
	free(s->packed);
	free(s->prefix);
	free(s);
}

static void ranges_free(void *ranges)
{
	address_ranges_free(ranges);
}

/* b: workers may still use the table; NULL: they do not. */
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

static int set_pack(struct model_set *s, const pb_set *pb, struct sy_error *err)
{
	pb_set kept = *pb;
	kept.missing = 0; /* determined again by each process */
	s->packed_len = steelyard__forwarder__v1__access_set__get_packed_size(&kept);
	s->packed = malloc(s->packed_len + 1);
	if (!s->packed)
		return sy_fail(err, ENOMEM, "access set %s: no memory", pb->name);
	steelyard__forwarder__v1__access_set__pack(&kept, s->packed);
	return 0;
}

static int set_read(struct model_set *s, const pb_set *pb, struct sy_error *err)
{
	s->prefix = calloc(pb->n_prefixes + 1, sizeof(*s->prefix));
	if (!s->prefix)
		return sy_fail(err, ENOMEM, "access set %s: no memory", pb->name);
	for (size_t i = 0; i < pb->n_prefixes; i++) {
		const Steelyard__Forwarder__V1__Prefix *p = pb->prefixes[i];
		struct sy_prefix *out = &s->prefix[i];
		if (!read_prefix_addr(p, &out->addr))
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

/* Reads a set whose prefixes came before the transaction. */
static int set_read_data(struct sy_balance *b, struct model_set *s, const pb_set *pb,
                         struct sy_error *err)
{
	if (pb->digest.len != SET_DIGEST || pb->n_prefixes > 0)
		return sy_fail(err, EINVAL,
		               "access set %s: a digest has %u bytes, and prefixes beside it are "
		               "too many",
		               pb->name, SET_DIGEST);
	memcpy(s->digest, pb->digest.data, SET_DIGEST);
	s->data = set_data_find(b, pb->digest.data);
	s->missing = !s->data;
	if (s->missing)
		return b->ctl->access->restoring
		               ? 0
		               : sy_fail(err, EINVAL,
		                         "access set %s: its data is not here: send it before the "
		                         "transaction",
		                         pb->name);
	s->data->holders++;
	s->prefixes = set_data_prefixes(s->data);
	s->prefixes4 = s->data->prefixes4;
	return 0;
}

int access_set_put(struct sy_balance *b, const pb_set *pb, struct sy_error *err)
{
	struct access_model *m = b->ctl->access;
	int rc = access_name_check("an access set", pb->name, err);
	if (rc < 0)
		return rc;
	if (pb->n_prefixes > MESSAGE_PREFIXES)
		return sy_fail(err, EINVAL,
		               "access set %s has %zu prefixes, at most %u are possible", pb->name,
		               pb->n_prefixes, MESSAGE_PREFIXES);
	access_touch(m);
	unsigned bit = access_set_find(&m->now, pb->name);
	if (bit == ADDRESS_SETS) /* lists replaced by this transaction may use a freed bit */
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
	rc = set_pack(s, pb, err);
	if (rc == 0)
		rc = pb->digest.len ? set_read_data(b, s, pb, err) : set_read(s, pb, err);
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

/* Input of the table: sets that a transaction keeps or deletes. The open transaction references
 * them, so another thread can read them. */
struct set_build {
	const struct model_set *set[ADDRESS_SETS];
	struct address_ranges *built;
	int rc; /* 0, or a negative errno */
	struct job job;
};

/* Any thread. */
static void sets_build(void *build)
{
	struct set_build *s = build;
	struct prefix_list list[ADDRESS_SETS] = {0};
	struct sy_prefix *unpacked[ADDRESS_SETS] = {0};
	s->rc = 0;
	for (unsigned bit = 0; bit < ADDRESS_SETS && s->rc == 0; bit++) {
		const struct model_set *set = s->set[bit];
		if (!set || set->prefixes == 0)
			continue;
		list[bit] = (struct prefix_list){set->prefix, set->prefixes};
		if (!set->data)
			continue;
		list[bit].at = unpacked[bit] = malloc(set->prefixes * sizeof(*unpacked[bit]));
		if (unpacked[bit])
			set_data_unpack(set->data, unpacked[bit]);
		else
			s->rc = -ENOMEM;
	}
	if (s->rc == 0)
		s->rc = address_ranges_build(list, ADDRESS_SETS, &s->built);
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		free(unpacked[bit]);
}

static void build_init(const struct access_model *m, struct set_build *s)
{
	*s = (struct set_build){0};
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		s->set[bit] = m->now.set[bit] ? m->now.set[bit] : m->before.set[bit];
}

static int build_fail(int rc, struct sy_error *err)
{
	return rc == -E2BIG ? sy_fail(err, ENOSPC,
	                              "the access sets overlap in more than 65 535 ways: use "
	                              "fewer sets")
	                    : sy_fail(err, ENOMEM, "no memory for the access sets");
}

static int total_check(const struct access_model *m, struct sy_error *err)
{
	uint64_t total = 0;
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		total += m->now.set[bit] && m->now.set[bit]->data ? m->now.set[bit]->prefixes : 0;
	return total <= SET_PREFIXES
	               ? 0
	               : sy_fail(err, ENOSPC,
	                         "the access sets have %llu prefixes from files, at most %u are "
	                         "possible",
	                         (unsigned long long)total, SET_PREFIXES);
}

int access_build_begin(struct sy_balance *b, void (*ready)(void *ctx), void *ctx,
                       struct sy_error *err)
{
	struct access_model *m = b->ctl->access;
	bool large = false;
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		large |= m->now.set[bit] && m->now.set[bit]->data;
	if (!m->touched || !m->sets_touched || !large || m->build)
		return 0;
	int rc = total_check(m, err);
	if (rc < 0)
		return rc;
	m->build = malloc(sizeof(*m->build));
	if (!m->build)
		return build_fail(-ENOMEM, err);
	build_init(m, m->build);
	if (job_begin(&m->build->job, b->rt, sets_build, ready, m->build, ctx) < 0)
		sets_build(m->build); /* no thread: do it here */
	return m->build->job.running;
}

void access_build_wait(struct sy_balance *b)
{
	if (b->ctl->access->build)
		job_wait(&b->ctl->access->build->job);
}

void access_build_drop(struct access_model *m)
{
	if (!m->build)
		return;
	job_wait(&m->build->job);
	address_ranges_free(m->build->built);
	free(m->build);
	m->build = NULL;
}

int access_sets_check(struct access_model *m, struct sy_error *err)
{
	struct set_build here, *s = m->build;
	struct model_ranges *r = calloc(1, sizeof(*r));
	int rc = r ? total_check(m, err) : build_fail(-ENOMEM, err);
	if (rc == 0 && !s) {
		build_init(m, &here);
		sets_build(&here);
		s = &here;
	}
	if (rc == 0 && s->rc < 0)
		rc = build_fail(s->rc, err);
	if (rc < 0) {
		free(r);
		return rc;
	}
	r->built = s->built;
	s->built = NULL;
	access_build_drop(m);
	r->holders = 1;
	ranges_drop(NULL, m->now.ranges); /* the previous version references it */
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
