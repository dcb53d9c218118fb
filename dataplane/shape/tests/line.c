// SPDX-License-Identifier: Apache-2.0
#include "line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <rte_eal.h>

#define BUFFERS 8191

static struct rte_mempool *pool;

int line_setup(void **state)
{
	char *argv[] = {
	        "test",        "--no-huge",      "-m", "128", "--no-pci",    "--no-telemetry",
	        "--no-shconf", "--iova-mode=va", "-l", "0",   "--log-level", "lib.eal:error",
	        NULL};
	assert_true(rte_eal_init((int)SY_ARRAY_LEN(argv) - 1, argv) >= 0);
	pool = rte_pktmbuf_pool_create("line", BUFFERS, 0, 0, RTE_PKTMBUF_HEADROOM + 128, 0);
	assert_non_null(pool);
	return 0;
}

unsigned line_free(void)
{
	return rte_mempool_avail_count(pool);
}

struct sy_shape_config *line_config(uint64_t rate)
{
	static struct sy_shape_branch tenant[64], service[64];
	static struct sy_shape_config c;
	c = (struct sy_shape_config){
	        .rate = rate, .burst = 4096, .tenant = tenant, .service = service};
	/* A large frame's time is the least burst of fast lines. */
	if (rate / 8 / 10000 > c.burst)
		c.burst = rate / 8 / 10000;
	line_class(&c, "default", 7, 1, 0);
	line_tenant(&c, "", 0, 0, 1);
	line_service(&c, 0, "", 0, 0, 1);
	return &c;
}

unsigned line_tenant(struct sy_shape_config *c, const char *name, uint64_t guaranteed,
                     uint64_t maximum, uint8_t weight)
{
	struct sy_shape_branch *b = &c->tenant[c->tenants];
	*b = (struct sy_shape_branch){.guaranteed = guaranteed,
	                              .maximum = maximum,
	                              .weight = weight,
	                              .class = SY_SHAPE_BY_DSCP};
	snprintf(b->name, sizeof(b->name), "%s", name);
	return c->tenants++;
}

unsigned line_service(struct sy_shape_config *c, unsigned tenant, const char *name,
                      uint64_t guaranteed, uint64_t maximum, uint8_t weight)
{
	struct sy_shape_branch *b = &c->service[c->services];
	*b = (struct sy_shape_branch){.guaranteed = guaranteed,
	                              .maximum = maximum,
	                              .weight = weight,
	                              .class = SY_SHAPE_BY_DSCP,
	                              .tenant = (uint16_t)tenant};
	snprintf(b->name, sizeof(b->name), "%s", name);
	return c->services++;
}

unsigned line_class(struct sy_shape_config *c, const char *name, uint8_t priority, uint8_t weight,
                    unsigned dscp)
{
	struct sy_shape_class *k = &c->class[c->classes];
	*k = (struct sy_shape_class){.priority = priority, .weight = weight, .queue = 64};
	snprintf(k->name, sizeof(k->name), "%s", name);
	c->class_of[dscp] = (uint8_t)c->classes;
	return c->classes++;
}

struct sy_shape *line_shape(const struct line *l, const struct sy_shape_config *c, unsigned room)
{
	struct sy_shape *s;
	struct sy_error err = {0};
	if (sy_shape_create(c, room, l->now_ns, &s, &err) < 0)
		fail_msg("%s", err.text);
	return s;
}

void line_open(struct line *l, const struct sy_shape_config *c)
{
	*l = (struct line){.now_ns = 1000 * MS, .step_ns = 2000};
	l->shape = line_shape(l, c, 7000);
}

void line_close(struct line *l)
{
	sy_shape_destroy(l->shape);
	assert_int_equal(line_free(), BUFFERS);
}

struct flow *line_flow(struct line *l, unsigned service, uint8_t dscp, uint16_t len,
                       uint64_t every_ns)
{
	struct flow *f = &l->flow[l->flows++];
	*f = (struct flow){.service = service,
	                   .dscp = dscp,
	                   .len = len,
	                   .every_ns = every_ns,
	                   .due_ns = l->now_ns};
	return f;
}

enum sy_drop line_put(struct line *l, struct flow *f)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	assert_non_null(m);
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	memset(frame, 0, 64);
	frame[12] = 0x08;
	frame[14] = 0x45;
	frame[15] = (uint8_t)(f->dscp << 2);
	const unsigned number = (unsigned)(f - l->flow);
	memcpy(frame + 32, &number, sizeof(number));
	memcpy(frame + 36, &f->next, sizeof(f->next));
	memcpy(frame + 40, &l->now_ns, sizeof(l->now_ns));
	m->data_len = 64;
	m->pkt_len = f->len; /* the tree does not look at more */
	enum sy_drop reason = sy_shape_put(l->shape, m, f->service, l->now_ns);
	if (reason == SY_DROP_NONE) {
		f->next++;
		f->put++;
		return reason;
	}
	f->refused[reason == SY_DROP_SHAPING_EARLY]++;
	rte_pktmbuf_free(m);
	return reason;
}

void line_receive(struct line *l)
{
	struct rte_mbuf *m[32];
	unsigned n;
	while ((n = sy_shape_dequeue(l->shape, m, SY_ARRAY_LEN(m), l->now_ns)) > 0)
		for (unsigned i = 0; i < n; i++) {
			const uint8_t *frame = rte_pktmbuf_mtod(m[i], const uint8_t *);
			unsigned number;
			uint32_t sequence;
			uint64_t came;
			memcpy(&number, frame + 32, sizeof(number));
			memcpy(&sequence, frame + 36, sizeof(sequence));
			memcpy(&came, frame + 40, sizeof(came));
			struct flow *f = &l->flow[number];
			assert_int_equal(sequence, f->expected++);
			assert_null(m[i]->next);
			f->sent++;
			f->bytes += f->len;
			f->delay_sum_ns += l->now_ns - came;
			if (l->now_ns - came > f->max_delay_ns)
				f->max_delay_ns = l->now_ns - came;
			rte_pktmbuf_free(m[i]);
		}
}

void line_run(struct line *l, uint64_t ns)
{
	for (uint64_t end = l->now_ns + ns; l->now_ns < end; l->now_ns += l->step_ns) {
		for (unsigned i = 0; i < l->flows; i++) {
			struct flow *f = &l->flow[i];
			if (!f->every_ns)
				while (line_put(l, f) == SY_DROP_NONE)
					;
			for (; f->every_ns && f->due_ns <= l->now_ns; f->due_ns += f->every_ns)
				line_put(l, f);
		}
		line_receive(l);
	}
}

void line_forget(struct line *l)
{
	for (unsigned i = 0; i < l->flows; i++) {
		struct flow *f = &l->flow[i];
		f->put = f->refused[0] = f->refused[1] = f->sent = f->bytes = 0;
		f->max_delay_ns = f->delay_sum_ns = 0;
	}
}
