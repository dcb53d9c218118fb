// SPDX-License-Identifier: Apache-2.0
/* The soak test's topology: services, servers, routes, neighbours, and their changes. */
#ifndef SOAK_TOPOLOGY_H
#define SOAK_TOPOLOGY_H

#include "../../dataplane/balance/tests/harness.h"
#include "soak_frame.h"

#define TOPOLOGY_SERVICES                                                                          \
	24                  /* balanced ones: even numbers TCP, odd UDP; every third one is IPv6   \
	                     */
#define TOPOLOGY_SERVERS 8  /* maximum per service */
#define TOPOLOGY_TURNED  11 /* UDP over IPv6, with servers of both families */
#define TOPOLOGY_DIRECT  6  /* TCP over IPv4, by DR */
#define TOPOLOGY_LOCALS  4  /* IPv4; IPv6 has one */
#define TOPOLOGY_PORT    80

/* Services that each fail in one way. All TCP over IPv4. */
enum topology_special {
	SPECIAL_EMPTY,         /* no server */
	SPECIAL_SILENT,        /* its server's neighbour does not answer */
	SPECIAL_HOLE,          /* its server's route is a blackhole */
	SPECIAL_UNROUTED,      /* … has no route */
	SPECIAL_OFF_LINK,      /* … is behind a router, which DR cannot use */
	SPECIAL_NAT,           /* NAT to one server, which never changes */
	SPECIAL_NAT_DUPLICATE, /* another service of that server */
	SPECIAL_UNIFORM,       /* one server, which never changes: IPv4 */
	SPECIAL_LIMITED,       /* one server with a limit of three sessions */
	SPECIAL_UNIFORM_6,     /* like SPECIAL_UNIFORM, IPv6 */
	SPECIAL_SERVICES
};

struct topology {
	struct harness harness;
	struct rng *rng;
	uint64_t commits, refusals;
};

/* Session tables and pool are small, for the soak test to fill them. */
bool topology_open(struct topology *w, struct rng *d, unsigned workers,
                   const struct sy_stage *pipeline);
void topology_close(struct topology *w);

struct service_key topology_service(unsigned i);
struct service_key topology_special_service(enum topology_special special);
struct sy_addr topology_server(unsigned service, unsigned i);
struct sy_addr topology_special_server(enum topology_special special);
struct sy_addr topology_local(unsigned i);

/* Restores the configuration of the start. */
void topology_restore(struct topology *w);
/* Makes a random transaction, sometimes one that must be refused. */
void topology_change(struct topology *w);
/* Deletes all services and local addresses. */
void topology_clear(struct topology *w);
/* Whether a frame that a port sent is valid: one buffer, the port's MAC, a frame that can be
 * parsed. If it `was_right` when it came in, or is the balancer's own, checksums are right too. */
bool topology_sent_is_right(const struct rte_mbuf *m, unsigned port, bool was_right,
                            struct sy_view *v);
/* Makes the steps of a commit between publishing services and publishing local addresses: a server
 * of a family without local addresses is visible while `between` runs. */
void topology_commit_halfway(struct topology *w, void (*between)(void *ctx), void *ctx);

#endif
