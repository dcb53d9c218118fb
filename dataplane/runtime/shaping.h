// SPDX-License-Identifier: Apache-2.0
/* What a shaped port has: in struct port. */
#ifndef SHAPING_H
#define SHAPING_H

#include <sy_shape.h>

#include "sy_runtime.h"

struct port;
struct sy_gather;

struct shaping {
	struct sy_shape *tree; /* NULL: the port is not shaped. Owner: its worker; the control
	                          thread reads counts */
	uint16_t *branch; /* by sy_packet_service(). Writer: control thread; readers: relaxed */
	uint32_t branches;
	bool ends;   /* once its queues are empty. Writer: control thread, while the worker waits */
	bool moves;  /* it has left its owner, and has no other yet. Control thread */
	bool drains; /* the process ends. Writer: control thread, while no worker runs */
	/* Of a tree that ends: until when it keeps what the device refuses. */
	uint64_t ends_ns;
	unsigned left; /* packets that were in the tree after the last turn */
	/* Taken from the tree, and refused by the device. */
	unsigned pending;
	unsigned refused;    /* tries in a row that sent nothing */
	uint64_t refused_ns; /* since when */
	struct rte_mbuf *pending_packet[SY_BURST];
};

/* To which worker, + 1, this one's packets for a port go; 0: to the port. Once shaping has ended,
 * still to the former owner until it has sent what this worker gave it. */
unsigned shaping_way(struct sy_worker *w, struct port *port, struct sy_gather *g);
/* Puts the packets into the port's tree, or hands them over to who owns it. */
void shaping_enter(struct sy_worker *w, struct port *port, unsigned owner, struct sy_gather *g);
/* Sends what may leave now by ports whose trees this worker owns; false: nothing did. */
bool shaping_poll(struct sy_worker *w);
/* How long this worker may sleep, in nanoseconds, at most `longest`. */
uint64_t shaping_sleep_ns(struct sy_worker *w, uint64_t longest);
/* The ports know their queues, and no worker runs yet: chooses the owners again. */
void shaping_bind(struct sy_runtime *rt);
/* No worker runs: from now on everything leaves at once. */
void shaping_open_all(struct sy_runtime *rt);
/* No worker runs: drops what the devices did not take. */
void shaping_drop_all(struct sy_runtime *rt);
/* Frees the trees of ports that are no longer shaped; each 100 ms. */
void shaping_tick(struct sy_runtime *rt);
void shaping_close(struct port *port);
/* The port is down, and may have fewer queues than before: chooses its owner again, if it must. 0
 * or -errno: a worker does not answer, call it again. */
int shaping_reattach(struct sy_runtime *rt, struct port *port);

#endif
