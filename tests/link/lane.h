// SPDX-License-Identifier: Apache-2.0
/* A direction between two interfaces: packets that arrive at one leave the other when they are due.
 */
#ifndef LINK_LANE_H
#define LINK_LANE_H

#include "direction.h"
#include "lateness.h"
#include "link_port.h"

struct lane {
	struct direction direction;
	struct port *from, *to;
	struct lateness late;
	uint64_t arrived; /* of the last packet */
	/* Packets that are due, from `sent` on not sent yet. */
	uint32_t due[PORT_BURST];
	unsigned count, sent;
	uint64_t refused; /* since when the kernel refuses packets; 0: it does not */
};

/* Both ways of a link. */
struct link {
	struct pool pool;
	struct port port[2];
	struct lane lane[2]; /* a to b, b to a */
	uint64_t seed;
};

uint64_t clock_ns(void);

int link_open(struct link *l, uint32_t packets, uint32_t slot, uint64_t seed);
void link_close(struct link *l);
/* Begins all draws anew; the directions have different ones. */
void link_seed(struct link *l, uint64_t seed);

/* Resets counters; packets in flight count as just arrived. */
void link_clear(struct link *l);

/* Receives pending frames; returns false if there are none. */
bool lane_receive(struct lane *l);
/* Sends due packets; returns the time of the next ones. */
uint64_t lane_send(struct lane *l);
/* Packets on their way. */
uint64_t lane_on_the_way(const struct lane *l);

/* Parameters, counts and lateness as one line of JSON. */
char *link_report(struct link *l);

#endif
