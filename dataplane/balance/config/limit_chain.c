// SPDX-License-Identifier: Apache-2.0
/*
 * Which limits apply to a server: those that name all services, its VIP, its service or itself. An
 * index maps each of these to the limits that name it; servers with the same limits share a chain.
 */
#include <arpa/inet.h>
#include <errno.h>

#include <rte_hash.h>

#include "limit_model.h"
#include "shaping_model.h"

struct model_chain {
	struct node node;
	uint32_t holders; /* servers */
	struct limit_chain *chain;
};

/* ---- the index ------------------------------------------------------------------------------- */

static struct limit_named *named_find(const struct limit_model *m, const struct limit_target *c)
{
	uint32_t hash = nodes_hash(c, sizeof(*c));
	for (struct node *n = NULL; (n = nodes_next(&m->targets, n, hash));) {
		struct limit_named *named = SY_CONTAINER_OF(n, struct limit_named, node);
		if (memcmp(&named->target, c, sizeof(*c)) == 0)
			return named;
	}
	return NULL;
}

static const char *target_format(const struct limit_target *c, char out[static 160])
{
	char vip[SY_ADDR_TEXT], server[SY_ADDR_TEXT], ports[PORTS_TEXT];
	sy_addr_format(&c->service.vip, vip);
	sy_addr_format(&c->server, server);
	const char *proto = c->service.proto == SY_PROTO_TCP ? "tcp" : "udp";
	if (c->kind == LIMIT_OF_ALL)
		snprintf(out, 160, "all services");
	else if (c->kind == LIMIT_OF_VIP)
		snprintf(out, 160, "VIP %s", vip);
	else if (c->kind == LIMIT_OF_SERVICE)
		snprintf(out, 160, "service %s %s %s", proto, vip,
		         ports_format(&c->service, ports));
	else
		snprintf(out, 160, "server %s port %u of service %s %s %s", server, ntohs(c->port),
		         proto, vip, ports_format(&c->service, ports));
	return out;
}

static int named_fail(const struct limit_target *c, struct sy_error *err)
{
	char text[160];
	return sy_fail(err, EINVAL,
	               "more than %u limits concern %s: join some of them, or name fewer services",
	               LIMIT_NAMED, target_format(c, text));
}

static int named_add(struct limit_model *m, const struct limit_target *c, uint32_t id,
                     struct sy_error *err)
{
	struct limit_named *named = named_find(m, c);
	if (!named) {
		named = calloc(1, sizeof(*named));
		if (!named)
			return sy_fail(err, ENOMEM, "no memory for the limits");
		named->target = *c;
		nodes_add(&m->targets, &named->node, nodes_hash(c, sizeof(*c)));
	}
	if (named->count == LIMIT_TRANSIENT)
		return named_fail(c, err);
	named->id[named->count++] = (uint16_t)id;
	return 0;
}

static void named_remove(struct limit_model *m, const struct limit_target *c, uint32_t id)
{
	struct limit_named *named = named_find(m, c);
	for (unsigned i = 0; named && i < named->count; i++)
		if (named->id[i] == id) {
			named->id[i] = named->id[--named->count];
			if (named->count == 0 && !named->emptied) {
				named->emptied = true;
				named->next = m->emptied;
				m->emptied = named;
			}
			return;
		}
}

int limit_targets_add(struct limit_model *m, const struct model_limit *l, struct sy_error *err)
{
	int rc = 0;
	unsigned done = 0;
	while (done < l->targets && rc == 0)
		rc = named_add(m, &l->target[done++], l->id, err);
	if (rc == 0)
		return 0;
	for (done--; done > 0; done--)
		named_remove(m, &l->target[done - 1], l->id);
	return rc;
}

void limit_targets_remove(struct limit_model *m, const struct model_limit *l)
{
	for (unsigned i = 0; i < l->targets; i++)
		named_remove(m, &l->target[i], l->id);
}

int limit_targets_check(struct limit_model *m, struct sy_error *err)
{
	for (unsigned t = 0; t < m->touches; t++) {
		const struct model_limit *l = m->limit[m->touch[t].id];
		for (unsigned i = 0; l && i < l->targets; i++)
			if (named_find(m, &l->target[i])->count > LIMIT_NAMED)
				return named_fail(&l->target[i], err);
	}
	return 0;
}

/* Visits the nodes that the transaction's limits name; there may be many others. */
static void targets_untouch(struct limit_model *m, const struct model_limit *l)
{
	for (unsigned i = 0; l && i < l->targets; i++) {
		struct limit_named *named = named_find(m, &l->target[i]);
		if (named)
			named->touched = false;
	}
}

void limit_targets_collect(struct limit_model *m)
{
	for (unsigned t = 0; t < m->touches; t++) {
		targets_untouch(m, m->touch[t].before);
		targets_untouch(m, m->limit[m->touch[t].id]);
	}
	for (struct limit_named *named = m->emptied, *next; named; named = next) {
		next = named->next;
		named->emptied = false;
		if (named->count > 0)
			continue;
		nodes_remove(&m->targets, &named->node);
		free(named);
	}
	m->emptied = NULL;
}

void limit_targets_destroy(struct limit_model *m)
{
	for (uint32_t i = 0; m->targets.head && i < m->targets.heads; i++)
		for (struct node *n = m->targets.head[i], *next; n; n = next) {
			next = n->next;
			free(SY_CONTAINER_OF(n, struct limit_named, node));
		}
	for (uint32_t i = 0; m->chains.head && i < m->chains.heads; i++)
		for (struct node *n = m->chains.head[i], *next; n; n = next) {
			struct model_chain *c = SY_CONTAINER_OF(n, struct model_chain, node);
			next = n->next;
			free(c->chain);
			free(c);
		}
	free(m->targets.head);
	free(m->chains.head);
}

/* ---- chains that are out of date ------------------------------------------------------------- */

void limit_targets_touch(struct sy_balance *b, const struct model_limit *l)
{
	struct limit_model *m = b->ctl->limits;
	for (unsigned i = 0; i < l->targets; i++) {
		const struct limit_target *c = &l->target[i];
		struct limit_named *named;
		void *id;
		switch (c->kind) {
		case LIMIT_OF_ALL:
			m->of_all = true;
			break;
		case LIMIT_OF_VIP:
			if ((named = named_find(m, c)))
				named->touched = m->of_vips = true;
			break;
		default:
			if (rte_hash_lookup_data(b->ctl->model->by_key, &c->service, &id) >= 0)
				m->of_service[(uintptr_t)id] = true;
		}
	}
}

bool limit_targets_touched(struct sy_balance *b, const struct model_service *s)
{
	const struct limit_model *m = b->ctl->limits;
	if (m->of_all || m->of_service[s->id])
		return true;
	const struct limit_target vip = {.service = {.vip = s->key.vip}, .kind = LIMIT_OF_VIP};
	const struct limit_named *named = m->of_vips ? named_find(m, &vip) : NULL;
	return named && named->touched;
}

/* ---- chains ---------------------------------------------------------------------------------- */

static uint32_t chain_hash(const struct limit_chain *c)
{
	return nodes_hash(c->id, limit_chain_count(c) * sizeof(c->id[0]));
}

static bool chain_equal(const struct limit_chain *a, const struct limit_chain *b)
{
	return a->drops == b->drops && a->sessions == b->sessions && a->marks == b->marks &&
	       a->sides == b->sides && a->lead == b->lead &&
	       memcmp(a->id, b->id, limit_chain_count(a) * sizeof(a->id[0])) == 0;
}

/* The flow of a chain's packets in the event device. */
static uint32_t chain_flow(const struct limit_chain *c)
{
	return c->sides & (LIMITED_QUEUED(0) | LIMITED_QUEUED(1)) ? c->lead + 1u : FLOW_DIRECT;
}

/* Notes that a limit with the event device is in this chain too. If its packets get there by
 * several flows, several workers may use its bucket at once. */
static void flow_note(struct sy_balance *b, uint16_t id, uint32_t flow, bool now)
{
	struct limit_state *state = &b->ctl->limits->state[id];
	if (state->flow == FLOW_NONE)
		state->flow = flow;
	else if (state->flow != flow)
		state->flows = true;
	if (now && state->flows)
		__atomic_store_n(&b->limits.bucket[id].by_chains, 1, __ATOMIC_RELAXED);
}

static void chain_note(struct sy_balance *b, const struct limit_chain *c, bool now)
{
	for (unsigned i = 0; i < c->drops; i++)
		if (b->limits.limit[c->id[i]] &&
		    b->limits.limit[c->id[i]]->engine == SY_LIMIT_ATOMIC)
			flow_note(b, c->id[i], chain_flow(c), now);
}

/* Calls fn for the ids of limits that drop packets, over all chains. */
static void chains_visit(struct sy_balance *b,
                         void (*fn)(struct sy_balance *b, const struct limit_chain *c))
{
	const struct nodes *chains = &b->ctl->limits->chains;
	for (uint32_t i = 0; i < chains->heads; i++)
		for (struct node *n = chains->head[i]; n; n = n->next)
			fn(b, SY_CONTAINER_OF(n, struct model_chain, node)->chain);
}

static void chain_forget_flow(struct sy_balance *b, const struct limit_chain *c)
{
	for (unsigned i = 0; i < c->drops; i++) {
		b->ctl->limits->state[c->id[i]].flow = FLOW_NONE;
		b->ctl->limits->state[c->id[i]].flows = false;
	}
}

static void chain_learn_flow(struct sy_balance *b, const struct limit_chain *c)
{
	chain_note(b, c, false);
}

static void chain_publish_flow(struct sy_balance *b, const struct limit_chain *c)
{
	for (unsigned i = 0; i < c->drops; i++)
		__atomic_store_n(&b->limits.bucket[c->id[i]].by_chains,
		                 b->ctl->limits->state[c->id[i]].flows, __ATOMIC_RELAXED);
}

void limits_note_flows(struct sy_balance *b)
{
	struct limit_model *m = b->ctl->limits;
	if (!m->flows_changed)
		return;
	m->flows_changed = false;
	chains_visit(b, chain_forget_flow);
	chains_visit(b, chain_learn_flow);
	chains_visit(b, chain_publish_flow);
}

#define TICK_NS UINT64_C(1000000000)

/* Ages LIMIT_BESIDE_NOW to NONE in two ticks: at the second one, no worker that set NOW before the
 * first still uses the bucket. */
static void bucket_tick(struct limit_bucket *bucket)
{
	uint8_t was = SY_READ(bucket->by_workers);
	if (was == LIMIT_BESIDE_NONE)
		return;
	const uint8_t now = was == LIMIT_BESIDE_NOW ? LIMIT_BESIDE_LATELY : LIMIT_BESIDE_NONE;
	__atomic_compare_exchange_n(&bucket->by_workers, &was, now, false, __ATOMIC_RELAXED,
	                            __ATOMIC_RELAXED);
}

void limits_tick(struct sy_balance *b)
{
	struct limit_model *m = b->ctl->limits;
	const uint64_t now = limits_now(b);
	if (!b->stage || now - m->tick_ns < TICK_NS)
		return;
	m->tick_ns = now;
	for (uint32_t id = 0; id < m->ids.fresh; id++)
		if (m->limit[id])
			bucket_tick(&b->limits.bucket[id]);
}

/* References the shared chain equal to this one. Returns NULL without memory. */
static struct limit_chain *chain_hold(struct sy_balance *b, const struct limit_chain *like)
{
	struct limit_model *m = b->ctl->limits;
	uint32_t hash = chain_hash(like);
	size_t size = sizeof(*like) + limit_chain_count(like) * sizeof(like->id[0]);
	for (struct node *n = NULL; (n = nodes_next(&m->chains, n, hash));) {
		struct model_chain *c = SY_CONTAINER_OF(n, struct model_chain, node);
		if (!chain_equal(c->chain, like))
			continue;
		c->holders++;
		return c->chain;
	}
	struct model_chain *c = malloc(sizeof(*c));
	struct limit_chain *chain = malloc(size);
	if (!c || !chain) {
		free(c);
		free(chain);
		return NULL;
	}
	memcpy(chain, like, size);
	chain->model = c;
	*c = (struct model_chain){.holders = 1, .chain = chain};
	nodes_add(&m->chains, &c->node, hash);
	if (b->stage) {
		chain_note(b, chain, true);
		m->flows_changed = true;
	}
	return chain;
}

static void chain_drop(struct sy_balance *b, const struct limit_chain *chain)
{
	struct model_chain *c = chain ? chain->model : NULL;
	if (!c || --c->holders > 0)
		return;
	nodes_remove(&b->ctl->limits->chains, &c->node);
	b->ctl->limits->flows_changed |= b->stage != NULL;
	sy_rcu_retire(b->rt, c->chain, free);
	free(c);
}

/* Assigns a referenced chain to a server; NULL: no limits. */
static void server_set(struct sy_balance *b, uint32_t server, const struct limit_chain *chain)
{
	const struct limit_chain *old = b->limits.chain[server];
	/* keep the bits that do not depend on limits */
	const uint8_t others = (shaping_is_on(b) ? LIMITED_SHAPED : 0) |
	                       (b->endpoint[server].limited & LIMITED_DSCP);
	if (!chain)
		__atomic_store_n(&b->endpoint[server].limited, others, __ATOMIC_RELAXED);
	if (chain != old)
		SY_RCU_PUBLISH(b->limits.chain[server], chain);
	if (chain)
		__atomic_store_n(&b->endpoint[server].limited, chain->sides | others,
		                 __ATOMIC_RELAXED);
	chain_drop(b, old);
}

void limits_forget_server(struct sy_balance *b, uint32_t server)
{
	server_set(b, server, NULL);
}

/* A sorted set of limit ids. */
struct limit_ids {
	unsigned count;
	uint16_t id[LIMIT_CHAIN];
};

static void ids_add(struct limit_ids *ids, uint16_t id)
{
	unsigned at = 0;
	while (at < ids->count && ids->id[at] < id)
		at++;
	if (ids->count == LIMIT_CHAIN || (at < ids->count && ids->id[at] == id))
		return;
	memmove(&ids->id[at + 1], &ids->id[at], (ids->count - at) * sizeof(id));
	ids->id[at] = id;
	ids->count++;
}

static void ids_add_named(const struct limit_model *m, const struct limit_target *c,
                          struct limit_ids *ids)
{
	const struct limit_named *named = named_find(m, c);
	for (unsigned i = 0; named && i < named->count; i++)
		ids_add(ids, named->id[i]);
}

enum group { GROUP_DROPS, GROUP_SESSIONS, GROUP_MARKS, GROUPS };

static enum group group_of(const struct limit *l)
{
	return l->unit == LIMIT_SESSIONS ? GROUP_SESSIONS : l->marks ? GROUP_MARKS : GROUP_DROPS;
}

/* Sets which packets go through the event device, and their flow there. */
static void chain_lead(const struct sy_balance *b, struct limit_chain *c)
{
	const struct limit *lead = NULL;
	for (unsigned i = 0; i < c->drops; i++) {
		const struct limit *l = b->limits.limit[c->id[i]];
		if (l->engine != SY_LIMIT_ATOMIC)
			continue;
		c->sides |= (uint8_t)(l->sides * LIMITED_QUEUED(0));
		if (!lead || l->width > lead->width)
			lead = l;
	}
	c->lead = lead ? lead->id : 0;
}

/* References the chain of these limits. NULL: it is empty, or there is no memory. */
static const struct limit_chain *chain_of(struct sy_balance *b, const struct limit_ids *ids)
{
	_Alignas(struct limit_chain)
	        uint8_t bytes[sizeof(struct limit_chain) + LIMIT_CHAIN * sizeof(uint16_t)] = {0};
	struct limit_chain *like = (struct limit_chain *)bytes;
	uint8_t count[GROUPS] = {0};
	unsigned n = 0;
	for (enum group g = GROUP_DROPS; g < GROUPS; g++)
		for (unsigned i = 0; i < ids->count; i++) {
			const struct limit *l = b->limits.limit[ids->id[i]];
			if (!l || group_of(l) != g)
				continue;
			like->sides |= l->unit == LIMIT_SESSIONS ? LIMITED_SESSIONS : l->sides;
			like->id[n++] = ids->id[i];
			count[g]++;
		}
	if (n == 0)
		return NULL;
	like->drops = count[GROUP_DROPS];
	like->sessions = count[GROUP_SESSIONS];
	like->marks = count[GROUP_MARKS];
	chain_lead(b, like);
	const struct limit_chain *chain = chain_hold(b, like);
	if (!chain)
		sy_log(SY_LOG_ERROR, "balance", "no memory: a server is without its limits");
	return chain;
}

void limits_service(struct sy_balance *b, const struct model_service *s)
{
	struct limit_model *m = b->ctl->limits;
	struct limit_ids common = {0};
	if (s->snat)
		return;
	if (m->targets.count > 0) {
		ids_add_named(m, &(struct limit_target){.kind = LIMIT_OF_ALL}, &common);
		ids_add_named(m,
		              &(struct limit_target){.service = {.vip = s->key.vip},
		                                     .kind = LIMIT_OF_VIP},
		              &common);
		ids_add_named(m,
		              &(struct limit_target){.service = s->key, .kind = LIMIT_OF_SERVICE},
		              &common);
	}
	for (unsigned i = 0; i < s->servers; i++) {
		const struct model_server *server = &s->server[i];
		struct limit_ids ids = common;
		if (m->targets.count > 0)
			ids_add_named(m,
			              &(struct limit_target){.service = s->key,
			                                     .server = server->addr,
			                                     .port = server->port,
			                                     .kind = LIMIT_OF_SERVER},
			              &ids);
		server_set(b, server->id, chain_of(b, &ids));
	}
}
