// SPDX-License-Identifier: Apache-2.0
/* Sending and receiving at ports. */
#include <errno.h>

#include <rte_service.h>

#include "event.h"

#define SEND_TRIES 4
#define FINISH_TRIES                                                                               \
	64 /* tries to return events: the device has space for them after it has run               \
	    */

void device_work(struct sy_event *event)
{
	if (!rte_spinlock_trylock(&event->lock))
		return;
	(void)rte_service_run_iter_on_app_lcore(event->service, 0); /* see service_try() */
	rte_spinlock_unlock(&event->lock);
}

unsigned sy_event_send(struct sy_event_port *p, const struct rte_event *e, unsigned count)
{
	unsigned sent = 0;
	for (unsigned tries = 0; sent < count && tries < SEND_TRIES;) {
		unsigned n = count - sent < SY_EVENT_BURST ? count - sent : SY_EVENT_BURST;
		/* Count before other threads can receive them: `left` must not exceed `sent`. */
		COUNT(p->sent, n);
		unsigned took =
		        rte_event_enqueue_new_burst(p->device, p->id, e + sent, (uint16_t)n);
		sent += took;
		if (took == n)
			continue;
		COUNT(p->sent, (uint64_t)took - n);
		tries++;
		if (p->scheduled)
			device_work(p->event);
		else
			rte_pause();
	}
	if (sent < count)
		COUNT(p->refused, count - sent);
	return sent;
}

/* The device releases the port's events at its next receive. For ordered events that is their
 * end. */
static void pending_forget(struct sy_event_port *p)
{
	if (p->model == SY_EVENT_ORDERED && p->consumes)
		COUNT(p->left, p->pending);
	p->pending = 0;
}

unsigned sy_event_receive(struct sy_event_port *p, struct rte_event *e, unsigned count)
{
	uint16_t max = count < SY_EVENT_BURST ? (uint16_t)count : SY_EVENT_BURST;
	pending_forget(p);
	uint16_t got = rte_event_dequeue_burst(p->device, p->id, e, max, 0);
	/* event_sw notices in one poll that a port has space, and uses it in the next. */
	for (unsigned polls = 0; polls < 2 && got == 0 && p->scheduled; polls++) {
		device_work(p->event);
		got = rte_event_dequeue_burst(p->device, p->id, e, max, 0);
	}
	if (p->consumes)
		p->pending = got;
	if (p->model != SY_EVENT_ORDERED || !p->consumes)
		COUNT(p->left, got);
	return got;
}

/* Returns events to the device. Returns how many it accepted. */
static unsigned events_return(struct sy_event_port *p, const struct rte_event *e, unsigned count)
{
	unsigned done = 0;
	for (unsigned tries = 0; done < count && tries < FINISH_TRIES; tries++) {
		done += rte_event_enqueue_burst(p->device, p->id, e + done,
		                                (uint16_t)(count - done));
		if (done < count && p->scheduled)
			device_work(p->event);
	}
	return done;
}

void sy_event_release(struct sy_event_port *p)
{
	struct rte_event e[SY_EVENT_BURST];
	if (p->pending == 0 || p->model == SY_EVENT_DIRECT)
		return;
	for (unsigned i = 0; i < p->pending; i++)
		e[i] = (struct rte_event){.op = RTE_EVENT_OP_RELEASE};
	unsigned done = events_return(p, e, p->pending);
	if (p->model == SY_EVENT_ORDERED)
		COUNT(p->left, done);
	p->pending -= (uint16_t)done;
}

unsigned sy_event_finish(struct sy_event_port *p, const struct rte_event *e, unsigned count)
{
	unsigned done = events_return(p, e, count), dropped = 0, refused = 0;
	for (unsigned i = 0; i < done; i++)
		dropped += e[i].op == RTE_EVENT_OP_RELEASE;
	for (unsigned i = done; i < count; i++)
		refused += e[i].op != RTE_EVENT_OP_RELEASE;
	COUNT(p->left, dropped);
	COUNT(p->refused, refused);
	p->pending -= (uint16_t)done;
	return done;
}

void sy_event_maintain(struct sy_event_port *p)
{
	if (p->event->maintained)
		rte_event_maintain(p->device, p->id, RTE_EVENT_DEV_MAINT_OP_FLUSH);
	if (p->scheduled)
		device_work(p->event);
}

int sy_event_retire(struct sy_event_port *p, void (*got)(const struct rte_event *e, void *ctx),
                    void *ctx, struct sy_error *err)
{
	struct sy_event *event = p->event;
	struct rte_event e[SY_EVENT_BURST];
	unsigned empty = 0;

	if (!event->relinks)
		return sy_fail(err, ENOTSUP,
		               "a port of this event device stays a consumer while it runs; "
		               "remedy: another thread receives at it, too");
	if (p->model == SY_EVENT_DIRECT)
		return sy_fail(err, ENOTSUP, "a direct queue has no other consumer");
	rte_spinlock_lock(&event->lock);
	int rc = rte_event_port_unlink(p->device, p->id, NULL, 0);
	rte_spinlock_unlock(&event->lock);
	if (rc < 0)
		return sy_fail(err, -rc, "unlinking a port of an event device");
	/* A flow moves to another port once this one has no event of it: drain the port before the
	 * device runs again. */
	while (empty < 2 || rte_event_port_unlinks_in_progress(p->device, p->id) > 0) {
		unsigned n = sy_event_receive(p, e, SY_EVENT_BURST);
		for (unsigned i = 0; i < n; i++)
			got(&e[i], ctx);
		empty = n ? 0 : empty + 1;
	}
	p->consumes = false;
	return 0;
}
