// SPDX-License-Identifier: Apache-2.0
/* An AF_XDP port, shared by the files that implement it. */
#ifndef PORT_XSK_H
#define PORT_XSK_H

#include <pthread.h>

#include <sy_xsk_queue.h>

#include "runtime.h"

#define PORT_XSK_MARK    0xfe00 /* no port has such a number */
#define PORT_XSK_RING    2048   /* descriptors in the rings of a queue */
#define PORT_XSK_MTU_MAX 3400

struct xsk_queue {
	struct sy_xsk_queue rings; /* its descriptor is that of UMEM and socket */
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	bool closing;
	pthread_t closer;
	int large_fd; /* cuts: takes segments that the kernel cuts */
	bool cuts;
};

struct xsk_port {
	char *base; /* of the UMEM */
	size_t len;
	struct rte_mempool *pool;
	struct sy_director *director;
	unsigned ring; /* packets that a receive queue holds */
	uint16_t mark; /* m->port of buffers that the kernel has to receive into */
	bool vlans;    /* VLAN interfaces lie on this one */
	struct xsk_queue queue[SY_MAX_QUEUES];
};

int xsk_interface_read(struct port *p, bool *up, struct sy_error *err);

/* ---- port_xsk_queue.c ------------------------------------------------------------------------ */

/* Data room of a socket's frames for this MTU; 0: the MTU is too large for AF_XDP. */
unsigned port_xsk_frame_max(unsigned mtu);
/* The largest MTU whose frames fit this data room. */
unsigned port_xsk_mtu_max(unsigned data_room);
int xsk_needs(const struct sy_port_options *o, unsigned workers, struct port_needs *out,
              struct sy_error *err);

/* Opens a UMEM with its fill ring full. Its descriptor becomes the socket's. */
int xsk_queue_open(struct xsk_port *x, unsigned queue, struct sy_error *err);
int xsk_queue_bind(struct xsk_port *x, const char *ifname, unsigned queue, bool copy,
                   struct sy_patience *patience, struct sy_error *err);
void xsk_queue_close_begin(struct xsk_queue *q);

/* ---- port_xsk_large.c ------------------------------------------------------------------------ */

/* For all queues, or the port does not offer it. */
void xsk_large_begin(struct port *p);
/* For those of the interface that was made again: connections rely on what was offered. */
int xsk_large_reattach(struct port *p, unsigned queues, struct sy_error *err);
void xsk_large_close(struct xsk_queue *q);

/* ---- port_xsk_reattach.c ------------------------------------------------------------------------
 */

void xsk_set_vlans(struct port *p, bool vlans);
/* Gives the flow director what it must know about the port. */
int xsk_director_set(struct port *p, struct sy_error *err);
void xsk_lose(struct port *p);
int xsk_reattach(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o, bool *up,
                 struct sy_error *err);

#endif
