// SPDX-License-Identifier: Apache-2.0
/*
 * The event device, behind which workers charge buckets without contention
 * (docs/design/0034-event-stage.md). The control thread opens it at the start, or with the first
 * limit that needs it; it stays open. Workers use it by path/queued.h.
 */
#ifndef EVENT_STAGE_H
#define EVENT_STAGE_H

#include <rte_mbuf_dyn.h>

#include <sy_event.h>

#include "balance.h"

#define EVENT_STAGE_DEVICE "event_dsw"

/* Metadata of a packet in the device, in a dynamic field of its buffer. It refers to everything by
 * id, so that a deletion meanwhile is harmless. */
struct queued {
	uint32_t server;
	uint16_t len; /* bytes of IP packet before rewriting */
	uint8_t from; /* enum session_direction */
	uint8_t zero;
	uint32_t client[4];
};

struct event_stage {
	struct sy_event
	        *event; /* a port per worker; SY_EVENT_ORDERED: one more, the exit, at worker 0 */
	enum sy_event_model model;
	int field; /* offset of struct queued in a packet's buffer */
};

/* Does the device give a limit's packets to one worker at a time? Then that worker uses the bucket
 * exclusively. */
static inline bool event_stage_is_alone(const struct event_stage *s)
{
	return s->model == SY_EVENT_ATOMIC || s->model == SY_EVENT_DIRECT;
}

static inline struct queued *queued_of(const struct event_stage *s, struct rte_mbuf *m)
{
	return RTE_MBUF_DYNFIELD(m, s->field, struct queued *);
}

/* The name of the device, open or not. */
const char *event_stage_device(const struct sy_balance *b);
/* Opens the device that the options name, unless it is open. Workers may run. */
int event_stage_open(struct sy_balance *b, struct sy_error *err);
/* Closes the device and frees its packets. Call when no worker runs. */
void event_stage_close(struct sy_balance *b);

#endif
