// SPDX-License-Identifier: Apache-2.0
#include "event_stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>

static int model_find(const char *name, enum sy_event_model *out, struct sy_error *err)
{
	*out = SY_EVENT_ATOMIC;
	if (!name)
		return 0;
	for (unsigned i = 0; i < SY_EVENT_MODELS; i++)
		if (strcmp(name, sy_event_model_name[i]) == 0) {
			*out = (enum sy_event_model)i;
			return 0;
		}
	return sy_fail(err, EINVAL,
	               "there is no event model \"%s\"; known: atomic, ordered, unordered, direct",
	               name);
}

static int field_register(struct event_stage *s, struct sy_error *err)
{
	static const struct rte_mbuf_dynfield field = {.name = "steelyard_queued",
	                                               .size = sizeof(struct queued),
	                                               .align = __alignof__(struct queued)};
	s->field = rte_mbuf_dynfield_register(&field);
	return s->field < 0 ? sy_fail(err, rte_errno, "no room is left in packet buffers") : 0;
}

const char *event_stage_device(const struct sy_balance *b)
{
	return b->options.event_device ? b->options.event_device : EVENT_STAGE_DEVICE;
}

static int stage_open(const struct sy_balance *b, struct event_stage *s, struct sy_error *err)
{
	const uint64_t all = b->workers < 64 ? (UINT64_C(1) << b->workers) - 1 : UINT64_MAX;
	int rc = model_find(b->options.event_model, &s->model, err);
	if (rc < 0 || (rc = field_register(s, err)) < 0)
		return rc;
	const struct sy_event_options o = {
	        .device = event_stage_device(b),
	        .model = s->model,
	        .ports = b->workers + (s->model == SY_EVENT_ORDERED),
	        .consumers = s->model == SY_EVENT_DIRECT ? 1 : all,
	        .exit = b->workers,
	        .capacity = b->options.event_capacity ? b->options.event_capacity
	                                              : SY_BALANCE_EVENTS(b->workers),
	};
	return sy_event_open(&o, &s->event, err);
}

int event_stage_open(struct sy_balance *b, struct sy_error *err)
{
	if (b->stage)
		return 0;
	struct event_stage *s = calloc(1, sizeof(*s));
	if (!s)
		return sy_fail(err, ENOMEM, "no memory for the event stage");
	int rc = stage_open(b, s, err);
	if (rc < 0) {
		free(s);
		return rc;
	}
	sy_log(SY_LOG_INFO, "balance", "event device %s: open, its queue is %s",
	       event_stage_device(b), sy_event_model_name[s->model]);
	if (sy_event_is_scheduled(s->event) && b->workers > 1)
		sy_log(SY_LOG_WARN, "balance",
		       "event device %s gives each limit's packets to all workers in turn, and "
		       "they "
		       "wait for one that does not run: give each worker a CPU of its own, or use "
		       "engine cas",
		       event_stage_device(b));
	SY_RCU_PUBLISH(b->stage, s);
	return 0;
}

static void packet_lost(uint64_t word, void *ctx)
{
	(void)ctx;
	rte_pktmbuf_free((struct rte_mbuf *)(uintptr_t)word);
}

void event_stage_close(struct sy_balance *b)
{
	struct event_stage *s = (struct event_stage *)(uintptr_t)b->stage;
	if (!s)
		return;
	sy_event_close(s->event, packet_lost, NULL);
	b->stage = NULL;
	free(s);
}
