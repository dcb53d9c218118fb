// SPDX-License-Identifier: Apache-2.0
/* Workers: the loop, hand-over between workers, sleeping and waking. */
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

#define WORKER_FLOW_RING     2048 /* packets from one worker to the slots' owner */
#define WORKER_TRANSMIT_RING 1024 /* packets to the owner of a transmit queue */
/* The number of bursts that a turn takes from one worker's ring at most. Packets there have already
 * cost work. If they arrive faster than they leave, it is better to lose packets that still wait in
 * the device. */
#define RING_BURSTS 8
/* Packets to next hops that are being resolved. Linux queues about as many for each neighbour
 * (sysctl net.ipv4.neigh.default.unres_qlen_bytes). */
#define UNRESOLVED_HOPS           64
#define UNRESOLVED_HOP_MAX        256
#define UNRESOLVED_MAX            1024 /* of a worker */
#define WORKER_NEIGHBOUR_REQUESTS 256  /* pending requests to the control thread */

/* The next burst of packets that other workers steered over. It is known before its turn, so its
 * packets are prefetched while the worker works on others. Between polls it is empty. */
struct next_burst {
	struct rte_mbuf *mbuf[SY_BURST];
	unsigned count;
	bool behind;         /* the ring that it came from is still half full */
	unsigned prefetched; /* of mbuf[] */
	unsigned from;       /* the worker to take from next; the number of workers: none */
	unsigned bursts;     /* taken from that worker in this turn */
	bool cut;            /* a ring may have had more than a turn takes */
	unsigned excused;    /* packets that came during a stall, and are not taken yet */
	size_t frame;        /* offset from buffer to frame in the latest burst; differs by kind of
	                        port */
};

/* From this many packets on, the worker looks at the other's ring before the turn is over. */
#define HANDOVER_LEAST (SY_BURST / 2)

/* Packets gathered for another worker: all of the current burst, and earlier ones that were too few
 * to send. Packets of a burst leave only after the packets that the burst has sent to ports. */
struct outbound {
	unsigned count;
	struct rte_mbuf *mbuf[HANDOVER_LEAST + SY_BURST];
};

struct unresolved_hop {
	struct sy_addr addr;
	uint64_t deadline_ns;
	uint64_t link; /* as adjacency's, valid during unresolved_update() like state */
	enum adjacency_state state;
	uint32_t request; /* its number; see neighbour_requests_handled */
	uint16_t count;   /* packets; 0: the entry is free */
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
	uint32_t requests; /* sent to the control thread */
	struct unresolved_hop hop[UNRESOLVED_HOPS];
	struct unresolved_packet packet[UNRESOLVED_MAX];
};

/* A worker's request to the control thread: to resolve a neighbour. */
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
	bool behind; /* as of its last burst */
	unsigned
	        excused; /* packets that came during a stall of the worker, and are not taken yet */
	struct sy_seen seen;
};

struct worker_clock {
	uint64_t tsc, ns; /* the same moment in both clocks, at most a round ago */
	uint64_t rate_tsc,
	        rate_ns; /* a moment at least a second ago: start of the rate measurement */
	uint64_t rate;   /* nanoseconds per cycle, 32 fractional bits */
};

/* Back-off when some source can only be polled. The first sleep is short, for traffic where a
 * packet comes now and then and each waits for the sleep to end. Each further sleep is twice as
 * long. */
#define WORKER_BACKOFF_US 50

#define WORKER_AGAIN (16 * SY_BURST)

/* The packets of sy_packet_resubmit(), in their order. */
struct resubmitted {
	unsigned first, count;
	bool behind; /* a burst that held back some was */
	struct rte_mbuf *mbuf[WORKER_AGAIN];
};

struct sy_worker_private {
	pthread_t thread;
	bool running;          /* the thread exists; used by the control thread */
	bool lent;             /* to a thread of the application: worker_lend.c */
	bool rests;            /* as of its last turn */
	uint64_t poll_ns;      /* now_ns of the last turn */
	uint64_t lag_ns;       /* the last stall, until the next field's time */
	uint64_t lag_until_ns; /* by then, what came during the stall is taken */
	uint64_t excuse_ns;    /* a stall from then on excuses a full queue */
	bool stalled;          /* the worker did not run before this turn, and is excused */
	uint64_t last_work;    /* TSC after the last turn that found some */
	uint32_t backoff_us;   /* the next back-off */
	int core;              /* −1: not pinned */
	bool stop;             /* writer: control thread, relaxed */
	int wake_fd, epoll_fd; /* epoll_fd: knows the ports only if the worker is lent */
	bool must_poll;        /* a source has no descriptor */
	uint32_t now_s;
	struct worker_clock clock;
	uint64_t round_tsc, round_cycles;
	uint64_t spin_cycles, min_spin, max_spin; /* how long it polls in vain, now; bounds */
	int64_t sample_left[SY_SAMPLE_KINDS]; /* packets that still pass before a sample; negative:
	                                         one is due. See sample.h */
	struct cpu_wait cpu_wait;
	struct worker_source source[SY_MAX_PORTS * SY_MAX_QUEUES];
	unsigned sources;

	struct sy_gather transmit[SY_MAX_PORTS];
	uint32_t transmit_ports;        /* bit per port with gathered packets */
	uint32_t shaped;                /* bit per port whose queues it owns: shaping.c */
	struct outbound *steer_out;     /* [workers] */
	struct sy_gather *transmit_by;  /* [workers]: for the owner of the queue */
	uint64_t steer_to, transmit_to; /* bit per worker */
	struct resubmitted resubmitted;
	struct next_burst next;
	struct {
		uint64_t seen_ns;   /* all that came into the rings before is seen */
		uint64_t marked_ns; /* likewise, after `polls` */
		unsigned polls;
	} steered;
	struct sy_burst burst;

	struct sampler sampler;
	struct unresolved unresolved;
	uint32_t neighbours_seen; /* neighbours_changed when last looked */

	/* Written by other threads. */
	uint32_t asleep __attribute__((aligned(SY_CACHE_LINE))); /* see worker_sleep() */
	struct worker_call *call;
	struct sy_worker_post *posts;        /* the latest first */
	uint32_t neighbours_changed;         /* writer: control thread */
	struct ring **flow_in;               /* [workers], by sender; NULL for itself */
	struct ring **transmit_in;           /* likewise */
	struct rte_ring *neighbour_requests; /* to the control thread */
	uint32_t neighbour_requests_handled; /* how many of them. Writer: control thread */
};

/* ---- workers.c: all workers ------------------------------------------------------------------ */

int workers_open(struct sy_runtime *rt, struct sy_error *err);
/* Assigns the ports' queues to workers. */
int workers_bind(struct sy_runtime *rt, struct sy_error *err);
/* Makes a worker poll a queue. Called on the worker's own thread, or before it runs. */
int worker_source_add(struct sy_worker *w, struct port *port, unsigned queue);
/* A lent worker's epoll instance tells of this descriptor. Returns 0 or a negative errno. */
int worker_watch(struct sy_worker *w, int fd);
/* Notes whether every worker has its own queues. Call when the numbers of queues are known. */
void workers_note_queues(struct sy_runtime *rt);
int workers_start(struct sy_runtime *rt, struct sy_error *err);
void workers_stop(struct sy_runtime *rt);
/* After workers_stop(): finishes, on the caller's thread, received packets and packets that workers
 * steered to each other. Packets that wait for a neighbour are dropped. */
void workers_drain(struct sy_runtime *rt);
void workers_close(struct sy_runtime *rt);
/* Control thread: a neighbour that packets may wait for has changed. */
void workers_neighbour_changed(struct sy_runtime *rt);
/* Control thread: answers the workers' requests, and continues after posts that are done. */
void workers_answer(struct sy_runtime *rt);

/* ---- worker.c: one worker -------------------------------------------------------------------- */

/* The worker's thread. */
void *worker_main(void *worker);
/* The calling thread becomes the worker, and is it no longer. */
void worker_begin(struct sy_worker *w);
void worker_end(struct sy_worker *w);
/* After a turn: may the worker sleep, or is something likely to come soon? */
bool worker_rests(struct sy_worker *w, bool work);
/* The worker is going to sleep: for how many nanoseconds at most. 0: it is
 * not, there is work. */
uint64_t worker_sleep_begin(struct sy_worker *w);
void worker_sleep_end(struct sy_worker *w);
/* Chooses how long it polls after its next work, by when its sleep has ended. */
void worker_spin_note(struct sy_worker_private *p, uint64_t now);
/* Both, and the sleep itself; of a thread that is the worker's own. */
void worker_sleep(struct sy_worker *w);
/* Devices that have stopped for lack of buffers look again. */
void worker_sources_wake(struct sy_worker *w);
/* Call before the clock is first read. */
void worker_clock_start(struct sy_worker_private *p);
/* One look at everything the worker polls; true if there was work. Called by the worker's own
 * thread or, in a test, by the thread that drives a worker that was not started. */
bool worker_poll(struct sy_worker *w);
/* Whether a burst of n packets came while the worker did not run, and `waiting` others may have.
 * `excused` counts those that are left. */
bool worker_is_excused(unsigned *excused, bool stalled, unsigned n, unsigned waiting);
/* Reads the TSC into tsc and the time into now_ns. */
void worker_clock_read(struct sy_worker *w);
/* Any thread, after it put work where the worker will look. */
void worker_wake(struct sy_worker *w);
/* The same for several, a bit each. */
void workers_wake(struct sy_runtime *rt, uint64_t workers);

/* ---- worker_call.c --------------------------------------------------------------------------- */

/* Worker: runs what the control thread waits for, and what it has posted. */
void call_run(struct sy_worker *w);
void posts_run(struct sy_worker *w);
/* Control thread: calls done() of all posts that have run. */
void posts_finish(struct sy_runtime *rt);

/* ---- steer.c --------------------------------------------------------------------------------- */

int steer_open(struct sy_runtime *rt, struct sy_error *err);
void steer_close(struct sy_runtime *rt);
bool steer_is_empty(const struct sy_worker *w);
/* The turn's bursts are over: informs the other workers that their steered-over packets have left.
 */
void steer_notify(struct sy_worker *w);
/* Gathers a packet, whose m->port is the egress port, for the owner of a queue of that port;
 * returns its position in the ring to that worker. */
uint32_t steer_transmit(struct sy_worker *w, unsigned owner, struct rte_mbuf *m);
/* Has the owner sent all up to this position? */
bool steer_transmitted(const struct sy_worker *w, unsigned owner, uint32_t position);
/* A turn begins: looks for packets that other workers have steered over. */
void steer_begin(struct sy_worker *w);
/* Takes the next steered-over packets, at most SY_BURST, into a burst; returns how many. */
unsigned steer_receive(struct sy_worker *w, struct sy_burst *b);
/* After them: until when has all been seen that came into the rings? (sy_worker_seen_ns()) */
void steer_note_seen(struct sy_worker *w);
/* Sends the packets gathered for other workers, where there are many. */
void steer_push(struct sy_worker *w);
/* Sends all of them, and wakes sleeping workers. */
void steer_flush(struct sy_worker *w);

/* ---- transmit.c ------------------------------------------------------------------------------ */

/* Gives packets to a port; returns how many it took. The caller keeps the others, or drops and
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
/* Sends the packets of hops that are resolved by now, and drops those of failed ones. */
void unresolved_update(struct sy_worker *w);
/* Drops all queued packets: the worker ends. */
void unresolved_drop_all(struct sy_worker *w);

#endif
