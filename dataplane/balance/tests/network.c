// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <arpa/inet.h>
#include <endian.h>
#include <math.h>
#include <stdlib.h>

#define SERVER_PORT 0x5000 /* 80, network order */
#define VIP_PORT    0x5000
#define PROTO_TCP   6

uint64_t network_random(struct network *n)
{
	uint64_t z = n->random += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static struct sy_addr address_make(const struct network *n, uint32_t v4_net, uint64_t v6_net,
                                   uint64_t host)
{
	if (!n->v6)
		return sy_addr_v4(htonl(v4_net + (uint32_t)host));
	return (struct sy_addr){.d = {htobe64(v6_net), htobe64(host)}};
}

bool network_init(struct network *n, unsigned family, uint64_t sessions, uint64_t seed)
{
	const double ports = 65536.0 - 1024;

	*n = (struct network){.random = seed, .v6 = family == 6};
	n->local_count = sessions > 20000000 ? NETWORK_LOCALS : 8;
	n->server_count = (uint32_t)ceil((double)sessions * 1.5 / (ports * n->local_count));
	if (n->server_count < 16)
		n->server_count = 16;
	n->servers = calloc(n->server_count, sizeof(*n->servers));
	if (n->servers == NULL)
		return false;
	/* 10.0.0.0, fd00::; 192.0.2.0, 2001:db8:2:: */
	for (uint32_t i = 0; i < n->server_count; i++)
		n->servers[i] = address_make(n, 0x0a000001, 0xfd00000000000000, i + 1);
	for (unsigned i = 0; i < n->local_count; i++) {
		n->locals[i] = address_make(n, 0xc0000201, 0x20010db800020000, i + 1);
		n->local_ids[i] = (uint8_t)i;
	}
	n->vip = address_make(n, 0xc6336401, 0x20010db800010000, 1);
	return true;
}

void network_use(struct network *n, struct session_store *store)
{
	n->store = store;
	n->key = *session_store_key(store);
}

void network_free(struct network *n)
{
	free(n->servers);
}

static struct sy_tuple client_tuple_random(struct network *n)
{
	uint64_t r = network_random(n);
	struct sy_tuple t = {.dst = n->vip, .dport = VIP_PORT, .proto = PROTO_TCP};

	t.sport = (uint16_t)(r >> 48);
	t.src = n->v6 ? (struct sy_addr){.d = {htobe64(0x2001000000000000 | (r & 0xffffffffff)),
	                                       network_random(n)}}
	              : sy_addr_v4((uint32_t)r);
	return t;
}

struct sy_tuple network_client_tuple(const struct network *n, const struct session *hot)
{
	return (struct sy_tuple){.src = hot->client,
	                         .dst = n->vip,
	                         .sport = hot->client_port,
	                         .dport = VIP_PORT,
	                         .proto = PROTO_TCP};
}

struct sy_tuple network_server_tuple(const struct network *n, const struct session *hot)
{
	return (struct sy_tuple){.src = n->servers[hot->server],
	                         .dst = n->locals[hot->local],
	                         .sport = SERVER_PORT,
	                         .dport = hot->local_port,
	                         .proto = PROTO_TCP};
}

/* ---- verification, as a packet is verified --------------------------------------------------- */

static bool client_match(const void *ctx, const struct session *candidate,
                         enum session_direction direction)
{
	const struct sy_tuple *tuple = ctx;
	return direction == SESSION_CLIENT && candidate->client_port == tuple->sport &&
	       sy_addr_equal(&candidate->client, &tuple->src);
}

struct port_search {
	struct session_port_search search;
	const struct network *n;
};

static bool server_match(const void *ctx, const struct session *candidate,
                         enum session_direction direction)
{
	const struct port_search *s = SY_CONTAINER_OF(ctx, struct port_search, search);
	return direction == SESSION_SERVER && candidate->local_port == s->search.reply.dport &&
	       candidate->local == s->search.local &&
	       sy_addr_equal(&s->n->servers[candidate->server], &s->search.reply.src);
}

struct packet_match {
	const struct network *n;
	const struct sy_tuple *tuple;
};

static bool packet_match(const void *ctx, const struct session *candidate,
                         enum session_direction direction)
{
	const struct packet_match *m = ctx;

	if (direction == SESSION_CLIENT)
		return client_match(m->tuple, candidate, direction);
	return candidate->local_port == m->tuple->dport &&
	       sy_addr_equal(&m->n->locals[candidate->local], &m->tuple->dst) &&
	       sy_addr_equal(&m->n->servers[candidate->server], &m->tuple->src);
}

uint32_t network_find(const struct network *n, const struct session_table *t, uint32_t guess,
                      uint64_t hash, const struct sy_tuple *tuple, enum session_direction *from)
{
	const struct packet_match m = {n, tuple};

	return session_find_guessed(t->index, guess, hash, packet_match, &m, from);
}

bool network_verify(const struct network *n, const struct session_table *t, uint32_t record)
{
	const struct session *hot = session_at(t, record);
	struct sy_tuple client = network_client_tuple(n, hot);
	struct port_search server = {
	        .search = {.local = hot->local, .reply = network_server_tuple(n, hot)}, .n = n};
	uint64_t client_hash = sy_hash_tuple(&n->key, &client);
	uint64_t server_hash = sy_hash_tuple(&n->key, &server.search.reply);
	enum session_direction from_client = SESSION_SERVER, from_server = SESSION_CLIENT;

	return session_find(t->index, client_hash, client_match, &client, &from_client) == record &&
	       from_client == SESSION_CLIENT &&
	       session_find(t->index, server_hash, server_match, &server.search, &from_server) ==
	               record &&
	       from_server == SESSION_SERVER;
}

/* ---- creation and end ------------------------------------------------------------------------ */

enum network_outcome network_create(struct network *n, struct session_table **table,
                                    uint32_t *record)
{
	struct sy_tuple tuple = client_tuple_random(n);
	uint8_t slot = sy_slot_of(&tuple.src, tuple.sport);
	struct session_table *t = session_store_table(n->store, slot);
	uint64_t client_hash = sy_hash_tuple(&n->key, &tuple);
	enum session_direction direction;

	if (session_find(t->index, client_hash, client_match, &tuple, &direction) != SESSION_NONE)
		return NETWORK_KNOWN;
	uint32_t server = (uint32_t)(network_random(n) % n->server_count);
	struct port_search port = {.search = {.locals = n->locals,
	                                      .local_ids = n->local_ids,
	                                      .local_count = n->local_count,
	                                      .home = sy_slot_hash(&tuple.src) % n->local_count,
	                                      .reply = {.src = n->servers[server],
	                                                .sport = SERVER_PORT,
	                                                .proto = PROTO_TCP}},
	                           .n = n};
	if (!session_find_port(t, &n->key, &port.search, server_match))
		return NETWORK_NO_PORT;
	const struct session hot = {
	        .client = tuple.src,
	        .client_port = tuple.sport,
	        .local_port = port.search.reply.dport,
	        .server = server & 0xffffff,
	        .local = port.search.local,
	        .delta = (uint16_t)port.search.server_hash,
	        .seen = n->seen,
	        .state = SESSION_ESTABLISHED,
	};
	*table = t;
	*record = session_insert(t, &hot, &(struct session_cold){0}, client_hash,
	                         port.search.server_hash);
	return *record == SESSION_NONE ? NETWORK_FULL : NETWORK_INSERTED;
}

void network_remove(const struct network *n, struct session_table *t, uint32_t record)
{
	struct sy_tuple client = network_client_tuple(n, session_at(t, record));
	struct sy_tuple server = network_server_tuple(n, session_at(t, record));

	session_remove(t, record, sy_hash_tuple(&n->key, &client), sy_hash_tuple(&n->key, &server));
}

/* ---- validation ------------------------------------------------------------------------------ */

static enum session_result validator(void *ctx, uint8_t slot, struct session *hot,
                                     const struct session_cold *cold, uint32_t idle_s,
                                     struct sy_tuple *client, struct sy_tuple *server)
{
	const struct network *n = ctx;

	if (hot->server >= n->server_count || hot->server < n->servers_gone)
		return SESSION_SERVER_GONE;
	if (hot->local >= n->local_count || hot->local < n->locals_gone)
		return SESSION_LOCAL_GONE;
	if (n->timeout_s != 0 && idle_s > n->timeout_s)
		return SESSION_EXPIRED;
	hot->path = 0;
	*client = network_client_tuple(n, hot);
	*server = network_server_tuple(n, hot);
	return SESSION_KEPT;
}

static bool same(void *ctx, const struct session *a, const struct session_cold *a_cold,
                 const struct session *b, const struct session_cold *b_cold,
                 enum session_direction side)
{
	if (side == SESSION_CLIENT)
		return a->client_port == b->client_port && sy_addr_equal(&a->client, &b->client);
	return a->local_port == b->local_port && a->local == b->local && a->server == b->server;
}

struct session_validator network_validator(const struct network *n)
{
	return (struct session_validator){(void *)(uintptr_t)n, validator, same};
}
