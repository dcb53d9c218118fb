// SPDX-License-Identifier: Apache-2.0
/* Routes and paths (docs/design/0005-paths.md). route.c changes routes; path.c maintains groups,
 * path ids and their age. */
#ifndef ROUTE_H
#define ROUTE_H

#include <rte_rib.h>
#include <rte_rib6.h>

#include "lpm.h"
#include "runtime.h"

#define GROUPS       32768 /* 0: no route */
#define PATHS        65536 /* 0: none */
#define PATH_HALF    32768 /* each process uses ids of one half: 0007-restart.md */
#define GROUP_CHAINS 4096

/* A route's hops without its prefix. Routes with equal hops share a group. */
struct group {
	uint32_t refs; /* routes */
	uint16_t next; /* in its hash chain */
	bool dirty;    /* its path must be replaced; on the list of dirty groups */
	bool blackhole;
	uint8_t hop_count;
	struct sy_route_hop hop[SY_ROUTE_HOPS];
};

struct routes {
	struct rte_rib *rib4; /* prefix → group, for the control thread only */
	struct rte_rib6 *rib6;
	struct lpm v4, v6;   /* address → group. Writer: control thread; readers: all threads */
	uint32_t generation; /* writer: control thread; readers: all threads. Incremented before
	                        each write to v4 or v6, and before and after paths are replaced */
	bool refused;        /* likewise, relaxed */
	/* Likewise; acquire and release. */
	uint16_t current[GROUPS]; /* group → path */
	struct path *path[PATHS];
	uint16_t mtu[PATHS]; /* largest IP packet in bytes that fits the path; 0: stale. Unused ids,
	                        and those of the other half, are stale */
	/* Private to the control thread. */
	uint32_t stale_at[PATHS]; /* generation at which it was replaced */
	struct group *group[GROUPS];
	uint16_t chain[GROUP_CHAINS];
	uint16_t group_free[GROUPS]; /* stack */
	unsigned group_free_count;
	uint16_t path_free[PATH_HALF]; /* ring: an id stays unused as long as possible */
	unsigned path_free_first, path_free_count;
	uint16_t dirty[GROUPS];
	unsigned dirty_count;
	bool groups_logged, paths_logged, full_logged; /* log exhaustion once */
};

/* path.c */
void paths_init(struct routes *r, unsigned half);
void paths_close(struct routes *r);
/* Call when a port's MTU has changed. */
void paths_measure(struct sy_runtime *rt);
/* Finds or creates the group of the route's hops; 0: no group is free. The caller adds a
 * reference. */
uint16_t group_find(const struct routes *r, const struct sy_route *route);
uint16_t group_make(struct sy_runtime *rt, const struct sy_route *route);
/* Changes a group's hops: its path keeps the id. */
void group_change(struct sy_runtime *rt, uint16_t group, const struct sy_route *route);
/* Makes the group's path stale at the next flush: its users must look up again. */
void group_dirty(struct routes *r, uint16_t group);
void generation_grow(struct routes *r);

#endif
