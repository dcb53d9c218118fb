// SPDX-License-Identifier: Apache-2.0
/* A pair of stacks; the first byte of a packet is its level. */
#ifndef LABELS_H
#define LABELS_H

#include "pair.h"

#define ALL SY_STACK_LEVELS

/* The first byte is the level; without a payload, keep. */
static uint8_t by_label(struct sy_hook_packet *p, const uint8_t *payload)
{
	return p->payload_len && payload[0] < SY_PRIORITIES ? payload[0] : SY_KEEP;
}

static inline void label_hook(void)
{
	assert_int_equal(sy_stack_packet_hook(pair.server, pair_packet_hook("label", by_label)), 0);
}

static const uint8_t label[SY_PRIORITIES][2] = {{0, 9}, {1, 9}, {2, 9}, {3, 9},
                                                {4, 9}, {5, 9}, {6, 9}, {7, 9}};

static inline void send_label(unsigned i, unsigned level)
{
	pair_send(i, label[level], 2);
}

#endif
