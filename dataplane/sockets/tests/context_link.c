// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>

#include "script.h"

#include "context_link.h"

static unsigned packets_before;

/* ---- the driver ------------------------------------------------------------------------------ */

static bool side_send(struct link *l, unsigned from)
{
	struct rte_mbuf *m[32], *kept[32];
	unsigned count = sy_stack_transmit(l->side[from].stack, m, 32, l->now), keep = 0;

	for (unsigned i = 0; i < count; i++) {
		if (l->change)
			m[i] = l->change(l, from, m[i]);
		if (l->cut)
			rte_pktmbuf_free(m[i]);
		else
			kept[keep++] = m[i];
	}
	l->packets += keep;
	sy_stack_receive(l->side[!from].stack, kept, keep, l->now);
	while (sy_stack_process(l->side[!from].stack, 32, l->now) > 0)
		;
	return count > 0;
}

static uint64_t link_due(struct link *l)
{
	uint64_t due = UINT64_MAX;

	for (unsigned i = 0; i < 2; i++) {
		uint64_t next = sy_stack_advance(l->side[i].stack, l->now);
		due = next < due ? next : due;
	}
	return due;
}

static bool side_poll(void *d)
{
	struct link *l = ((struct link_side *)d)->link;
	bool any = false, more = true;

	while (more) {
		link_due(l);
		more = side_send(l, 0);
		more |= side_send(l, 1);
		any |= more;
	}
	for (unsigned i = 0; i < 2; i++)
		context_events(l->side[i].context);
	return any;
}

static uint64_t now(void *d)
{
	return ((struct link_side *)d)->link->now;
}

static uint64_t sleep_ns(void *d)
{
	struct link *l = ((struct link_side *)d)->link;
	uint64_t due = link_due(l);

	return due > l->now ? due - l->now : 0;
}

static void awake(void *d)
{
}

static int wait(void *d, uint64_t max_ns, const sigset_t *mask)
{
	struct link *l = ((struct link_side *)d)->link;
	uint64_t ns = sleep_ns(d);

	if (ns > max_ns)
		ns = max_ns;
	if (ns > UINT64_C(86400) * 1000000000) /* no timer is set */
		return -EINTR;
	l->now += ns ? ns : 1000; /* time must advance */
	return 0;
}

static void wake(void *d)
{
	__atomic_add_fetch(&((struct link_side *)d)->woken, 1, __ATOMIC_RELAXED);
}

static int fd(void *d)
{
	return -1;
}

static const struct context_driver driver = {.poll = side_poll,
                                             .sleep = sleep_ns,
                                             .awake = awake,
                                             .wait = wait,
                                             .now = now,
                                             .clock = now,
                                             .fd = fd,
                                             .wake = wake};

/* ---- open and close -------------------------------------------------------------------------- */

void link_open(struct link *l, const struct sy_stack_options *options, uint32_t descriptors)
{
	struct rte_mempool *pool = tests_pool();

	*l = (struct link){.now = UINT64_C(1000000000000)};
	packets_before = rte_mempool_avail_count(pool);
	for (unsigned i = 0; i < 2; i++) {
		struct link_side *s = &l->side[i];
		struct sy_stack_options o = options ? *options : (struct sy_stack_options){0};
		o.pool = pool;
		o.connections = o.connections ? o.connections : 1024;
		memset(o.secret, (int)i + 1, sizeof(o.secret));
		s->link = l;
		assert_int_equal(sy_stack_create(&o, l->now, &s->stack, NULL), 0);
		sy_addr_parse(LINK_V4(i), &s->address[0].addr);
		sy_addr_parse(LINK_V6(i), &s->address[1].addr);
		const struct context_options c = {
		        .stack = s->stack,
		        .driver = &driver,
		        .ctx = s,
		        .address = s->address,
		        .addresses = 2,
		        .descriptors = descriptors,
		        .congestion = "cubic",
		        .port_first = 49152,
		        .port_last = 65535,
		        .number = i,
		};
		s->context = context_create(&c);
		assert_non_null(s->context);
	}
}

void link_pass(struct link *l, uint64_t ns)
{
	uint64_t end = l->now + ns;

	while (l->now < end) {
		side_poll(&l->side[0]);
		wait(&l->side[0], end - l->now, NULL);
	}
	side_poll(&l->side[0]);
}

uint64_t link_held(const struct link *l)
{
	uint64_t held = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct sy_stack_usage usage;
		sy_stack_usage(l->side[i].stack, &usage);
		held += usage.send_bytes + usage.receive_bytes + usage.ranges;
	}
	return held;
}

void link_close(struct link *l)
{
	struct sy_stack_usage usage;

	for (unsigned i = 0; i < 2; i++)
		context_close_all(l->side[i].context);
	link_pass(l, UINT64_C(200) * 1000000000); /* TIME-WAIT, FIN-WAIT-2 */
	assert_int_equal(link_held(l), 0);
	for (unsigned i = 0; i < 2; i++) {
		sy_stack_usage(l->side[i].stack, &usage);
		assert_int_equal(usage.connections, 0);
		assert_int_equal(usage.listeners, 0);
		context_destroy(l->side[i].context);
		sy_stack_destroy(l->side[i].stack);
	}
	assert_int_equal(rte_mempool_avail_count(tests_pool()), packets_before);
}
