// SPDX-License-Identifier: Apache-2.0
/* Fixture: a mirror under test, the objects that it reported, and functions to wait for reports. */
#ifndef KERNEL_TESTS_TOPOLOGY_H
#define KERNEL_TESTS_TOPOLOGY_H

#include "netns.h"

#define TOPOLOGY_ITEMS 512
#define TOPOLOGY_BULK  65536 /* 10.x.y.0/24 by x·256 + y */

/* The objects that the mirror has reported, stored as a user of the mirror would. */
struct topology {
	struct sy_mirror *mirror;
	unsigned budget;
	struct sy_link link[TOPOLOGY_ITEMS];
	struct sy_link_addr addr[TOPOLOGY_ITEMS];
	struct sy_route route[TOPOLOGY_ITEMS];
	struct sy_neigh neigh[TOPOLOGY_ITEMS];
	unsigned links, addrs, routes, neighs;
	unsigned synced;
	char refused[256], policies[2048];
	bool all_refused; /* a policy concerns all packets of a family */
	bool bulk[TOPOLOGY_BULK];
	unsigned bulk_count, bulk_reported;
};

extern struct topology *topology;
/* near0 here (192.0.2.1, 2001:db8::1), far0 in far_ns (.2, ::2); the tests run in near_ns. */
extern int far_ns, near_ns;

int topology_setup(void **state);
int topology_teardown(void **state);
/* Opens the mirror and waits for the first synchronisation. */
void mirror_start(void);

typedef bool (*condition)(const void *arg);

/* Serves the mirror until the condition holds. */
void pump_until_at(condition holds, const void *arg, int line);
#define pump_until(holds, arg) pump_until_at(holds, arg, __LINE__)

/* Conditions. */
bool topology_synced(const void *times); /* unsigned: at least this often */
bool refusal_has(const void *word);      /* NULL: nothing is refused */

struct expected_route {
	const char *prefix;
	unsigned len;
	const char *text;
};

bool route_is(const void *arg);
#define expect_route(prefix, len, text)                                                            \
	pump_until(route_is, (&(struct expected_route){prefix, len, text}))

struct link_state {
	const char *name;
	bool there, up;
};

bool link_is(const void *arg);
const struct sy_link *link_named(const char *name);
#define expect_link(name, there, up) pump_until(link_is, (&(struct link_state){name, there, up}))

struct expected_addr {
	const char *text;
	bool there;
};

bool addr_is(const void *arg);

#define TOPOLOGY_TEST(name) cmocka_unit_test_setup_teardown(name, topology_setup, topology_teardown)

#endif
