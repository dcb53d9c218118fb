// SPDX-License-Identifier: Apache-2.0
/*
 * The event device behind which workers take from buckets (docs/design/0034-event-stage.md). The
 * control thread opens it, with the first limit that asks for it or at the start; it stays open.
 * path/queued.h has what workers do with it.
 */
#ifndef EVENT_STAGE_H
#define EVENT_STAGE_H

#include <rte_mbuf_dyn.h>

#include <sy_event.h>

#include "balance.h"

#define EVENT_STAGE_DEVICE "event_dsw"

/* What a packet in the device carries, in its buffer's dynamic field. By ids alone: whatever is
 * deleted meanwhile, the consumer finds what there is then. */
struct queued {
	uint32_t server;
	uint16_t len; /* bytes of IP packet, as it came */
	uint8_t from; /* enum session_direction */
	uint8_t zero;
	uint32_t client[4];
};

struct event_stage {
	struct sy_event *event; /* a port for each worker; SY_EVENT_ORDERED: one more, the exit,
	                           which is worker 0's */
	enum sy_event_model model;
	int field; /* of struct queued, in a packet's buffer */
};

/* Does one worker at a time have the packets of a limit? Then it uses the bucket as its own. */
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
/* No worker runs any more. Frees the packets that are left. */
void event_stage_close(struct sy_balance *b);

#endif
