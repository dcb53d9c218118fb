// SPDX-License-Identifier: Apache-2.0
/* One core's stack: its memory, packets in and out, time, events. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_ether.h>

#include "arrive.h"
#include "chain.h"
#include "client.h"
#include "emit.h"
#include "icmp_error.h"
#include "priority.h"
#include "timer.h"

#define POOL_LOOK 512 /* packets between two looks at how many buffers are free */

static const struct congestion_ops *congestion_find(const char *name)
{
	static const struct congestion_ops *const all[] = {&congestion_cubic, &congestion_newreno};

	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
}

/* ---- start and end --------------------------------------------------------------------------- */

static void options_default(struct sy_stack_options *o)
{
	uint16_t room =
	        (uint16_t)(rte_pktmbuf_data_room_size(o->pool) - RTE_PKTMBUF_HEADROOM - SY_ETH_LEN);

#define DEFAULT(field, value) o->field = o->field ? o->field : (value)
	DEFAULT(listeners, 64);
	DEFAULT(orphans, o->connections - o->connections / 8);
	DEFAULT(mtu, 1500);
	DEFAULT(send_max, 4u << 20);
	DEFAULT(receive_max, 6u << 20);
	DEFAULT(send_all, 256u << 20);
	DEFAULT(receive_all, 256u << 20);
	DEFAULT(port_first, 49152);
	DEFAULT(port_last, 65535);
	DEFAULT(time_wait_ms, 60000);
#undef DEFAULT
	if (o->mtu > room) /* what fits one buffer */
		o->mtu = room;
}

/* Memory that is touched only where it is used. */
static void *table_make(struct sy_stack *s, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	s->fixed += bytes;
	return p == MAP_FAILED ? NULL : p;
}

static void table_free(void *p, size_t bytes)
{
	if (p)
		munmap(p, bytes);
}

static uint64_t secret_of(const struct sy_stack_options *o, uint64_t use)
{
	struct sy_siphash_key key;
	memcpy(&key, o->secret, sizeof(key));
	return sy_siphash(&key, &use, sizeof(use));
}

static void secrets_init(struct sy_stack *s)
{
	uint64_t use = 0;

	for (unsigned i = 0; i < SY_ARRAY_LEN(s->hash_key.k); i++)
		s->hash_key.k[i] = secret_of(&s->options, ++use);
	for (unsigned i = 0; i < 2; i++) {
		s->iss_key.k[i] = secret_of(&s->options, ++use);
		s->ts_key.k[i] = secret_of(&s->options, ++use);
		s->cookie_key.k[i] = secret_of(&s->options, ++use);
	}
	s->port_cursor = (uint32_t)secret_of(&s->options, ++use);
	for (unsigned i = 0; i < 2; i++)
		s->challenge_key.k[i] = secret_of(&s->options, ++use);
}

/* The scale by which the largest window fits 16 bits (RFC 7323 2.3). */
static uint8_t scale_for(uint32_t window)
{
	uint8_t scale = 0;

	while (scale < SY_TCP_SCALE_MAX && window >> scale > UINT16_MAX)
		scale++;
	return scale;
}

static int tables_make(struct sy_stack *s)
{
	const struct sy_stack_options *o = &s->options;
	uint32_t buckets = 1024;

	while (buckets < o->connections)
		buckets *= 2;
	s->bucket_mask = buckets - 1;
	s->connection = table_make(s, o->connections * sizeof(*s->connection));
	s->bucket = table_make(s, buckets * sizeof(*s->bucket));
	s->wheel_links = table_make(s, o->connections * sizeof(*s->wheel_links));
	s->client = o->toa ? table_make(s, o->connections * sizeof(*s->client)) : NULL;
	s->listener = calloc(o->listeners, sizeof(*s->listener));
	if (!s->connection || (o->toa && !s->client) || !s->bucket || !s->wheel_links ||
	    !s->listener || chunk_pool_init(&s->chunks, o->send_all))
		return -ENOMEM;
	s->fixed += s->chunks.count * sizeof(*s->chunks.next);
	wheel_init(&s->wheel, s->wheel_links, time_ms64(s));
	return 0;
}

/* Of turns, that a level has at least while it has something to send. */
static const uint8_t send_percent[SY_PRIORITIES] = {0, 6, 6, 6, 6, 6, 6, 6};

int sy_stack_create(const struct sy_stack_options *options, uint64_t now_ns, struct sy_stack **out,
                    struct sy_error *err)
{
	const char *name = options->congestion ? options->congestion : "cubic";
	const struct congestion_ops *congestion = congestion_find(name);
	struct sy_stack *s;

	if (!congestion)
		return sy_fail(err, EINVAL, "congestion control \"%s\": there is none", name);
	if (options->connections == 0 ||
	    options->connections + (uint64_t)options->listeners > INDEX_MASK - 64)
		return sy_fail(err, EINVAL, "a stack has between 1 and %u connections",
		               INDEX_MASK - 64);
	s = calloc(1, sizeof(*s));
	if (!s)
		return sy_fail(err, ENOMEM, "no memory for a stack");
	s->options = *options;
	s->congestion = congestion;
	s->fixed = sizeof(*s);
	s->free = INDEX_NONE;
	s->seen_ns = UINT64_MAX;
	options_default(&s->options);
	stack_time(s, now_ns);
	secrets_init(s);
	for (unsigned i = 0; i < SY_PRIORITIES; i++) {
		list_init(&s->send[i]);
		list_init(&s->event[i]);
	}
	shares_set(&s->send_shares, send_percent);
	list_init(&s->space);
	list_init(&s->time_wait);
	s->receive_scale = scale_for(s->options.receive_max);
	if (s->options.tso.ipv4 || s->options.tso.ipv6)
		s->large_most = segment_large_most(s->options.pool, s->options.tso.buffers);
	if (tables_make(s) || pools_make(s)) {
		sy_stack_destroy(s);
		return sy_fail(err, ENOMEM, "no memory for %u connections", options->connections);
	}
	*out = s;
	return 0;
}

void sy_stack_destroy(struct sy_stack *s)
{
	const struct sy_stack_options *o = &s->options;

	for (uint32_t i = 0; s->connection && i < s->fresh; i++)
		connection_drop_buffers(s, &s->connection[i]);
	while (s->loose_count > 0)
		rte_pktmbuf_free(stack_take_loose(s));
	priority_close(s);
	pools_close(s);
	chunk_pool_close(&s->chunks);
	table_free(s->connection, o->connections * sizeof(*s->connection));
	table_free(s->client, o->connections * sizeof(*s->client));
	table_free(s->bucket, (s->bucket_mask + 1ul) * sizeof(*s->bucket));
	table_free(s->wheel_links, o->connections * sizeof(*s->wheel_links));
	free(s->listener);
	sy_secret_wipe(s, sizeof(*s));
	free(s);
}

/* ---- packets in ------------------------------------------------------------------------------ */

/* The second of three steps on which priorities act: a segment arrives, and its connection is
 * known; or its listener's, or nobody's. */
static void segment_arrive(struct sy_stack *s, struct segment *seg)
{
	const struct sy_tuple *t = &seg->view->tuple;
	struct connection *c = connection_find(s, t);

	if (!c) {
		struct listener *l = listener_find(s, &t->dst, t->dport);
		if (l) {
			c = listener_arrive(s, l, seg);
		} else {
			stack_refuse(s, seg);
			return;
		}
	}
	if (!c)
		return;
	if (s->client)
		client_arrive(s, c, seg);
	arrive(s, c, seg);
}

bool sy_stack_knows(struct sy_stack *s, const struct sy_tuple *from_peer)
{
	return connection_find(s, from_peer) != NULL;
}

bool sy_stack_expects(struct sy_stack *s, const struct sy_tuple *from_peer, uint32_t ack)
{
	const struct connection *c = connection_find(s, from_peer);

	return c && (c->state != SY_STACK_SYN_RECEIVED || ack == c->snd_nxt);
}

static inline bool packet_parse(struct rte_mbuf *m, struct sy_view *v)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);

	return SY_LIKELY(m->nb_segs == 1) ? sy_packet_parse(frame, m->data_len, v) == SY_DROP_NONE
	                                  : chain_parse(m, v);
}

bool sy_stack_parse(struct rte_mbuf *m, struct sy_view *v)
{
	return packet_parse(m, v);
}

static bool checksum_is_right(const struct sy_stack *s, const struct rte_mbuf *m,
                              const struct sy_view *v)
{
	uint64_t device = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;

	/* NONE: the sum is not in the data, yet the device answers for the data. So virtual ones
	 * say of what a neighbour on the same machine has sent. */
	if (s->options.trust_checksum || device == RTE_MBUF_F_RX_L4_CKSUM_GOOD ||
	    device == RTE_MBUF_F_RX_L4_CKSUM_NONE)
		return true;
	if (device == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		return false;
	/* It joins what it has checked, and the sum of all is nowhere. */
	if (m->ol_flags & RTE_MBUF_F_RX_LRO)
		return true;
	return SY_LIKELY(m->nb_segs == 1)
	               ? sy_packet_check_l4(rte_pktmbuf_mtod(m, const uint8_t *), v) == SY_CSUM_OK
	               : chain_check(m, v);
}

/* Counts a packet that cannot be parsed. A host gets ARP, and what is for a group of hosts, without
 * anybody's fault. */
static void count_unparsed(struct sy_stack *s, const struct rte_mbuf *m)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);

	if (m->data_len >= sizeof(*eth) && (rte_is_multicast_ether_addr(&eth->dst_addr) ||
	                                    eth->ether_type == htons(RTE_ETHER_TYPE_ARP)))
		s->counters.not_ours++;
	else
		s->counters.malformed++;
}

/* The first of three steps on which priorities act: the driver has received a packet, and nothing
 * has looked at it yet but a packet hook. */
static void packet_receive(struct sy_stack *s, struct rte_mbuf *m)
{
	struct segment seg;
	struct sy_view v;

	s->counters.packets_in++;
	s->counters.lro_packets += !!(m->ol_flags & RTE_MBUF_F_RX_LRO);
	if (!packet_parse(m, &v) || v.fragment != SY_FRAGMENT_NONE) {
		count_unparsed(s, m);
		rte_pktmbuf_free(m);
		return;
	}
	if (!checksum_is_right(s, m, &v)) {
		s->counters.bad_checksums++;
		rte_pktmbuf_free(m);
		return;
	}
	if (v.proto != SY_PROTO_TCP) {
		icmp_error_arrive(s, rte_pktmbuf_mtod(m, const uint8_t *), &v);
		rte_pktmbuf_free(m);
		return;
	}
	segment_read(&seg, m, &v);
	segment_arrive(s, &seg);
	rte_pktmbuf_free(seg.packet);
}

void packets_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		packet_receive(s, packet[i]);
}

/* Counting takes a look at the caches of all cores: once in a millisecond, or so many packets. */
static void pool_look(struct sy_stack *s, unsigned count)
{
	const struct rte_mempool *pool = s->options.pool;
	unsigned free;

	s->unlooked += count;
	if (!s->options.copies || (s->looked_ms == s->now_ms && s->unlooked < POOL_LOOK))
		return;
	s->unlooked = 0;
	s->looked_ms = s->now_ms;
	free = rte_mempool_avail_count(pool);
	s->scarce = free < pool->size / 4;
	s->very_scarce = free < pool->size / 8;
}

void sy_stack_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count, uint64_t now_ns)
{
	stack_time(s, now_ns);
	pool_look(s, count);
	if (SY_UNLIKELY(s->ranked != NULL)) {
		if (packets_are_asked(s)) {
			packets_wait(s, packet, count);
			return;
		}
		for (unsigned i = 0; i < count; i++)
			packet_set_level(packet[i], SY_USUAL);
	}
	packets_receive(s, packet, count);
}

/* ---- packets out ----------------------------------------------------------------------------- */

void stack_send_loose(struct sy_stack *s, struct rte_mbuf *m)
{
	if (!m)
		return;
	if (s->loose_count == LOOSE_MAX) {
		s->counters.refused_memory++;
		rte_pktmbuf_free(m);
		return;
	}
	s->loose[(s->loose_first + s->loose_count++) % LOOSE_MAX] = m;
}

struct rte_mbuf *stack_take_loose(struct sy_stack *s)
{
	struct rte_mbuf *m = s->loose[s->loose_first];

	s->loose_first = (s->loose_first + 1) % LOOSE_MAX;
	s->loose_count--;
	return m;
}

void stack_refuse(struct sy_stack *s, const struct segment *seg)
{
	struct rte_mbuf *m = segment_refuse(s->options.pool, seg, s->options.offload_checksum);

	if (m)
		s->counters.resets_out++;
	stack_send_loose(s, m);
}

/* Whose turn it is, and for how many segments: the most urgent one's; now and then one's that
 * others pass, so that its acknowledgements move on. */
static inline struct connection *send_next(struct sy_stack *s, unsigned *turn)
{
	unsigned levels = s->send_levels, level = (unsigned)__builtin_ctz(levels);
	struct connection *c;

	*turn = EMIT_TURN;
	if (SY_LIKELY(levels == 1u << SY_USUAL)) {
		level = SY_USUAL;
	} else if (levels & (levels - 1)) {
		unsigned next = shares_next(&s->send_shares, levels);
		shares_fetched(&s->send_shares, levels, next);
		*turn = next == level ? EMIT_TURN : EMIT_PASSED;
		level = next;
	}
	c = list_first(s, &s->send[level]);
	list_remove(s, &s->send[level], LIST_SEND, c);
	if (s->send[level].count == 0)
		s->send_levels &= ~(1u << level);
	return c;
}

static void pieces_use(const struct sy_stack *s, uint32_t *left, struct rte_mbuf **packet,
                       unsigned count)
{
	uint32_t used = count;

	for (unsigned i = 0; s->large_most > 0 && i < count; i++)
		used += segment_pieces(packet[i]) - 1;
	*left -= used < *left ? used : *left;
}

unsigned sy_stack_transmit_pieces(struct sy_stack *s, struct rte_mbuf **packet, unsigned most,
                                  uint32_t *pieces, uint64_t now_ns)
{
	unsigned count = 0;
	struct connection *c;

	stack_time(s, now_ns);
	if (s->held_count > 0 && s->now_ns >= s->held_ns)
		hold_end(s);
	while (count < most && s->loose_count > 0)
		packet[count++] = stack_take_loose(s);
	pieces_use(s, pieces, packet, count);
	while (s->send_levels && *pieces > 0 && count < most) {
		unsigned turn, share, got;
		c = send_next(s, &turn);
		share = most - count < turn ? most - count : turn;
		got = emit(s, c, packet + count, share, turn);
		pieces_use(s, pieces, packet + count, got);
		count += got;
		if (got == share) /* maybe more: after the others */
			connection_wants(s, c);
	}
	s->counters.packets_out += count;
	return count;
}

unsigned sy_stack_transmit(struct sy_stack *s, struct rte_mbuf **packet, unsigned most,
                           uint64_t now_ns)
{
	uint32_t pieces = UINT32_MAX;

	return sy_stack_transmit_pieces(s, packet, most, &pieces, now_ns);
}

/* ---- time ------------------------------------------------------------------------------------ */

void sy_stack_seen(struct sy_stack *s, uint64_t seen_ns)
{
	s->seen_ns = seen_ns;
}

uint64_t sy_stack_advance(struct sy_stack *s, uint64_t now_ns)
{
	uint64_t due_ms, next;
	uint32_t index;

	stack_time(s, now_ns);
	due_ms = (s->seen_ns < s->now_ns ? s->seen_ns : s->now_ns) / MS_NS;
	s->due_ms = (uint32_t)due_ms;
	while ((index = wheel_take(&s->wheel, due_ms)) != WHEEL_NONE) {
		struct connection *c = &s->connection[index];
		c->in_wheel = false;
		timer_run(s, c);
	}
	if (s->priority && s->priority->waiting.count > 0)
		return s->now_ns;
	next = wheel_next(&s->wheel);
	next = next > UINT64_MAX / MS_NS ? UINT64_MAX : next * MS_NS;
	return s->held_count > 0 && s->held_ns < next ? s->held_ns : next;
}

/* ---- reports --------------------------------------------------------------------------------- */

const struct sy_stack_counters *sy_stack_counters(const struct sy_stack *s)
{
	return &s->counters;
}

void sy_stack_usage(const struct sy_stack *s, struct sy_stack_usage *out)
{
	*out = (struct sy_stack_usage){
	        .connections = s->used,
	        .half_open = s->half_open,
	        .time_wait = s->time_wait.count,
	        .listeners = s->listener_count,
	        .send_bytes = (uint64_t)s->chunks.used * CHUNK_SIZE,
	        .receive_bytes = s->receive_held,
	        .ranges = pools_used(s),
	        .fixed = s->fixed,
	        .orphans = s->orphans,
	        .orphans_taken = s->orphans_taken,
	};
}
