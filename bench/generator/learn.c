// SPDX-License-Identifier: Apache-2.0
/* Each known flow sends until its packet comes out at a server, which then knows the address for
 * its answer. The server answers until the answer comes out at the client: then the session is
 * established. */
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "measure.h"
#include "trial.h"

#define WINDOW  512 /* flows in progress at once: fewer than a ring holds */
#define LOST_MS 20  /* after this long without a packet, the open flows are sent again */
#define ROUNDS  50

/* All numbers from `first` up, each once, in steps of about 0.6 of the total: flows with
 * consecutive numbers are created at different times and are far apart in memory. */
struct order {
	uint32_t first, count, step;
};

static uint32_t divisor(uint32_t a, uint32_t b)
{
	return b ? divisor(b, a % b) : a;
}

static struct order order_make(uint32_t first, uint32_t end)
{
	struct order o = {first, end - first, (uint32_t)((end - first) * 0.618) | 1};
	while (divisor(o.step, o.count) != 1)
		o.step++;
	return o;
}

static uint32_t order_at(const struct order *o, uint32_t i)
{
	return o->first + (uint32_t)((uint64_t)i * o->step % o->count);
}

static int flows_grow(struct flows *f, uint32_t flows, struct sy_error *err)
{
	if (flows <= f->capacity)
		return 0;
	void *grown = mmap(NULL, (size_t)flows * sizeof(*f->reply), PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (grown == MAP_FAILED)
		return sy_fail(err, ENOMEM, "no memory for %u flows", flows);
	madvise(grown, (size_t)flows * sizeof(*f->reply), MADV_HUGEPAGE);
	if (f->reply != NULL) {
		memcpy(grown, f->reply, (size_t)f->capacity * sizeof(*f->reply));
		munmap(f->reply, (size_t)f->capacity * sizeof(*f->reply));
	}
	f->reply = grown;
	f->capacity = flows;
	return 0;
}

/* Whether this flow is still to be sent in that direction. */
static bool flow_is_open(const struct frame_reply *r, enum frame_way way)
{
	return way == FRAME_IN ? r->port == 0 : r->port != 0 && !r->heard;
}

/* Records a frame that came out; true: for the first time. */
static bool frame_note(const struct link *l, struct flows *f, const struct rte_mbuf *m)
{
	const struct frame_template *in = &l->template[FRAME_IN], *out = &l->template[FRAME_OUT];
	struct frame_fields r;
	if (!frame_read(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, &r) ||
	    r.flow >= f->capacity)
		return false;
	struct frame_reply *reply = &f->reply[r.flow];
	if (r.sport == in->port && r.src == in->base_dst && flow_is_open(reply, FRAME_OUT)) {
		reply->heard = true;
		return true;
	}
	uint32_t server = r.dst - out->base_src, local = r.src - out->base_dst;
	if (r.dport != PORT_SERVER || server >= FRAME_SERVERS || local >= FRAME_LOCALS ||
	    !flow_is_open(reply, FRAME_IN))
		return false;
	*reply = (struct frame_reply){
	        .server = (uint8_t)server, .local = (uint8_t)local & 0x7f, .port = r.sport};
	return true;
}

static unsigned frames_receive(struct link *l, struct flows *f)
{
	struct rte_mbuf *m[LINK_BURST];
	unsigned n = link_receive(l, m), noted = 0;
	for (unsigned i = 0; i < n; i++)
		noted += frame_note(l, f, m[i]);
	if (n)
		rte_pktmbuf_free_bulk(m, n);
	return noted;
}

static unsigned frames_send(struct link *l, const struct flows *f, enum frame_way way,
                            const struct order *o, uint32_t *next)
{
	const struct frame_template *t = &l->template[way];
	struct rte_mbuf *m[LINK_BURST];
	uint32_t at[LINK_BURST];
	unsigned n = 0;

	for (; *next < o->count && n < LINK_BURST; ++*next)
		if (flow_is_open(&f->reply[order_at(o, *next)], way))
			at[n++] = *next;
	if (n == 0)
		return 0;
	if (!link_take(l, way, m, n)) {
		*next = at[0];
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		uint32_t flow = order_at(o, at[i]);
		struct frame_fields fields = way == FRAME_IN
		                                     ? frame_of_client(t, flow)
		                                     : frame_of_server(t, flow, f->reply[flow]);
		frame_write(t, rte_pktmbuf_mtod(m[i], uint8_t *), &fields);
	}
	unsigned sent = link_send(l, m, n);
	rte_mempool_put_bulk(l->sent[way], (void **)(m + sent), n - sent);
	if (sent < n)
		*next = at[sent];
	return sent;
}

/* One round over all flows; returns how many came out. */
static uint32_t round_run(struct link *l, struct flows *f, enum frame_way way,
                          const struct order *o)
{
	uint64_t last = rte_rdtsc();
	uint32_t next = 0, came = 0, open = 0;

	while (next < o->count || open > 0) {
		unsigned sent = open < WINDOW ? frames_send(l, f, way, o, &next) : 0;
		unsigned noted = frames_receive(l, f);
		open += sent;
		open -= noted < open ? noted : open;
		came += noted;
		if (sent || noted)
			last = rte_rdtsc();
		else if (measure_ns(rte_rdtsc() - last) > LOST_MS * 1e6) {
			if (open == 0) /* the link accepts no frames */
				break;
			open = 0;
			last = rte_rdtsc();
		}
	}
	return came;
}

/* Repeats until all open flows came out; returns how many did not. */
static uint32_t way_learn(struct link *l, struct flows *f, enum frame_way way, uint32_t end)
{
	const struct order o = order_make(f->learned, end);
	uint32_t missing = o.count;
	for (unsigned i = 0; i < ROUNDS && missing; i++)
		missing -= round_run(l, f, way, &o);
	return missing;
}

int flows_learn(struct link *l, struct flows *f, const struct traffic *t, struct sy_error *err)
{
	int rc = flows_grow(f, t->flows, err);
	if (rc == 0)
		rc = link_prepare(l, t->family, t->size, false, err);
	if (rc != 0)
		return rc;
	if (t->flows <= f->learned)
		return 0;
	uint32_t missing = way_learn(l, f, FRAME_IN, t->flows);
	if (missing)
		return sy_fail(err, ETIMEDOUT, "%u of %u flows never reached a server", missing,
		               t->flows);
	missing = way_learn(l, f, FRAME_OUT, t->flows);
	if (missing)
		return sy_fail(err, ETIMEDOUT, "%u of %u flows had no answer", missing, t->flows);
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
		                                   .heard = true,
		                                   .port = (uint16_t)(random >> 16) | 1024};
	}
	if (flows > f->learned)
		f->learned = flows;
	return 0;
}
