// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the files of this module. The control thread owns everything here unless a field says
 * otherwise.
 */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <pthread.h>

#include <rte_ring.h>

#include "adjacency.h"
#include "loop.h"
#include "port.h"
#include "sy_runtime.h"
#include "worker.h"

struct announcements;
struct reconcile;
struct probes;
struct policies;
struct vlan_link;
struct marks;
struct routes;
struct rcu;

struct sy_runtime {
	struct sy_runtime_options options;
	struct rte_mempool *pool; /* the only packet pool; also every socket's UMEM */
	struct port *port[SY_MAX_PORTS];
	unsigned ports;
	struct sy_worker *worker; /* [workers] */
	unsigned workers;
	uint8_t slot_worker[SY_SLOTS]; /* writer: control thread; readers: workers, relaxed */
	struct loop *loop;
	struct sy_worker_post *awaited; /* that the control thread waits for */
	struct rcu *rcu;
	struct routes *routes;
	struct adjacencies *adjacencies;
	uint32_t links_changed;  /* writer: control thread, after each change; readers: workers,
	                            acquire */
	uint64_t kernel_read_ns; /* all reports of the kernel before this time are applied. Writer:
	                            control thread, ten times a second; readers: workers, acquire */
	struct sampling sampling;
	struct sy_mirror *mirror;
	struct sy_claims *claims;
	struct marks *marks;                 /* check.c's; NULL: no mark was set yet */
	struct announcements *announcements; /* announce.c's; NULL: none yet */
	struct reconcile *reconcile;         /* reconcile.c's; NULL: nothing to verify yet */
	struct probes *probes;               /* probe.c's; NULL: none was needed yet */
	/* policy.c's; NULL: none. Writer: control thread; readers: workers, under RCU. */
	struct policies *policies;
	bool remembering;            /* inherit: sy_runtime_claim() takes the addresses */
	bool settling;               /* and sy_address_settle() was called */
	struct sy_source *inherited; /* remembered; protocol and bits 0: a plain address */
	unsigned inherited_count, inherited_capacity;
	struct sy_blocked_list *blocked; /* remembered: of sy_sources_block(); NULL: not called */
	bool blocked_all;
	bool blocking;                  /* block_continue() is deferred */
	bool blocking_later;            /* a director had no memory: the next tick continues */
	struct sy_link_addr *connected; /* addresses of all interfaces, as mirrored */
	unsigned connected_count;
	uint32_t connected_version; /* changes with `connected` */
	struct vlan_link *vlan;     /* VLAN interfaces on other interfaces, as mirrored */
	unsigned vlans;
	/* The addresses of `connected` that are the host's own, for address_use.c; cached. */
	struct sy_addr *own;
	unsigned own_count;
	bool own_stale;
	unsigned spare_buffers; /* of the pool, when all ports receive as much as they can */
	bool shaping;           /* of any port. Writer: control thread; readers: workers, relaxed */
	bool synced;
	bool quiesced;
	char refusal[300]; /* empty: routing works */
};

/* eal.c */
int eal_start(const struct sy_runtime_options *o, struct sy_error *err);
/* The total number of huge pages that the host must have so that wanted_mb is available; it has
 * `pages` now. */
unsigned long huge_pages_needed(unsigned long pages, unsigned long page_kb, unsigned long wanted_mb,
                                unsigned long free_mb);
/* Parses a CPU list such as "0,2-3"; "" means all CPUs that the process may use. Returns how many,
 * at most cap. */
int cores_parse(const char *list, unsigned *core, unsigned cap, struct sy_error *err);
/* The CPUs of this many workers, at most SY_MAX_WORKERS: the list's first ones, or without a list
 * the process's last ones, as the host's interrupts and programs prefer the first. Returns how
 * many, less than `workers` if there are not enough. */
int cores_of_workers(const char *list, unsigned workers, unsigned core[static SY_MAX_WORKERS],
                     struct sy_error *err);
/* Refuses a list with CPUs that do not exist or that the process may not use. */
int cores_check(const char *list, struct sy_error *err);
/* node.c: bit per NUMA node that these CPUs belong to; cpus: the kernel's folder of them. */
uint64_t nodes_of(const char *cpus, const unsigned *core, unsigned cores);
/* pool.c: one pool in one range of virtual memory, as a UMEM needs. */
struct rte_mempool *pool_open(unsigned count, unsigned data_room, unsigned workers, bool huge,
                              struct sy_error *err);
void pool_close(struct rte_mempool *pool);
/* The range that holds all data rooms of the pool, in whole pages. */
void pool_area(const struct rte_mempool *pool, void **start, size_t *len);

/* rcu.c */
int rcu_open(unsigned workers, struct rcu **out);
struct rte_rcu_qsbr *rcu_qsbr(struct rcu *r);
/* Frees objects whose grace period is over; returns whether any still wait. */
bool rcu_poll(struct rcu *r);
/* Frees everything; no worker runs any more. */
void rcu_close(struct rcu *r);

/* route.c */
int routes_open(struct sy_runtime *rt, struct sy_error *err);
void routes_close(struct sy_runtime *rt);
/* A route was added, changed or removed. Lookups see it at once; holders of paths see it after
 * routes_flush(). */
void routes_apply(struct sy_runtime *rt, const struct sy_route *route, bool gone);
/* Turns paths stale whose routes have changed. */
void routes_flush(struct sy_runtime *rt);
/* Many path ids are free. Otherwise flush at the next tick, which needs fewer ids. */
bool routes_flush_is_cheap(const struct sy_runtime *rt);
/* While routing is refused, every lookup ends without a route. */
void routes_refuse(struct sy_runtime *rt, bool refused);

/* One usable hop out of this host. */
struct path_hop {
	uint32_t adjacency; /* ADJACENCY_NONE: on link, the neighbour is the destination */
	uint8_t port;
};

#define PATH_PICKS 64
/* Immutable once published, except that its hops' adjacencies may change. */
struct path {
	struct sy_runtime *rt;
	uint8_t pick[PATH_PICKS]; /* hop by mixed flow number, in proportion to the weights */
	uint8_t hops;             /* 0: no usable hop */
	bool blackhole;
	uint16_t ports; /* bit per port */
	struct path_hop hop[SY_ROUTE_HOPS];
};
/* NULL: none. Any thread, under RCU. */
const struct path *path_get(const struct sy_runtime *rt, uint16_t id);

/* runtime.c: does nothing without a kernel interface. */
int claims_open(struct sy_runtime *rt, unsigned wait_ms, struct sy_error *err);
/* address.c */
void addresses_forget(struct sy_runtime *rt);
/* The host gained an address, or lost it. */
void address_host(struct sy_runtime *rt, const struct sy_addr *addr, bool on);

/* block.c: continues with what sy_director_block() has begun, from the loop's next turn on. */
void block_begin(struct sy_runtime *rt);
/* Continues if there was no memory for it. */
void block_tick(struct sy_runtime *rt);
/* Blocks what was remembered. */
void block_claim(struct sy_runtime *rt);
void block_forget(struct sy_runtime *rt);

/* Neighbours on this port's network may ask for the address, and the kernel answers. */
bool address_is_answered_on(const struct sy_runtime *rt, const struct sy_addr *addr, unsigned port);

/* announce.c: an address was claimed or released; or a port came up or has another MAC address or
 * network, so all addresses on its networks are due for announcement. */
void announce_address(struct sy_runtime *rt, const struct sy_addr *addr);
void announce_forget(struct sy_runtime *rt, const struct sy_addr *addr);
void announce_port(struct sy_runtime *rt, unsigned port);
/* Every 100 ms: sends due announcements. */
void announcements_tick(struct sy_runtime *rt);
void announcements_close(struct sy_runtime *rt);

/* port_reattach.c: takes deleted interfaces again when they are back. */
void ports_tick(struct sy_runtime *rt);

/* check.c: the set of interfaces has changed. */
void marks_reattach(struct sy_runtime *rt);
/* check.c: attaches the programs if any mark was set. */
void marks_attach(struct sy_runtime *rt);
/* Restores the programs and accept_local, if they were attached. */
void marks_verify(struct sy_runtime *rt, const struct sy_verify *v);
/* Finds the interfaces to servers again if routes have changed. */
void marks_follow(struct sy_runtime *rt);
void marks_close(struct sy_runtime *rt);

/* policy.c: the packets that are not routed by their destination alone. */
void policies_set(struct sy_runtime *rt, const struct sy_policy *list, unsigned count);
/* The i-th one's text; NULL: there are fewer. */
const char *policy_text(const struct sy_runtime *rt, unsigned i);

/* mirror.c: the kernel's events, or the static configuration instead. */
int mirror_start(struct sy_runtime *rt, struct sy_error *err);
void mirror_stop(struct sy_runtime *rt);

#endif
