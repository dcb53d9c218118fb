// SPDX-License-Identifier: Apache-2.0
/* A balancer for tests: the real pipeline on ports that are rings. One thread drives it and acts as
 * worker and control thread alternately. The clock moves only when a test advances it, so a run
 * depends only on its input.
 *
 * clients ── "wan" (port 0) ── balancer ── "lan" (port 1) ── servers */
#ifndef HARNESS_H
#define HARNESS_H

#include <forwarder.pb-c.h>
#include <rte_ring.h>

#include "../../runtime/runtime.h"
#include "arena.h"
#include "balance.h"
#include "inspect.h"

#define HARNESS_PORTS 2
#define HARNESS_WAN   0
#define HARNESS_LAN   1
/* Seconds until the id of a removed object is free again. */
#define HARNESS_RETIRED (RESET_BOTH_SECONDS + 9)
#define HARNESS_WAN_MTU 1500
#define HARNESS_LAN_MTU 1400
#define HARNESS_QUEUES  3
#define HARNESS_RING    4096 /* packets between a port and the test */
/* Few: creating the packet buffers takes most of the time that a balancer needs to open, and tests
 * that damage a file byte by byte open hundreds of balancers. */
#define HARNESS_MBUFS 2047

typedef Steelyard__Forwarder__V1__Change pb_change;
typedef Steelyard__Forwarder__V1__Request pb_request;
typedef Steelyard__Forwarder__V1__Response pb_response;
typedef Steelyard__Forwarder__V1__Server pb_server;
typedef Steelyard__Forwarder__V1__Service pb_service;
typedef Steelyard__Forwarder__V1__Timeouts pb_timeouts;

struct harness_options {
	unsigned workers;  /* 0: 1 */
	unsigned queues;   /* per port, up to HARNESS_QUEUES; 0: 1. Packets arrive at the first */
	uint64_t sessions; /* 0: 64 per slot */
	uint64_t sessions_limit;            /* 0: the tables do not grow */
	unsigned mbufs;                     /* 0: HARNESS_MBUFS */
	unsigned memory_mb;                 /* also sizes the route tables; 0: 128 */
	bool huge;                          /* all memory on huge pages */
	uint32_t max_services, max_servers; /* 0: 1024, 4096 */
	const char *state_directory;
	const char *store_directory; /* for the session file; NULL: sessions end with the harness */
	uint64_t ticket;             /* not 0: takes over from a harness sealed with this ticket */
	void (*meanwhile)(
	        void *ctx); /* with a ticket: called when prepared, before anything is taken over */
	void *meanwhile_ctx;
	unsigned adopters;                      /* threads; 0: 1 */
	uint64_t start_ns;                      /* initial clock value; 0: the default */
	const struct sy_stage *pipeline;        /* NULL: the forwarder's */
	const char *event_device, *event_model; /* as in struct sy_balance_options */
	unsigned event_capacity;                /* likewise */
	bool event_at_start;                    /* likewise */
	const struct sy_peers_options *peers;   /* NULL: none */
	struct sy_static_neigh *neigh;
	unsigned neighs;
	struct sy_static_route *route;
	unsigned routes;
};

struct harness {
	struct sy_runtime *rt;
	struct sy_balance *b;
	/* As the balancer sees them. All queues of a port send to one ring. */
	struct rte_ring *rx[HARNESS_PORTS], *tx[HARNESS_PORTS];
	uint64_t now_ns;
	/* Error of the last refused change. */
	char error[512];
	uint32_t change_index;
	Steelyard__Forwarder__V1__Code code;
};

extern const uint8_t harness_mac[HARNESS_PORTS][6];
/* A route out of a port; via: the router's address, NULL: the destinations are on link. */
struct sy_static_route harness_route(unsigned port, const char *prefix, uint8_t len,
                                     const char *via);
/* A neighbour at a port; last: the last byte of its MAC. */
struct sy_static_neigh harness_neighbour(unsigned port, struct sy_addr addr, uint8_t last);

int harness_open(struct harness *r, const struct harness_options *o, struct sy_error *err);
/* Leaves EAL and the rings for the next harness. */
void harness_close(struct harness *r);
/* Like harness_close(), and deletes the session file. */
void harness_discard(struct harness *r);
/* Like harness_close() after a SIGKILL: nothing is saved or sealed. */
void harness_crash(struct harness *r);
/* Like harness_close() after sealing the tables; ticket 0: a clean stop. */
void harness_stop(struct harness *r, uint64_t ticket);

/* Readdresses a frame sent to the first port's MAC: sets the MAC of the port it arrives at. */
void harness_address(struct rte_mbuf *m, unsigned port);
/* Puts a frame into a port's receive queue; false: no buffer, or the queue is full. */
bool harness_inject(struct harness *r, unsigned port, const void *frame, uint32_t len);
/* The oldest packet that a port has sent; NULL: none. The caller frees it. */
struct rte_mbuf *harness_collect(struct harness *r, unsigned port);
#define HARNESS_CROWD 2048
/* From now on, the port's device reports this many waiting packets after a burst, at most
 * HARNESS_CROWD: `waiting` at the next query, then `later`. */
void harness_crowd(struct harness *r, unsigned port, unsigned waiting, unsigned later);
/* One poll of worker w: one burst from each of its queues. */
bool harness_poll_worker(struct harness *r, unsigned w);
/* Polls all workers until no packet moves. */
void harness_poll(struct harness *r);
/* The control thread's periodic work: retired ids, RCU, neighbours, routes. */
void harness_attend(struct harness *r);
/* Advances the clock in steps of at most a second, each with a round of every worker. */
void harness_advance(struct harness *r, uint64_t ns);
uint64_t harness_drops(const struct harness *r, enum sy_drop reason);

/* ---- control --------------------------------------------------------------------------------- */

/* Changes under construction, all on one arena. */
struct changes {
	struct arena arena;
	pb_change **change;
	size_t count, capacity;
};

/* Port in host order. */
struct service_key harness_key(const char *vip, uint16_t port, uint8_t proto);
struct sy_addr harness_addr(const char *text);

/* The caller can set further fields in the result until the commit. */
pb_service *put_service(struct changes *c, const struct service_key *key, const char *name,
                        int scheduler, const pb_timeouts *timeouts);
void set_persistence(struct changes *c, pb_service *s, uint32_t timeout_s, uint32_t prefix4,
                     uint32_t prefix6);
void set_client_limits(struct changes *c, pb_service *s, uint32_t new_per_second, uint32_t burst);
void set_client_sessions(struct changes *c, pb_service *s, uint32_t sessions);
void set_resets(struct changes *c, pb_service *s, bool expired, bool down, bool unknown);
/* Sets the mode of the service that was put last; the default is FNAT. */
void set_mode(struct changes *c, enum mode mode);
void delete_service(struct changes *c, const struct service_key *key);
/* state: the API's UP, DRAIN or DOWN. */
pb_server *put_server(struct changes *c, const struct service_key *key, const struct sy_addr *addr,
                      uint16_t port, uint32_t weight, int state);
void delete_server(struct changes *c, const struct service_key *key, const struct sy_addr *addr,
                   uint16_t port);
void put_local(struct changes *c, const struct sy_addr *addr);
void put_peer_local(struct changes *c, const struct sy_addr *addr);
void delete_local(struct changes *c, const struct sy_addr *addr);
/* An SNAT rule with one inside network. */
Steelyard__Forwarder__V1__Snat *put_snat(struct changes *c, const char *name, const char *prefix,
                                         uint32_t length, const char *const *pool, unsigned pools);
void delete_snat(struct changes *c, const char *name);
/* An access list without rules; up to 1024 can be added. */
Steelyard__Forwarder__V1__AccessList *put_access_list(struct changes *c, const char *name,
                                                      int otherwise);
/* from NULL: all clients. */
Steelyard__Forwarder__V1__AccessRule *add_access_rule(struct changes *c,
                                                      Steelyard__Forwarder__V1__AccessList *l,
                                                      int action, const char *from,
                                                      uint32_t length);
void set_access_ports(struct changes *c, Steelyard__Forwarder__V1__AccessRule *r, uint32_t first,
                      uint32_t last);
/* Lets a rule match the clients of a set too; up to 8 can be added. */
void add_access_from_set(struct changes *c, Steelyard__Forwarder__V1__AccessRule *r,
                         const char *set);
/* A set without prefixes; up to 4096 can be added. */
Steelyard__Forwarder__V1__AccessSet *put_access_set(struct changes *c, const char *name);
void add_access_prefix(struct changes *c, Steelyard__Forwarder__V1__AccessSet *s, const char *from,
                       uint32_t length);
void delete_access_set(struct changes *c, const char *name);
void put_global_access(struct changes *c, const char *name);
void delete_access_list(struct changes *c, const char *name);
/* The engine of limits that put_limit() makes. */
extern int put_limit_engine;
/* A limit that concerns all services, until services, VIPs or servers are added (up to 64 each). */
Steelyard__Forwarder__V1__Limit *put_limit(struct changes *c, const char *name, int unit,
                                           uint64_t per_second, uint64_t burst);
void add_limit_service(struct changes *c, Steelyard__Forwarder__V1__Limit *l,
                       const struct service_key *key);
void add_limit_vip(struct changes *c, Steelyard__Forwarder__V1__Limit *l,
                   const struct sy_addr *vip);
void add_limit_server(struct changes *c, Steelyard__Forwarder__V1__Limit *l,
                      const struct service_key *key, const struct sy_addr *addr, uint16_t port);
/* A bucket for each client; most: as in the API. */
void set_limit_clients(struct changes *c, Steelyard__Forwarder__V1__Limit *l, uint32_t max);
/* Adds a prefix of clients, up to 64. */
void add_limit_within(struct changes *c, Steelyard__Forwarder__V1__Limit *l, const char *from,
                      uint32_t length);
void delete_limit(struct changes *c, const char *name);
/* Shaping of a port, with a tenant for others; it needs a class. */
typedef Steelyard__Forwarder__V1__Shaping pb_shaping;
typedef Steelyard__Forwarder__V1__ShapingTenant pb_shaping_tenant;
typedef Steelyard__Forwarder__V1__ShapingService pb_shaping_service;
typedef Steelyard__Forwarder__V1__ShapingClass pb_shaping_class;
pb_shaping *put_shaping(struct changes *c, const char *port, uint64_t rate, uint64_t burst);
pb_shaping_class *add_shaping_class(struct changes *c, pb_shaping *s, const char *name,
                                    uint32_t dscp);
pb_shaping_tenant *add_shaping_tenant(struct changes *c, pb_shaping *s, const char *name);
pb_shaping_service *add_shaping_service(struct changes *c, pb_shaping_tenant *t, const char *name,
                                        const struct service_key *key);
void delete_shaping(struct changes *c, const char *port);
extern const char *const harness_port_name[HARNESS_PORTS];
/* Writes an IPv4 prefix as an IPv4-mapped IPv6 one. */
void prefix_as_mapped(struct changes *c, Steelyard__Forwarder__V1__Prefix *p);
void changes_free(struct changes *c);

/* Sends a request; the response is freed with steelyard__forwarder__v1__response__free_unpacked().
 * Fills version and id. */
pb_response *harness_request(struct harness *r, pb_request *q);
/* How many warnings of the status have this text in them. */
unsigned harness_warnings(struct harness *r, const char *text);
/* Commits the changes and clears the list. Returns true, or false with r->error, code,
 * change_index. */
bool harness_commit(struct harness *r, struct changes *c);
/* The whole configuration, serialized without its revision; freed by the caller. */
uint8_t *harness_config(struct harness *r, size_t *len);
struct sy_balance_totals harness_totals(const struct harness *r);

#endif
