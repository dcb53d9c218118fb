// SPDX-License-Identifier: Apache-2.0
/*
 * SNAT rules in the configuration. A rule is stored as a service with a key that no client can
 * address, with one server per protocol. So it takes part in transactions, ids, counters and
 * restarts like any service. The address of key and servers is a hash of the rule's name, as a
 * multicast address, which no host can have.
 */
#include <stdlib.h>

#include <rte_hash.h>

#include "model.h"
#include "snat_model.h"

typedef Steelyard__Forwarder__V1__Snat pb_snat;
typedef Steelyard__Forwarder__V1__Prefix pb_prefix;

static const uint8_t protocol_number[SNAT_PROTOCOLS] = {SY_PROTO_TCP, SY_PROTO_UDP, SY_PROTO_ICMP,
                                                        SY_PROTO_ICMPV6};

/* The same in every process: the session file's dictionary identifies rules by it. */
static struct service_key key_of_name(const char *name)
{
	struct service_key key = {.zero = 0};
	uint64_t h[2] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9};
	for (const char *c = name; *c; c++) {
		h[0] = sy_hash_mix(h[0] ^ (uint8_t)*c, 0x94d049bb133111eb);
		h[1] = sy_hash_mix(h[1] ^ (uint8_t)*c, 0xd6e8feb86659fd93);
	}
	memcpy(key.vip.d, h, sizeof(h));
	key.vip.b[0] = 0xff; /* multicast: never a source, and SNAT sends no packets to it */
	return key;
}

static struct model_service *rule_find(const struct model *m, const char *name)
{
	const struct service_key key = key_of_name(name);
	void *id;
	return rte_hash_lookup_data(m->by_key, &key, &id) < 0 ? NULL : m->service[(uintptr_t)id];
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_prefix(const char *rule, const pb_prefix *pb, struct sy_source *out,
                       struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	*out = (struct sy_source){.bits = 0};
	int rc = read_addr(&pb->address, "inside", &out->addr, err);
	if (rc < 0)
		return rc;
	bool v4 = sy_addr_is_v4(&out->addr);
	if (pb->length == 0 || pb->length > (v4 ? 32 : 128))
		return sy_fail(err, EINVAL, "snat %s: prefix length %u is not within 1–%u", rule,
		               pb->length, v4 ? 32 : 128);
	out->bits = pb->length + (v4 ? 96 : 0);
	for (unsigned bit = out->bits; bit < 128; bit++)
		if (out->addr.b[bit / 8] & 0x80 >> bit % 8)
			return sy_fail(err, EINVAL,
			               "snat %s: %s/%u is not a prefix: the bits beyond its length "
			               "must be 0",
			               rule, sy_addr_format(&out->addr, text), pb->length);
	return 0;
}

/* ---- pool addresses -------------------------------------------------------------------------- */

static int pool_hold(struct sy_balance *b, const struct sy_addr *addr, uint8_t *out,
                     struct sy_error *err)
{
	struct model *m = b->ctl->model;
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		struct model_local *l = &m->local[id];
		if (l->pools && sy_addr_equal(&l->addr, addr)) {
			l->pools++;
			*out = (uint8_t)id;
			return 0;
		}
	}
	unsigned id = local_id_find(b, addr);
	if (id == MAX_LOCALS)
		return sy_fail(err, ENOSPC, "there may be %u local and pool addresses together",
		               MAX_LOCALS);
	int rc = address_acquire(b, addr, ADDRESS_SET_POOL, err);
	if (rc < 0)
		return rc;
	m->local[id] = (struct model_local){*addr, true, 1, false};
	m->local_touched = true;
	*out = (uint8_t)id;
	return 0;
}

static void pools_drop(struct sy_balance *b, struct model_snat *s)
{
	for (; s->pools > 0; s->pools--) {
		struct model_local *l = &b->ctl->model->local[s->pool[s->pools - 1]];
		if (--l->pools > 0)
			continue;
		l->used = false;
		b->ctl->model->local_touched = true;
		address_release(b, &l->addr);
	}
}

/* ---- changes --------------------------------------------------------------------------------- */

void snat_count(struct model *m, const struct model_snat *s, int sign)
{
	m->snat_prefixes += sign * (int)s->prefixes;
	for (unsigned i = 0; i < s->prefixes; i++)
		source_count(m, &s->prefix[i], sign);
}

struct model_snat *snat_copy(const struct model_snat *s)
{
	size_t size = s ? sizeof(*s) + s->prefixes * sizeof(s->prefix[0]) : 0;
	struct model_snat *copy = s ? malloc(size) : NULL;
	if (copy)
		memcpy(copy, s, size);
	return copy;
}

static int rule_add_servers(struct sy_balance *b, struct model_service *s, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	s->server = calloc(SNAT_PROTOCOLS, sizeof(*s->server));
	for (unsigned n = 0; s->server && n < SNAT_PROTOCOLS; n++) {
		struct endpoint e = {
		        .addr = s->key.vip,
		        .vip = s->key.vip,
		        .service = s->id,
		        .created = (uint32_t)(balance_now(b) / 1000000000u),
		        .proto = protocol_number[n],
		        .mode = MODE_SNAT,
		        .transmit_mode = TRANSMIT_SNAT,
		};
		if (!list_reserve((void **)&m->new_server, m->new_server_count,
		                  &m->new_server_capacity, sizeof(*m->new_server)))
			break;
		uint32_t id = server_id_alloc(b, &e);
		if (id == UINT32_MAX)
			return sy_fail(err, ENOSPC, "snat %s: no room: raise --max-servers",
			               s->name);
		m->new_server[m->new_server_count++] = id;
		s->server[s->servers++] = (struct model_server){
		        .addr = e.addr,
		        .state = STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP,
		        .id = id,
		};
	}
	return s->servers == SNAT_PROTOCOLS ? 0 : sy_fail(err, ENOMEM, "no memory for a rule");
}

static struct model_service *rule_add(struct sy_balance *b, const char *name, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	const struct service_key key = key_of_name(name);
	struct model_service *s = calloc(1, sizeof(*s));
	struct model_snat *empty = calloc(1, sizeof(*empty));
	uint32_t id = s && empty ? id_alloc(&m->service_ids) : UINT32_MAX;
	if (id == UINT32_MAX) {
		sy_fail(err, ENOSPC, "snat %s: no room for another rule: raise --max-services",
		        name);
		goto fail;
	}
	if (model_touch(m, id, err) < 0) {
		id_free(&m->service_ids, id);
		goto fail;
	}
	/* From here on the rollback frees the id. */
	if (rte_hash_add_key_data(m->by_key, &key, (void *)(uintptr_t)id) < 0) {
		sy_fail(err, ENOSPC, "snat %s: no room for another rule in the directory", name);
		goto fail;
	}
	s->key = key;
	s->id = id;
	s->mode = MODE_SNAT;
	s->snat = empty;
	s->policy.scheduler = STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR;
	memcpy(s->name, name, strlen(name) + 1);
	m->service[id] = s;
	return rule_add_servers(b, s, err) < 0 ? NULL : s;
fail:
	free(s);
	free(empty);
	return NULL;
}

static int rule_fill(struct sy_balance *b, struct model_service *s, const pb_snat *pb,
                     struct sy_error *err)
{
	struct model *m = b->ctl->model;
	struct model_snat *now = calloc(1, sizeof(*now) + pb->n_inside * sizeof(now->prefix[0]));
	if (!now)
		return sy_fail(err, ENOMEM, "snat %s: no memory", s->name);
	/* Release the pool's old addresses last: most of them stay. */
	struct model_snat *old = s->snat;
	snat_count(m, old, -1);
	old->prefixes = 0;
	s->snat = now;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < pb->n_pool; i++) {
		struct sy_addr addr;
		rc = read_addr(&pb->pool[i], "pool", &addr, err);
		if (rc == 0)
			rc = pool_hold(b, &addr, &now->pool[now->pools], err);
		now->pools += rc == 0;
	}
	for (size_t i = 0; rc == 0 && i < pb->n_inside; i++) {
		struct sy_source prefix;
		rc = read_prefix(s->name, pb->inside[i], &prefix, err);
		if (rc == 0)
			now->prefix[now->prefixes++] = prefix;
	}
	snat_count(m, now, 1);
	pools_drop(b, old);
	free(old);
	return rc;
}

int snat_put(struct sy_balance *b, const pb_snat *pb, struct sy_error *err)
{
	uint16_t timeout[SESSION_STATES];
	int rc = read_timeouts(pb->timeouts, timeout, err);
	if (rc < 0)
		return rc;
	if (*pb->name == 0 || strlen(pb->name) >= MODEL_NAME)
		return sy_fail(err, EINVAL, "snat: a name has 1 to %d bytes", MODEL_NAME - 1);
	for (const char *c = pb->name; *c; c++)
		if (*c < ' ' || *c > '~')
			return sy_fail(err, EINVAL, "snat: a name is printable ASCII");
	if (pb->n_pool > MAX_LOCALS || pb->n_inside > SNAT_PREFIXES)
		return sy_fail(err, ENOSPC, "snat %s: at most %u pool addresses and %u prefixes",
		               pb->name, MAX_LOCALS, SNAT_PREFIXES);
	struct model_service *s = rule_find(b->ctl->model, pb->name);
	if (!s)
		s = rule_add(b, pb->name, err);
	if (!s)
		return -err->code;
	rc = model_touch(b->ctl->model, s->id, err);
	if (rc < 0)
		return rc;
	b->ctl->model->snat_touched = true;
	memcpy(s->timeout, timeout, sizeof(s->timeout));
	return rule_fill(b, s, pb, err);
}

int snat_delete(struct sy_balance *b, const char *name, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	struct model_service *s = rule_find(m, name);
	if (!s)
		return sy_fail(err, EINVAL, "there is no SNAT rule %.63s", name);
	int rc = model_touch(m, s->id, err);
	if (rc < 0)
		return rc;
	m->snat_touched = true;
	rte_hash_del_key(m->by_key, &s->key);
	snat_count(m, s->snat, -1);
	pools_drop(b, s->snat);
	m->service[s->id] = NULL;
	model_service_free(s);
	return 0;
}

static const struct model_service *rule_with(const struct model *m, const struct sy_source *prefix,
                                             const struct model_service *but)
{
	for (uint32_t id = 0; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		for (unsigned i = 0; s && s != but && s->snat && i < s->snat->prefixes; i++)
			if (memcmp(&s->snat->prefix[i], prefix, sizeof(*prefix)) == 0)
				return s;
	}
	return but;
}

/* The pool needs an address of each inside family. */
static int check_rule(const struct sy_balance *b, const struct model_service *s,
                      struct sy_error *err)
{
	const struct model *m = b->ctl->model;
	char text[SY_ADDR_TEXT];
	bool inside[2] = {false}, pool[2] = {false};
	for (unsigned i = 0; i < s->snat->prefixes; i++) {
		const struct sy_source *prefix = &s->snat->prefix[i];
		bool v4 = sy_addr_is_v4(&prefix->addr);
		inside[v4] = true;
		if (source_refs(m, prefix) > 1)
			return sy_fail(err, EINVAL, "snat %s: %s/%u is already in rule %s", s->name,
			               sy_addr_format(&prefix->addr, text),
			               prefix->bits - (v4 ? 96 : 0), rule_with(m, prefix, s)->name);
	}
	for (unsigned i = 0; i < s->snat->pools; i++)
		pool[sy_addr_is_v4(&m->local[s->snat->pool[i]].addr)] = true;
	for (unsigned v4 = 0; v4 < 2; v4++)
		if (inside[v4] && !pool[v4])
			return sy_fail(
			        err, EINVAL,
			        "snat %s: IPv%c is inside, but its pool has no IPv%c address",
			        s->name, v4 ? '4' : '6', v4 ? '4' : '6');
	return 0;
}

int snat_check(struct sy_balance *b, struct sy_error *err)
{
	const struct model *m = b->ctl->model;
	if (m->snat_prefixes > SNAT_PREFIXES)
		return sy_fail(err, ENOSPC, "snat: %u prefixes are inside, at most %u are possible",
		               m->snat_prefixes, SNAT_PREFIXES);
	for (unsigned i = 0; i < m->touches; i++) {
		const struct model_service *s = m->service[m->touch[i].id];
		int rc = s && s->snat ? check_rule(b, s, err) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- publishing ------------------------------------------------------------------------------ */

void snat_free(void *snat)
{
	struct snat *s = snat;
	if (!s)
		return;
	free(s->place);
	free(s->rule);
	free(s->source);
	free(s);
}

static void publish_rule(const struct model *m, const struct model_service *from,
                         struct snat_rule *to)
{
	for (unsigned n = 0; n < SNAT_PROTOCOLS; n++)
		to->server[n] = from->server[n].id;
	for (unsigned i = 0; i < from->snat->pools; i++) {
		uint8_t id = from->snat->pool[i];
		struct snat_pool *pool = &to->pool[sy_addr_is_v4(&m->local[id].addr)];
		pool->addr[pool->count] = m->local[id].addr;
		pool->id[pool->count++] = id;
	}
}

static void publish_prefix(struct snat *snat, const struct sy_source *prefix, unsigned rule)
{
	uint32_t at = address_set_hash(&prefix->addr);
	while (snat->place[at & snat->mask].bits)
		at++;
	snat->place[at & snat->mask] =
	        (struct snat_entry){prefix->addr, (uint8_t)prefix->bits, (uint16_t)rule};
}

/* The prefix lengths in use, longest first. */
static void publish_lengths(struct snat *snat)
{
	bool is[129] = {false};
	for (uint32_t i = 0; i <= snat->mask; i++)
		is[snat->place[i].bits] = true;
	for (unsigned bits = 128; bits > 0; bits--)
		if (is[bits])
			snat->length[snat->lengths++] = (uint8_t)bits;
}

static int source_order(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct sy_source));
}

static void publish_sources(const struct model *m, struct snat *snat)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	while (rte_hash_iterate(m->source, &key, &data, &next) >= 0) {
		const struct sy_source *source = key;
		if (!source->bits && snat_find(snat, &source->addr))
			snat->source[snat->sources++] = *source;
	}
	qsort(snat->source, snat->sources, sizeof(*snat->source), source_order);
}

static struct snat *snat_build(const struct model *m, unsigned rules)
{
	struct snat *snat = calloc(1, sizeof(*snat));
	uint32_t places = 16;
	while (places < 2 * m->snat_prefixes)
		places *= 2;
	if (!snat)
		return NULL;
	snat->mask = places - 1;
	snat->place = calloc(places, sizeof(*snat->place));
	snat->rule = calloc(rules, sizeof(*snat->rule));
	snat->source = calloc((size_t)rte_hash_count(m->source) + 1, sizeof(*snat->source));
	if (!snat->place || !snat->rule || !snat->source) {
		snat_free(snat);
		return NULL;
	}
	unsigned rule = 0;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		if (!s || !s->snat)
			continue;
		publish_rule(m, s, &snat->rule[rule]);
		for (unsigned i = 0; i < s->snat->prefixes; i++)
			publish_prefix(snat, &s->snat->prefix[i], rule);
		rule++;
	}
	publish_lengths(snat);
	publish_sources(m, snat);
	return snat;
}

void snat_publish(struct sy_balance *b)
{
	const struct model *m = b->ctl->model;
	unsigned rules = 0;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		rules += m->service[id] && m->service[id]->snat;
	if (rules == 0 && !b->snat)
		return;
	struct snat *now = rules ? snat_build(m, rules) : NULL;
	if (rules && !now) {
		sy_log(SY_LOG_ERROR, "balance", "no memory: the rules of snat are out of date");
		return;
	}
	const struct snat *old = b->snat;
	SY_RCU_PUBLISH(b->snat, now);
	sy_rcu_retire(b->rt, (void *)(uintptr_t)old, snat_free);
}
