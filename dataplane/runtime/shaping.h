// SPDX-License-Identifier: Apache-2.0
/* Shaping state of a port, in struct port. */
#ifndef SHAPING_H
#define SHAPING_H

#include <sy_shape.h>

#include "sy_runtime.h"

struct port;
struct sy_gather;

struct shaping {
	struct sy_shape
	        *tree;    /* NULL: not shaped. Owner: its worker; the control thread reads counts */
	uint16_t *branch; /* by sy_packet_service(). Writer: control thread; readers: relaxed */
	uint32_t branches;
	bool ends; /* ends once its queues are empty. Writer: control thread, while the worker waits
	            */
	bool moves;  /* has left its owner and has no other yet. Control thread */
	bool drains; /* the process ends. Writer: control thread, while no worker runs */
	/* If the tree ends: until when packets refused by the device stay pending. */
	uint64_t ends_ns;
	unsigned left; /* packets in the tree after the last poll */
	/* Dequeued from the tree, refused by the device. */
	unsigned pending;
	unsigned refused;    /* consecutive tries that sent nothing */
	uint64_t refused_ns; /* time of the first of these */
	struct rte_mbuf *pending_packet[SY_BURST];
};

/* The worker, + 1, to which this worker passes packets for a port; 0: none, it sends them itself.
 * Once shaping has ended, still the former owner until it has sent this worker's packets. */
unsigned shaping_way(struct sy_worker *w, struct port *port, struct sy_gather *g);
/* Enqueues the packets on the port's shaping tree, or passes them to the worker that owns it. */
void shaping_enter(struct sy_worker *w, struct port *port, unsigned owner, struct sy_gather *g);
/* Sends packets that may leave now, on ports whose trees this worker owns. Returns false if none
 * did. */
bool shaping_poll(struct sy_worker *w);
/* Nanoseconds that this worker may sleep, at most `longest`. */
uint64_t shaping_sleep_ns(struct sy_worker *w, uint64_t longest);
/* Chooses the owners again, once the ports' queues are known. No worker runs yet. */
void shaping_bind(struct sy_runtime *rt);
/* Ends all shaping: everything leaves at once from now on. No worker runs. */
void shaping_open_all(struct sy_runtime *rt);
/* Drops the packets that the devices did not accept. No worker runs. */
void shaping_drop_all(struct sy_runtime *rt);
/* Frees the trees of ports that are no longer shaped; every 100 ms. */
void shaping_tick(struct sy_runtime *rt);
void shaping_close(struct port *port);
/* The port is down and may have fewer queues than before: chooses its owner again if necessary.
 * Returns 0, or -errno if a worker does not answer: call it again. */
int shaping_reattach(struct sy_runtime *rt, struct port *port);

#endif
