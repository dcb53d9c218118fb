// SPDX-License-Identifier: Apache-2.0
/* Workers: the loop, steering between workers, sleeping and waking. */
#ifndef WORKER_H
#define WORKER_H

#include <pthread.h>

#include <rte_ring.h>

#include <sy_seen.h>

#include "adjacency.h"
#include "cpu_wait.h"
#include "port.h"
#include "ring.h"
#include "sample.h"
#include "sy_tx_cache.h"

#define WORKER_FLOW_RING     2048 /* packets for the owner of their slot */
#define WORKER_TRANSMIT_RING 1024 /* packets for the owner of a transmit queue */
/* Max bursts dequeued per poll from one worker's ring. Packets there have already cost work: if
 * they arrive faster than they leave, it is better to lose packets that are still in the device. */
#define RING_BURSTS 8
/* Limits of packets whose next hop is being resolved. Linux queues about as many per neighbour
 * (sysctl net.ipv4.neigh.default.unres_qlen_bytes). */
#define UNRESOLVED_HOPS           64
#define UNRESOLVED_HOP_MAX        256
#define UNRESOLVED_MAX            1024 /* per worker */
#define WORKER_NEIGHBOUR_REQUESTS 256  /* pending requests to the control thread */

/* The next burst of steered packets. It is dequeued early, so that its packets are prefetched while
 * the worker processes others. Empty between polls. */
struct next_burst {
	struct rte_mbuf *mbuf[SY_BURST];
	unsigned count;
	bool behind;         /* its ring is still half full */
	unsigned prefetched; /* number of entries in mbuf[] that were prefetched */
	unsigned from;       /* the worker whose ring is next; the number of workers: none */
	unsigned bursts;     /* dequeued from that worker in this poll */
	bool cut;            /* this poll has dequeued its maximum from a ring: more may be left */
	unsigned excused;    /* packets that arrived during a stall, and are still queued */
	size_t frame; /* offset from buffer to frame in the latest burst; depends on the kind of
	                 port */
};

/* Number of steered packets from which the worker enqueues them to the owner's ring before the poll
 * ends. */
#define STEER_BATCH_MIN (SY_BURST / 2)

/* Packets gathered for another worker: those of the current burst, and earlier ones too few to
 * send. Packets of a burst leave only after the packets that the burst has sent to ports. */
struct outbound {
	unsigned count;
	struct rte_mbuf *mbuf[STEER_BATCH_MIN + SY_BURST];
};

struct unresolved_hop {
	struct sy_addr addr;
	uint64_t deadline_ns;
	uint64_t link; /* as in struct adjacency; valid, like state, during unresolved_update() */
	enum adjacency_state state;
	uint32_t request; /* sequence number; see neighbour_requests_handled */
	uint16_t count;   /* packets; 0: free entry */
	uint8_t port;
	bool requested;
};

struct unresolved_packet {
	struct rte_mbuf *mbuf;
	uint8_t hop; /* index */
};

/* unresolved.c */
struct unresolved {
	unsigned count;    /* packets */
	uint32_t requests; /* requests sent to the control thread */
	struct unresolved_hop hop[UNRESOLVED_HOPS];
	struct unresolved_packet packet[UNRESOLVED_MAX];
};

/* A request to the control thread: resolve a neighbour. */
struct neighbour_request {
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
	bool behind;      /* as of its last burst */
	unsigned excused; /* packets that arrived during a stall of the worker, and are still queued
	                   */
	struct sy_seen seen;
};

struct worker_clock {
	uint64_t tsc, ns;           /* the same moment on both clocks, at most SY_ROUND_MS ago */
	uint64_t rate_tsc, rate_ns; /* start of the rate measurement, at least a second ago */
	uint64_t rate;              /* nanoseconds per cycle, 32 fractional bits */
};

/* Back-off if some source can only be polled. The first sleep is short, for traffic of single
 * packets that each wait for the sleep to end. Each further sleep is twice as long. */
#define WORKER_BACKOFF_US 50

#define WORKER_RESUBMITTED (16 * SY_BURST)

/* The packets of sy_packet_resubmit(), in order. */
struct resubmitted {
	unsigned first, count;
	bool behind; /* the burst of one of them was behind */
	struct rte_mbuf *mbuf[WORKER_RESUBMITTED];
};

struct sy_worker_private {
	pthread_t thread;
	bool running;          /* the thread exists; private to the control thread */
	bool lent;             /* run by an application thread: worker_lend.c */
	bool rests;            /* the last poll found no work */
	uint64_t poll_ns;      /* now_ns of the last poll */
	uint64_t lag_ns;       /* duration of the last stall, valid until the next field's time */
	uint64_t lag_until_ns; /* by then, what arrived during the stall was dequeued */
	uint64_t excuse_ns;    /* a stall from then on excuses a full queue */
	bool stalled;          /* the worker did not run before this poll, and is excused */
	uint64_t last_work;    /* TSC after the last poll that found work */
	uint32_t backoff_us;   /* the next back-off */
	int core;              /* −1: not pinned */
	bool stop;             /* writer: control thread, relaxed */
	int wake_fd, epoll_fd; /* epoll_fd: has the ports' descriptors only if the worker is lent */
	int watched_fd;        /* of sy_worker_watch(); −1: none. Read before the worker runs */
	bool readable;         /* it was, when the last sleep ended */
	bool must_poll;        /* a source has no descriptor */
	uint32_t now_s;
	struct worker_clock clock;
	uint64_t round_tsc, round_cycles;
	uint64_t spin_cycles, min_spin, max_spin; /* how long it polls without work; bounds */
	int64_t sample_left[SY_SAMPLE_KINDS]; /* packets before the next sample; negative: a sample
	                                         is due. See sample.h */
	struct cpu_wait cpu_wait;
	struct worker_source source[SY_MAX_PORTS * SY_MAX_QUEUES];
	unsigned sources;

	struct sy_gather transmit[SY_MAX_PORTS];
	uint32_t transmit_ports;        /* bit per port with gathered packets */
	uint32_t shaped;                /* bit per port whose queues it owns: shaping.c */
	struct outbound *steer_out;     /* [workers] */
	struct sy_gather *transmit_by;  /* [workers]: for the owners of queues */
	uint64_t steer_to, transmit_to; /* bit per worker */
	struct resubmitted resubmitted;
	struct next_burst next;
	struct {
		uint64_t seen_ns;   /* all that entered the rings before was dequeued */
		uint64_t marked_ns; /* likewise, after `polls` */
		unsigned polls;
	} steered;
	struct sy_burst burst;

	struct sampler sampler;
	struct unresolved unresolved;
	uint32_t neighbours_seen; /* neighbours_changed at the last check */

	/* Written by other threads. */
	uint32_t asleep __attribute__((aligned(SY_CACHE_LINE))); /* see worker_sleep() */
	struct worker_call *call;
	struct sy_worker_post *posts;        /* most recent first */
	uint32_t neighbours_changed;         /* writer: control thread */
	struct ring **flow_in;               /* [workers], by sender; NULL for itself */
	struct ring **transmit_in;           /* likewise */
	struct rte_ring *neighbour_requests; /* to the control thread */
	uint32_t neighbour_requests_handled; /* requests handled. Writer: control thread */
};

/* ---- workers.c: all workers ------------------------------------------------------------------ */

int workers_open(struct sy_runtime *rt, struct sy_error *err);
/* Assigns the ports' receive queues to workers. */
int workers_bind(struct sy_runtime *rt, struct sy_error *err);
/* Adds a queue to those that the worker polls. Called by the worker's thread, or before it runs. */
int worker_source_add(struct sy_worker *w, struct port *port, unsigned queue);
/* Adds a descriptor to a lent worker's epoll instance. Returns 0 or a negative errno. */
int worker_watch(struct sy_worker *w, int fd);
/* Notes whether every worker has its own queues. Call when the numbers of queues are known. */
void workers_note_queues(struct sy_runtime *rt);
int workers_start(struct sy_runtime *rt, struct sy_error *err);
void workers_stop(struct sy_runtime *rt);
/* Call after workers_stop(): finishes, on the caller's thread, received and steered packets. Drops
 * packets that wait for a neighbour. */
void workers_drain(struct sy_runtime *rt);
void workers_close(struct sy_runtime *rt);
/* Control thread: a neighbour with queued packets may have changed. */
void workers_neighbour_changed(struct sy_runtime *rt);
/* Control thread: handles the workers' requests, and calls done() of finished posts. */
void workers_answer(struct sy_runtime *rt);

/* ---- worker.c: one worker -------------------------------------------------------------------- */

/* The worker's thread. */
void *worker_main(void *worker);
/* The calling thread becomes the worker; it ceases to be the worker. */
void worker_begin(struct sy_worker *w);
void worker_end(struct sy_worker *w);
/* Call after a poll: may the worker sleep, or is work likely to come soon? */
bool worker_rests(struct sy_worker *w, bool work);
/* Call before sleeping. Returns for how many nanoseconds to sleep at most; 0: there is work. */
uint64_t worker_sleep_begin(struct sy_worker *w);
void worker_sleep_end(struct sy_worker *w);
/* Adapts the spin time to when the sleep has ended. */
void worker_spin_note(struct sy_worker_private *p, uint64_t now);
/* Sleeps, with both calls; for a worker's own thread. */
void worker_sleep(struct sy_worker *w);
/* Restarts devices that have stopped for lack of buffers. */
void worker_sources_wake(struct sy_worker *w);
/* Call before the clock is first read. */
void worker_clock_start(struct sy_worker_private *p);
/* One poll iteration: checks each of the worker's sources once. Returns true if there was work.
 * Called by the worker's own thread or, in tests, by the thread that drives a worker that was not
 * started. */
bool worker_poll(struct sy_worker *w);
/* Did a burst of n packets, and maybe `waiting` others, arrive while the worker did not run?
 * `excused` counts those that are left. */
bool worker_is_excused(unsigned *excused, bool stalled, unsigned n, unsigned waiting);
/* Reads the TSC into tsc and the time into now_ns. */
void worker_clock_read(struct sy_worker *w);
/* Call from any thread after adding work for the worker. */
void worker_wake(struct sy_worker *w);
/* The same for several workers, by bitmap. */
void workers_wake(struct sy_runtime *rt, uint64_t workers);

/* ---- worker_call.c --------------------------------------------------------------------------- */

/* Worker: runs the control thread's call and posts. */
void call_run(struct sy_worker *w);
void posts_run(struct sy_worker *w);
/* Control thread: calls done() of all finished posts. */
void posts_finish(struct sy_runtime *rt);

/* ---- steer.c --------------------------------------------------------------------------------- */

int steer_open(struct sy_runtime *rt, struct sy_error *err);
void steer_close(struct sy_runtime *rt);
bool steer_is_empty(const struct sy_worker *w);
/* Call when the poll's bursts are over: reports to the other workers that their steered packets
 * have left. */
void steer_notify(struct sy_worker *w);
/* Gathers a packet, whose m->port is the egress port, for the owner of a queue of that port.
 * Returns its position in the ring to that worker. */
uint32_t steer_transmit(struct sy_worker *w, unsigned owner, struct rte_mbuf *m);
/* Has the owner sent all packets up to this position? */
bool steer_transmitted(const struct sy_worker *w, unsigned owner, uint32_t position);
/* Call when a poll begins: looks for steered packets. */
void steer_begin(struct sy_worker *w);
/* Dequeues the next steered packets, at most SY_BURST, into a burst. Returns how many. */
unsigned steer_receive(struct sy_worker *w, struct sy_burst *b);
/* Call after them: notes until when all that entered the rings was dequeued
 * (sy_worker_seen_ns()). */
void steer_note_seen(struct sy_worker *w);
/* Publishes the packets gathered for other workers, where there are many. */
void steer_push(struct sy_worker *w);
/* Publishes all of them, and wakes sleeping workers. */
void steer_flush(struct sy_worker *w);

/* ---- transmit.c ------------------------------------------------------------------------------ */

/* Sends packets on a port. Returns how many it accepted. The caller keeps the others, or drops and
 * counts them. */
unsigned transmit_now(struct sy_worker *w, struct port *port, struct rte_mbuf **m, unsigned n);
/* Sends the packets that the burst gathered for ports. */
void transmit_flush(struct sy_worker *w);
/* Gathers a packet for port m->port; MACs are in place. */
void transmit_gather(struct sy_worker *w, struct rte_mbuf *m);
/* Sends a packet by port m->port to the neighbour of this link (adjacency.h). */
void transmit_to(struct sy_worker *w, struct rte_mbuf *m, uint64_t link);

/* ---- unresolved.c ---------------------------------------------------------------------------- */

/* Queues a packet until the MAC address of this next hop on port m->port is known. Drops it as
 * neighbour-queue if too many wait, and later as no-neighbour if the hop does not answer. */
void unresolved_add(struct sy_worker *w, struct rte_mbuf *m, const struct sy_addr *addr);
/* Sends the packets of resolved hops, and drops those of failed ones. */
void unresolved_update(struct sy_worker *w);
/* Drops all queued packets when the worker ends. */
void unresolved_drop_all(struct sy_worker *w);

#endif
