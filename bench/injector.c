// SPDX-License-Identifier: Apache-2.0
#include "injector.h"

#include <sys/mman.h>

#define HUGE_PAGE (UINT64_C(2) << 20)

/* ---- streams --------------------------------------------------------------------------------- */

bool injector_stream_open(struct injector_stream *s, uint64_t count, uint32_t len)
{
	*s = (struct injector_stream){
	        .count = count, .len = len, .stride = RTE_ALIGN_CEIL(len, SY_CACHE_LINE)};
	s->bytes = RTE_ALIGN_CEIL(count * s->stride, HUGE_PAGE);
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
	if (at == MAP_FAILED)
		at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (at == MAP_FAILED)
		return false;
	s->frames = at;
	return true;
}

void injector_stream_close(struct injector_stream *s)
{
	if (s->frames)
		munmap(s->frames, s->bytes);
	*s = (struct injector_stream){0};
}

/* ---- the ports ------------------------------------------------------------------------------- */

/* A port's operations take no context argument; a process has one harness. */
static struct injector *running;

static inline struct injector_queue *queue_of(const struct port *p, unsigned queue)
{
	return &running->queue[p->id][queue];
}

static inline __attribute__((always_inline)) void
buffer_fill(struct rte_mbuf *m, const uint8_t *frame, uint32_t len, uint32_t stride)
{
	m->data_off = RTE_PKTMBUF_HEADROOM;
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	uint8_t *to = rte_pktmbuf_mtod(m, uint8_t *);
	for (uint32_t i = 0; i < stride; i += SY_CACHE_LINE)
		memcpy(to + i, frame + i, SY_CACHE_LINE);
}

static unsigned injector_rx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct injector_queue *q = queue_of(p, queue);
	const struct injector_stream *s = q->stream;
	if (n > q->left)
		n = (unsigned)q->left;
	for (unsigned i = 0; i < n; i++) {
		m[i] = q->buffer[q->buffer_at++ % INJECTOR_BUFFERS];
		buffer_fill(m[i], injector_frame(s, q->at), s->len, s->stride);
		if (++q->at == s->count)
			q->at = 0;
	}
	q->left -= n;
	q->received += n;
	return n;
}

/* The buffers are reused for the next frames. */
static unsigned injector_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct injector_queue *q = queue_of(p, queue);
	q->sent += n;
	if (q->sent_to)
		for (unsigned i = 0; i < n; i++)
			q->sent_to(q->ctx, sy_frame(m[i]), m[i]->data_len);
	return n;
}

static bool injector_is_pending(struct port *p, unsigned queue)
{
	return queue_of(p, queue)->left > 0;
}

static int injector_descriptor(struct port *p, unsigned queue)
{
	return -1;
}

/* ---- replacing the harness's ports ----------------------------------------------------------- */

static bool queue_open(struct injector_queue *q, struct harness *r)
{
	for (unsigned i = 0; i < INJECTOR_BUFFERS; i++) {
		q->buffer[i] = rte_pktmbuf_alloc(r->rt->pool);
		if (!q->buffer[i])
			return false;
	}
	return true;
}

/* The harness's devices have one queue; here each worker has its own. */
static void port_widen(struct port *p, struct harness *r)
{
	for (unsigned q = p->queues; q < r->rt->workers; q++) {
		struct sy_worker_private *w = r->rt->worker[q].private;
		w->source[w->sources++] = (struct worker_source){.port = p, .queue = q};
		w->must_poll = true;
	}
	p->queues = r->rt->workers;
	workers_note_queues(r->rt);
}

bool injector_open(struct injector *f, struct harness *r)
{
	*f = (struct injector){.harness = r, .queues = r->rt->workers};
	running = f;
	for (unsigned p = 0; p < HARNESS_PORTS; p++) {
		struct port *port = r->rt->port[p];
		f->device[p] = port->ops;
		f->ops[p] = *port->ops;
		f->ops[p].rx = injector_rx;
		f->ops[p].tx = injector_tx;
		f->ops[p].is_pending = injector_is_pending;
		f->ops[p].descriptor = injector_descriptor;
		port->ops = &f->ops[p];
		port_widen(port, r);
		for (unsigned q = 0; q < f->queues; q++)
			if (!queue_open(&f->queue[p][q], r))
				return false;
	}
	return true;
}

void injector_close(struct injector *f)
{
	for (unsigned p = 0; f->harness && p < HARNESS_PORTS; p++) {
		f->harness->rt->port[p]->ops = f->device[p];
		for (unsigned q = 0; q < f->queues; q++)
			for (unsigned i = 0; i < INJECTOR_BUFFERS; i++)
				rte_pktmbuf_free(f->queue[p][q].buffer[i]);
	}
	*f = (struct injector){0};
}

void injector_give(struct injector *f, unsigned port, unsigned queue,
                   const struct injector_stream *s, uint64_t n)
{
	struct injector_queue *q = &f->queue[port][queue];
	if (q->stream != s) {
		q->stream = s;
		q->at = 0;
	}
	q->left = n;
}

void injector_listen(struct injector *f,
                     void (*sent_to)(void *ctx, const uint8_t *frame, unsigned len), void *ctx)
{
	for (unsigned p = 0; p < HARNESS_PORTS; p++) {
		for (unsigned q = 0; q < f->queues; q++) {
			f->queue[p][q].sent_to = sent_to;
			f->queue[p][q].ctx = ctx;
		}
	}
}

void injector_run_empty(struct injector *f)
{
	struct rte_mbuf *m[SY_BURST];
	bool work;
	do {
		work = false;
		for (unsigned p = 0; p < HARNESS_PORTS; p++) {
			struct port *port = f->harness->rt->port[p];
			unsigned n = port->ops->rx(port, 0, m, SY_BURST);
			if (n)
				port->ops->tx(port, 0, m, n);
			work |= n > 0;
		}
	} while (work);
}
