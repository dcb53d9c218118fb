// SPDX-License-Identifier: Apache-2.0
/*
 * A port and its two backends. A receive queue and the transmit queue of the same number belong to
 * one worker, so nothing here locks: rx and tx of a queue are called by its worker only.
 */
#ifndef PORT_H
#define PORT_H

#include "sy_runtime.h"

struct port;

struct port_ops {
	/* All that can be done while a predecessor still has the device (options.inherit). Fills
	 * the port's impl, mac, mtu, and what else is known by then. */
	int (*open)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	            struct sy_error *err);
	/* Takes the device; fills the rest. deadline: sy_clock_ns() until which a device that is
	 * still busy is waited for. */
	int (*bind)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	            uint64_t deadline, struct sy_error *err);
	unsigned (*rx)(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n);
	/* Returns how many were taken; the caller frees the rest. */
	unsigned (*tx)(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n);
	/* Something sent still waits in the queue for a kick that the next rx() will give. */
	bool (*is_pending)(struct port *p, unsigned queue);
	/* Each round and before the worker sleeps: wakes a device that stopped for want of buffers
	 * between rx()'s look and now. NULL: it never stops. */
	void (*wake)(struct port *p, unsigned queue);
	/* Readable when packets wait, or −1: it must be polled. */
	int (*descriptor)(struct port *p, unsigned queue);
	/* Looks at the link, every 100 ms; NULL: the mirror tells. */
	void (*refresh)(struct port *p);
	/* Adds what the device counts. Between bind() and release() only. */
	void (*stats)(struct port *p, struct sy_port_stats *out);
	/* No packet is accepted any more; what was can still be received. Workers may run. NULL:
	 * the device receives until it is released. */
	void (*shut)(struct port *p);
	/* No worker runs: what was sent leaves, and the device is let go of, for a successor; it
	 * may go on to close in the background. */
	void (*release)(struct port *p);
	/* The interface was deleted, and no worker calls the port any more: gives up what belonged
	 * to it, and keeps the rest. NULL: it cannot be taken again. */
	void (*lose)(struct port *p);
	/* After lose(): takes the interface of the port's name as bind() did. May fail, and be
	 * called again. */
	int (*again)(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
	             struct sy_error *err);
	/* After open(), bind() or release(), whether they succeeded or not. */
	void (*close)(struct port *p);
};

extern const struct port_ops port_xsk_ops, port_ethdev_ops;

/* Written by the worker of the queue, read by the control thread, relaxed. */
struct port_queue_counters {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes, tx_failed;
} __attribute__((aligned(SY_CACHE_LINE)));

struct port {
	const struct port_ops *ops;
	void *impl;
	unsigned id, queues;
	bool bound;  /* the device is ours */
	bool gone;   /* the interface was deleted; ifindex: of the one that came, 0: none did */
	bool held;   /* and workers may still call the port */
	int claimed; /* the former ifindex, on which IPv6 addresses were claimed */
	char problem[256]; /* of taking it again; empty: none */
	uint16_t mtu_link; /* the interface's MTU, of which mtu may be less */
	uint16_t mtu;      /* writer: control thread; readers: workers, relaxed */
	uint16_t mtu_max;  /* what the packet buffers hold; 0: no limit of ours */
	bool up;           /* likewise */
	uint64_t mac;      /* as in memory, in the first 6 bytes. Likewise */
	int ifindex;       /* 0: no kernel interface */
	int master;        /* of a bridge, bond or the like that it is part of; 0: none */
	char name[32];
	char backend[48];
	struct sy_director_stats found; /* what the flow director had counted before */
	struct sy_port_stats last;      /* what the device had counted when it was released */
	struct port_queue_counters counters[SY_MAX_QUEUES];
};

/* Buffers the port's queues hold at most, and the smallest data room they need. Before EAL. */
int port_needs(const struct sy_port_options *o, unsigned workers, unsigned *buffers,
               unsigned *capacity, struct sy_error *err);
int port_open(struct sy_runtime *rt, const struct sy_port_options *o, struct sy_error *err);
int port_bind(struct sy_runtime *rt, unsigned id, uint64_t deadline, struct sy_error *err);
/* Counters and everything else can still be read. */
void port_release(struct port *p);
void port_close(struct sy_runtime *rt, unsigned id);

/* The MTU that a kernel interface has now; what is used is no more than mtu_max. True: it changed,
 * and paths_measure() is due. */
bool port_set_mtu(struct port *p, unsigned mtu);

/* The port of a kernel interface, or of a name; SY_PORT_NONE: none. */
unsigned port_by_ifindex(const struct sy_runtime *rt, int ifindex);
unsigned port_by_name(const struct sy_runtime *rt, const char *name);

/* The interface was deleted, as the kernel says. */
void port_lose(struct sy_runtime *rt, struct port *p);
/* Frames of VLANs are other interfaces', which lie on this one. */
void port_set_vlans(struct port *p, bool vlans);

/* For address.c: steers on an xsk port. */
struct sy_director *port_xsk_director(const struct port *p);
/* Data room of a socket's frames for this MTU, 0 if it is beyond AF_XDP. */
unsigned port_xsk_frame_max(unsigned mtu);
/* The largest MTU whose frames fit this data room. */
unsigned port_xsk_mtu_max(unsigned capacity);
#define PORT_XSK_RING    2048 /* descriptors in each ring of a queue */
#define PORT_XSK_MTU_MAX 3400

#endif
