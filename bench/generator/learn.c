// SPDX-License-Identifier: Apache-2.0
/* Each known flow sends until it came out at a server, which then knows where to answer to. */
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "measure.h"
#include "trial.h"

#define WINDOW  512 /* flows that are asked about at once: fewer than a ring holds */
#define LOST_MS 20  /* without an answer for so long, what is still open is sent again */
#define ROUNDS  50

static int flows_grow(struct flows *f, uint32_t flows, struct sy_error *err)
{
	if (flows <= f->room)
		return 0;
	void *grown = mmap(NULL, (size_t)flows * sizeof(*f->reply), PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (grown == MAP_FAILED)
		return sy_fail(err, ENOMEM, "no memory for %u flows", flows);
	madvise(grown, (size_t)flows * sizeof(*f->reply), MADV_HUGEPAGE);
	if (f->reply != NULL) {
		memcpy(grown, f->reply, (size_t)f->room * sizeof(*f->reply));
		munmap(f->reply, (size_t)f->room * sizeof(*f->reply));
	}
	f->reply = grown;
	f->room = flows;
	return 0;
}

static bool reply_note(const struct link *l, struct flows *f, const struct rte_mbuf *m)
{
	const struct frame_template *out = &l->template[FRAME_OUT];
	struct frame_fields r;
	if (!frame_read(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, &r) ||
	    r.flow >= f->room || r.dport != PORT_SERVER)
		return false;
	uint32_t server = r.dst - out->base_src, local = r.src - out->base_dst;
	bool new = f->reply[r.flow].port == 0;
	if (server >= FRAME_SERVERS || local >= FRAME_LOCALS || !new)
		return false;
	f->reply[r.flow] = (struct frame_reply){(uint8_t)server, (uint8_t)local, r.sport};
	return true;
}

static unsigned replies_receive(struct link *l, struct flows *f)
{
	struct rte_mbuf *m[LINK_BURST];
	unsigned n = link_receive(l, m), noted = 0;
	for (unsigned i = 0; i < n; i++)
		noted += reply_note(l, f, m[i]);
	if (n)
		rte_pktmbuf_free_bulk(m, n);
	return noted;
}

static unsigned questions_send(struct link *l, const struct flows *f, uint32_t *next, uint32_t end)
{
	const struct frame_template *in = &l->template[FRAME_IN];
	struct rte_mbuf *m[LINK_BURST];
	uint32_t flow[LINK_BURST];
	unsigned n = 0;

	for (; *next < end && n < LINK_BURST; ++*next)
		if (f->reply[*next].port == 0)
			flow[n++] = *next;
	if (n == 0 || !link_take(l, FRAME_IN, m, n))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		struct frame_fields fields = frame_of_client(in, flow[i]);
		frame_write(in, rte_pktmbuf_mtod(m[i], uint8_t *), &fields);
	}
	unsigned sent = link_send(l, m, n);
	rte_mempool_put_bulk(l->sent[FRAME_IN], (void **)(m + sent), n - sent);
	if (sent < n)
		*next = flow[sent];
	return sent;
}

/* One round over all flows; returns how many of them answered. */
static uint32_t round_run(struct link *l, struct flows *f, uint32_t first, uint32_t end)
{
	uint64_t last = rte_rdtsc();
	uint32_t next = first, answered = 0, open = 0;

	while (next < end || open > 0) {
		unsigned sent = open < WINDOW ? questions_send(l, f, &next, end) : 0;
		unsigned noted = replies_receive(l, f);
		open += sent;
		open -= noted < open ? noted : open;
		answered += noted;
		if (sent || noted)
			last = rte_rdtsc();
		else if (measure_ns(rte_rdtsc() - last) > LOST_MS * 1e6) {
			if (open == 0) /* the link takes nothing */
				break;
			open = 0;
			last = rte_rdtsc();
		}
	}
	return answered;
}

int flows_learn(struct link *l, struct flows *f, const struct traffic *t, struct sy_error *err)
{
	int rc = flows_grow(f, t->flows, err);
	if (rc == 0)
		rc = link_prepare(l, t->family, t->size, false, err);
	if (rc != 0)
		return rc;
	uint32_t missing = t->flows > f->learned ? t->flows - f->learned : 0;
	for (unsigned i = 0; i < ROUNDS && missing; i++)
		missing -= round_run(l, f, f->learned, t->flows);
	if (missing)
		return sy_fail(err, ETIMEDOUT, "%u of %u flows never reached a server", missing,
		               t->flows);
	if (t->flows > f->learned)
		f->learned = t->flows;
	return 0;
}

int flows_invent(struct flows *f, uint32_t flows, struct sy_error *err)
{
	int rc = flows_grow(f, flows, err);
	if (rc != 0)
		return rc;
	for (uint32_t i = f->learned; i < flows; i++) {
		uint64_t random = measure_random(&f->random);
		f->reply[i] = (struct frame_reply){.server = random % FRAME_SERVERS,
		                                   .local = (random >> 8) % FRAME_LOCALS,
		                                   .port = (uint16_t)(random >> 16) | 1024};
	}
	if (flows > f->learned)
		f->learned = flows;
	return 0;
}
