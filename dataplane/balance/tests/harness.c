// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eth_ring.h>

#include "../../forwarder/pipeline.h"
#include "../grow.h"
#include "ids.h"
#include "must.h"
#include "whole.h"

#define START_NS   UINT64_C(100000000000000)
#define SECOND_NS  UINT64_C(1000000000)
#define FRAME_SIZE 1000 /* changes in one request */

const uint8_t harness_mac[HARNESS_PORTS][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};

const char *const harness_port_name[HARNESS_PORTS] = {"net_ring_wan", "net_ring_lan"};

/* The devices outlive a harness, because EAL accepts a name only once. */
static void port_make(unsigned i, struct rte_ring *rx[HARNESS_QUEUES],
                      struct rte_ring *tx[HARNESS_QUEUES])
{
	char name[32];
	snprintf(name, sizeof(name), "harness_tx%u", i);
	struct rte_ring *all = rte_ring_create(name, HARNESS_RING, SOCKET_ID_ANY, 0);
	for (unsigned q = 0; q < HARNESS_QUEUES; q++) {
		snprintf(name, sizeof(name), "harness_rx%u_%u", i, q);
		rx[q] = rte_ring_create(name, q ? 2 : HARNESS_RING, SOCKET_ID_ANY, 0);
		tx[q] = all;
		must(rx[q] && tx[q], "no memory for rings");
	}
	must(rte_eth_from_rings(harness_port_name[i] + strlen("net_ring_"), rx, HARNESS_QUEUES, tx,
	                        HARNESS_QUEUES, 0) >= 0,
	     "no ring device");
}

static void ports_make(struct harness *r, struct sy_runtime_options *o, unsigned queues)
{
	static struct rte_ring *rx[HARNESS_PORTS][HARNESS_QUEUES],
	        *tx[HARNESS_PORTS][HARNESS_QUEUES];
	static const uint16_t mtu[HARNESS_PORTS] = {HARNESS_WAN_MTU, HARNESS_LAN_MTU};
	for (unsigned i = 0; i < HARNESS_PORTS; i++) {
		if (!rx[i][0])
			port_make(i, rx[i], tx[i]);
		r->rx[i] = rx[i][0];
		r->tx[i] = tx[i][0];
		o->port[i] = (struct sy_port_options){
		        .backend = SY_PORT_ETHDEV, .mtu = mtu[i], .queues = queues};
		snprintf(o->port[i].name, sizeof(o->port[i].name), "%s", harness_port_name[i]);
		memcpy(o->port[i].mac, harness_mac[i], sizeof(harness_mac[i]));
	}
	o->ports = HARNESS_PORTS;
}

static void clock_set(struct harness *r)
{
	for (unsigned i = 0; i < r->rt->workers; i++) {
		struct sy_worker *w = &r->rt->worker[i];
		w->private->clock = (struct worker_clock){.ns = r->now_ns};
		w->private->poll_ns = r->now_ns;       /* no stall */
		w->private->round_cycles = UINT64_MAX; /* harness_advance() starts the rounds */
		w->private->now_s = (uint32_t)(r->now_ns / SECOND_NS);
		w->now_ns = r->now_ns;
	}
}

int harness_open(struct harness *r, const struct harness_options *given, struct sy_error *err)
{
	*r = (struct harness){.now_ns = given->start_ns ? given->start_ns : START_NS};
	struct sy_balance_options options = {
	        .sessions = given->sessions ? given->sessions : 64 * SY_SLOTS,
	        .sessions_limit = given->sessions_limit ? given->sessions_limit : 1,
	        .store_directory = given->store_directory,
	        .store_name = "harness",
	        .inherit = given->ticket,
	        .slot_key = &sy_slot_key_fixed,
	        .state_directory = given->state_directory,
	        .build = "test",
	        .event_device = given->event_device,
	        .event_model = given->event_model,
	        .event_capacity = given->event_capacity,
	        .event_at_start = given->event_at_start,
	        .max_services = given->max_services ? given->max_services : 1024,
	        .max_servers = given->max_servers ? given->max_servers : 4096,
	};
	if (given->peers)
		options.peers = *given->peers;
	struct sy_runtime_options o = {
	        .workers = given->workers ? given->workers : 1,
	        .memory_mb = given->memory_mb ? given->memory_mb : 128,
	        .mbufs = given->mbufs ? given->mbufs : HARNESS_MBUFS,
	        .huge = given->huge,
	        .pipeline = given->pipeline ? given->pipeline : pipeline,
	        .round = sy_balance_round,
	        .poll = sy_balance_poll,
	        .is_idle = sy_balance_is_idle,
	        .wake_ns = sy_balance_wake_ns,
	        .refused = sy_balance_refused,
	        .neigh = given->neigh,
	        .neighs = given->neighs,
	        .route = given->route,
	        .routes = given->routes,
	};
	sy_log_set_level(SY_LOG_ERROR);
	int rc = sy_balance_create(&options, &r->b, err);
	if (rc < 0)
		return rc;
	o.app = r->b;
	o.path_half = sy_balance_path_half(r->b);
	rc = eal_start(&o, err);
	if (rc == 0) {
		ports_make(r, &o, given->queues ? given->queues : 1);
		rc = sy_runtime_open(&o, &r->rt, err);
	}
	if (rc == 0)
		rc = sy_balance_attach(r->b, r->rt, err);
	if (rc == 0 && given->meanwhile)
		given->meanwhile(given->meanwhile_ctx);
	if (rc == 0 && given->ticket)
		rc = sy_balance_acquire(r->b, given->ticket, err);
	if (rc == 0)
		rc = sy_balance_adopt(r->b, given->adopters ? given->adopters : 1, err);
	if (rc == 0)
		rc = sy_runtime_bind(r->rt, err);
	if (rc < 0) {
		harness_close(r);
		return rc;
	}
	clock_set(r);
	return 0;
}

void harness_close(struct harness *r)
{
	if (r->rt) {
		sy_balance_detach(r->b);
		for (unsigned i = 0; i < HARNESS_PORTS; i++) {
			struct rte_mbuf *m;
			while (!rte_ring_dequeue(r->rx[i], (void **)&m) ||
			       !rte_ring_dequeue(r->tx[i], (void **)&m))
				rte_pktmbuf_free(m);
		}
		sy_runtime_close(r->rt);
	}
	sy_balance_destroy(r->b);
	*r = (struct harness){0};
}

void harness_discard(struct harness *r)
{
	if (r->b) {
		session_store_discard(inspect_store(r->b));
		inspect_forget_store(r->b);
	}
	harness_close(r);
}

void harness_crash(struct harness *r)
{
	inspect_hold(r->b, true); /* a kill writes no last snapshot */
	harness_close(r);
}

void harness_stop(struct harness *r, uint64_t ticket)
{
	sy_balance_seal(r->b, ticket);
	harness_close(r);
}

/* ---- packets and time ------------------------------------------------------------------------ */

void harness_address(struct rte_mbuf *m, unsigned port)
{
	uint8_t *mac = rte_pktmbuf_mtod(m, uint8_t *);
	if (rte_pktmbuf_data_len(m) >= 6 && !memcmp(mac, harness_mac[0], 6))
		memcpy(mac, harness_mac[port], 6);
}

bool harness_inject(struct harness *r, unsigned port, const void *frame, uint32_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(r->rt->pool);
	if (!m)
		return false;
	char *at = rte_pktmbuf_append(m, (uint16_t)len);
	if (at) {
		memcpy(at, frame, len);
		harness_address(m, port);
	}
	if (!at || rte_ring_enqueue(r->rx[port], m) < 0) {
		rte_pktmbuf_free(m);
		return false;
	}
	return true;
}

static struct port_ops crowded[HARNESS_PORTS];
static unsigned crowd[HARNESS_PORTS][2];

static unsigned crowd_waiting(struct port *p, unsigned queue, unsigned *room)
{
	unsigned *next = crowd[p->id], now = next[0];
	next[0] = next[1];
	*room = HARNESS_CROWD;
	return now;
}

void harness_crowd(struct harness *r, unsigned port, unsigned waiting, unsigned later)
{
	struct port *p = r->rt->port[port];
	crowd[port][0] = waiting;
	crowd[port][1] = later;
	if (p->ops == &crowded[port])
		return;
	crowded[port] = *p->ops;
	crowded[port].waiting = crowd_waiting;
	p->ops = &crowded[port];
}

struct rte_mbuf *harness_collect(struct harness *r, unsigned port)
{
	struct rte_mbuf *m;
	return rte_ring_dequeue(r->tx[port], (void **)&m) < 0 ? NULL : m;
}

bool harness_poll_worker(struct harness *r, unsigned w)
{
	return worker_poll(&r->rt->worker[w]);
}

void harness_poll(struct harness *r)
{
	bool work;
	do {
		work = false;
		for (unsigned i = 0; i < r->rt->workers; i++)
			work |= harness_poll_worker(r, i);
	} while (work);
}

void harness_attend(struct harness *r)
{
	workers_answer(r->rt);
	routes_flush(r->rt);
	balance_tick(r->b);
	grow_tick(r->b);
	rcu_poll(r->rt->rcu);
}

void harness_advance(struct harness *r, uint64_t ns)
{
	while (ns > 0) {
		uint64_t step = ns < SECOND_NS ? ns : SECOND_NS;
		ns -= step;
		r->now_ns += step;
		clock_set(r);
		for (unsigned i = 0; i < r->rt->workers; i++) {
			unresolved_update(&r->rt->worker[i]);
			/* the rounds that one sweep takes: there are a hundred per second */
			uint64_t passes = inspect_worker(r->b, i)->passes;
			while (inspect_worker(r->b, i)->passes == passes)
				sy_balance_round(&r->rt->worker[i]);
		}
		harness_poll(r);
		harness_attend(r);
	}
}

uint64_t harness_drops(const struct harness *r, enum sy_drop reason)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < r->rt->workers; i++)
		n += r->rt->worker[i].counters.drop[reason];
	return n;
}

/* ---- control --------------------------------------------------------------------------------- */

struct sy_addr harness_addr(const char *text)
{
	struct sy_addr a;
	must(sy_addr_parse(text, &a) == 0, text);
	return a;
}

struct sy_static_route harness_route(unsigned port, const char *prefix, uint8_t len,
                                     const char *via)
{
	struct sy_static_route r = {.prefix = harness_addr(prefix), .prefix_len = len};
	snprintf(r.port, sizeof(r.port), "%s", harness_port_name[port]);
	if (via)
		r.via = harness_addr(via);
	return r;
}

struct sy_static_neigh harness_neighbour(unsigned port, struct sy_addr addr, uint8_t last)
{
	struct sy_static_neigh n = {.addr = addr, .mac = {2, 0, 0, 1, (uint8_t)port, last}};
	snprintf(n.port, sizeof(n.port), "%s", harness_port_name[port]);
	return n;
}

struct service_key harness_key(const char *vip, uint16_t port, uint8_t proto)
{
	return (struct service_key){harness_addr(vip), htons(port), proto, 0, 0};
}

static void on_reply(void *ctx, const uint8_t *bytes, size_t len)
{
	pb_response **out = ctx;
	must(!*out, "two replies to one request");
	*out = steelyard__forwarder__v1__response__unpack(NULL, len, bytes);
	must(*out, "a reply that cannot be read");
}

pb_response *harness_request(struct harness *r, pb_request *q)
{
	static uint64_t id;
	pb_response *response = NULL;
	q->version = STEELYARD__FORWARDER__V1__VERSION__VERSION_CURRENT;
	q->id = ++id;
	size_t len = steelyard__forwarder__v1__request__get_packed_size(q);
	uint8_t *bytes = malloc(len + 1);
	must(bytes, "no memory for a request");
	steelyard__forwarder__v1__request__pack(q, bytes);
	sy_balance_request(r->b, bytes, len, on_reply, &response);
	free(bytes);
	must(response && response->id == q->id, "a request without its reply");
	return response;
}

unsigned harness_warnings(struct harness *r, const char *text)
{
	Steelyard__Forwarder__V1__StatusRequest ask =
	        STEELYARD__FORWARDER__V1__STATUS_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	unsigned count = 0;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS;
	q.status = &ask;
	pb_response *response = harness_request(r, &q);
	for (size_t i = 0; i < response->status->n_warnings; i++)
		count += strstr(response->status->warnings[i], text) != NULL;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return count;
}

/* Sends part of the list of changes; commit: the last part. */
static bool send_changes(struct harness *r, pb_change **change, size_t count, bool commit)
{
	Steelyard__Forwarder__V1__ApplyRequest apply =
	        STEELYARD__FORWARDER__V1__APPLY_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	apply.n_changes = count;
	apply.changes = change;
	apply.commit = commit;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_APPLY;
	q.apply = &apply;
	pb_response *response = harness_request(r, &q);
	bool ok = !response->error;
	if (!ok) {
		snprintf(r->error, sizeof(r->error), "%s", response->error->text);
		r->code = response->error->code;
		r->change_index = response->error->change_index;
	}
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return ok;
}

bool harness_commit(struct harness *r, struct changes *c)
{
	bool ok = true;
	size_t at = 0;
	for (; ok && c->count - at > FRAME_SIZE; at += FRAME_SIZE)
		ok = send_changes(r, c->change + at, FRAME_SIZE, false);
	if (ok)
		ok = send_changes(r, at ? c->change + at : c->change, c->count - at, true);
	changes_free(c);
	return ok;
}

uint8_t *harness_config(struct harness *r, size_t *len)
{
	uint8_t *out = NULL;
	uint32_t cursor = 0;
	*len = 0;
	do {
		Steelyard__Forwarder__V1__GetConfigRequest get =
		        STEELYARD__FORWARDER__V1__GET_CONFIG_REQUEST__INIT;
		pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
		get.cursor = cursor;
		q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_GET_CONFIG;
		q.get_config = &get;
		pb_response *response = harness_request(r, &q);
		must(!response->error, "the configuration cannot be read");
		Steelyard__Forwarder__V1__Config *config = response->get_config;
		cursor = config->next_cursor;
		config->revision = 0;
		size_t piece = steelyard__forwarder__v1__config__get_packed_size(config);
		out = realloc(out, *len + piece + 1);
		must(out, "no memory for a configuration");
		*len += steelyard__forwarder__v1__config__pack(config, out + *len);
		steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	} while (cursor);
	return out;
}

struct sy_balance_totals harness_totals(const struct harness *r)
{
	struct sy_balance_totals totals;
	sy_balance_get_totals(r->b, &totals);
	return totals;
}
