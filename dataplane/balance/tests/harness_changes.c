// SPDX-License-Identifier: Apache-2.0
/* Changes of the configuration, as an agent sends them. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "harness.h"
#include "must.h"

static void *take(struct changes *c, size_t size)
{
	void *p = arena_alloc(&c->arena, size);
	must(p, "no memory for changes");
	return p;
}

static pb_change *change_add(struct changes *c, int kind)
{
	if (c->count == c->capacity) {
		c->capacity = c->capacity ? 2 * c->capacity : 64;
		c->change = realloc(c->change, c->capacity * sizeof(pb_change *));
		must(c->change, "no memory for changes");
	}
	pb_change *out = take(c, sizeof(*out));
	steelyard__forwarder__v1__change__init(out);
	out->kind_case = kind;
	c->change[c->count++] = out;
	return out;
}

static ProtobufCBinaryData pb_addr(struct changes *c, const struct sy_addr *addr)
{
	ProtobufCBinaryData out = {.data = take(c, 16)};
	out.len = sy_addr_to_bytes(addr, out.data);
	return out;
}

static Steelyard__Forwarder__V1__ServiceKey *pb_key(struct changes *c,
                                                    const struct service_key *key)
{
	Steelyard__Forwarder__V1__ServiceKey *out = take(c, sizeof(*out));
	steelyard__forwarder__v1__service_key__init(out);
	out->protocol = (Steelyard__Forwarder__V1__Protocol)key->proto;
	out->port = ntohs(key->vport);
	out->last_port = ntohs(key->last_port);
	out->vip = pb_addr(c, &key->vip);
	return out;
}

pb_service *put_service(struct changes *c, const struct service_key *key, const char *name,
                        int scheduler, const pb_timeouts *timeouts)
{
	Steelyard__Forwarder__V1__Service *s = take(c, sizeof(*s));
	steelyard__forwarder__v1__service__init(s);
	s->key = pb_key(c, key);
	s->name = take(c, strlen(name) + 1);
	memcpy(s->name, name, strlen(name) + 1);
	s->mode = STEELYARD__FORWARDER__V1__MODE__MODE_FNAT;
	s->scheduler = (Steelyard__Forwarder__V1__Scheduler)scheduler;
	if (timeouts) {
		s->timeouts = take(c, sizeof(*timeouts));
		*s->timeouts = *timeouts;
	}
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SERVICE)->put_service = s;
	return s;
}

void set_persistence(struct changes *c, pb_service *s, uint32_t timeout_s, uint32_t prefix4,
                     uint32_t prefix6)
{
	s->persistence = take(c, sizeof(*s->persistence));
	steelyard__forwarder__v1__persistence__init(s->persistence);
	s->persistence->timeout_s = timeout_s;
	s->persistence->prefix4 = prefix4;
	s->persistence->prefix6 = prefix6;
}

void set_client_sessions(struct changes *c, pb_service *s, uint32_t sessions)
{
	s->client_limits = take(c, sizeof(*s->client_limits));
	steelyard__forwarder__v1__client_limits__init(s->client_limits);
	s->client_limits->sessions = sessions;
}

void set_client_limits(struct changes *c, pb_service *s, uint32_t new_per_second, uint32_t burst)
{
	s->client_limits = take(c, sizeof(*s->client_limits));
	steelyard__forwarder__v1__client_limits__init(s->client_limits);
	s->client_limits->new_per_second = new_per_second;
	s->client_limits->burst = burst;
}

void set_resets(struct changes *c, pb_service *s, bool expired, bool down, bool unknown)
{
	s->resets = take(c, sizeof(*s->resets));
	steelyard__forwarder__v1__resets__init(s->resets);
	s->resets->expired = expired;
	s->resets->down = down;
	s->resets->unknown = unknown;
}

void set_mode(struct changes *c, enum mode mode)
{
	c->change[c->count - 1]->put_service->mode = (Steelyard__Forwarder__V1__Mode)mode;
}

void delete_service(struct changes *c, const struct service_key *key)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SERVICE)->delete_service =
	        pb_key(c, key);
}

static Steelyard__Forwarder__V1__Change__ServerOf *server_of(struct changes *c,
                                                             const struct service_key *key,
                                                             const struct sy_addr *addr,
                                                             uint16_t port)
{
	Steelyard__Forwarder__V1__Change__ServerOf *of = take(c, sizeof(*of));
	steelyard__forwarder__v1__change__server_of__init(of);
	of->service = pb_key(c, key);
	of->server = take(c, sizeof(*of->server));
	steelyard__forwarder__v1__server__init(of->server);
	of->server->address = pb_addr(c, addr);
	of->server->port = port;
	return of;
}

pb_server *put_server(struct changes *c, const struct service_key *key, const struct sy_addr *addr,
                      uint16_t port, uint32_t weight, int state)
{
	Steelyard__Forwarder__V1__Change__ServerOf *of = server_of(c, key, addr, port);
	of->server->weight = weight;
	of->server->state = (Steelyard__Forwarder__V1__ServerState)state;
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SERVER)->put_server = of;
	return of->server;
}

void delete_server(struct changes *c, const struct service_key *key, const struct sy_addr *addr,
                   uint16_t port)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SERVER)->delete_server =
	        server_of(c, key, addr, port);
}

static Steelyard__Forwarder__V1__LocalAddress *pb_local(struct changes *c,
                                                        const struct sy_addr *addr)
{
	Steelyard__Forwarder__V1__LocalAddress *out = take(c, sizeof(*out));
	steelyard__forwarder__v1__local_address__init(out);
	out->address = pb_addr(c, addr);
	return out;
}

void put_local(struct changes *c, const struct sy_addr *addr)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_LOCAL_ADDRESS)->put_local_address =
	        pb_local(c, addr);
}

void put_peer_local(struct changes *c, const struct sy_addr *addr)
{
	Steelyard__Forwarder__V1__LocalAddress *local = pb_local(c, addr);
	local->of_peer = true;
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_LOCAL_ADDRESS)->put_local_address =
	        local;
}

void delete_local(struct changes *c, const struct sy_addr *addr)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_LOCAL_ADDRESS)
	        ->delete_local_address = pb_local(c, addr);
}

Steelyard__Forwarder__V1__Snat *put_snat(struct changes *c, const char *name, const char *prefix,
                                         uint32_t length, const char *const *pool, unsigned pools)
{
	Steelyard__Forwarder__V1__Snat *s = take(c, sizeof(*s));
	Steelyard__Forwarder__V1__Prefix *inside = take(c, sizeof(*inside));
	struct sy_addr addr = harness_addr(prefix);
	steelyard__forwarder__v1__snat__init(s);
	steelyard__forwarder__v1__prefix__init(inside);
	s->name = (char *)(uintptr_t)name;
	inside->address = pb_addr(c, &addr);
	inside->length = length;
	s->inside = take(c, sizeof(*s->inside));
	s->inside[s->n_inside++] = inside;
	s->pool = take(c, (pools + 1) * sizeof(*s->pool));
	for (; s->n_pool < pools; s->n_pool++) {
		addr = harness_addr(pool[s->n_pool]);
		s->pool[s->n_pool] = pb_addr(c, &addr);
	}
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SNAT)->put_snat = s;
	return s;
}

void delete_snat(struct changes *c, const char *name)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SNAT)->delete_snat =
	        (char *)(uintptr_t)name;
}

typedef Steelyard__Forwarder__V1__AccessList pb_list;
typedef Steelyard__Forwarder__V1__AccessRule pb_rule;

static Steelyard__Forwarder__V1__Prefix *pb_prefix(struct changes *c, const char *from,
                                                   uint32_t length)
{
	const struct sy_addr addr = harness_addr(from);
	Steelyard__Forwarder__V1__Prefix *p = take(c, sizeof(*p));
	steelyard__forwarder__v1__prefix__init(p);
	p->address = pb_addr(c, &addr);
	p->length = length;
	return p;
}

void prefix_as_mapped(struct changes *c, Steelyard__Forwarder__V1__Prefix *p)
{
	uint8_t *bytes = take(c, 16);
	memset(bytes + 10, 0xff, 2);
	memcpy(bytes + 12, p->address.data, 4);
	p->address = (ProtobufCBinaryData){.data = bytes, .len = 16};
	p->length += 96;
}

pb_list *put_access_list(struct changes *c, const char *name, int otherwise)
{
	pb_list *l = take(c, sizeof(*l));
	steelyard__forwarder__v1__access_list__init(l);
	l->name = (char *)(uintptr_t)name;
	l->otherwise = otherwise;
	l->rules = take(c, 1024 * sizeof(*l->rules));
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_ACCESS_LIST)->put_access_list = l;
	return l;
}

pb_rule *add_access_rule(struct changes *c, pb_list *l, int action, const char *from,
                         uint32_t length)
{
	pb_rule *r = take(c, sizeof(*r));
	steelyard__forwarder__v1__access_rule__init(r);
	r->action = action;
	l->rules[l->n_rules++] = r;
	if (!from)
		return r;
	r->from = take(c, sizeof(*r->from));
	r->from[0] = pb_prefix(c, from, length);
	r->n_from = 1;
	return r;
}

void add_access_from_set(struct changes *c, pb_rule *r, const char *set)
{
	if (!r->from_sets)
		r->from_sets = take(c, 8 * sizeof(*r->from_sets));
	r->from_sets[r->n_from_sets++] = (char *)(uintptr_t)set;
}

Steelyard__Forwarder__V1__AccessSet *put_access_set(struct changes *c, const char *name)
{
	Steelyard__Forwarder__V1__AccessSet *s = take(c, sizeof(*s));
	steelyard__forwarder__v1__access_set__init(s);
	s->name = (char *)(uintptr_t)name;
	s->prefixes = take(c, 4096 * sizeof(*s->prefixes));
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_ACCESS_SET)->put_access_set = s;
	return s;
}

void add_access_prefix(struct changes *c, Steelyard__Forwarder__V1__AccessSet *s, const char *from,
                       uint32_t length)
{
	s->prefixes[s->n_prefixes++] = pb_prefix(c, from, length);
}

void delete_access_set(struct changes *c, const char *name)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_ACCESS_SET)->delete_access_set =
	        (char *)(uintptr_t)name;
}

void set_access_ports(struct changes *c, pb_rule *r, uint32_t first, uint32_t last)
{
	r->ports = take(c, sizeof(*r->ports));
	r->ports[0] = take(c, sizeof(*r->ports[0]));
	r->n_ports = 1;
	steelyard__forwarder__v1__port_range__init(r->ports[0]);
	r->ports[0]->first = first;
	r->ports[0]->last = last;
}

void put_global_access(struct changes *c, const char *name)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_GLOBAL_ACCESS)->put_global_access =
	        (char *)(uintptr_t)name;
}

void delete_access_list(struct changes *c, const char *name)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_ACCESS_LIST)
	        ->delete_access_list = (char *)(uintptr_t)name;
}

typedef Steelyard__Forwarder__V1__Limit pb_limit;

int put_limit_engine;

pb_limit *put_limit(struct changes *c, const char *name, int unit, uint64_t per_second,
                    uint64_t burst)
{
	pb_limit *l = take(c, sizeof(*l));
	steelyard__forwarder__v1__limit__init(l);
	l->name = take(c, strlen(name) + 1);
	memcpy(l->name, name, strlen(name) + 1);
	l->unit = unit;
	l->per_second = per_second;
	l->burst = burst;
	l->engine = put_limit_engine;
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_LIMIT)->put_limit = l;
	return l;
}

void add_limit_service(struct changes *c, pb_limit *l, const struct service_key *key)
{
	if (!l->services)
		l->services = take(c, 64 * sizeof(*l->services));
	l->services[l->n_services++] = pb_key(c, key);
}

void add_limit_vip(struct changes *c, pb_limit *l, const struct sy_addr *vip)
{
	if (!l->vips)
		l->vips = take(c, 64 * sizeof(*l->vips));
	l->vips[l->n_vips++] = pb_addr(c, vip);
}

void add_limit_server(struct changes *c, pb_limit *l, const struct service_key *key,
                      const struct sy_addr *addr, uint16_t port)
{
	Steelyard__Forwarder__V1__ServerKey *server = take(c, sizeof(*server));
	steelyard__forwarder__v1__server_key__init(server);
	server->service = pb_key(c, key);
	server->address = pb_addr(c, addr);
	server->port = port;
	if (!l->servers)
		l->servers = take(c, 64 * sizeof(*l->servers));
	l->servers[l->n_servers++] = server;
}

void set_limit_clients(struct changes *c, pb_limit *l, uint32_t max)
{
	l->clients = take(c, sizeof(*l->clients));
	steelyard__forwarder__v1__limit_clients__init(l->clients);
	l->clients->most = max;
	l->clients->within = take(c, 64 * sizeof(*l->clients->within));
}

void add_limit_within(struct changes *c, pb_limit *l, const char *from, uint32_t length)
{
	l->clients->within[l->clients->n_within++] = pb_prefix(c, from, length);
}

void delete_limit(struct changes *c, const char *name)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_LIMIT)->delete_limit =
	        (char *)(uintptr_t)name;
}

static char *text(struct changes *c, const char *t)
{
	char *copy = take(c, strlen(t) + 1);
	memcpy(copy, t, strlen(t) + 1);
	return copy;
}

static pb_shaping_service *add_shaping_branch(struct changes *c, pb_shaping_tenant *t,
                                              const char *name)
{
	pb_shaping_service *s = take(c, sizeof(*s));
	steelyard__forwarder__v1__shaping_service__init(s);
	s->name = text(c, name);
	s->weight = 1;
	if (!t->services)
		t->services = take(c, 64 * sizeof(*t->services));
	t->services[t->n_services++] = s;
	return s;
}

pb_shaping_tenant *add_shaping_tenant(struct changes *c, pb_shaping *s, const char *name)
{
	pb_shaping_tenant *t = take(c, sizeof(*t));
	steelyard__forwarder__v1__shaping_tenant__init(t);
	t->name = text(c, name);
	t->weight = 1;
	if (!s->tenants)
		s->tenants = take(c, 64 * sizeof(*s->tenants));
	s->tenants[s->n_tenants++] = t;
	add_shaping_branch(c, t, "");
	return t;
}

pb_shaping_service *add_shaping_service(struct changes *c, pb_shaping_tenant *t, const char *name,
                                        const struct service_key *key)
{
	pb_shaping_service *s = add_shaping_branch(c, t, name);
	s->services = take(c, sizeof(*s->services));
	s->services[s->n_services++] = pb_key(c, key);
	return s;
}

pb_shaping_class *add_shaping_class(struct changes *c, pb_shaping *s, const char *name,
                                    uint32_t dscp)
{
	pb_shaping_class *k = take(c, sizeof(*k));
	steelyard__forwarder__v1__shaping_class__init(k);
	k->name = text(c, name);
	k->weight = 1;
	k->queue = 256;
	k->dscp = take(c, sizeof(*k->dscp));
	k->dscp[0] = dscp;
	k->n_dscp = dscp != 0;
	if (!s->classes)
		s->classes = take(c, 64 * sizeof(*s->classes));
	s->classes[s->n_classes++] = k;
	return k;
}

pb_shaping *put_shaping(struct changes *c, const char *port, uint64_t rate, uint64_t burst)
{
	pb_shaping *s = take(c, sizeof(*s));
	steelyard__forwarder__v1__shaping__init(s);
	s->port = text(c, port);
	s->rate = rate;
	s->burst = burst;
	add_shaping_tenant(c, s, "");
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SHAPING)->put_shaping = s;
	return s;
}

void delete_shaping(struct changes *c, const char *port)
{
	change_add(c, STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SHAPING)->delete_shaping =
	        text(c, port);
}

void changes_free(struct changes *c)
{
	arena_free(&c->arena);
	free(c->change);
	*c = (struct changes){0};
}
