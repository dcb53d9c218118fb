// SPDX-License-Identifier: Apache-2.0
/*
 * Access lists in the configuration. A list is an immutable object; a transaction replaces whole
 * lists, and the previous version stays until the transaction has ended. Workers read one struct
 * access, which is replaced as a whole.
 */
#include "access_model.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include <rte_hash_crc.h>

typedef Steelyard__Forwarder__V1__AccessList pb_list;

/* ---- counters -------------------------------------------------------------------------------- */

static uint64_t counter_sum(const struct sy_balance *b, uint32_t counter)
{
	uint64_t sum = 0;
	for (unsigned w = 0; w < b->workers; w++)
		sum += SY_READ(b->worker[w].access->hits[counter]);
	return sum;
}

/* Allocates a counter; ACCESS_COUNTERS: none is free. A freed counter is reused as late as
 * possible: workers may still use its list. */
static uint32_t counter_alloc(struct access_model *m)
{
	for (uint32_t tried = 0; tried < ACCESS_COUNTERS; tried++) {
		uint32_t at = m->counter_at++ % ACCESS_COUNTERS;
		if (m->counter_holders[at] == 0) {
			m->counter_holders[at] = 1;
			return at;
		}
	}
	return ACCESS_COUNTERS;
}

static uint32_t *list_counter(const struct model_list *l, unsigned rule)
{
	return rule < l->built->rules ? &l->built->rule[rule].counter : &l->built->counter;
}

/* See access_list.outsiders. */
static uint32_t outsiders_of(const struct access_list *l)
{
	unsigned i = 0;
	if (!l->linear || l->protocols || l->logs || l->categories > 1)
		return ACCESS_NO_COUNTER;
	while (i < l->tests && l->test[i].sets)
		i++;
	const uint16_t rule = i < l->tests ? l->test[i].rule : l->rules;
	if (access_list_action(l, rule) != ACCESS_ALLOW)
		return ACCESS_NO_COUNTER;
	return rule < l->rules ? l->rule[rule].counter : l->counter;
}

/* Assigns each rule of a list a counter: that of the same rule of the replaced list, or a new
 * one. */
static int counters_assign(struct sy_balance *b, struct model_list *l, const struct model_list *old)
{
	struct access_model *m = b->ctl->access;
	bool used[ACCESS_RULES + 1] = {false};
	unsigned taken = 0;
	for (unsigned i = 0; i <= l->built->rules; i++) {
		unsigned same = old ? old->built->rules : 0;
		if (old && i < l->built->rules)
			for (same = 0; same < old->built->rules; same++)
				if (!used[same] && old->rule_hash[same] == l->rule_hash[i])
					break;
		if (old && (i == l->built->rules || same < old->built->rules)) {
			used[same] = true;
			*list_counter(l, i) = *list_counter(old, same);
			m->counter_holders[*list_counter(old, same)]++;
			l->base[i] = old->base[same];
		} else {
			uint32_t counter = counter_alloc(m);
			if (counter == ACCESS_COUNTERS)
				break;
			*list_counter(l, i) = counter;
			l->base[i] = counter_sum(b, counter);
		}
		taken++;
	}
	if (taken == l->built->rules + 1u) {
		l->built->outsiders = outsiders_of(l->built);
		return 0;
	}
	while (taken-- > 0)
		m->counter_holders[*list_counter(l, taken)]--;
	return -ENOSPC;
}

uint64_t access_matches(const struct sy_balance *b, const struct model_list *l, unsigned rule)
{
	return counter_sum(b, *list_counter(l, rule)) - l->base[rule];
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void list_free_shell(struct model_list *l)
{
	if (l) {
		free(l->packed);
		free(l->rule_hash);
		free(l->base);
	}
	free(l);
}

/* Drops one version's reference to the list. */
static void list_drop(struct sy_balance *b, struct model_list *l)
{
	if (!l || --l->holders > 0)
		return;
	for (unsigned i = 0; i <= l->built->rules; i++)
		b->ctl->access->counter_holders[*list_counter(l, i)]--;
	sy_rcu_retire(b->rt, l->built, access_list_free);
	list_free_shell(l);
}

static struct model_list *list_hold(struct model_list *l)
{
	if (l)
		l->holders++;
	return l;
}

static int list_pack(struct model_list *l, const pb_list *pb)
{
	l->packed_len = steelyard__forwarder__v1__access_list__get_packed_size(pb);
	l->packed = malloc(l->packed_len + 1);
	l->rule_hash = calloc(pb->n_rules + 1, sizeof(*l->rule_hash));
	l->base = calloc(pb->n_rules + 1, sizeof(*l->base));
	if (!l->packed || !l->rule_hash || !l->base)
		return -ENOMEM;
	for (size_t i = 0; i < pb->n_rules; i++) { /* packed[] has space for any single rule */
		Steelyard__Forwarder__V1__AccessRule rule = *pb->rules[i];
		rule.name = (char *)protobuf_c_empty_string; /* renamed, it keeps its count */
		size_t len = steelyard__forwarder__v1__access_rule__pack(&rule, l->packed);
		l->rule_hash[i] = (uint64_t)rte_hash_crc(l->packed, (uint32_t)len, 1) << 32 |
		                  rte_hash_crc(l->packed, (uint32_t)len, UINT32_MAX);
	}
	steelyard__forwarder__v1__access_list__pack(pb, l->packed);
	return 0;
}

static int names_check(const pb_list *pb, struct sy_error *err)
{
	int rc = access_name_check("an access list", pb->name, err);
	for (size_t i = 0; i < pb->n_rules && rc == 0; i++)
		if (*pb->rules[i]->name)
			rc = access_name_check("an access list's rule", pb->rules[i]->name, err);
	return rc;
}

/* Returns ACCESS_LISTS if there is none. */
static unsigned list_find(const struct access_version *v, const char *name)
{
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		if (v->list[id] && strcmp(v->list[id]->name, name) == 0)
			return id;
	return ACCESS_LISTS;
}

void access_touch(struct access_model *m)
{
	if (m->touched)
		return;
	m->before = m->now;
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		list_hold(m->before.list[id]);
	access_sets_hold(&m->before);
	m->touched = true;
}

int access_list_put(struct sy_balance *b, const pb_list *pb, struct sy_error *err)
{
	struct access_model *m = b->ctl->access;
	int rc = names_check(pb, err);
	if (rc < 0)
		return rc;
	access_touch(m);
	unsigned id = list_find(&m->now, pb->name);
	if (id == ACCESS_LISTS) /* ids freed by this transaction are still in use */
		for (id = 0; id < ACCESS_LISTS && (m->now.list[id] || m->before.list[id]); id++)
			;
	if (id == ACCESS_LISTS)
		return sy_fail(err, ENOSPC, "no room for another access list: there may be %u",
		               ACCESS_LISTS);
	struct model_list *l = calloc(1, sizeof(*l));
	if (!l || list_pack(l, pb) < 0) {
		list_free_shell(l);
		return sy_fail(err, ENOMEM, "access list %s: no memory", pb->name);
	}
	rc = access_list_build(pb, &m->now, &m->contexts, &l->built, err);
	if (rc == 0 && (rc = counters_assign(b, l, m->now.list[id])) < 0) {
		access_list_free(l->built);
		sy_fail(err, ENOSPC,
		        "no room for the rules of access list %s: all lists may have %u", pb->name,
		        ACCESS_COUNTERS - ACCESS_LISTS);
	}
	if (rc < 0) {
		list_free_shell(l);
		return rc;
	}
	l->built->id = (uint16_t)id;
	memcpy(l->name, pb->name, strlen(pb->name) + 1);
	access_ended_begin(b, l, m->now.list[id]);
	list_drop(b, m->now.list[id]);
	m->now.list[id] = list_hold(l);
	return 0;
}

int access_list_delete(struct sy_balance *b, const char *name, struct sy_error *err)
{
	struct access_model *m = b->ctl->access;
	access_touch(m);
	unsigned id = list_find(&m->now, name);
	if (id == ACCESS_LISTS)
		return sy_fail(err, EINVAL, "there is no access list %s", name);
	list_drop(b, m->now.list[id]);
	m->now.list[id] = NULL;
	m->lists_deleted = true;
	return 0;
}

static int access_find_named(struct access_model *m, const char *what, const char *name,
                             uint16_t *access, struct sy_error *err)
{
	*access = 0;
	if (*name == 0)
		return 0;
	unsigned id = list_find(&m->now, name);
	if (id == ACCESS_LISTS)
		return sy_fail(err, EINVAL, "%s: there is no access list %.63s", what, name);
	*access = (uint16_t)(id + 1);
	return 0;
}

int access_global_put(struct sy_balance *b, const char *name, struct sy_error *err)
{
	struct access_model *m = b->ctl->access;
	access_touch(m);
	return access_find_named(m, "access", name, &m->now.global, err);
}

int access_name_read(struct sy_balance *b, const char *service, const char *name, uint16_t *access,
                     struct sy_error *err)
{
	char what[MODEL_NAME + 16];
	snprintf(what, sizeof(what), "service %.63s", service);
	return access_find_named(b->ctl->access, what, name, access, err);
}

/* ---- transactions ---------------------------------------------------------------------------- */

void access_begin(struct sy_balance *b)
{
	struct access_model *m = b->ctl->access;
	m->touched = m->lists_deleted = m->sets_touched = m->sets_deleted = false;
}

static int deletions_check(struct sy_balance *b, struct sy_error *err)
{
	const struct access_model *m = b->ctl->access;
	const struct model *services = b->ctl->model;
	uint32_t sets = 0;
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		sets |= (uint32_t)(m->now.set[bit] != NULL) << bit;
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		if (m->now.list[id] && m->now.list[id]->built->sets & ~sets)
			return sy_fail(err, EINVAL, "access list %s names a deleted access set",
			               m->now.list[id]->name);
	if (m->now.global && !m->now.list[m->now.global - 1])
		return sy_fail(err, EINVAL, "a deleted access list applies to all services");
	for (uint32_t id = 0; id < services->service_ids.fresh; id++) {
		const struct model_service *s = services->service[id];
		if (s && s->policy.access && !m->now.list[s->policy.access - 1])
			return sy_fail(err, EINVAL, "service %s names a deleted access list",
			               s->name);
	}
	return 0;
}

/* Builds the workers' view of a version; *out NULL: no lists. */
static int access_make(const struct access_version *v, const struct access_version *also,
                       struct access **out)
{
	bool any = false;
	uint32_t sets = 0;
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	for (unsigned id = 0; id < ACCESS_LISTS; id++) {
		const struct model_list *l = v->list[id] ? v->list[id] : also->list[id];
		(*out)->list[id] = l ? l->built : NULL;
		(*out)->ends[id] = l && access_list_may_end(v, l->built);
		any |= l != NULL;
		sets |= l ? l->built->sets : 0;
	}
	if (sets && v->ranges)
		(*out)->ranges = v->ranges->built;
	if (v->global)
		(*out)->global = v->list[v->global - 1]->built;
	if (!any) {
		free(*out);
		*out = NULL;
	}
	return 0;
}

int access_check(struct sy_balance *b, struct sy_error *err)
{
	struct access_model *m = b->ctl->access;
	if (!m->touched)
		return 0;
	int rc = m->lists_deleted || m->sets_deleted ? deletions_check(b, err) : 0;
	if (rc == 0 && m->sets_touched)
		rc = access_sets_check(m, err);
	if (rc == 0 && access_make(&m->now, &m->before, &m->next) < 0)
		rc = sy_fail(err, ENOMEM, "no memory for the access lists");
	return rc;
}

void access_version_hold(struct access_version *v, const struct access_version *of)
{
	*v = *of;
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		v->list[id] = v->global == id + 1 ? list_hold(of->list[id]) : NULL;
	access_sets_hold(v);
}

void access_version_drop(struct sy_balance *b, struct access_version *v)
{
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		list_drop(b, v->list[id]);
	access_sets_drop(b, v);
	memset(v, 0, sizeof(*v));
}

void access_rollback(struct sy_balance *b)
{
	struct access_model *m = b->ctl->access;
	if (!m->touched)
		return;
	free(m->next);
	m->next = NULL;
	access_build_drop(m);
	struct access_version refused = m->now;
	m->now = m->before;
	memset(&m->before, 0, sizeof(m->before));
	access_version_drop(b, &refused);
	set_data_collect(b);
	m->touched = false;
}

static void access_swap(struct sy_balance *b, struct access *now)
{
	const struct access *old = b->access;
	SY_RCU_PUBLISH(b->access, now);
	if (old)
		sy_rcu_retire(b->rt, (void *)(uintptr_t)old, free);
}

void access_publish(struct sy_balance *b)
{
	struct access_model *m = b->ctl->access;
	if (!m->touched)
		return;
	access_swap(b, m->next);
	m->next = NULL;
	m->changed = true;
}

void access_finish(struct sy_balance *b)
{
	struct access_model *m = b->ctl->access;
	static const struct access_version none;
	struct access *now;
	if (!m->touched)
		return;
	access_block(b);
	if (m->lists_deleted || m->sets_deleted) {
		if (access_make(&m->now, &none, &now) < 0) {
			sy_log(SY_LOG_ERROR, "balance",
			       "no memory: deleted access lists stay in memory until the next "
			       "change");
			m->touched = false;
			return;
		}
		access_swap(b, now);
	}
	if (m->sets_deleted)
		access_sets_finish(b, m);
	access_version_drop(b, &m->before);
	set_data_collect(b);
	m->touched = false;
}

int access_model_create(struct sy_balance *b, struct sy_error *err)
{
	b->ctl->access = calloc(1, sizeof(*b->ctl->access));
	return b->ctl->access ? 0 : sy_fail(err, ENOMEM, "no memory for the access lists");
}

void access_model_destroy(struct sy_balance *b)
{
	struct access_model *m = b->ctl->access;
	if (!m)
		return;
	struct access_version *versions[2] = {&m->now, &m->before};
	for (unsigned v = 0; v < 2; v++) {
		for (unsigned id = 0; id < ACCESS_LISTS; id++) {
			struct model_list *l = versions[v]->list[id];
			if (!l || --l->holders > 0)
				continue;
			access_list_free(l->built);
			list_free_shell(l);
		}
		access_sets_destroy(versions[v]);
	}
	set_data_destroy(b);
	free(m->next);
	free((void *)(uintptr_t)b->access);
	free(m);
	b->ctl->access = NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void *message_alloc(void *arena, size_t size)
{
	return arena_alloc(arena, size);
}

static void arena_keep(void *arena, void *p)
{
	(void)arena;
	(void)p;
}

Steelyard__Forwarder__V1__AccessList *reply_access_list(const struct model_list *l, struct arena *a)
{
	ProtobufCAllocator allocator = {
	        .alloc = message_alloc, .free = arena_keep, .allocator_data = a};
	return steelyard__forwarder__v1__access_list__unpack(&allocator, l->packed_len, l->packed);
}

int reply_access(const struct sy_balance *b, struct arena *a,
                 Steelyard__Forwarder__V1__Config *config)
{
	const struct access_version *v = &b->ctl->access->now;
	config->access_sets = arena_alloc(a, ADDRESS_SETS * sizeof(*config->access_sets));
	config->access_lists = arena_alloc(a, ACCESS_LISTS * sizeof(*config->access_lists));
	if (!config->access_lists || !config->access_sets)
		return -ENOMEM;
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++) {
		if (!v->set[bit])
			continue;
		config->access_sets[config->n_access_sets] = reply_access_set(v->set[bit], a);
		if (!config->access_sets[config->n_access_sets++])
			return -ENOMEM;
	}
	for (unsigned id = 0; id < ACCESS_LISTS; id++) {
		if (!v->list[id])
			continue;
		config->access_lists[config->n_access_lists] = reply_access_list(v->list[id], a);
		if (!config->access_lists[config->n_access_lists++])
			return -ENOMEM;
	}
	if (v->global)
		config->global_access = v->list[v->global - 1]->name;
	return 0;
}

Steelyard__Forwarder__V1__AccessSet *reply_access_set(const struct model_set *s, struct arena *a)
{
	ProtobufCAllocator allocator = {
	        .alloc = message_alloc, .free = arena_keep, .allocator_data = a};
	Steelyard__Forwarder__V1__AccessSet *pb =
	        steelyard__forwarder__v1__access_set__unpack(&allocator, s->packed_len, s->packed);
	if (pb)
		pb->missing = s->missing;
	return pb;
}

/* ---- the log --------------------------------------------------------------------------------- */

static void record_log(const struct access_version *v, const struct access_record *r)
{
	static const char *const did[] = {"accepts", "drops", "resets", "counts"};
	char from[SY_ADDR_TEXT], to[SY_ADDR_TEXT];
	const struct model_list *l = v->list[r->list];
	sy_log(SY_LOG_INFO, "access", "list %s, rule %u %s %s %s port %u to %s port %u",
	       l ? l->name : "(deleted)", r->rule + 1u, did[r->action],
	       r->client.proto == SY_PROTO_TCP ? "tcp" : "udp",
	       sy_addr_format(&r->client.src, from), ntohs(r->client.sport),
	       sy_addr_format(&r->client.dst, to), ntohs(r->client.dport));
}

void access_tick(struct sy_balance *b)
{
	for (unsigned w = 0; w < b->workers; w++) {
		struct access_worker *aw = b->worker[w].access;
		uint32_t written = __atomic_load_n(&aw->written, __ATOMIC_ACQUIRE);
		for (uint32_t at = aw->read; at != written; at++)
			record_log(&b->ctl->access->now, &aw->record[at % ACCESS_RECORDS]);
		__atomic_store_n(&aw->read, written, __ATOMIC_RELEASE);
	}
	access_ended_log(b);
}
