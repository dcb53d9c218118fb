// SPDX-License-Identifier: Apache-2.0
/* What passes through the measured node of sync_bed.h: TCP connections (endpoints.h), at a rate if
 * there is one, and packets of established UDP sessions, which fill the worker's bursts. The time
 * of these ports is measured and can be subtracted. */
#ifndef BENCH_SYNC_TRAFFIC_H
#define BENCH_SYNC_TRAFFIC_H

#include "endpoints.h"
#include "injector.h"
#include "sync_bed.h"

/* What the ports do with UDP packets. */
enum traffic_phase {
	TRAFFIC_FORWARD, /* those of `stream` arrive from clients, and are counted on their way out
	                  */
	TRAFFIC_NEW,     /* first packets of new sessions arrive */
	TRAFFIC_ANSWER,  /* their servers' answers */
	TRAFFIC_SECOND,  /* their clients' second packets */
};

struct sync_traffic {
	struct sync_bed *bed;
	struct endpoints endpoints;
	const struct port_ops *below[HARNESS_PORTS]; /* the endpoints' */
	struct port_ops ops[HARNESS_PORTS];
	struct injector_stream stream; /* of the first sessions */
	bool fills;                    /* its packets fill bursts */
	enum traffic_phase phase;
	struct rte_mbuf *held[SY_BURST]; /* between two phases, turned back */
	unsigned holds, arriving;
	uint64_t opened; /* UDP sessions */
	uint64_t at;     /* of the stream */
	uint64_t passed; /* its packets */
	uint64_t cycles; /* of these ports, the endpoints' included */
	uint64_t begun;  /* connections before the present rate */
	uint64_t start_tsc;
	double per_cycle; /* connections; 0: no rate */
	struct spares spares;
};

/* Packets of the first `kept` sessions fill bursts. False: reported on stderr. */
bool traffic_open(struct sync_traffic *t, struct sync_bed *bed, uint64_t concurrent, uint64_t kept);
void traffic_close(struct sync_traffic *t);
/* Opens n more UDP sessions, both of whose ends have sent. False: reported. */
bool traffic_sessions(struct sync_traffic *t, uint64_t n);
/* Connections per second from now on; 0: none begin; UINT64_MAX: as many as can. */
void traffic_rate(struct sync_traffic *t, uint64_t per_second);
/* A poll of the node, with the connections that are due. */
void traffic_poll(struct sync_traffic *t);
void traffic_run(struct sync_traffic *t, unsigned ms);
/* Completes the connections, runs until their sessions are deleted. False: reported. */
bool traffic_finish(struct sync_traffic *t);

#endif
