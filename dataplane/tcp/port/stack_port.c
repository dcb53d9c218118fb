// SPDX-License-Identifier: Apache-2.0
/* Packets between the runtime's ports and the stacks. */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_mempool.h>

#include <sy_link.h>

#include "sy_stack_port.h"

#define COPIES_BYTES (16u << 20)    /* for unread data, while the port's buffers are scarce */
#define RECEIVE_ALL  (256u << 20)   /* default of sy_stack_options */
#define TURN_PIECES  (4 * SY_BURST) /* sent per poll iteration before receiving again */
#define TURN_TAKES   8              /* packets per poll iteration from the levels' queues */
#define DRAIN_BURSTS 32             /* received consecutively for sorting before processing */
#define AHEAD        4              /* packets to prefetch ahead */

/* State per worker. */
struct place {
	struct sy_stack *stack;
	const struct sy_runtime *rt;
	unsigned worker;
	bool polled;       /* sy_stack_poll() is used and will send the rest */
	bool more;         /* the stack has more to send */
	bool sorts;        /* sy_stack_is_sorting() is used: packets in levels may stay queued */
	unsigned sorted;   /* bursts since the last processing */
	uint64_t full_tsc; /* poll iteration of the last full burst: the driver may have more */
	uint64_t next_ns;  /* next deadline */
	struct rte_mempool *copies;
} __attribute__((aligned(SY_CACHE_LINE)));

struct sy_stack_port {
	sy_stack_serve serve;
	void *ctx;
	struct place place[SY_MAX_WORKERS];
};

/* ---- owner of a segment ---------------------------------------------------------------------- */

/* Includes both ports: a connecting stack selects a local port in a slot of its own. */
static uint8_t tuple_slot(const struct sy_tuple *from_peer)
{
	return sy_slot_of(&from_peer->src, from_peer->sport) ^ sy_slot_of_port(from_peer->dport);
}

static bool owner_has(void *ctx, const struct sy_tuple *from_peer)
{
	const struct place *owner = ctx;
	return sy_slot_worker(owner->rt, tuple_slot(from_peer)) == owner->worker;
}

/* Returns the connection's slot; for an ICMP error that of the quoted segment. */
static uint8_t frame_slot(struct rte_mbuf *m)
{
	const uint8_t *frame = sy_frame(m);
	struct sy_quote q;
	struct sy_view v;

	if (!sy_stack_parse(m, &v))
		return 0;
	if (v.proto == SY_PROTO_TCP || sy_packet_parse_quote(frame, &v, &q) != SY_DROP_NONE)
		return tuple_slot(&v.tuple);
	return tuple_slot(&(struct sy_tuple){q.tuple.dst, q.tuple.src, q.tuple.dport, q.tuple.sport,
	                                     q.tuple.proto});
}

/* ---- transmission ---------------------------------------------------------------------------- */

static struct sy_addr frame_destination(struct rte_mbuf *m)
{
	const uint8_t *l3 = sy_frame(m) + SY_ETH_LEN;
	struct sy_addr dst;

	if (l3[0] >> 4 == 4)
		return sy_addr_v4(((const struct sy_ipv4 *)l3)->dst);
	memcpy(dst.b, ((const struct sy_ipv6 *)l3)->dst, sizeof(dst.b));
	return dst;
}

/* Consecutive segments mostly share a destination. */
static void burst_send(struct sy_worker *w, struct rte_mbuf **m, unsigned count)
{
	struct sy_addr last = {{{0}}};
	uint16_t path = SY_PATH_NONE;

	for (unsigned i = 0; i < count; i++) {
		struct sy_addr dst = frame_destination(m[i]);
		if (path == SY_PATH_NONE || !sy_addr_equal(&dst, &last)) {
			path = sy_path_lookup(w->rt, &dst);
			last = dst;
		}
		if (path == SY_PATH_NONE)
			sy_packet_drop(w, m[i], SY_DROP_NO_ROUTE);
		else
			sy_transmit_path(w, m[i], path, NULL, m[i]->hash.usr);
	}
}

/* Bounds sending per poll iteration, in pieces of TSO segments, whose bytes are copied: otherwise
 * the receive ring would overflow, and other connections would be delayed. */
static void segments_send(struct sy_worker *w, struct place *o)
{
	struct rte_mbuf *m[SY_BURST];
	uint32_t pieces = TURN_PIECES;

	do {
		if (!o->polled)
			pieces = TURN_PIECES; /* no poll would send the rest */
		unsigned count =
		        sy_stack_transmit_pieces(o->stack, m, SY_BURST, &pieces, w->now_ns);
		burst_send(w, m, count);
		o->more = count == SY_BURST || pieces == 0;
	} while (o->more && (pieces > 0 || !o->polled));
}

static void stack_turn(struct sy_worker *w, struct sy_stack_port *p)
{
	struct place *o = &p->place[w->id];

	sy_stack_mark_seen(o->stack, sy_worker_seen_ns(w));
	o->sorted = 0;
	sy_stack_process(o->stack, TURN_TAKES, w->now_ns);
	sy_stack_advance(o->stack, w->now_ns);
	p->serve(o->stack, w->id, w->now_ns, p->ctx);
	segments_send(w, o);
	o->next_ns = sy_stack_advance(o->stack, w->now_ns);
}

/* ---- reception ------------------------------------------------------------------------------- */

static void stage_stack(struct sy_worker *w, struct sy_burst *b)
{
	struct sy_stack_port *p = w->app;
	struct place *o = &p->place[w->id];
	bool alone = sy_worker_count(w->rt) == 1;
	struct rte_mbuf *mine[SY_BURST];
	unsigned count = 0;

	for (unsigned i = 0; i < b->count; i++) {
		if (!alone && i + AHEAD < b->count)
			__builtin_prefetch(sy_frame(b->mbuf[i + AHEAD]));
		b->slot[i] = alone ? 0 : frame_slot(b->mbuf[i]);
		if (!alone && sy_slot_worker(w->rt, b->slot[i]) != w->id) {
			sy_burst_steer(w, b, i);
			continue;
		}
		mine[count++] = b->mbuf[i];
		b->next[i] = SY_NEXT_PENDING;
	}
	sy_stack_receive(o->stack, mine, count, w->now_ns);
	if (o->sorts && sy_stack_has_packet_hook(o->stack)) {
		o->sorted++;
		if (b->count == SY_BURST)
			o->full_tsc = w->tsc;
	} else {
		stack_turn(w, p);
	}
}

const struct sy_stage sy_stack_pipeline[] = {
        {"stack", stage_stack}, {"transmit", sy_transmit_stage}, {NULL, NULL}};

void sy_stack_round(struct sy_worker *w)
{
	stack_turn(w, w->app);
}

/* Drains the driver's ring first, within a limit: its most urgent packet may be the last. */
bool sy_stack_is_sorting(struct sy_worker *w)
{
	struct sy_stack_port *p = w->app;
	struct place *o = &p->place[w->id];

	o->sorts = true;
	return o->sorted > 0 && o->sorted < DRAIN_BURSTS && o->full_tsc == w->tsc;
}

bool sy_stack_poll(struct sy_worker *w)
{
	struct sy_stack_port *p = w->app;
	struct place *o = &p->place[w->id];

	o->polled = true;
	if (sy_stack_is_sorting(w))
		return true;
	if (!o->more && !o->sorted && w->now_ns < o->next_ns)
		return false;
	stack_turn(w, p);
	return true;
}

uint64_t sy_stack_wake_ns(const struct sy_worker *w)
{
	const struct sy_stack_port *p = w->app;
	const struct place *o = &p->place[w->id];
	return o->more ? 0 : o->next_ns;
}

/* ---- start and end --------------------------------------------------------------------------- */

struct sy_stack_port *sy_stack_port_new(sy_stack_serve serve, void *ctx)
{
	struct sy_stack_port *p = aligned_alloc(SY_CACHE_LINE, sizeof(*p));

	if (p) {
		memset(p, 0, sizeof(*p));
		p->serve = serve;
		p->ctx = ctx;
	}
	return p;
}

static void copies_unmap(struct rte_mempool_memhdr *memory, void *opaque)
{
	munmap(memory->addr, memory->len);
}

/* Buffers like the port's, in memory not registered with a device. */
static struct rte_mempool *copies_make(const struct rte_mempool *like, unsigned worker)
{
	struct rte_pktmbuf_pool_private private = {
	        .mbuf_data_room_size = (uint16_t)(like->elt_size - sizeof(struct rte_mbuf))};
	unsigned count = COPIES_BYTES / like->elt_size;
	size_t len = (size_t)count * (like->header_size + like->elt_size + like->trailer_size) +
	             (1u << 16); /* and alignment */
	struct rte_mempool *pool;
	char name[32];
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	snprintf(name, sizeof(name), "sy_copies_%u", worker);
	pool = rte_mempool_create_empty(name, count, like->elt_size, 0, sizeof(private),
	                                SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (!pool || rte_mempool_set_ops_byname(pool, "ring_mp_mc", NULL)) {
		munmap(memory, len);
		rte_mempool_free(pool);
		return NULL;
	}
	rte_pktmbuf_pool_init(pool, &private);
	if (rte_mempool_populate_iova(pool, memory, RTE_BAD_IOVA, len, copies_unmap, NULL) < 0) {
		munmap(memory, len);
		rte_mempool_free(pool);
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

/* Limits receive windows to the memory: the worker's share of 3/4 of the port's buffers, plus the
 * copies. */
static void memory_bound(struct sy_stack_options *o, unsigned workers)
{
	uint64_t max = (uint64_t)o->pool->size / 4 * 3 / workers * o->pool->elt_size;

	max += (uint64_t)o->copies->size * o->copies->elt_size;
	o->receive_all = o->receive_all ? o->receive_all : RECEIVE_ALL;
	if (o->receive_all > max)
		o->receive_all = max;
}

static uint16_t smaller(uint16_t a, uint16_t b)
{
	return a && (!b || a < b) ? a : b; /* 0: unlimited */
}

/* A route may move a connection to another port: use only offloads that all ports have. */
static void offloads_of_all(const struct sy_runtime *rt, struct sy_stack_options *o)
{
	uint32_t all = sy_port_count(rt) ? UINT32_MAX : 0;
	struct sy_port_info info;
	char ifname[IF_NAMESIZE];

	o->unfinished = all;
	o->tso = (struct sy_stack_tso){0};
	for (unsigned i = 0; i < sy_port_count(rt); i++) {
		sy_port_get_info(rt, i, &info);
		all &= info.offloads;
		o->unfinished &=
		        if_indextoname((unsigned)info.ifindex, ifname) && sy_link_is_veth(ifname);
		o->tso.frame = smaller(o->tso.frame, info.tso.frame);
		o->tso.buffers = smaller(o->tso.buffers, info.tso.buffers);
	}
	o->offload_checksum = all & SY_OFFLOAD_TCP_CHECKSUM;
	o->tso.ipv4 = all & SY_OFFLOAD_TSO_IPV4;
	o->tso.ipv6 = all & SY_OFFLOAD_TSO_IPV6;
}

int sy_stack_port_open(struct sy_stack_port *p, struct sy_runtime *rt,
                       const struct sy_stack_options *options, struct sy_error *err)
{
	struct sy_stack_options o = *options;

	offloads_of_all(rt, &o);
	for (unsigned i = 0; i < sy_worker_count(rt); i++) {
		/* Allocates from the runtime's pool. */
		struct rte_mbuf *m = sy_packet_alloc(sy_worker_at(rt, i));
		if (!m)
			return sy_fail(err, ENOMEM, "no packet for a stack: raise --mbufs");
		o.pool = m->pool;
		rte_pktmbuf_free(m);
		p->place[i] =
		        (struct place){.rt = rt, .worker = i, .copies = copies_make(o.pool, i)};
		if (!p->place[i].copies)
			return sy_fail(err, ENOMEM, "no memory for packets that wait");
		o.copies = p->place[i].copies;
		o.receive_all = options->receive_all;
		memory_bound(&o, sy_worker_count(rt));
		o.owns = owner_has;
		o.owner = &p->place[i];
		int rc = sy_stack_create(&o, sy_clock_ns(), &p->place[i].stack, err);
		if (rc)
			return rc;
	}
	return 0;
}

void *sy_stack_port_ctx(const struct sy_worker *w)
{
	return ((const struct sy_stack_port *)w->app)->ctx;
}

struct sy_stack *sy_stack_port_stack(struct sy_stack_port *p, unsigned worker)
{
	return p->place[worker].stack;
}

void sy_stack_port_close(struct sy_stack_port *p)
{
	for (unsigned i = 0; p && i < SY_MAX_WORKERS; i++) {
		if (p->place[i].stack)
			sy_stack_destroy(p->place[i].stack);
		rte_mempool_free(p->place[i].copies);
	}
	free(p);
}
