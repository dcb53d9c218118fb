// SPDX-License-Identifier: Apache-2.0
/* Workers: the loop, what they hand each other, how they sleep and are woken. */
#ifndef WORKER_H
#define WORKER_H

#include <pthread.h>

#include <rte_ring.h>

#include "port.h"
#include "ring.h"
#include "sy_tx_cache.h"

#define WORKER_FLOW_RING     2048 /* packets from one worker to another that owns their slots */
#define WORKER_TRANSMIT_RING 1024 /* the same to one that owns the transmit queue */
#define WORKER_WAITING       64   /* next hops a worker keeps packets for */
#define WORKER_WAITING_MAX   16   /* packets for each */
#define WORKER_ASKS          256  /* requests to the control thread under way */

/* What other workers have handed over and comes next: known before its turn, so that it is fetched
 * while something else is worked on. Between turns there is none. */
struct next {
	struct rte_mbuf *before[SY_BURST]; /* the burst before it, if handed over too, at the end */
	struct rte_mbuf *mbuf[SY_BURST];
	unsigned count;
	unsigned fetched; /* of before[] and mbuf[] together */
	unsigned from;    /* whose packets are looked at next; as many as there are: nobody's */
	unsigned bursts;  /* taken from that one in this turn */
	size_t frame;     /* from buffer to frame, as it was of the last ones: each kind of port has
	                     its own */
};

/* So many are worth a look at the other's ring before the turn is over. */
#define HANDOVER_LEAST (SY_BURST / 2)

/* Packets gathered for another worker: of one burst all that there are, and what was too few to be
 * sent before. None of a burst goes before what that burst has sent to ports. */
struct outbound {
	unsigned count;
	struct rte_mbuf *mbuf[HANDOVER_LEAST + SY_BURST];
};

/* Packets that wait for a neighbour. */
struct waiting {
	struct sy_addr addr;
	uint64_t deadline_ns;
	uint8_t port;
	uint8_t count; /* 0: the entry is free */
	bool asked;    /* the control thread knows */
	struct rte_mbuf *mbuf[WORKER_WAITING_MAX];
};

/* What a worker asks of the control thread: a neighbour. */
struct ask {
	struct sy_addr addr;
	uint32_t port;
	uint32_t reserved;
};

struct worker_call {
	void (*fn)(struct sy_worker *w, void *ctx);
	void *ctx;
	bool done; /* writer: worker, release */
};

struct worker_source {
	struct port *port;
	unsigned queue;
};

struct worker_clock {
	uint64_t tsc, ns;           /* a moment in both clocks, at most a round ago */
	uint64_t rate_tsc, rate_ns; /* one at least a second ago: what the rate is measured from */
	uint64_t rate;              /* nanoseconds per cycle, 32 fractional bits */
};

struct sy_worker_private {
	pthread_t thread;
	bool running;        /* the thread exists: the control thread's */
	uint32_t backoff_us; /* the next back-off */
	int core;            /* −1: not pinned */
	bool stop;           /* writer: control thread, relaxed */
	int wake_fd, epoll_fd;
	bool must_poll; /* a source has no descriptor */
	uint32_t now_s;
	struct worker_clock clock;
	uint64_t round_tsc, spin_cycles, round_cycles;
	struct worker_source source[SY_MAX_PORTS * SY_MAX_QUEUES];
	unsigned sources;

	struct sy_gather transmit[SY_MAX_PORTS];
	uint32_t transmit_ports;            /* bit per port with something gathered */
	struct outbound *hand_over;         /* [workers] */
	struct sy_gather *transmit_by;      /* [workers]: they own the queue */
	uint64_t hand_over_to, transmit_to; /* bit per worker */
	struct sy_gather again;             /* sy_packet_again() */
	struct next next;
	struct sy_burst burst;

	struct waiting waiting[WORKER_WAITING];
	unsigned waiting_count;
	uint32_t neighbours_seen; /* sy_runtime's count of changes when last looked */

	/* Written by others. */
	uint32_t asleep __attribute__((aligned(SY_CACHE_LINE))); /* see worker_sleep() */
	struct worker_call *call;
	uint32_t neighbours_changed; /* writer: control thread */
	struct ring **flow_in;       /* [workers], by sender; NULL for itself */
	struct ring **transmit_in;   /* likewise */
	struct rte_ring *asks;       /* to the control thread */
};

/* ---- workers.c: all of them ---- */

int workers_open(struct sy_runtime *rt, struct sy_error *err);
/* The ports' queues, each to its worker. */
int workers_bind(struct sy_runtime *rt, struct sy_error *err);
/* Has a worker poll a queue: its own thread, or before it runs. */
int worker_source_add(struct sy_worker *w, struct port *port, unsigned queue);
/* Whether all workers have queues of their own: when their numbers are known. */
void workers_note_queues(struct sy_runtime *rt);
int workers_start(struct sy_runtime *rt, struct sy_error *err);
void workers_stop(struct sy_runtime *rt);
/* After workers_stop(): finishes, on the caller's thread, what was received and what the workers
 * had for each other. Packets that wait for a neighbour are dropped. */
void workers_drain(struct sy_runtime *rt);
void workers_close(struct sy_runtime *rt);
/* Control thread: a neighbour that packets may wait for has changed. */
void workers_neighbour_changed(struct sy_runtime *rt);
/* Control thread: answers what workers asked. */
void workers_answer(struct sy_runtime *rt);

/* ---- worker.c: one ---- */

/* Its thread. */
void *worker_main(void *worker);
/* Before its clock is first read. */
void worker_clock_start(struct sy_worker_private *p);
/* One look at everything the worker polls; true if there was work. The worker's own thread calls
 * it, or, in a test, whoever drives a worker that was not started. */
bool worker_turn(struct sy_worker *w);
/* The TSC into tsc, the time into now_ns. */
void worker_clock_read(struct sy_worker *w);
/* Any thread, after having put something where the worker will look. */
void worker_wake(struct sy_worker *w);
/* The same for several, a bit each. */
void workers_wake(struct sy_runtime *rt, uint64_t workers);

/* ---- handover.c ---- */

int handover_open(struct sy_runtime *rt, struct sy_error *err);
void handover_close(struct sy_runtime *rt);
bool handover_is_empty(const struct sy_worker *w);
/* The turn's bursts are over: tells the others that what they handed over has left. */
void handover_notify(struct sy_worker *w);
/* Puts a packet with m->port set to the egress port on its way to the owner of a queue of it. */
void handover_transmit(struct sy_worker *w, unsigned owner, struct rte_mbuf *m);
/* A turn begins: looks for what other workers have handed over. */
void handover_begin(struct sy_worker *w);
/* Tells a burst what of it to fetch meanwhile. */
void handover_ahead(struct sy_worker *w, struct sy_burst *b);
/* The burst has been through all stages. */
void handover_passed(struct sy_worker *w, const struct sy_burst *b);
/* Takes the next of it, SY_BURST at the most, into a burst; returns how many. */
unsigned handover_receive(struct sy_worker *w, struct sy_burst *b);
/* Sends what was gathered for other workers, where it is much. */
void handover_push(struct sy_worker *w);
/* Sends all of it, and wakes who sleeps. */
void handover_flush(struct sy_worker *w);

/* ---- transmit.c ---- */

/* Sends what the burst gathered for ports. */
void transmit_flush(struct sy_worker *w);
/* Gathers a packet for a port, m->port being the port; MACs are in place. */
void transmit_gather(struct sy_worker *w, struct rte_mbuf *m);
/* Looks after packets that wait for a neighbour. all: drop them, the worker ends. */
void transmit_waiting(struct sy_worker *w, bool all);

#endif
