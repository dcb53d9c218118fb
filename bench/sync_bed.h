// SPDX-License-Identifier: Apache-2.0
/* Two nodes of a pair, for sync_cost.c: the measured one, which is the master, and its peer, which
 * keeps its sessions. Each is a whole forwarder in a process and on a core of its own; their
 * datagrams pass through real sockets on the loopback interface. */
#ifndef BENCH_SYNC_BED_H
#define BENCH_SYNC_BED_H

#include <stdatomic.h>

#include "../dataplane/balance/tests/harness.h"
#include "peers.h"
#include "sync_lane.h"

#define SYNC_BED_LOCALS  16
#define SYNC_BED_SERVERS 64
#define SYNC_BED_HEADERS 28 /* IPv4 and UDP: what a datagram has on the wire beside its bytes */

struct sync_bed_options {
	unsigned family; /* of clients and servers: 4, 6 */
	uint64_t sessions;
	unsigned time_wait; /* seconds */
	bool busy;          /* the peer's worker never sleeps, so that no datagram has to wake it */
	const char *store;  /* of the measured node's table: hugetlbfs; NULL: ordinary memory */
};

/* Between the two processes. */
struct sync_bed_shared {
	_Atomic uint64_t live;             /* sessions in the peer's table. Writer: the peer */
	_Atomic uint64_t bytes, datagrams; /* that the peer has sent, with headers. Likewise */
	_Atomic uint64_t cpu_ns;           /* of its worker. Likewise */
	_Atomic bool failed;               /* likewise */
};

struct sync_bed {
	struct sync_bed_options options;
	struct sy_peers_options peers;
	struct harness harness;
	struct sync_bed_shared *shared;
	struct service_key tcp, udp;
	uint64_t bytes, datagrams; /* that this node has sent, with headers */
	uint64_t attended_ns;
	int child, core;
	/* While synchronisation is off. */
	struct peers *off_peers;
	struct sync_node *off_node;
};

/* Starts the peer and opens the measured node. A process has one. False: reported on stderr. */
bool sync_bed_open(struct sync_bed *s, const struct sync_bed_options *o);
void sync_bed_close(struct sync_bed *s);

/* A poll of the measured node's worker, and the control thread's work when it is due. */
void sync_bed_poll(struct sync_bed *s);
void sync_bed_run(struct sync_bed *s, unsigned ms);

/* Off: as a forwarder without peers. On again: the peer's replicas are out of date, and
 * sync_bed_copy() begins their copy. */
void sync_bed_switch(struct sync_bed *s, bool on);
void sync_bed_copy(struct sync_bed *s);

/* The measured node's log and its replicas: */
bool sync_bed_is_alive(const struct sync_bed *s); /* the peer has been heard within a second */
bool sync_bed_is_acknowledged(const struct sync_bed *s); /* nothing is waiting in any log */
uint64_t sync_bed_offered(const struct sync_bed *s);     /* sessions that the peer is to have */
uint64_t
sync_bed_waiting(const struct sync_bed *s); /* changes that are not acknowledged, at most */
/* Runs until all changes are acknowledged. False, with a report: not within this time. */
bool sync_bed_settle(struct sync_bed *s, unsigned max_ms);

#endif
