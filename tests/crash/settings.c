// SPDX-License-Identifier: Apache-2.0
/* Configuration: transactions that are accepted as a whole or not at all, even when killed during
 * the commit. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "run.h"

#define UP    STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DRAIN STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN
#define DOWN  STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN

/* A transaction under construction: for the balancer, and the model's next state. */
struct draft {
	struct run *run;
	struct plain_config *config;
	struct changes changes;
};

static struct service_key key_of(unsigned service)
{
	return (struct service_key){plain_vip(service), htons(PLAIN_PORT), plain_proto(service), 0,
	                            0};
}

/* ---- single changes -------------------------------------------------------------------------- */

static void draft_service(struct draft *d, unsigned service)
{
	struct service_key key = key_of(service);
	struct plain_part *p = &d->config->service[service];
	pb_timeouts t = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	char name[32];
	t.syn_sent_s = plain_timeout(service, PLAIN_SYN_SENT);
	t.syn_received_s = plain_timeout(service, PLAIN_SYN_RECEIVED);
	t.established_s = plain_timeout(service, PLAIN_ESTABLISHED);
	t.fin_wait_s = plain_timeout(service, PLAIN_FIN_WAIT);
	t.closing_s = plain_timeout(service, PLAIN_CLOSING);
	t.time_wait_s = plain_timeout(service, PLAIN_TIME_WAIT);
	t.reset_s = plain_timeout(service, PLAIN_RESET);
	t.udp_one_way_s = plain_timeout(service, PLAIN_UDP_ONE_WAY);
	t.udp_s = plain_timeout(service, PLAIN_UDP_BOTH_WAYS);
	snprintf(name, sizeof(name), "service-%u", service);
	put_service(&d->changes, &key, name,
	            service % 3 ? STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR
	                        : STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_WRR,
	            &t)
	        ->client_address =
	        (Steelyard__Forwarder__V1__ClientAddress)plain_client_address(service);
	if (!p->state)
		*p = (struct plain_part){.state = 1, .since = ++d->run->h->since};
}

static void draft_delete_service(struct draft *d, unsigned service)
{
	struct service_key key = key_of(service);
	delete_service(&d->changes, &key);
	d->config->service[service].state = 0;
	memset(d->config->server[service], 0, sizeof(d->config->server[service]));
}

static void draft_server(struct draft *d, unsigned service, unsigned n, uint8_t state,
                         uint8_t weight)
{
	struct service_key key = key_of(service);
	struct sy_addr addr = plain_server(service, n);
	struct plain_part *p = &d->config->server[service][n];
	put_server(&d->changes, &key, &addr, ntohs(plain_server_port(service)), weight, state);
	if (!p->state)
		p->since = ++d->run->h->since;
	p->state = state;
	p->weight = weight;
}

static void draft_delete_server(struct draft *d, unsigned service, unsigned n)
{
	struct service_key key = key_of(service);
	struct sy_addr addr = plain_server(service, n);
	delete_server(&d->changes, &key, &addr, ntohs(plain_server_port(service)));
	d->config->server[service][n] = (struct plain_part){0};
}

static void draft_local(struct draft *d, unsigned n)
{
	struct sy_addr addr = plain_local(n);
	struct plain_part *p = &d->config->local[n];
	put_local(&d->changes, &addr);
	if (!p->state)
		*p = (struct plain_part){.state = 1, .since = ++d->run->h->since};
}

static void draft_delete_local(struct draft *d, unsigned n)
{
	struct sy_addr addr = plain_local(n);
	delete_local(&d->changes, &addr);
	d->config->local[n] = (struct plain_part){0};
}

/* ---- transactions ---------------------------------------------------------------------------- */

static struct draft draft_begin(struct run *l)
{
	struct chronicle *h = l->h;
	struct plain_config *next = &h->config[!h->accepted];
	*next = h->config[h->accepted];
	return (struct draft){.run = l, .config = next};
}

/* In force from now on: sessions of removed objects are no longer uncertain. */
static void settings_accept(struct chronicle *h, uint32_t which)
{
	flows_doom(h, &h->config[which]);
	__atomic_store_n(&h->accepted, which, __ATOMIC_RELEASE);
	__atomic_store_n(&h->committing, false, __ATOMIC_RELEASE);
}

static void draft_commit(struct draft *d)
{
	struct run *l = d->run;
	struct chronicle *h = l->h;
	uint32_t phase = h->phase;
	d->config->revision = h->config[h->accepted].revision + 1;
	h->phase = PHASE_COMMIT;
	__atomic_store_n(&h->committing, true, __ATOMIC_RELEASE);
	MUST(harness_commit(&l->harness, &d->changes), "a right change was refused: %s",
	     l->harness.error);
	settings_accept(h, !h->accepted);
	h->phase = phase;
	h->commits++;
}

void settings_begin(struct run *l)
{
	struct draft d = draft_begin(l);
	for (unsigned i = 0; i < PLAIN_LOCALS; i++)
		if (!l->scenario->still || i == 0 || i == PLAIN_LOCALS_4)
			draft_local(&d, i);
	for (unsigned service = 0; service < PLAIN_SERVICES; service++) {
		draft_service(&d, service);
		for (unsigned n = 0; n < (l->scenario->still ? 1 : PLAIN_SERVERS); n++)
			draft_server(&d, service, n, UP, (uint8_t)(1 + n));
	}
	draft_commit(&d);
}

static void change_server(struct draft *d, unsigned service, struct rng *rng)
{
	static const uint8_t states[] = {UP, UP, UP, DRAIN, DOWN};
	unsigned n = rng_below(rng, PLAIN_SERVERS);
	uint8_t state = states[rng_below(rng, SY_ARRAY_LEN(states))];
	uint32_t choice = rng_below(rng, 100);
	bool there = d->config->server[service][n].state;
	if (!d->config->service[service].state)
		return;
	if (there && choice < 25)
		draft_delete_server(d, service, n);
	if (choice >= 15)
		draft_server(d, service, n, state, (uint8_t)rng_below(rng, 9));
}

static void change_service(struct draft *d, unsigned service, struct rng *rng)
{
	bool there = d->config->service[service].state;
	if (there && rng_percent(rng, 50))
		draft_delete_service(d, service);
	if (there && rng_percent(rng, 50))
		return;
	draft_service(d, service);
	for (unsigned n = 0; n < PLAIN_SERVERS; n++)
		draft_server(d, service, n, UP, 1);
}

static void change_local(struct draft *d, struct rng *rng)
{
	unsigned n = rng_below(rng, PLAIN_LOCALS), others = 0;
	for (unsigned i = 0; i < PLAIN_LOCALS; i++)
		others += i != n && (i < PLAIN_LOCALS_4) == (n < PLAIN_LOCALS_4) &&
		          d->config->local[i].state;
	uint32_t choice = rng_below(rng, 100);
	if (d->config->local[n].state && others > 0 && choice < 60)
		draft_delete_local(d, n);
	if (choice >= 40)
		draft_local(d, n);
}

void settings_change(struct run *l)
{
	struct draft d = draft_begin(l);
	for (unsigned n = 1 + rng_below(&l->rng, 3); n; n--) {
		unsigned service = rng_below(&l->rng, PLAIN_SERVICES);
		uint32_t choice = rng_below(&l->rng, 10);
		if (choice == 0)
			change_service(&d, service, &l->rng);
		else if (choice <= 2)
			change_local(&d, &l->rng);
		else
			change_server(&d, service, &l->rng);
	}
	draft_commit(&d);
}

/* ---- after a kill ---------------------------------------------------------------------------- */

static bool addr_is(const ProtobufCBinaryData *pb, const struct sy_addr *addr)
{
	struct sy_addr a;
	return sy_addr_from_bytes(pb->data, pb->len, &a) == 0 && sy_addr_equal(&a, addr);
}

static bool entry_is(const Steelyard__Forwarder__V1__Config__Entry *e, const struct plain_config *c,
                     unsigned service)
{
	size_t servers = 0;
	for (unsigned n = 0; n < PLAIN_SERVERS; n++) {
		const struct plain_part *p = &c->server[service][n];
		const struct sy_addr addr = plain_server(service, n);
		bool found = false;
		for (size_t i = 0; i < e->n_servers; i++)
			found |= addr_is(&e->servers[i]->address, &addr) &&
			         e->servers[i]->weight == p->weight &&
			         e->servers[i]->state ==
			                 (Steelyard__Forwarder__V1__ServerState)p->state;
		servers += !!p->state;
		if (found != !!p->state)
			return false;
	}
	return servers == e->n_servers;
}

static bool config_is(const Steelyard__Forwarder__V1__Config *pb, const struct plain_config *c)
{
	size_t services = 0, locals = 0;
	for (unsigned n = 0; n < PLAIN_LOCALS; n++) {
		const struct sy_addr addr = plain_local(n);
		bool found = false;
		for (size_t i = 0; i < pb->n_local_addresses; i++)
			found |= addr_is(&pb->local_addresses[i]->address, &addr);
		locals += c->local[n].state;
		if (found != !!c->local[n].state)
			return false;
	}
	for (unsigned service = 0; service < PLAIN_SERVICES; service++) {
		const struct sy_addr vip = plain_vip(service);
		bool found = false;
		for (size_t i = 0; i < pb->n_entries; i++)
			found |= addr_is(&pb->entries[i]->service->key->vip, &vip) &&
			         pb->entries[i]->service->key->protocol ==
			                 (Steelyard__Forwarder__V1__Protocol)plain_proto(service) &&
			         entry_is(pb->entries[i], c, service);
		services += c->service[service].state;
		if (found != !!c->service[service].state)
			return false;
	}
	return services == pb->n_entries && locals == pb->n_local_addresses;
}

void settings_validate(struct run *l)
{
	struct chronicle *h = l->h;
	Steelyard__Forwarder__V1__GetConfigRequest get =
	        STEELYARD__FORWARDER__V1__GET_CONFIG_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_GET_CONFIG;
	q.get_config = &get;
	pb_response *r = harness_request(&l->harness, &q);
	MUST(!r->error, "the configuration cannot be read");
	const Steelyard__Forwarder__V1__Config *pb = r->get_config;
	bool old = pb->revision == h->config[h->accepted].revision;
	bool new = h->committing && pb->revision == h->config[!h->accepted].revision;
	MUST(old || new, "revision %lu was found, and %lu%s was accepted", pb->revision,
	     h->config[h->accepted].revision, h->committing ? " or the next" : "");
	uint32_t which = new ? !h->accepted : h->accepted;
	MUST(config_is(pb, &h->config[which]),
	     "the configuration found is not what was accepted as revision %lu", pb->revision);
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	settings_accept(h, which);
}
