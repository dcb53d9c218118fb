// SPDX-License-Identifier: Apache-2.0
/*
 * Bursts: packets that a worker processes together, stage by stage, and how they leave the burst.
 * sy_runtime.h includes this.
 */
#ifndef SY_BURST_H
#define SY_BURST_H

#include <rte_mbuf.h>

#include <sy_base.h>
#include <sy_packet.h>

#define SY_BURST 64

struct sy_runtime;
struct sy_worker;

/* A packet's next stage, which handles the packets marked for it. From SENT on: how it has left the
 * burst. */
enum sy_next {
	SY_NEXT_LOOKUP,
	SY_NEXT_SLOW,
	SY_NEXT_TRANSMIT,
	SY_NEXT_READY, /* transmit as it is to mbuf->port */

	SY_NEXT_SENT,   /* to a port, maybe in fragments */
	SY_NEXT_QUEUED, /* in a queue that sends it: the event device */
	SY_NEXT_ANSWERED,
	SY_NEXT_PENDING, /* kept by a stage, which may resubmit it */
	SY_NEXT_STEERED, /* to the worker that owns its slot */
	SY_NEXT_RELAYED, /* to another node */
	SY_NEXT_DROPPED,
};

static inline bool sy_next_has_left(uint8_t next)
{
	return next >= SY_NEXT_SENT;
}

/* Has it left the burst without being forwarded by this worker now? */
static inline bool sy_next_is_not_forwarded(uint8_t next)
{
	return next >= SY_NEXT_ANSWERED;
}

struct sy_burst {
	unsigned count; /* a stage may remove packets that have left */
	bool steered;   /* received from another worker: this worker owns the slots */
	bool behind;    /* its source holds so many more that some may be lost soon */
	uint64_t mac; /* of the ingress port, unless steered: in the first 6 bytes, as in memory */
	struct rte_mbuf *mbuf[SY_BURST]; /* mbuf->port: ingress port */
	uint8_t next[SY_BURST];          /* enum sy_next; receive sets SY_NEXT_LOOKUP */
	struct sy_view view[SY_BURST];
	uint8_t plain[SY_BURST]; /* sy_plain_parse(). If not 0, the view is filled in only where a
	                            stage reads it */
	/* For the balancer's stages. The runtime reads only the slot, to steer. */
	uint8_t slot[SY_BURST];      /* by the client's address and port */
	uint8_t direction[SY_BURST]; /* enum session_direction */
	uint64_t hash[SY_BURST];     /* hash of its tuple, as in the session index */
	uint32_t session[SY_BURST];  /* after look up: an index entry, which fast and remote verify;
	                                for the slow path: a record number, or SESSION_NONE */
	/* For transmit. */
	uint16_t path[SY_BURST]; /* next-hop group, sy_path_* */
	const struct sy_addr
	        *via[SY_BURST]; /* the neighbour; requires an on-link path. NULL, as set by receive:
	                           on an on-link path the neighbour is the frame's destination */
	uint32_t flow[SY_BURST]; /* selects a hop of the group; equal for all packets of a flow */
};

static inline uint8_t *sy_frame(struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod(m, uint8_t *);
}

/*
 * Prefetches n more packets of the next steered burst, or as many as it has: they move from the
 * other core's cache while this core does other work. A core supports about two dozen outstanding
 * cache lines, and drops requests beyond that. So the slowest stage calls this, for as many packets
 * as it processes at a time.
 */
void sy_steer_prefetch(struct sy_worker *w, unsigned n);

/* Frees the packet, counts the reason, marks it DROPPED. */
void sy_burst_drop(struct sy_worker *w, struct sy_burst *b, unsigned i, enum sy_drop reason);
/* The same for a packet that is in no burst. */
void sy_packet_drop(struct sy_worker *w, struct rte_mbuf *m, enum sy_drop reason);
/* Steers packet i to the worker that owns b->slot[i]. Packets are published at the burst's end,
 * with one wake-up per burst. Drops the packet if the ring is full. */
void sy_burst_steer(struct sy_worker *w, struct sy_burst *b, unsigned i);

/*
 * Ordering, for pipelines that forward packets of other workers' slots themselves. The packets that
 * a worker steers to one owner have consecutive positions modulo 2^32. sy_steer_position() is the
 * one after the last packet steered so far, this burst included. sy_steer_left() is the one after
 * the last packet that has gone to its port or was dropped; it is valid if each worker sends by
 * itself (queues_suffice), and reads another core's cache line. The owner sees packets steered by a
 * burst only after the packets that the burst sends have gone to their ports.
 */
uint32_t sy_steer_position(const struct sy_worker *w, unsigned owner);
uint32_t sy_steer_left(const struct sy_worker *w, unsigned owner);

/* Resubmits a packet to the pipeline after this burst, in a burst marked as steered. Returns false
 * if sixteen bursts of packets are already waiting. */
bool sy_packet_resubmit(struct sy_worker *w, struct rte_mbuf *m);
/* The same for all of them in this order, or for none. */
bool sy_packets_resubmit(struct sy_worker *w, struct rte_mbuf *const *m, unsigned count);
/* Capacity of the packet pool in buffers. */
unsigned sy_packet_buffers(const struct sy_runtime *rt);

/* Allocates a buffer for an originated packet. Returns NULL if the pool is empty. */
struct rte_mbuf *sy_packet_alloc(struct sy_worker *w);

/*
 * The last stage: resolves path and flow to a next hop, writes MACs, checks the MTU (drops an
 * oversized packet as TOO_BIG) and sends. If another worker owns the port's transmit queue, passes
 * the packet to it. Packets for an unresolved neighbour wait: at most 256 per next hop and 1024 per
 * worker, and for a second from the request to the kernel.
 */
void sy_transmit_stage(struct sy_worker *w, struct sy_burst *b);
/* The same for the packets before packet `end`, which all earlier stages have finished. Packets
 * that a stage then sends by sy_transmit_path() leave after them. */
void sy_transmit_before(struct sy_worker *w, struct sy_burst *b, unsigned end);
/* For a stage that passes frames to other workers: resolves next hop and port of packet i, which is
 * marked TRANSMIT, and writes its MACs. The packet becomes READY or DROPPED; it stays TRANSMIT if
 * it must wait for its neighbour. */
void sy_transmit_prepare(struct sy_worker *w, struct sy_burst *b, unsigned i);
/* Sends a READY frame, maybe another worker's. */
void sy_transmit_ready(struct sy_worker *w, struct rte_mbuf *m);
/* The current time. w->now_ns is that of the beginning of the poll, maybe several bursts and system
 * calls ago. Costs a read of the TSC. */
uint64_t sy_worker_clock_ns(const struct sy_worker *w);
/* Flushes what this worker has sent to the ports now, before its burst ends. */
void sy_transmit_now(struct sy_worker *w);
/* Wakes all other workers that sleep. Call it after adding work for them. */
void sy_workers_wake(struct sy_worker *w);
/* Sends an originated packet by a path, resolved as in sy_transmit_stage(). Its IP header and
 * Ethernet type are in place; via as in struct sy_burst. It leaves after everything that the worker
 * has sent before. */
void sy_transmit_path(struct sy_worker *w, struct rte_mbuf *m, uint16_t path,
                      const struct sy_addr *via, uint32_t flow);
/* Sends an originated packet out of a port, to the MAC already in place, from the port's MAC. With
 * RTE_MBUF_PORT_INVALID, because the packet that it answers came from another node: by the route to
 * its destination. */
void sy_transmit_back(struct sy_worker *w, struct rte_mbuf *m, uint16_t port);

#endif
