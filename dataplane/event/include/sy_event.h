// SPDX-License-Identifier: Apache-2.0
/*
 * event: queues between threads, by a device of DPDK's eventdev. The model of the device's queue
 * decides which consumer gets an event. Independent of packets: an event is a word of the caller
 * and the number of a flow. docs/design/0034-event-stage.md compares the alternatives.
 *
 * Each thread has a port, at which it sends, receives, or both. All functions except open, close
 * and the readers are for the port's thread; threads must be registered with EAL
 * (rte_thread_register()). Except open, close and retire, no function waits, locks out others,
 * allocates or logs.
 */
#ifndef SY_EVENT_H
#define SY_EVENT_H

#include <rte_eventdev.h>
#include <rte_spinlock.h>

#include <sy_base.h>

#define SY_EVENT_PORTS_MAX 64
#define SY_EVENT_BURST     32 /* max events that a port has at once */
#define SY_EVENT_FLOW_BITS 20

enum sy_event_model {
	SY_EVENT_DIRECT,    /* one consumer */
	SY_EVENT_UNORDERED, /* each event to one consumer, in any order */
	SY_EVENT_ORDERED,   /* to any consumer; the exit port gets the events that they pass in the
	                       order of sending */
	SY_EVENT_ATOMIC, /* a flow goes to one consumer at a time, in the order of sending; it may
	                    move to a less busy one */
	SY_EVENT_MODELS
};

extern const char *const sy_event_model_name[SY_EVENT_MODELS];

struct sy_event;

/* Owner: one thread. */
struct sy_event_port {
	struct sy_event *event;
	uint8_t device, id, model;
	bool consumes, scheduled; /* scheduled: ports run the device's service */
	uint16_t pending;         /* received, neither finished nor released */
	/* Events. Writer: the port's thread; readers: any thread. */
	uint64_t sent, refused;
	uint64_t left; /* events that have left the device */
} __attribute__((aligned(SY_CACHE_LINE)));

struct sy_event_options {
	const char
	        *device; /* "event_dsw", "event_sw", "event_dlb2"; or the name of an EAL device */
	enum sy_event_model model;
	unsigned ports;     /* 1 to SY_EVENT_PORTS_MAX */
	uint64_t consumers; /* bitmap of ports that receive; SY_EVENT_DIRECT: one bit */
	unsigned exit;      /* SY_EVENT_ORDERED: the port at the exit, which is no consumer */
	unsigned capacity;  /* max events in the device; 0: its maximum */
};

/* Opens and starts a device; EAL is running. Fails with -ENODEV without such a device, -ENOTSUP if
 * it lacks this model, -EINVAL if options contradict each other. */
int sy_event_open(const struct sy_event_options *o, struct sy_event **event, struct sy_error *err);

/* Called with the word of an event that no port received. */
typedef void (*sy_event_lost)(uint64_t word, void *ctx);

/* Closes the device; no other thread uses a port any more. Remaining events go to `lost`. */
void sy_event_close(struct sy_event *event, sy_event_lost lost, void *ctx);

/* The port with this number. */
struct sy_event_port *sy_event_port(struct sy_event *event, unsigned port);

/* Upper bound of the events in the device or pending at a port. Any thread. 0: there was a moment
 * without any. */
uint64_t sy_event_in_flight(const struct sy_event *event);

/* Hashes a number to a flow number of 20 bits. Different numbers may collide: their events then
 * wait for each other. */
static inline uint32_t sy_event_flow(uint32_t key)
{
	return key < 1u << SY_EVENT_FLOW_BITS
	               ? key
	               : key * UINT32_C(0x9e3779b1) >> (32 - SY_EVENT_FLOW_BITS);
}

/* Initializes an event. SY_EVENT_UNORDERED: the receiver may get another flow number. */
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

/* Enqueues events in order. Returns how many the device accepted: fewer if it is still full after a
 * few tries. Counts the others as refused; they remain the caller's. */
unsigned sy_event_send(struct sy_event_port *p, const struct rte_event *e, unsigned count);

/* Receives up to `count` events, at most SY_EVENT_BURST. First releases the port's pending events:
 * another consumer may then get their flows. */
unsigned sy_event_receive(struct sy_event_port *p, struct rte_event *e, unsigned count);

/* Releases the port's pending events, for a thread that will not receive for a while. */
void sy_event_release(struct sy_event_port *p);

/* SY_EVENT_ORDERED: passes or drops a received event; the exit port gets those that pass. */
static inline void sy_event_pass(struct rte_event *e)
{
	e->op = RTE_EVENT_OP_FORWARD;
	e->queue_id = 1;
}

static inline void sy_event_drop(struct rte_event *e)
{
	e->op = RTE_EVENT_OP_RELEASE;
}

/* Finishes the first `count` of all received events, in order: passed or dropped. Returns how many
 * the device accepted; those that pass and were not accepted are counted as refused, and are the
 * caller's. The next receive releases them. */
unsigned sy_event_finish(struct sy_event_port *p, const struct rte_event *e, unsigned count);

/* For a thread that neither sends nor receives now: flushes the port's buffers and runs the
 * device's service. */
void sy_event_maintain(struct sy_event_port *p);

/* Do ports run the device's service, as with event_sw? Then flows also go to ports whose threads
 * hardly run. */
bool sy_event_is_scheduled(const struct sy_event *event);

/* Removes the port as a consumer while others continue: no new events come to it, and pending ones
 * are passed to `got`, which handles them like received events. Its flows move to other ports.
 * Fails with -ENOTSUP if the device cannot do this while it runs; then another thread must receive
 * at this port too. */
int sy_event_retire(struct sy_event_port *p, void (*got)(const struct rte_event *e, void *ctx),
                    void *ctx, struct sy_error *err);

#endif
