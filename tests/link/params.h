// SPDX-License-Identifier: Apache-2.0
/* Parameters of one direction of a link, and their text form. */
#ifndef LINK_PARAMS_H
#define LINK_PARAMS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PARAMS_ERROR 200

enum params_distribution { JITTER_UNIFORM, JITTER_NORMAL };
enum params_order { ORDER_KEEP, ORDER_FREE };
enum params_too_big { TOO_BIG_ICMP, TOO_BIG_SILENT };

struct params {
	/* Propagation delay: `delay` plus up to `jitter`. With ORDER_KEEP, a packet waits for
	 * earlier ones. */
	uint64_t delay, jitter; /* ns */
	uint64_t distribution, order;

	/* The transmitter, and the queue in front of it. 0: no limit. */
	uint64_t rate;     /* bits a second */
	uint64_t overhead; /* overhead bytes per frame */
	uint64_t queue_bytes, queue_packets;

	/* From red_min bytes in the queue on, packets are dropped with a probability that grows
	 * up to red_probability at red_max, and all from there; with ecn those that can are marked
	 * instead. red_max 0: never. */
	uint64_t red_min, red_max;
	double red_probability;
	uint64_t ecn;

	/* Gilbert-Elliott: the chances for each packet to change the state, and to be lost in the
	 * bad one; `loss` is that in the good one. */
	double loss, burst_enter, burst_leave, burst_loss;

	/* A reordered packet waits until so many later packets have passed it, at most
	 * reorder_delay; with distance 0, that long. */
	double reorder;
	uint64_t reorder_delay, reorder_distance;

	double duplicate, corrupt;

	/* IP packets above are not let in. 0: no limit. */
	uint64_t mtu, too_big;
	struct in_addr router4; /* sources of ICMP errors */
	struct in6_addr router6;
};

void params_default(struct params *p);
/* Parses "delay 20ms loss 1%": changes all named parameters, or none on an error; the word
 * "defaults" resets the others. Modifies the text. */
int params_read(struct params *p, char *text, char error[static PARAMS_ERROR]);
/* As a JSON object. */
void params_print(const struct params *p, FILE *out);
/* A line for each, for --help. */
void params_help(FILE *out);

#endif
