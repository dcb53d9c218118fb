// SPDX-License-Identifier: Apache-2.0
/*
 * A port and its two backends. A receive queue and the transmit queue of the same number belong to
 * one worker, so nothing here locks: rx and tx of a queue are called by its worker only.
 */
#ifndef PORT_H
#define PORT_H

#include "sy_runtime.h"

#include <sy_patience.h>

#include "shaping.h"

struct port;

/* What a port needs of the packet pool. */
struct port_needs {
	unsigned buffers;   /* that its queues hold at most */
	unsigned data_room; /* the least one of a buffer, bytes */
};

/* A backend. port.c has the table of them; all else calls ports by these. */
struct port_ops {
	unsigned ring;    /* descriptors of a transmit queue; of a receive queue too, unless
	                     options.ring says otherwise */
	unsigned mtu_max; /* 0: what the packet buffers hold */
	/* Before EAL and open(). */
	int (*needs)(const struct sy_port_options *o, unsigned workers, struct port_needs *out,
	             struct sy_error *err);
	/* Does everything that is possible while a predecessor still has the device
	 * (options.inherit). Fills the port's impl, mac, mtu, and whatever else is known then. */
	int (*open)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	            struct sy_error *err);
	/* Takes the device and fills the rest. Waits for a busy device while `patience` lasts. */
	int (*bind)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	            struct sy_patience *patience, struct sy_error *err);
	unsigned (*rx)(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n);
	/* How many packets wait in a queue after rx(), of `*room` at most. Both are 0 if the device
	 * cannot tell. */
	unsigned (*waiting)(struct port *p, unsigned queue, unsigned *room);
	/* Returns how many packets were taken; the caller frees the rest. */
	unsigned (*tx)(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n);
	/* How many packets that tx() took the device still has, at most. */
	unsigned (*sending)(struct port *p, unsigned queue);
	/* A sent packet still waits in the queue for a kick, which the next rx() will give. */
	bool (*is_pending)(struct port *p, unsigned queue);
	/* Each round and before the worker sleeps: wakes a device that stopped for lack of buffers
	 * since rx() looked. NULL: the device never stops. */
	void (*wake)(struct port *p, unsigned queue);
	/* A descriptor, readable when packets wait, or −1: the queue must be polled. */
	int (*descriptor)(struct port *p, unsigned queue);
	/* Looks at the link, every 100 ms; NULL: the mirror reports it. */
	void (*refresh)(struct port *p);
	/* Adds the device's counters. Only between bind() and release(). */
	void (*stats)(struct port *p, struct sy_port_stats *out);
	/* Stops accepting packets; accepted ones can still be received. Workers may run. NULL: the
	 * device receives until it is released. */
	void (*shut)(struct port *p);
	/* No worker runs: lets sent packets leave, and releases the device for a successor. The
	 * device may continue closing in the background. */
	void (*release)(struct port *p);
	/* The interface was deleted and no worker calls the port any more: frees what belonged to
	 * the interface and keeps the rest. NULL: the port cannot be taken again. */
	void (*lose)(struct port *p);
	/* After lose(): takes the interface of the port's name as bind() did, and says whether it
	 * is up; the port is down meanwhile. May fail and be called again. */
	int (*reattach)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	                bool *up, struct sy_error *err);
	/* After open(), bind() or release(), whether they succeeded or not. */
	void (*close)(struct port *p);
	/* What steers the interface's frames to this port or to the kernel, NULL before open(). No
	 * function: the port gets all frames. */
	struct sy_director *(*director)(const struct port *p);
	/* Other interfaces lie on this one, or no longer, and frames with VLAN tags are theirs. No
	 * function: tagged frames are dropped. */
	void (*set_vlans)(struct port *p, bool vlans);
};

extern const struct port_ops port_xsk_ops, port_ethdev_ops;
const struct port_ops *port_ops_of(enum sy_port_backend backend);
/* Packets that a receive queue holds. */
static inline unsigned port_ring(const struct sy_port_options *o)
{
	return o->ring ? o->ring : port_ops_of(o->backend)->ring;
}

/* Written by the worker of the queue, read by the control thread, relaxed. */
struct port_queue_counters {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes, tx_failed;
	uint64_t unfit;      /* packets that a device took, and could not send */
	uint64_t no_carrier; /* the same, as its link has no carrier */
} __attribute__((aligned(SY_CACHE_LINE)));

struct port {
	const struct port_ops *ops;
	void *impl;
	unsigned id, queues;
	bool bound;        /* this process has the device */
	bool gone;         /* the interface was deleted; ifindex: of the new one, 0: none */
	bool held;         /* gone, and workers may still call the port */
	uint64_t retry_ns; /* gone: the next attempt to take it, not before */
	unsigned attempts; /* that failed in a row */
	int claimed;       /* the former ifindex, on which IPv6 addresses were claimed */
	char problem[256]; /* of taking the port again; empty: none */
	uint16_t mtu_link; /* the interface's MTU, mtu may be smaller */
	uint16_t mtu_max;  /* what the packet buffers hold; 0: no limit */
	/* Writer: control thread; readers: workers, relaxed. */
	uint16_t mtu;
	bool up;
	uint8_t shaper; /* worker that owns its queues, + 1; 0: it is not shaped. Writer: that
	                   worker; readers: relaxed */
	uint64_t mac;   /* as in memory, in the first 6 bytes */

	int ifindex; /* 0: no kernel interface */
	uint32_t offloads;
	struct sy_port_tso tso;
	int master; /* ifindex of its bridge, bond or the like; 0: none */
	char name[32];
	char backend[48];
	struct sy_director_stats found; /* the flow director's earlier counts */
	struct sy_port_stats last;      /* the device's counts when it was released */
	struct shaping shaping;
	struct port_queue_counters counters[SY_MAX_QUEUES];
};

int port_open(struct sy_runtime *rt, const struct sy_port_options *o, struct sy_error *err);
int port_bind(struct sy_runtime *rt, unsigned id, struct sy_patience *patience,
              struct sy_error *err);
/* Counters and everything else can still be read. */
void port_release(struct port *p);
void port_close(struct sy_runtime *rt, unsigned id);

/* Sets the MTU that a kernel interface has now; the port uses at most mtu_max. True: the MTU
 * changed, and paths_measure() is due. */
bool port_set_mtu(struct port *p, unsigned mtu);

/* The port of a kernel interface, or with a name; SY_PORT_NONE: none. */
unsigned port_by_ifindex(const struct sy_runtime *rt, int ifindex);
unsigned port_by_name(const struct sy_runtime *rt, const char *name);

/* The kernel reports that the interface was deleted. */
void port_lose(struct sy_runtime *rt, struct port *p);

/* NULL: the port has none. */
static inline struct sy_director *port_director(const struct port *p)
{
	return p->ops->director ? p->ops->director(p) : NULL;
}

#endif
