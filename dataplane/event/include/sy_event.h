// SPDX-License-Identifier: Apache-2.0
/*
 * event: queues between threads, on a device of DPDK's eventdev. A device decides which consumer
 * gets an event, by the model of its queue. It knows nothing of packets: an event is a word of the
 * caller and the number of a flow. docs/design/0034-event-stage.md compares the alternatives.
 *
 * Each thread has a port, at which it sends, receives, or both. All functions but open, close and
 * the readers are for the port's thread; threads must be known to EAL (rte_thread_register()). No
 * function waits, locks out others, allocates or logs, except open, close and retire.
 */
#ifndef SY_EVENT_H
#define SY_EVENT_H

#include <rte_eventdev.h>
#include <rte_spinlock.h>

#include <sy_base.h>

#define SY_EVENT_PORTS_MAX 64
#define SY_EVENT_BURST     32 /* events that a port holds at most */
#define SY_EVENT_FLOW_BITS 20

enum sy_event_model {
	SY_EVENT_DIRECT,    /* one consumer */
	SY_EVENT_UNORDERED, /* each event once, at any consumer */
	SY_EVENT_ORDERED,   /* at any consumer; the exit port gets what they pass in the order in
	                       which it was sent */
	SY_EVENT_ATOMIC,    /* a flow is at one consumer at a time, in the order in which it was
	                       sent; it moves to another one if that has less to do */
	SY_EVENT_MODELS
};

extern const char *const sy_event_model_name[SY_EVENT_MODELS];

struct sy_event;

/* Owner: one thread. */
struct sy_event_port {
	struct sy_event *event;
	uint8_t device, id, model;
	bool consumes, scheduled; /* scheduled: the device works when a port asks it to */
	uint16_t pending;         /* received, and neither finished nor released */
	/* Events. Writer: the port's thread; readers: any. */
	uint64_t sent, refused;
	uint64_t left; /* taken out of the device for good */
} __attribute__((aligned(SY_CACHE_LINE)));

struct sy_event_options {
	const char
	        *device; /* "event_dsw", "event_sw", "event_dlb2"; or the name of an EAL device */
	enum sy_event_model model;
	unsigned ports;     /* 1 to SY_EVENT_PORTS_MAX */
	uint64_t consumers; /* a bit for each port that receives; SY_EVENT_DIRECT: one bit */
	unsigned exit;      /* SY_EVENT_ORDERED: the port at the exit, not a consumer */
	unsigned capacity;  /* events in the device at most; 0: as many as it can */
};

/* Opens and starts a device; EAL runs already. -ENODEV: there is no such device; -ENOTSUP: it does
 * not have this model; -EINVAL: the options contradict each other. */
int sy_event_open(const struct sy_event_options *o, struct sy_event **event, struct sy_error *err);

/* What becomes of an event that nobody received: `lost` gets its word. */
typedef void (*sy_event_lost)(uint64_t word, void *ctx);

/* Ends it; no other thread uses a port any more. The events that are left go to `lost`. */
void sy_event_close(struct sy_event *event, sy_event_lost lost, void *ctx);

/* The port with this number. */
struct sy_event_port *sy_event_port(struct sy_event *event, unsigned port);

/* Events in the device, or pending by a port. Any thread. 0: there was a moment without any. While
 * threads send, the number may be too large. */
uint64_t sy_event_in_flight(const struct sy_event *event);

/* A flow number of 20 bits for any other one. Different ones may get the same: their events then
 * wait for each other. */
static inline uint32_t sy_event_flow(uint32_t key)
{
	return key < 1u << SY_EVENT_FLOW_BITS
	               ? key
	               : key * UINT32_C(0x9e3779b1) >> (32 - SY_EVENT_FLOW_BITS);
}

/* Makes an event. SY_EVENT_UNORDERED: the receiver may find another flow number. */
static inline void sy_event_make(const struct sy_event_port *p, struct rte_event *e, uint32_t flow,
                                 uint64_t word)
{
	static const uint8_t type[SY_EVENT_MODELS] = {
	        [SY_EVENT_DIRECT] = RTE_SCHED_TYPE_ATOMIC,
	        [SY_EVENT_UNORDERED] = RTE_SCHED_TYPE_PARALLEL,
	        [SY_EVENT_ORDERED] = RTE_SCHED_TYPE_ORDERED,
	        [SY_EVENT_ATOMIC] = RTE_SCHED_TYPE_ATOMIC,
	};
	*e = (struct rte_event){.flow_id = flow,
	                        .event_type = RTE_EVENT_TYPE_CPU,
	                        .op = RTE_EVENT_OP_NEW,
	                        .sched_type = type[p->model],
	                        .priority = RTE_EVENT_DEV_PRIORITY_NORMAL,
	                        .u64 = word};
}

/* Sends events, in their order. Returns how many the device took: fewer if it is full after a few
 * tries. The others are counted as refused, and remain the caller's. */
unsigned sy_event_send(struct sy_event_port *p, const struct rte_event *e, unsigned count);

/* Receives up to `count` events, at most SY_EVENT_BURST. Releases first what the port still holds:
 * from then on another consumer may get these flows. */
unsigned sy_event_receive(struct sy_event_port *p, struct rte_event *e, unsigned count);

/* Releases what the port holds, for a thread that will not receive for a while. */
void sy_event_release(struct sy_event_port *p);

/* SY_EVENT_ORDERED: what becomes of a received event; the exit port gets those that pass. */
static inline void sy_event_pass(struct rte_event *e)
{
	e->op = RTE_EVENT_OP_FORWARD;
	e->queue_id = 1;
}

static inline void sy_event_drop(struct rte_event *e)
{
	e->op = RTE_EVENT_OP_RELEASE;
}

/* Finishes the first `count` of all received events, in their order: each is passed or dropped.
 * Returns how many the device took; those that pass and were not taken are counted as refused, and
 * are the caller's. The next receive releases them. */
unsigned sy_event_finish(struct sy_event_port *p, const struct rte_event *e, unsigned count);

/* For a thread that neither sends nor receives now: lets what was sent leave the port's buffers,
 * and the device do its part. */
void sy_event_maintain(struct sy_event_port *p);

/* Do the ports drive the device, as event_sw? Then it gives flows to ports in turn, also to one
 * whose thread hardly runs. */
bool sy_event_is_scheduled(const struct sy_event *event);

/* Ends the port's part as a consumer, while others go on: no new event comes to it, and what lies
 * there is given to `got`, which handles it like received events. Its flows go to others. -ENOTSUP:
 * the device cannot do so while it runs; then another thread has to receive at this port, too. */
int sy_event_retire(struct sy_event_port *p, void (*got)(const struct rte_event *e, void *ctx),
                    void *ctx, struct sy_error *err);

#endif
