// SPDX-License-Identifier: Apache-2.0
/* Converts the model to messages; model_read.c reads messages. */
#include "model_message.h"

#include <arpa/inet.h>
#include <errno.h>

#include "access_model.h"
#include "limit_model.h"
#include "shaping_model.h"
#include "snat_model.h"

int reply_addr(struct arena *a, const struct sy_addr *addr, ProtobufCBinaryData *out)
{
	out->data = arena_alloc(a, 16);
	if (!out->data)
		return -ENOMEM;
	out->len = sy_addr_to_bytes(addr, out->data);
	return 0;
}

int reply_key(struct arena *a, const struct service_key *key,
              Steelyard__Forwarder__V1__ServiceKey **out, struct sy_error *err)
{
	Steelyard__Forwarder__V1__ServiceKey *k;
	MESSAGE_NEW(a, k, steelyard__forwarder__v1__service_key__init);
	k->protocol = (Steelyard__Forwarder__V1__Protocol)key->proto;
	k->port = ntohs(key->vport);
	k->last_port = ntohs(key->last_port);
	*out = k;
	return reply_addr(a, &key->vip, &k->vip);
}

static int reply_timeouts(struct arena *a, const struct model_service *s,
                          Steelyard__Forwarder__V1__Timeouts **out)
{
	Steelyard__Forwarder__V1__Timeouts *t = arena_alloc(a, sizeof(*t));
	if (!t)
		return -ENOMEM;
	steelyard__forwarder__v1__timeouts__init(t);
	t->syn_sent_s = s->timeout[SESSION_SYN_SENT];
	t->syn_received_s = s->timeout[SESSION_SYN_RECEIVED];
	t->established_s = s->timeout[SESSION_ESTABLISHED];
	t->fin_wait_s = s->timeout[SESSION_FIN_WAIT];
	t->closing_s = s->timeout[SESSION_CLOSING];
	t->time_wait_s = s->timeout[SESSION_TIME_WAIT];
	t->reset_s = s->timeout[SESSION_RESET];
	t->udp_one_way_s = s->timeout[SESSION_UDP_ONE_WAY];
	t->udp_s = s->timeout[SESSION_UDP_BOTH_WAYS];
	t->echo_s = s->timeout[SESSION_ECHO];
	*out = t;
	return 0;
}

/* By enum policy_defence. */
static const Steelyard__Forwarder__V1__SynDefence defences[] = {
        [DEFENCE_OFF] = STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_OFF,
        [DEFENCE_ALWAYS] = STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS,
        [DEFENCE_AUTO] = STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_AUTO,
};

/* By enum sy_unavailable. A service with the default is as before the field existed, so that an
 * earlier forwarder can load the configuration. */
static const Steelyard__Forwarder__V1__WhenUnavailable answers[] = {
        [SY_UNAVAILABLE_DROP] = STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_DROP,
        [SY_UNAVAILABLE_RESET] =
                STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_UNSPECIFIED,
        [SY_UNAVAILABLE_ICMP] = STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_ICMP,
};

/* By enum policy_sync; the default is as before the field existed. */
static const Steelyard__Forwarder__V1__Sync syncs[] = {
        [SYNC_ESTABLISHED] = STEELYARD__FORWARDER__V1__SYNC__SYNC_UNSPECIFIED,
        [SYNC_OFF] = STEELYARD__FORWARDER__V1__SYNC__SYNC_OFF,
        [SYNC_ALL] = STEELYARD__FORWARDER__V1__SYNC__SYNC_ALL,
        [SYNC_STRICT] = STEELYARD__FORWARDER__V1__SYNC__SYNC_STRICT,
};

int reply_service(const struct sy_balance *b, struct arena *a, const struct model_service *s,
                  Steelyard__Forwarder__V1__Service **out, struct sy_error *err)
{
	Steelyard__Forwarder__V1__Service *pb;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__service__init);
	pb->name = (char *)(uintptr_t)s->name;
	pb->mode = (Steelyard__Forwarder__V1__Mode)s->mode;
	pb->scheduler = (Steelyard__Forwarder__V1__Scheduler)s->policy.scheduler;
	pb->hash_on = (Steelyard__Forwarder__V1__HashOn)s->policy.hash_on;
	pb->slow_start_s = s->policy.slow_start;
	pb->one_packet = s->policy.one_packet;
	pb->sloppy_tcp = s->policy.sloppy_tcp;
	pb->max_sessions = s->policy.max_sessions;
	if (s->policy.access)
		pb->access_list = b->ctl->access->now.list[s->policy.access - 1]->name;
	pb->client_address = (Steelyard__Forwarder__V1__ClientAddress)s->policy.client_address;
	pb->keep_client_options = s->policy.keep_client_options;
	pb->syn_defence = defences[s->policy.syn_defence];
	pb->when_unavailable = answers[s->policy.when_unavailable];
	pb->sync = syncs[s->policy.sync];
	pb->sync_older_than_s = s->policy.sync_older_than;
	if (s->policy.mark) {
		MESSAGE_NEW(a, pb->mark, steelyard__forwarder__v1__mark__init);
		pb->mark->dscp = s->policy.mark - 1u;
	}
	if (s->policy.persistence.timeout) {
		MESSAGE_NEW(a, pb->persistence, steelyard__forwarder__v1__persistence__init);
		pb->persistence->timeout_s = s->policy.persistence.timeout;
		pb->persistence->prefix4 = s->policy.persistence.prefix4;
		pb->persistence->prefix6 = s->policy.persistence.prefix6;
	}
	if (s->policy.client_per_second || s->policy.client_sessions) {
		MESSAGE_NEW(a, pb->client_limits, steelyard__forwarder__v1__client_limits__init);
		pb->client_limits->new_per_second = s->policy.client_per_second;
		pb->client_limits->burst = s->policy.client_burst;
		pb->client_limits->sessions = s->policy.client_sessions;
	}
	if (s->policy.resets) {
		MESSAGE_NEW(a, pb->resets, steelyard__forwarder__v1__resets__init);
		pb->resets->expired = s->policy.resets & RESETS_EXPIRED;
		pb->resets->down = s->policy.resets & RESETS_DOWN;
		pb->resets->unknown = s->policy.resets & RESETS_UNKNOWN;
	}
	*out = pb;
	if (reply_timeouts(a, s, &pb->timeouts) < 0)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	return reply_key(a, &s->key, &pb->key, err);
}

int reply_server(struct arena *a, const struct model_server *s,
                 Steelyard__Forwarder__V1__Server **out, struct sy_error *err)
{
	Steelyard__Forwarder__V1__Server *pb;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__server__init);
	pb->port = ntohs(s->port);
	pb->weight = s->weight;
	pb->state = (Steelyard__Forwarder__V1__ServerState)s->state;
	pb->backup = s->backup;
	pb->max_sessions = s->max_sessions;
	pb->check_mark = s->check_mark;
	*out = pb;
	return reply_addr(a, &s->addr, &pb->address);
}

/* ---- SNAT ------------------------------------------------------------------------------------ */

int reply_rule(const struct sy_balance *b, const struct model_service *s, struct arena *a,
               Steelyard__Forwarder__V1__Snat **out)
{
	Steelyard__Forwarder__V1__Snat *pb = arena_alloc(a, sizeof(*pb));
	const struct model_snat *snat = s->snat;
	if (!pb)
		return -ENOMEM;
	steelyard__forwarder__v1__snat__init(pb);
	pb->name = (char *)(uintptr_t)s->name;
	pb->inside = arena_alloc(a, (snat->prefixes + 1) * sizeof(*pb->inside));
	pb->pool = arena_alloc(a, (snat->pools + 1) * sizeof(*pb->pool));
	if (!pb->inside || !pb->pool || reply_timeouts(a, s, &pb->timeouts) < 0)
		return -ENOMEM;
	for (unsigned i = 0; i < snat->prefixes; i++) {
		const struct sy_source *from = &snat->prefix[i];
		Steelyard__Forwarder__V1__Prefix *prefix = arena_alloc(a, sizeof(*prefix));
		if (!prefix)
			return -ENOMEM;
		steelyard__forwarder__v1__prefix__init(prefix);
		prefix->length = from->bits - (sy_addr_is_v4(&from->addr) ? 96 : 0);
		if (reply_addr(a, &from->addr, &prefix->address) < 0)
			return -ENOMEM;
		pb->inside[pb->n_inside++] = prefix;
	}
	for (unsigned i = 0; i < snat->pools; i++)
		if (reply_addr(a, &b->ctl->model->local[snat->pool[i]].addr,
		               &pb->pool[pb->n_pool++]) < 0)
			return -ENOMEM;
	*out = pb;
	return 0;
}

unsigned model_rules(const struct model *m)
{
	unsigned rules = 0;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		rules += m->service[id] && m->service[id]->snat;
	return rules;
}

/* Adds all SNAT rules to a configuration. */
static int reply_rules(const struct sy_balance *b, struct arena *a,
                       Steelyard__Forwarder__V1__Config *c)
{
	const struct model *m = b->ctl->model;
	c->snat = arena_alloc(a, (model_rules(m) + 1) * sizeof(*c->snat));
	if (!c->snat)
		return -ENOMEM;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		if (m->service[id] && m->service[id]->snat &&
		    reply_rule(b, m->service[id], a, &c->snat[c->n_snat++]) < 0)
			return -ENOMEM;
	return 0;
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Adds limits from *id on, as many as fit one message. */
static int reply_limits(const struct sy_balance *b, struct arena *a, uint32_t *id, uint32_t limit,
                        Steelyard__Forwarder__V1__Config *c, struct sy_error *err)
{
	const struct limit_model *m = b->ctl->limits;
	uint32_t left = m->ids.fresh > *id ? m->ids.fresh - *id : 0;
	size_t bytes = 0;
	MESSAGE_NEW_LIST(a, c->limits, left < limit ? left : limit);
	for (; *id < m->ids.fresh; ++*id) {
		const struct model_limit *l = m->limit[*id];
		if (!l)
			continue;
		bytes += l->packed_len;
		if (c->n_limits == limit || (limit != REPLY_ALL && bytes > LIST_LIMIT_BYTES))
			break;
		c->limits[c->n_limits] = reply_limit(l, a);
		if (!c->limits[c->n_limits++])
			return sy_fail(err, ENOMEM, "no memory for the answer");
	}
	return 0;
}

/* ---- the whole configuration ----------------------------------------------------------------- */

int reply_config(struct sy_balance *b, uint32_t cursor, uint32_t limit, struct arena *a,
                 Steelyard__Forwarder__V1__Config **out, struct sy_error *err)
{
	const struct model *m = b->ctl->model;
	Steelyard__Forwarder__V1__Config *c;
	uint32_t left = m->service_ids.fresh > cursor ? m->service_ids.fresh - cursor : 0;
	uint32_t servers = 0;

	MESSAGE_NEW(a, c, steelyard__forwarder__v1__config__init);
	c->revision = m->revision;
	MESSAGE_NEW_LIST(a, c->local_addresses, MAX_LOCALS);
	for (unsigned id = 0; cursor == 0 && id < MAX_LOCALS; id++) {
		Steelyard__Forwarder__V1__LocalAddress *l;
		if (!m->local[id].used || m->local[id].pools)
			continue;
		MESSAGE_NEW(a, l, steelyard__forwarder__v1__local_address__init);
		if (reply_addr(a, &m->local[id].addr, &l->address) < 0)
			return sy_fail(err, ENOMEM, "no memory for the answer");
		l->of_peer = m->local[id].of_peer;
		c->local_addresses[c->n_local_addresses++] = l;
	}
	if (cursor == 0 &&
	    (reply_rules(b, a, c) < 0 || reply_access(b, a, c) < 0 || reply_shaping(b, a, c) < 0))
		return sy_fail(err, ENOMEM, "no memory for the answer");
	if (cursor >= LIMITS_CURSOR) {
		uint32_t at = cursor - LIMITS_CURSOR;
		if (reply_limits(b, a, &at, limit, c, err) < 0)
			return -ENOMEM;
		c->next_cursor = at < b->ctl->limits->ids.fresh ? LIMITS_CURSOR + at : 0;
		*out = c;
		return 0;
	}
	MESSAGE_NEW_LIST(a, c->entries, left < limit ? left : limit);
	uint32_t id = cursor;
	for (; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		Steelyard__Forwarder__V1__Config__Entry *e;
		if (!s || s->snat)
			continue;
		if (c->n_entries == limit || (limit != REPLY_ALL && servers > LIST_SERVERS))
			break;
		MESSAGE_NEW(a, e, steelyard__forwarder__v1__config__entry__init);
		if (reply_service(b, a, s, &e->service, err) < 0)
			return -ENOMEM;
		MESSAGE_NEW_LIST(a, e->servers, s->servers);
		for (unsigned i = 0; i < s->servers; i++)
			if (reply_server(a, &s->server[i], &e->servers[e->n_servers++], err) < 0)
				return -ENOMEM;
		servers += s->servers;
		c->entries[c->n_entries++] = e;
	}
	uint32_t at = 0;
	if (limit == REPLY_ALL && reply_limits(b, a, &at, limit, c, err) < 0)
		return -ENOMEM;
	if (id < m->service_ids.fresh)
		c->next_cursor = id;
	else if (at < b->ctl->limits->ids.fresh)
		c->next_cursor = LIMITS_CURSOR;
	*out = c;
	return 0;
}
