// SPDX-License-Identifier: Apache-2.0
/*
 * Sources that the flow directors drop before a worker sees their packets: those that the leading
 * rules of the list for all services drop by source alone. The first rule of another kind ends the
 * list: it might accept, count or log packets of a later rule's sources. A background thread
 * computes many sources; if lists change meanwhile, it runs again.
 */
#include <errno.h>
#include <stdlib.h>

#include "access_model.h"
#include "job.h"
#include "sy_runtime.h"

/* A shorter IPv4 prefix would take the director too long; workers drop its packets. */
#define SHORTEST4 8u
/* With more prefixes, a background thread computes the sources. */
#define AT_ONCE 16384u

struct sources {
	struct sy_blocked *at;
	size_t count;
};

static void source_add(struct sources *to, const struct sy_addr *addr, uint8_t bits)
{
	if (!sy_addr_is_v4(addr) || bits >= SHORTEST4)
		to->at[to->count++] = (struct sy_blocked){*addr, bits};
}

static void prefix_add(void *to, const struct sy_prefix *p)
{
	source_add(to, &p->addr, p->bits);
}

static void set_add(struct sources *to, const struct model_set *s)
{
	if (s->data)
		set_data_each(s->data, prefix_add, to);
	else
		for (uint32_t i = 0; i < s->prefixes; i++)
			prefix_add(to, &s->prefix[i]);
}

static bool rule_is_plain(const Steelyard__Forwarder__V1__AccessRule *r)
{
	return r->action == STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP &&
	       !r->protocol && r->n_ports == 0 && !r->log_every && r->n_from + r->n_from_sets > 0;
}

/* The number of prefixes that the rule drops, if it drops by source alone. Adds them unless `to` is
 * NULL. */
static size_t rule_sources(const struct access_version *v,
                           const Steelyard__Forwarder__V1__AccessRule *r, struct sources *to)
{
	size_t count = r->n_from;
	for (size_t i = 0; to && i < r->n_from; i++) {
		struct sy_addr addr;
		if (sy_addr_from_bytes(r->from[i]->address.data, r->from[i]->address.len, &addr) ==
		    0)
			source_add(to, &addr, (uint8_t)r->from[i]->length);
	}
	for (size_t i = 0; i < r->n_from_sets; i++) {
		unsigned bit = access_set_find(v, r->from_sets[i]);
		if (bit == ADDRESS_SETS)
			continue;
		const struct model_set *s = v->set[bit];
		if (to)
			set_add(to, s);
		count += s->prefixes;
	}
	return count;
}

static int source_compare(const struct sy_blocked *x, const struct sy_blocked *y)
{
	int order = memcmp(&x->addr, &y->addr, sizeof(x->addr));
	return order ? order : (int)x->bits - y->bits;
}

static bool source_covers(const struct sy_blocked *net, const struct sy_addr *addr)
{
	const unsigned bits = net->bits + (sy_addr_is_v4(&net->addr) ? 96u : 0u);
	if (sy_addr_is_v4(&net->addr) != sy_addr_is_v4(addr))
		return false;
	const unsigned whole = bits / 8, rest = bits % 8;
	return memcmp(net->addr.b, addr->b, whole) == 0 &&
	       (rest == 0 || (net->addr.b[whole] ^ addr->b[whole]) >> (8 - rest) == 0);
}

/* The end of the sorted run that begins at `at`. */
static size_t run_end(const struct sources *s, size_t at)
{
	while (++at < s->count && source_compare(&s->at[at - 1], &s->at[at]) <= 0)
		;
	return at < s->count ? at : s->count;
}

/* Merges two adjacent runs into `out`. */
static void runs_merge(const struct sources *s, size_t at, size_t middle, size_t end,
                       struct sy_blocked *out)
{
	for (size_t left = at, right = middle; at < end; at++) {
		bool from_left = left < middle &&
		                 (right == end || source_compare(&s->at[left], &s->at[right]) <= 0);
		out[at] = s->at[from_left ? left++ : right++];
	}
}

/* Sorts the sources. Sets are sorted per family: merges these few runs. Returns 0 or -ENOMEM. */
static int sources_sort(struct sources *s)
{
	while (run_end(s, 0) < s->count) {
		struct sy_blocked *out = malloc(s->count * sizeof(*out));
		if (!out)
			return -ENOMEM;
		for (size_t at = 0, end; at < s->count; at = end) {
			size_t middle = run_end(s, at);
			end = middle < s->count ? run_end(s, middle) : middle;
			runs_merge(s, at, middle, end, out);
		}
		free(s->at);
		s->at = out;
	}
	return 0;
}

/* Removes networks within another one. A network precedes those it covers, except that IPv4
 * networks may be in between: an IPv6 network around them is of another family. */
static void sources_merge(struct sources *s)
{
	size_t kept = 0, covering[2] = {SIZE_MAX, SIZE_MAX}; /* by family: the last one kept */
	for (size_t i = 0; i < s->count; i++) {
		const bool v4 = sy_addr_is_v4(&s->at[i].addr);
		if (covering[v4] != SIZE_MAX && source_covers(&s->at[covering[v4]], &s->at[i].addr))
			continue;
		covering[v4] = kept;
		s->at[kept++] = s->at[i];
	}
	s->count = kept;
}

/* The list for all services, to be freed by the caller. NULL: none, or *rc is -ENOMEM. */
static Steelyard__Forwarder__V1__AccessList *list_unpack(const struct access_version *v, int *rc)
{
	*rc = 0;
	if (!v->global)
		return NULL;
	const struct model_list *l = v->list[v->global - 1];
	Steelyard__Forwarder__V1__AccessList *pb =
	        steelyard__forwarder__v1__access_list__unpack(NULL, l->packed_len, l->packed);
	*rc = pb ? 0 : -ENOMEM;
	return pb;
}

/* The number of prefixes that its leading rules drop. */
static size_t list_count(const struct access_version *v,
                         const Steelyard__Forwarder__V1__AccessList *pb)
{
	size_t count = 0;
	for (size_t i = 0; pb && i < pb->n_rules && rule_is_plain(pb->rules[i]); i++)
		count += rule_sources(v, pb->rules[i], NULL);
	return count;
}

/* The sources to drop early. Returns NULL without memory. Any thread. */
static struct sy_blocked_list *sources_find(const struct access_version *v)
{
	struct sources s = {0};
	int rc;
	Steelyard__Forwarder__V1__AccessList *pb = list_unpack(v, &rc);
	if (rc == 0)
		s.at = malloc((list_count(v, pb) + 1) * sizeof(*s.at));
	for (size_t i = 0; s.at && pb && i < pb->n_rules && rule_is_plain(pb->rules[i]); i++)
		rule_sources(v, pb->rules[i], &s);
	if (pb)
		steelyard__forwarder__v1__access_list__free_unpacked(pb, NULL);
	if (!s.at || sources_sort(&s) < 0) {
		free(s.at);
		return NULL;
	}
	sources_merge(&s);
	return sy_blocked_list_make(s.at, s.count);
}

static size_t sources_count(const struct access_version *v)
{
	int rc;
	Steelyard__Forwarder__V1__AccessList *pb = list_unpack(v, &rc);
	size_t count = list_count(v, pb);
	if (pb)
		steelyard__forwarder__v1__access_list__free_unpacked(pb, NULL);
	return count;
}

/* Passes the sources to the flow directors and frees them; NULL: no memory. */
static void sources_publish(struct sy_balance *b, struct sy_blocked_list *found)
{
	struct access_model *m = b->ctl->access;
	const size_t count = found ? sy_blocked_list_count(found) : 0;
	int rc = found ? 0 : -ENOMEM;
	if (rc == 0 && (count || m->blocked))
		rc = sy_sources_block(b->rt, found, false);
	m->blocked = rc == 0 ? count : 0;
	m->block_failed = rc;
	sy_blocked_list_drop(found);
	if (rc == 0)
		return;
	found = sy_blocked_list_make(NULL, 0);
	if (found) /* block none: a stale list may have sources that are no longer in the access
	              list */
		sy_sources_block(b->rt, found, false);
	sy_blocked_list_drop(found);
}

/* ---- many sources ---------------------------------------------------------------------------- */

/* State of the background thread. */
struct access_blocking {
	struct sy_balance *b;
	struct access_version v; /* referenced: its sets, and the list for all services */
	struct sy_blocked_list *found;
	bool changed; /* lists or sets have changed since */
	struct job job;
};

static void blocking_work(void *blocking)
{
	struct access_blocking *k = blocking;
	k->found = sources_find(&k->v);
}

static void version_block(struct sy_balance *b, const struct access_version *v);

static void blocking_done(void *blocking)
{
	struct access_blocking *k = blocking;
	struct sy_balance *b = k->b;
	struct access_model *m = b->ctl->access;
	m->blocking = NULL;
	sources_publish(b, k->found);
	access_version_drop(b, &k->v);
	set_data_collect(b);
	if (k->changed) /* a transaction may be open, whose changes are not accepted yet */
		version_block(b, m->touched ? &m->before : &m->now);
	free(k);
}

/* Returns false without a thread or memory. */
static bool blocking_begin(struct sy_balance *b, const struct access_version *v)
{
	struct access_model *m = b->ctl->access;
	struct access_blocking *k = calloc(1, sizeof(*k));
	if (!k)
		return false;
	k->b = b;
	access_version_hold(&k->v, v);
	if (job_begin(&k->job, b->rt, blocking_work, blocking_done, k, k) == 0) {
		m->blocking = k;
		return true;
	}
	access_version_drop(b, &k->v);
	free(k);
	return false;
}

void access_block_end(struct sy_balance *b)
{
	struct access_blocking *k = b->ctl->access ? b->ctl->access->blocking : NULL;
	if (!k)
		return;
	job_wait(&k->job);
	sy_blocked_list_drop(k->found);
	access_version_drop(b, &k->v);
	free(k);
	b->ctl->access->blocking = NULL;
}

static void version_block(struct sy_balance *b, const struct access_version *v)
{
	struct access_model *m = b->ctl->access;
	if (m->blocking) {
		m->blocking->changed = true;
		return;
	}
	/* blocks of an earlier process are removed once this one has settled */
	if (b->ctl->model->settled && sources_count(v) > AT_ONCE && blocking_begin(b, v))
		return;
	sources_publish(b, sources_find(v));
}

void access_block(struct sy_balance *b)
{
	version_block(b, &b->ctl->access->now);
}
