// SPDX-License-Identifier: Apache-2.0
/*
 * A port and its two backends. A receive queue and the transmit queue of the same number belong to
 * one worker: only it calls rx and tx of the queue, so nothing here locks.
 */
#ifndef PORT_H
#define PORT_H

#include "sy_runtime.h"

#include <sy_patience.h>

#include "shaping.h"

struct port;

/* What a port needs from the packet pool. */
struct port_needs {
	unsigned buffers;   /* max buffers in its queues */
	unsigned data_room; /* min data room of a buffer, bytes */
};

/* A backend. port.c has the table of backends; all other code calls ports by these operations. */
struct port_ops {
	unsigned ring;    /* descriptors of a transmit queue, and of a receive queue unless
	                     options.ring is set */
	unsigned mtu_max; /* 0: limited by the packet buffers */
	/* Call before EAL and open(). */
	int (*needs)(const struct sy_port_options *o, unsigned workers, struct port_needs *out,
	             struct sy_error *err);
	/* Does everything that is possible while a predecessor has the device (options.inherit).
	 * Sets the port's impl, mac, mtu, and other known properties. */
	int (*open)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	            struct sy_error *err);
	/* Acquires the device and sets the rest. Waits up to `patience` for a busy device. */
	int (*bind)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	            struct sy_patience *patience, struct sy_error *err);
	unsigned (*rx)(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n);
	/* The number of packets waiting in a queue after rx(), and the queue's capacity in *room.
	 * Both are 0 if the device cannot say. */
	unsigned (*waiting)(struct port *p, unsigned queue, unsigned *room);
	/* Returns the number of packets accepted; the caller frees the rest. */
	unsigned (*tx)(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n);
	/* Upper bound of the accepted packets that the device has not sent yet. */
	unsigned (*sending)(struct port *p, unsigned queue);
	/* Does a packet wait in the queue for a kick, which the next rx() does? */
	bool (*is_pending)(struct port *p, unsigned queue);
	/* Once a round and before the worker sleeps: restarts a device that stopped for lack of
	 * buffers after the last rx(). NULL: the device never stops. */
	void (*wake)(struct port *p, unsigned queue);
	/* A descriptor that is readable when packets wait; −1: the queue must be polled. */
	int (*descriptor)(struct port *p, unsigned queue);
	/* Reads the link state, every 100 ms; NULL: the mirror reports it. */
	void (*refresh)(struct port *p);
	/* Adds the device's counters. Only between bind() and release(). */
	void (*stats)(struct port *p, struct sy_port_stats *out);
	/* Stops accepting packets; accepted ones can still be received. Workers may run. NULL: the
	 * device receives until it is released. */
	void (*shut)(struct port *p);
	/* Flushes sent packets, and releases the device for a successor. No worker runs. The device
	 * may go on closing in the background. */
	void (*release)(struct port *p);
	/* The interface was deleted, and no worker calls the port any more: frees its resources and
	 * keeps the rest. NULL: the port cannot be reattached. */
	void (*lose)(struct port *p);
	/* After lose(): acquires the interface of the port's name as bind() did, and sets *up; the
	 * port stays down meanwhile. May fail and be called again. */
	int (*reattach)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	                bool *up, struct sy_error *err);
	/* After open(), bind() or release(), even if they failed. */
	void (*close)(struct port *p);
	/* The director that steers the interface's frames to this port or to the kernel; NULL
	 * before open(). No function: the port gets all frames. */
	struct sy_director *(*director)(const struct port *p);
	/* Sets whether VLAN interfaces are on top of this one and receive its tagged frames. No
	 * function: tagged frames are dropped. */
	void (*set_vlans)(struct port *p, bool vlans);
};

extern const struct port_ops port_xsk_ops, port_ethdev_ops;
const struct port_ops *port_ops_of(enum sy_port_backend backend);
/* Capacity of a receive queue in packets. */
static inline unsigned port_ring(const struct sy_port_options *o)
{
	return o->ring ? o->ring : port_ops_of(o->backend)->ring;
}

/* Writer: the queue's worker; reader: control thread, relaxed. */
struct port_queue_counters {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes, tx_failed;
	uint64_t unfit;      /* packets that the device accepted but could not send */
	uint64_t no_carrier; /* the same, as its link has no carrier */
} __attribute__((aligned(SY_CACHE_LINE)));

struct port {
	const struct port_ops *ops;
	void *impl;
	unsigned id, queues;
	bool bound;        /* this process owns the device */
	bool gone;         /* the interface was deleted; ifindex: of its successor, 0: none */
	bool in_use;       /* gone, and workers may still call the port */
	uint64_t retry_ns; /* gone: time of the next attempt to reattach */
	unsigned attempts; /* failed attempts in a row */
	int claimed;       /* the former ifindex, which has the claimed IPv6 addresses */
	char problem[256]; /* why reattaching failed; empty: it did not */
	uint16_t mtu_link; /* the interface's MTU; mtu may be smaller */
	uint16_t mtu_max;  /* limit by the packet buffers; 0: none */
	/* Writer: control thread; readers: workers, relaxed. */
	uint16_t mtu;
	bool up;
	uint8_t shaper; /* worker that owns its shaping tree, + 1; 0: not shaped. Writer: that
	                   worker; readers: relaxed */
	uint64_t mac;   /* in the first 6 bytes, as in memory */

	int ifindex; /* 0: no kernel interface */
	uint32_t offloads;
	struct sy_port_tso tso;
	int master; /* ifindex of its bridge, bond or similar; 0: none */
	char name[32];
	char backend[48];
	struct sy_director_stats found; /* counts of the flow director from before this process */
	struct sy_port_stats last;      /* the device's counts when it was released */
	struct shaping shaping;
	struct port_queue_counters counters[SY_MAX_QUEUES];
};

int port_open(struct sy_runtime *rt, const struct sy_port_options *o, struct sy_error *err);
int port_bind(struct sy_runtime *rt, unsigned id, struct sy_patience *patience,
              struct sy_error *err);
/* Counters and everything else remain readable. */
void port_release(struct port *p);
void port_close(struct sy_runtime *rt, unsigned id);

/* Sets the MTU of the kernel interface; the port uses at most mtu_max. Returns true if the port's
 * MTU changed: call paths_measure(). */
bool port_set_mtu(struct port *p, unsigned mtu);

/* The port of a kernel interface, or with a name; SY_PORT_NONE if there is none. */
unsigned port_by_ifindex(const struct sy_runtime *rt, int ifindex);
unsigned port_by_name(const struct sy_runtime *rt, const char *name);

/* The kernel reports that the interface was deleted. */
void port_lose(struct sy_runtime *rt, struct port *p);

/* Returns NULL if the port has none. */
static inline struct sy_director *port_director(const struct port *p)
{
	return p->ops->director ? p->ops->director(p) : NULL;
}

#endif
