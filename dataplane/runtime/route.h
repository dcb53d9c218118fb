// SPDX-License-Identifier: Apache-2.0
/* Routes and paths: see docs/design/0005-paths.md. route.c changes routes; path.c keeps the groups,
 * ids and their ages. */
#ifndef ROUTE_H
#define ROUTE_H

#include <rte_rib.h>
#include <rte_rib6.h>

#include "lpm.h"
#include "runtime.h"

#define GROUPS       32768 /* 0: no route */
#define PATHS        65536 /* 0: none */
#define PATH_HALF    32768 /* each process takes its ids from one half; see 0007-restart.md */
#define GROUP_CHAINS 4096

/* The content of a route without its prefix. Routes with equal content share a group. */
struct group {
	uint32_t refs; /* routes */
	uint16_t next; /* in its hash chain */
	bool dirty;    /* its path must be replaced; on the list of such groups */
	bool blackhole;
	uint8_t hop_count;
	struct sy_route_hop hop[SY_ROUTE_HOPS];
};

struct routes {
	struct rte_rib *rib4; /* prefix → group, for the control thread only */
	struct rte_rib6 *rib6;
	struct lpm v4, v6;   /* address → group. Writer: control thread; readers: all threads */
	uint32_t generation; /* writer: control thread; readers: all threads. Grows before each
	                        write to v4 or v6, and before and after paths are replaced */
	bool refused;        /* likewise, relaxed */
	/* Likewise; acquire and release. */
	uint16_t current[GROUPS]; /* group → path */
	struct path *path[PATHS];
	uint16_t mtu[PATHS]; /* largest IP packet in bytes that fits through; 0: stale. Unused
	                         ids are stale, and so are the ids of the other half */
	/* Used by the control thread only. */
	uint32_t stale_at[PATHS]; /* the generation when it was replaced */
	struct group *group[GROUPS];
	uint16_t chain[GROUP_CHAINS];
	uint16_t group_free[GROUPS]; /* stack */
	unsigned group_free_count;
	uint16_t path_free[PATH_HALF]; /* ring: an id stays unused as long as possible */
	unsigned path_free_first, path_free_count;
	uint16_t dirty[GROUPS];
	unsigned dirty_count;
	bool groups_logged, paths_logged, full_logged; /* exhaustion is logged once */
};

/* path.c */
void paths_init(struct routes *r, unsigned half);
void paths_close(struct routes *r);
/* A port's MTU has changed. */
void paths_measure(struct sy_runtime *rt);
/* Finds or makes the group for the content of the route; 0: no group is free. The caller adds its
 * own reference. */
uint16_t group_find(const struct routes *r, const struct sy_route *route);
uint16_t group_make(struct sy_runtime *rt, const struct sy_route *route);
/* Gives a group new hops in place: its path keeps its id. */
void group_change(struct sy_runtime *rt, uint16_t group, const struct sy_route *route);
/* After the next flush, holders of the group's path must look up again. */
void group_dirty(struct routes *r, uint16_t group);
void generation_grow(struct routes *r);

#endif
