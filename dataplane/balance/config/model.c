// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>

#include "access_model.h"
#include "address_set.h"
#include "limit_model.h"
#include "shaping_model.h"
#include "snat_model.h"

typedef Steelyard__Forwarder__V1__Service pb_service;
typedef Steelyard__Forwarder__V1__ServiceKey pb_key;
typedef Steelyard__Forwarder__V1__Server pb_server;

_Static_assert((int)MODE_FNAT == STEELYARD__FORWARDER__V1__MODE__MODE_FNAT &&
                       (int)MODE_DR == STEELYARD__FORWARDER__V1__MODE__MODE_DR &&
                       (int)MODE_NAT == STEELYARD__FORWARDER__V1__MODE__MODE_NAT &&
                       (int)MODE_IPIP == STEELYARD__FORWARDER__V1__MODE__MODE_IPIP &&
                       (int)MODE_SNAT == STEELYARD__FORWARDER__V1__MODE__MODE_SNAT,
               "the API's numbers");

/* A half-closed connection may wait for four minutes (RFC 5382 REQ-5), an echo for one (RFC 5508
 * REQ-2). docs/moving.md compares them with LVS's. */
const uint16_t session_timeout_default[SESSION_STATES] = {
        [SESSION_SYN_SENT] = 10,
        [SESSION_SYN_RECEIVED] = 10,
        [SESSION_ESTABLISHED] = 900,
        [SESSION_FIN_WAIT] = 240,
        [SESSION_CLOSING] = 240,
        [SESSION_TIME_WAIT] = 15,
        [SESSION_RESET] = 5,
        [SESSION_UDP_ONE_WAY] = 30,
        [SESSION_UDP_BOTH_WAYS] = 300,
        [SESSION_ECHO] = 60,
        [SESSION_DYING] = RESET_BOTH_SECONDS,
};

/* ---- ids ------------------------------------------------------------------------------------- */

uint32_t id_alloc(struct id_pool *p)
{
	if (p->count > 0)
		return p->free[--p->count];
	return p->fresh < p->limit ? p->fresh++ : UINT32_MAX;
}

void id_free(struct id_pool *p, uint32_t id)
{
	p->free[p->count++] = id;
}

static bool id_pool_create(struct id_pool *p, uint32_t limit)
{
	*p = (struct id_pool){.free = calloc(limit, sizeof(uint32_t)), .limit = limit};
	return p->free;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

struct rte_hash *model_hash(const char *name, uint32_t entries, uint32_t key_len)
{
	const struct rte_hash_parameters params = {
	        .name = name,
	        .entries = entries,
	        .key_len = key_len,
	        .hash_func = rte_hash_crc,
	        .socket_id = SOCKET_ID_ANY,
	        .extra_flag = RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};
	return rte_hash_create(&params);
}

int model_create(struct sy_balance *b, struct sy_error *err)
{
	struct model *m = calloc(1, sizeof(*m));
	int rc = access_model_create(b, err);
	b->ctl->model = m;
	if (rc == 0)
		rc = limit_model_create(b, err);
	if (rc == 0)
		rc = shaping_model_create(b, err);
	if (rc < 0)
		return rc;
	if (!m)
		return sy_fail(err, ENOMEM, "no memory for the configuration");
	m->service = calloc(b->options.max_services, sizeof(struct model_service *));
	m->by_key = model_hash("sy_model_key", b->options.max_services, sizeof(struct service_key));
	m->address = model_hash("sy_model_address", b->options.max_services + MAX_LOCALS,
	                        sizeof(struct sy_addr));
	m->source = model_hash("sy_model_source", 2 * (b->options.max_servers + SNAT_PREFIXES),
	                       sizeof(struct sy_source));
	m->touched = calloc(b->options.max_services, sizeof(bool));
	m->published_at = calloc(b->options.max_servers, sizeof(uint64_t));
	b->ctl->early = early_create(b);
	if (!m->service || !m->touched || !m->published_at || !m->by_key || !m->address ||
	    !m->source || !b->ctl->early ||
	    !id_pool_create(&m->service_ids, b->options.max_services) ||
	    !id_pool_create(&m->server_ids, b->options.max_servers))
		return sy_fail(err, ENOMEM,
		               "no memory for %u services and %u servers: raise --memory or lower "
		               "--max-services, --max-servers",
		               b->options.max_services, b->options.max_servers);
	return 0;
}

void model_service_free(struct model_service *s)
{
	if (s) {
		free(s->server);
		free(s->snat);
	}
	free(s);
}

void model_count_server(struct model *m, const struct model_service *s,
                        const struct model_server *server, int sign)
{
	m->servers += sign;
	if (mode_is_local(s->mode))
		m->local_servers[sy_addr_is_v4(&server->addr)] += sign;
	if (s->mode == MODE_NAT)
		source_count(m, &(struct sy_source){server->addr, server->port, s->key.proto, 0},
		             sign);
}

void model_destroy(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	access_model_destroy(b);
	limit_model_destroy(b);
	shaping_model_destroy(b);
	if (!m)
		return;
	early_destroy(b->ctl->early);
	b->ctl->early = NULL;
	for (uint32_t id = 0; m->service && id < m->service_ids.fresh; id++)
		model_service_free(m->service[id]);
	for (unsigned i = 0; i < m->touches; i++)
		model_service_free(m->touch[i].before);
	free(m->touch);
	free(m->ramp);
	service_free(m->next);
	free(m->touched);
	free(m->published_at);
	free(m->new_server);
	free(m->service);
	free(m->service_ids.free);
	free(m->server_ids.free);
	rte_hash_free(m->by_key);
	rte_hash_free(m->address);
	rte_hash_free(m->source);
	free(m);
	b->ctl->model = NULL;
}

/* ---- copies of touched services -------------------------------------------------------------- */

static struct model_service *service_copy(const struct model_service *s)
{
	struct model_service *copy = malloc(sizeof(*copy));
	if (!copy)
		return NULL;
	*copy = *s;
	copy->server_capacity = s->servers ? s->servers : 1;
	copy->server = calloc(copy->server_capacity, sizeof(*s->server));
	copy->snat = snat_copy(s->snat);
	if (!copy->server || (s->snat && !copy->snat)) {
		model_service_free(copy);
		return NULL;
	}
	if (s->servers > 0)
		memcpy(copy->server, s->server, s->servers * sizeof(*s->server));
	return copy;
}

/* Reserves capacity for another server, or half as many as there are: services have few, or
 * thousands. */
static bool servers_reserve(struct model_service *s)
{
	if (s->servers < s->server_capacity)
		return true;
	unsigned capacity = s->servers + s->servers / 2 + 1;
	struct model_server *grown = realloc(s->server, capacity * sizeof(*grown));
	if (!grown)
		return false;
	s->server = grown;
	s->server_capacity = capacity;
	return true;
}

bool list_reserve(void **list, unsigned count, unsigned *capacity, size_t size)
{
	if (count < *capacity)
		return true;
	unsigned grown_capacity = *capacity ? 2 * *capacity : 64;
	void *grown = realloc(*list, grown_capacity * size);
	if (!grown)
		return false;
	*list = grown;
	*capacity = grown_capacity;
	return true;
}

int model_touch(struct model *m, uint32_t id, struct sy_error *err)
{
	struct model_service *before = NULL;
	if (m->touched[id])
		return 0;
	if (!list_reserve((void **)&m->touch, m->touches, &m->touch_capacity, sizeof(*m->touch)) ||
	    (m->service[id] && !(before = service_copy(m->service[id]))))
		return sy_fail(err, ENOMEM, "no memory for the transaction");
	m->touch[m->touches++] = (struct model_touch){id, before};
	m->touched[id] = true;
	return 0;
}

static struct model_service *model_find(struct model *m, const struct service_key *key)
{
	void *id;
	return rte_hash_lookup_data(m->by_key, key, &id) < 0 ? NULL : m->service[(uintptr_t)id];
}

static struct model_service *model_find_named(struct model *m, const struct service_key *key,
                                              struct sy_error *err)
{
	char text[SY_ADDR_TEXT], ports[PORTS_TEXT];
	struct model_service *s = model_find(m, key);
	if (!s)
		sy_fail(err, EINVAL, "there is no service %s %s %s",
		        key->proto == SY_PROTO_TCP ? "tcp" : "udp", sy_addr_format(&key->vip, text),
		        ports_format(key, ports));
	return s;
}

/* ---- changes --------------------------------------------------------------------------------- */

static struct model_service *service_add(struct sy_balance *b, const struct service_key *key,
                                         struct sy_error *err)
{
	struct model *m = b->ctl->model;
	if (address_acquire(b, &key->vip, ADDRESS_SET_VIP, err) < 0)
		return NULL;
	struct model_service *s = calloc(1, sizeof(*s));
	uint32_t id = s ? id_alloc(&m->service_ids) : UINT32_MAX;
	if (id == UINT32_MAX) {
		sy_fail(err, s ? ENOSPC : ENOMEM,
		        "no room for another service: there may be %u (--max-services)",
		        m->service_ids.limit);
		goto fail;
	}
	if (model_touch(m, id, err) < 0) {
		id_free(&m->service_ids, id);
		goto fail;
	}
	/* From here on the rollback frees the id. */
	if (rte_hash_add_key_data(m->by_key, key, (void *)(uintptr_t)id) < 0) {
		sy_fail(err, ENOSPC, "no room for another service in the directory");
		goto fail;
	}
	s->key = *key;
	s->id = id;
	m->ranges_touched |= key_is_range(key);
	m->service[id] = s;
	m->services++;
	return s;
fail:
	free(s);
	address_release(b, &key->vip);
	return NULL;
}

static int put_service(struct sy_balance *b, const pb_service *pb, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	struct service_key key;
	struct policy policy;
	uint16_t timeout[SESSION_STATES];
	int rc = read_key(pb->key, &key, err);
	if (rc < 0 || (rc = read_timeouts(pb->timeouts, timeout, err)) < 0 ||
	    (rc = read_policy(pb, &policy, err)) < 0 ||
	    (rc = access_name_read(b, pb->name, pb->access_list, &policy.access, err)) < 0)
		return rc;
	for (const char *c = pb->name; *c; c++)
		if (*c < ' ' || *c > '~')
			return sy_fail(err, EINVAL, "a service's name is printable ASCII");
	if (strlen(pb->name) >= MODEL_NAME)
		return sy_fail(err, EINVAL, "service name \"%.20s…\" is longer than %d bytes",
		               pb->name, MODEL_NAME - 1);
	if (pb->mode != STEELYARD__FORWARDER__V1__MODE__MODE_FNAT &&
	    pb->mode != STEELYARD__FORWARDER__V1__MODE__MODE_DR &&
	    pb->mode != STEELYARD__FORWARDER__V1__MODE__MODE_NAT &&
	    pb->mode != STEELYARD__FORWARDER__V1__MODE__MODE_IPIP)
		return sy_fail(err, EINVAL,
		               "service %s: unknown mode %d; known: fnat, dr, nat, ipip", pb->name,
		               (int)pb->mode);
	struct model_service *s = model_find(m, &key);
	if (s && s->servers > 0 && s->mode != pb->mode)
		return sy_fail(err, EINVAL,
		               "service %s: its mode cannot change while it has servers: delete "
		               "and create it again",
		               pb->name);
	if (!s)
		s = service_add(b, &key, err);
	if (!s)
		return -err->code;
	rc = model_touch(m, s->id, err);
	if (rc < 0)
		return rc;
	memcpy(s->name, pb->name, strlen(pb->name) + 1);
	s->mode = (uint8_t)pb->mode;
	s->policy = policy;
	memcpy(s->timeout, timeout, sizeof(s->timeout));
	return 0;
}

static int delete_service(struct sy_balance *b, const pb_key *pb, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	struct service_key key;
	int rc = read_key(pb, &key, err);
	if (rc < 0)
		return rc;
	struct model_service *s = model_find_named(m, &key, err);
	if (!s)
		return -EINVAL;
	rc = model_touch(m, s->id, err);
	if (rc < 0)
		return rc;
	rte_hash_del_key(m->by_key, &key);
	address_release(b, &key.vip);
	for (unsigned i = 0; i < s->servers; i++)
		model_count_server(m, s, &s->server[i], -1);
	m->services--;
	m->service[s->id] = NULL;
	model_service_free(s);
	return 0;
}

static int read_server(const model_change *c, const Steelyard__Forwarder__V1__Change__ServerOf *pb,
                       struct sy_balance *b, struct model_service **service,
                       struct model_server *out, struct sy_error *err)
{
	struct service_key key;
	int rc = read_key(pb->service, &key, err);
	if (rc < 0)
		return rc;
	*service = model_find_named(b->ctl->model, &key, err);
	if (!*service)
		return -EINVAL;
	if (!pb->server)
		return sy_fail(err, EINVAL, "service %s: the server is missing", (*service)->name);
	if ((pb->server->port == 0 && !key_is_range(&key)) || pb->server->port > UINT16_MAX)
		return sy_fail(err, EINVAL, "service %s: server port %u is not within 1–65535",
		               (*service)->name, pb->server->port);
	*out = (struct model_server){.port = htons((uint16_t)pb->server->port)};
	rc = read_addr(&pb->server->address, "server", &out->addr, err);
	if (rc < 0 || c->kind_case == STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SERVER)
		return rc;
	if (pb->server->weight > UINT16_MAX)
		return sy_fail(err, EINVAL, "service %s: weight %u is not within 0–65535",
		               (*service)->name, pb->server->weight);
	if (pb->server->state < STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP ||
	    pb->server->state > STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_KILL)
		return sy_fail(err, EINVAL, "service %s: unknown server state %d", (*service)->name,
		               (int)pb->server->state);
	if (!mode_is_local((*service)->mode) &&
	    sy_addr_is_v4(&out->addr) != sy_addr_is_v4(&key.vip))
		return sy_fail(
		        err, EINVAL,
		        "service %s: server and VIP must be of the same address family, except "
		        "with fnat and ipip",
		        (*service)->name);
	out->weight = (uint16_t)pb->server->weight;
	out->state = (uint8_t)pb->server->state;
	out->backup = pb->server->backup;
	out->max_sessions = pb->server->max_sessions;
	out->check_mark = pb->server->check_mark;
	return check_read(*service, out->check_mark, err);
}

static struct model_server *server_find(struct model_service *s, const struct model_server *like)
{
	for (unsigned i = 0; i < s->servers; i++)
		if (s->server[i].port == like->port &&
		    sy_addr_equal(&s->server[i].addr, &like->addr))
			return &s->server[i];
	return NULL;
}

/* Refuses a server with an address of this host: its packets would not return through the
 * forwarder. */
static int check_host(struct sy_balance *b, const struct model_service *s,
                      const struct model_server *server, struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	uint8_t mac[6];
	if (!b->ctl->served || address_is_known(b, &server->addr) ||
	    sy_address_use(b->rt, &server->addr, mac) != SY_ADDRESS_HOST)
		return 0;
	return sy_fail(err, EINVAL,
	               "service %s: server %s is an address of this host, which the forwarder "
	               "cannot reach: move the server to another host, or to a network namespace "
	               "with an address of its own",
	               s->name, sy_addr_format(&server->addr, text));
}

/* Refuses a new server that does not fit the service's mode. */
static int check_mode(struct sy_balance *b, const struct model_service *s,
                      const struct model_server *server, struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	if (s->mode != MODE_DR && s->mode != MODE_IPIP)
		return 0;
	uint16_t port = key_is_range(&s->key) ? 0 : s->key.vport;
	if (server->port != port)
		return sy_fail(err, EINVAL,
		               "service %s: server %s port %u: %s changes no ports, so it must be "
		               "the service's, %u%s",
		               s->name, sy_addr_format(&server->addr, text), ntohs(server->port),
		               s->mode == MODE_DR ? "DR" : "IPIP", ntohs(port),
		               port ? "" : " for any of many");
	/* Do not check while a saved configuration is loaded: the server was accepted earlier, and
	 * routes may not be known yet. */
	uint16_t path = b->ctl->served && s->mode == MODE_DR ? sy_path_lookup(b->rt, &server->addr)
	                                                     : SY_PATH_NONE;
	if (path != SY_PATH_NONE && !sy_path_is_on_link(b->rt, path))
		return sy_fail(err, EINVAL,
		               "service %s: server %s is on no network that this host is connected "
		               "to: a router in between would send DR's packets back; use FNAT",
		               s->name, sy_addr_format(&server->addr, text));
	return 0;
}

static int put_server(struct sy_balance *b, const model_change *c, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	struct model_service *s;
	struct model_server request;
	int rc = read_server(c, c->put_server, b, &s, &request, err);
	if (rc < 0 || (rc = model_touch(m, s->id, err)) < 0)
		return rc;
	struct model_server *server = server_find(s, &request);
	if (server) {
		server->weight = request.weight;
		server->state = request.state;
		server->backup = request.backup;
		server->max_sessions = request.max_sessions;
		server->check_mark = request.check_mark;
		return 0;
	}
	rc = check_host(b, s, &request, err);
	if (rc == 0)
		rc = check_mode(b, s, &request, err);
	if (rc < 0)
		return rc;
	if (s->servers == MODEL_SERVERS)
		return sy_fail(err, ENOSPC, "service %s has %u servers, which is the limit",
		               s->name, MODEL_SERVERS);
	if (!servers_reserve(s) || !list_reserve((void **)&m->new_server, m->new_server_count,
	                                         &m->new_server_capacity, sizeof(*m->new_server)))
		return sy_fail(err, ENOMEM, "service %s: no memory for another server", s->name);
	struct endpoint endpoint = {
	        .addr = request.addr,
	        .vip = s->key.vip,
	        .port = request.port,
	        .vport = key_is_range(&s->key) ? 0 : s->key.vport,
	        .service = s->id,
	        .first_port = s->key.vport,
	        .last_port = s->key.last_port,
	        .proto = (uint8_t)s->key.proto,
	        .created = (uint32_t)(balance_now(b) / 1000000000u),
	        .mode = s->mode,
	};
	endpoint_set_transmit_mode(&endpoint);
	request.id = server_id_alloc(b, &endpoint);
	if (request.id == UINT32_MAX)
		return sy_fail(err, ENOSPC,
		               "service %s: no room for another server: there may be %u "
		               "(--max-servers)",
		               s->name, m->server_ids.limit);
	m->new_server[m->new_server_count++] = request.id;
	s->server[s->servers++] = request;
	model_count_server(m, s, &request, 1);
	return 0;
}

static int delete_server(struct sy_balance *b, const model_change *c, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	struct model_service *s;
	struct model_server request;
	char text[SY_ADDR_TEXT];
	int rc = read_server(c, c->delete_server, b, &s, &request, err);
	if (rc < 0)
		return rc;
	struct model_server *server = server_find(s, &request);
	if (!server)
		return sy_fail(err, EINVAL, "service %s has no server %s port %u", s->name,
		               sy_addr_format(&request.addr, text), ntohs(request.port));
	rc = model_touch(m, s->id, err);
	if (rc < 0)
		return rc;
	model_count_server(m, s, server, -1);
	*server = s->server[--s->servers];
	return 0;
}

int model_change_apply(struct sy_balance *b, const model_change *c, struct sy_error *err)
{
	switch (c->kind_case) {
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SERVICE:
		return put_service(b, c->put_service, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SERVICE:
		return delete_service(b, c->delete_service, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SERVER:
		return put_server(b, c, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SERVER:
		return delete_server(b, c, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_LOCAL_ADDRESS:
		return local_put(b, c->put_local_address, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_LOCAL_ADDRESS:
		return local_delete(b, c->delete_local_address, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SNAT:
		return snat_put(b, c->put_snat, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SNAT:
		return snat_delete(b, c->delete_snat, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_ACCESS_LIST:
		return access_list_put(b, c->put_access_list, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_ACCESS_LIST:
		return access_list_delete(b, c->delete_access_list, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_GLOBAL_ACCESS:
		return access_global_put(b, c->put_global_access, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_ACCESS_SET:
		return access_set_put(b, c->put_access_set, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_ACCESS_SET:
		return access_set_delete(b, c->delete_access_set, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_LIMIT:
		return limit_put(b, c->put_limit, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_LIMIT:
		return limit_delete(b, c->delete_limit, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SHAPING:
		return shaping_put(b, c->put_shaping, err);
	case STEELYARD__FORWARDER__V1__CHANGE__KIND_DELETE_SHAPING:
		return shaping_delete(b, c->delete_shaping, err);
	default:
		return sy_fail(err, ENOTSUP,
		               "a change of a kind that this forwarder does not know: upgrade it");
	}
}
