// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the files of this module. Everything belongs to the control thread unless a field says
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
	struct sy_worker_post *awaited; /* posts that have not finished */
	struct rcu *rcu;
	struct routes *routes;
	struct adjacencies *adjacencies;
	uint32_t links_changed;  /* writer: control thread, after each change; readers: workers,
	                            acquire */
	uint64_t kernel_read_ns; /* all kernel reports before this time were applied. Writer:
	                            control thread, ten times a second; readers: workers, acquire */
	struct sampling sampling;
	struct sy_mirror *mirror;
	struct sy_claims *claims;
	struct marks *marks;                 /* health_mark.c; NULL: no mark was set yet */
	struct announcements *announcements; /* announce.c; NULL: none yet */
	struct reconcile *reconcile;         /* reconcile.c; NULL: nothing to verify yet */
	struct probes *probes;               /* probe.c; NULL: not needed yet */
	/* policy.c; NULL: none. Writer: control thread; readers: workers, under RCU. */
	struct policies *policies;
	bool remembering;            /* inherit: sy_runtime_claim() will claim the addresses */
	bool settling;               /* and sy_address_settle() was called */
	struct sy_source *inherited; /* addresses to claim; protocol and bits 0: a plain address */
	unsigned inherited_count, inherited_capacity;
	struct sy_blocked_list
	        *blocked; /* list to block, of sy_sources_block(); NULL: not called */
	bool blocked_all;
	bool blocking;                  /* block_continue() is deferred */
	bool blocking_later;            /* a director was out of memory: the next tick continues */
	struct sy_link_addr *connected; /* addresses of all interfaces, as mirrored */
	unsigned connected_count;
	uint32_t connected_version; /* incremented with changes of `connected` */
	struct vlan_link *vlan;     /* VLAN interfaces on other interfaces, as mirrored */
	unsigned vlans;
	/* The host's own addresses among `connected`; cache of address_use.c. */
	struct sy_addr *own;
	unsigned own_count;
	bool own_stale;
	unsigned spare_buffers; /* free buffers of the pool when all receive queues are full */
	bool shaping; /* some port is shaped. Writer: control thread; readers: workers, relaxed */
	bool synced;
	bool quiesced;
	char refusal[300]; /* why routing is refused; empty: it works */
};

/* eal.c */
int eal_start(const struct sy_runtime_options *o, struct sy_error *err);
/* The total number of huge pages that the host needs for wanted_mb free ones; it has `pages`
 * now. */
unsigned long huge_pages_needed(unsigned long pages, unsigned long page_kb, unsigned long wanted_mb,
                                unsigned long free_mb);
/* Parses a CPU list such as "0,2-3"; "" means all CPUs of the process's affinity. Returns their
 * number, at most cap. */
int cores_parse(const char *list, unsigned *core, unsigned cap, struct sy_error *err);
/* Chooses the CPUs of this many workers, at most SY_MAX_WORKERS: the list's first ones. Without a
 * list, the last ones of the process's affinity: interrupts and the host's programs prefer the
 * first. Returns their number, less than `workers` if there are not enough. */
int cores_of_workers(const char *list, unsigned workers, unsigned core[static SY_MAX_WORKERS],
                     struct sy_error *err);
/* Refuses a list with CPUs that do not exist or are outside the process's affinity. */
int cores_check(const char *list, struct sy_error *err);
/* node.c: bitmap of the NUMA nodes of these CPUs; cpus: the sysfs folder of CPUs. */
uint64_t nodes_of(const char *cpus, const unsigned *core, unsigned cores);
/* pool.c: one pool in one range of virtual memory, as a UMEM needs. */
struct rte_mempool *pool_open(unsigned count, unsigned data_room, unsigned workers, bool huge,
                              struct sy_error *err);
void pool_close(struct rte_mempool *pool);
/* The page-aligned range of all data rooms of the pool. */
void pool_area(const struct rte_mempool *pool, void **start, size_t *len);

/* rcu.c */
int rcu_open(unsigned workers, struct rcu **out);
struct rte_rcu_qsbr *rcu_qsbr(struct rcu *r);
/* Frees objects whose grace period is over. Returns whether any remain. */
bool rcu_poll(struct rcu *r);
/* Frees everything. No worker runs any more. */
void rcu_close(struct rcu *r);

/* route.c */
int routes_open(struct sy_runtime *rt, struct sy_error *err);
void routes_close(struct sy_runtime *rt);
/* Adds, changes or removes a route. Lookups see it at once; users of paths see it after
 * routes_flush(). */
void routes_apply(struct sy_runtime *rt, const struct sy_route *route, bool gone);
/* Makes paths stale whose routes have changed. */
void routes_flush(struct sy_runtime *rt);
/* Are many path ids free? Otherwise flush at the next tick, which needs fewer ids. */
bool routes_flush_is_cheap(const struct sy_runtime *rt);
/* While routing is refused, every lookup fails. */
void routes_refuse(struct sy_runtime *rt, bool refused);

/* One usable hop out of this host. */
struct path_hop {
	uint32_t adjacency; /* ADJACENCY_NONE: on link, the neighbour is the destination */
	uint8_t port;
};

#define PATH_PICKS 64
/* Immutable once published, except for its hops' adjacencies. */
struct path {
	struct sy_runtime *rt;
	uint8_t pick[PATH_PICKS]; /* hop by hashed flow number, in proportion to the weights */
	uint8_t hops;             /* 0: none is usable */
	bool blackhole;
	uint16_t ports; /* bit per port */
	struct path_hop hop[SY_ROUTE_HOPS];
};
/* Returns NULL if there is none. Any thread, under RCU. */
const struct path *path_get(const struct sy_runtime *rt, uint16_t id);

/* runtime.c: does nothing without a kernel interface. */
int claims_open(struct sy_runtime *rt, unsigned wait_ms, struct sy_error *err);
/* address_claim.c */
void addresses_forget(struct sy_runtime *rt);
/* The host has added or removed an address. */
void address_host(struct sy_runtime *rt, const struct sy_addr *addr, bool on);

/* block.c: continues what sy_director_block() has begun, from the next loop iteration on. */
void block_begin(struct sy_runtime *rt);
/* Continues after a lack of memory. */
void block_tick(struct sy_runtime *rt);
/* Blocks the remembered list. */
void block_claim(struct sy_runtime *rt);
void block_forget(struct sy_runtime *rt);

/* Do neighbours on this port's network resolve the address, and does the kernel answer? */
bool address_is_answered_on(const struct sy_runtime *rt, const struct sy_addr *addr, unsigned port);

/* announce.c: an address was claimed or released; or a port came up or changed its MAC address or
 * network: all addresses on its networks are due for announcement. */
void announce_address(struct sy_runtime *rt, const struct sy_addr *addr);
void announce_forget(struct sy_runtime *rt, const struct sy_addr *addr);
void announce_port(struct sy_runtime *rt, unsigned port);
/* Every 100 ms: sends due announcements. */
void announcements_tick(struct sy_runtime *rt);
void announcements_close(struct sy_runtime *rt);

/* port_reattach.c: reattaches recreated interfaces. */
void ports_tick(struct sy_runtime *rt);

/* health_mark.c: the set of interfaces has changed. */
void marks_reattach(struct sy_runtime *rt);
/* health_mark.c: attaches the programs if a mark is set. */
void marks_attach(struct sy_runtime *rt);
/* Restores the programs and accept_local if they were attached. */
void marks_verify(struct sy_runtime *rt, const struct sy_verify *v);
/* Resolves the interfaces towards servers again if routes have changed. */
void marks_follow(struct sy_runtime *rt);
void marks_close(struct sy_runtime *rt);

/* policy.c: the packets that are not routed by destination alone. */
void policies_set(struct sy_runtime *rt, const struct sy_policy *list, unsigned count);
/* Text of the i-th one; NULL: there are fewer. */
const char *policy_text(const struct sy_runtime *rt, unsigned i);

/* mirror_apply.c: kernel events, or the static configuration instead. */
int mirror_start(struct sy_runtime *rt, struct sy_error *err);
void mirror_stop(struct sy_runtime *rt);

#endif
