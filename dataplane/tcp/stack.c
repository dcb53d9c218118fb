// SPDX-License-Identifier: Apache-2.0
/* A stack: memory, transmission, timers. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "emit.h"
#include "priority.h"
#include "timer.h"

#define TIMERS_PREFETCH 16 /* timers prefetched together */

static const struct congestion_ops *congestion_find(const char *name)
{
	static const struct congestion_ops *const all[] = {&congestion_cubic, &congestion_newreno};

	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
}

/* ---- creation -------------------------------------------------------------------------------- */

#define PORTS (UINT16_MAX + 1u)

static void options_default(struct sy_stack_options *o)
{
	uint16_t space =
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
	if (o->mtu > space) /* one buffer must hold a segment */
		o->mtu = space;
}

/* Allocates zeroed memory that stays untouched until used. */
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

/* Returns the smallest scale for this window (RFC 7323 2.3). */
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
	uint32_t buckets = 1024, ports = 64;

	while (buckets < o->connections)
		buckets *= 2;
	while (ports < o->listeners)
		ports *= 2;
	s->bucket_mask = buckets - 1;
	s->listeners.mask = ports - 1;
	s->connection = table_make(s, o->connections * sizeof(*s->connection));
	s->bucket = table_make(s, buckets * sizeof(*s->bucket));
	s->wheel_links = table_make(s, o->connections * sizeof(*s->wheel_links));
	s->client = o->toa ? table_make(s, o->connections * sizeof(*s->client)) : NULL;
	s->listeners.slot = table_make(s, o->listeners * sizeof(*s->listeners.slot));
	s->listeners.bucket = table_make(s, ports * sizeof(*s->listeners.bucket));
	s->port_uses = table_make(s, PORTS * sizeof(*s->port_uses));
	if (!s->connection || (o->toa && !s->client) || !s->bucket || !s->wheel_links ||
	    !s->listeners.slot || !s->listeners.bucket || !s->port_uses ||
	    chunk_pool_init(&s->chunks, o->send_all))
		return -ENOMEM;
	s->fixed += s->chunks.count * sizeof(*s->chunks.next);
	wheel_init(&s->wheel, s->wheel_links, time_ms64(s));
	return 0;
}

/* Minimum share of turns per level with data to send, in percent. */
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
	if (options->listeners >= LISTENER_NONE)
		return sy_fail(err, EINVAL, "a stack has at most %u listeners", LISTENER_NONE - 1);
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
		s->max_large = segment_max_large(s->options.pool, s->options.tso.buffers);
	if (tables_make(s) || pools_make(s)) {
		sy_stack_destroy(s);
		return sy_fail(err, ENOMEM, "no memory for %u connections", options->connections);
	}
	if (options->not_inherited)
		sy_stack_set_inherited(s, false);
	*out = s;
	return 0;
}

void sy_stack_set_inherited(struct sy_stack *s, bool on)
{
	madvise(s->chunks.memory, (size_t)s->chunks.count * CHUNK_SIZE,
	        on ? MADV_DOFORK : MADV_DONTFORK);
}

void sy_stack_destroy(struct sy_stack *s)
{
	const struct sy_stack_options *o = &s->options;

	for (uint32_t i = 0; s->connection && i < s->fresh; i++)
		connection_drop_buffers(s, &s->connection[i]);
	spent_free(&s->spent);
	while (s->control_count > 0)
		rte_pktmbuf_free(stack_next_control(s));
	priority_close(s);
	pools_close(s);
	chunk_pool_close(&s->chunks);
	table_free(s->connection, o->connections * sizeof(*s->connection));
	table_free(s->client, o->connections * sizeof(*s->client));
	table_free(s->bucket, (s->bucket_mask + 1ul) * sizeof(*s->bucket));
	table_free(s->wheel_links, o->connections * sizeof(*s->wheel_links));
	table_free(s->port_uses, PORTS * sizeof(*s->port_uses));
	table_free(s->listeners.slot, o->listeners * sizeof(*s->listeners.slot));
	table_free(s->listeners.bucket, (s->listeners.mask + 1ul) * sizeof(*s->listeners.bucket));
	free(s->reassembly);
	sy_secret_wipe(s, sizeof(*s));
	free(s);
}

/* ---- transmission ---------------------------------------------------------------------------- */

void stack_send_control(struct sy_stack *s, struct rte_mbuf *m)
{
	if (!m)
		return;
	if (s->control_count == MAX_CONTROL) {
		s->counters.refused_memory++;
		rte_pktmbuf_free(m);
		return;
	}
	s->control[(s->control_first + s->control_count++) % MAX_CONTROL] = m;
}

struct rte_mbuf *stack_next_control(struct sy_stack *s)
{
	struct rte_mbuf *m = s->control[s->control_first];

	s->control_first = (s->control_first + 1) % MAX_CONTROL;
	s->control_count--;
	return m;
}

void stack_refuse(struct sy_stack *s, const struct segment *seg)
{
	struct rte_mbuf *m;

	if (seg->flags & SY_TCP_RST)
		return;
	if (listener_is_retired(s, &seg->view->tuple.dst, seg->view->tuple.dport)) {
		s->counters.retired_dropped++;
		return;
	}
	do {
		m = segment_refuse(s->options.pool, seg, s->options.offload_checksum);
	} while (!m && stack_reclaim(s));
	s->counters.resets_out += m != NULL;
	stack_send_control(s, m);
}

/* Returns the next connection to send and its number of segments: the most urgent one, or now and
 * then a passed one, so that its ACKs advance. */
static inline struct connection *send_next(struct sy_stack *s, unsigned *quota)
{
	unsigned levels = s->send_levels, level = (unsigned)__builtin_ctz(levels);
	struct connection *c;

	*quota = EMIT_QUOTA;
	if (SY_LIKELY(levels == 1u << SY_USUAL)) {
		level = SY_USUAL;
	} else if (levels & (levels - 1)) {
		unsigned next = shares_next(&s->send_shares, levels);
		shares_fetched(&s->send_shares, levels, next);
		*quota = next == level ? EMIT_QUOTA : EMIT_PASSED;
		level = next;
	}
	c = list_first(s, &s->send[level]);
	list_remove(s, &s->send[level], LIST_SEND, c);
	if (s->send[level].count == 0)
		s->send_levels &= ~(1u << level);
	return c;
}

static void pieces_use(struct sy_stack *s, uint32_t *left, struct rte_mbuf **packet, unsigned count)
{
	uint32_t used = count;

	for (unsigned i = 0; i < count; i++) {
		s->counters.bytes_out += packet[i]->pkt_len;
		if (s->max_large > 0)
			used += segment_pieces(packet[i]) - 1;
	}
	*left -= used < *left ? used : *left;
}

unsigned sy_stack_transmit_pieces(struct sy_stack *s, struct rte_mbuf **packet, unsigned max,
                                  uint32_t *pieces, uint64_t now_ns)
{
	unsigned count = 0;
	struct connection *c;

	stack_time(s, now_ns);
	if (s->coalesced_count > 0 && s->now_ns >= s->coalesced_ns)
		ack_coalesce_flush(s);
	while (count < max && s->control_count > 0)
		packet[count++] = stack_next_control(s);
	pieces_use(s, pieces, packet, count);
	while (s->send_levels && *pieces > 0 && count < max) {
		unsigned quota, share, got;
		c = send_next(s, &quota);
		share = max - count < quota ? max - count : quota;
		got = emit(s, c, packet + count, share, quota);
		pieces_use(s, pieces, packet + count, got);
		count += got;
		if (got == share) /* requeue behind the others */
			connection_schedule(s, c);
	}
	s->counters.packets_out += count;
	if (count < max || *pieces == 0) /* the caller will fetch the rest */
		spent_free(&s->spent);
	return count;
}

unsigned sy_stack_transmit(struct sy_stack *s, struct rte_mbuf **packet, unsigned max,
                           uint64_t now_ns)
{
	uint32_t pieces = UINT32_MAX;

	return sy_stack_transmit_pieces(s, packet, max, &pieces, now_ns);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Prefetches the connections of the next due timers. Returns their number, at least one. */
static unsigned timers_prefetch(const struct sy_stack *s, uint64_t due_ms)
{
	uint32_t index[TIMERS_PREFETCH];
	unsigned count = wheel_peek(&s->wheel, due_ms, index, TIMERS_PREFETCH);

	for (unsigned i = 0; i < count; i++) {
		const struct connection *c = &s->connection[index[i]];
		__builtin_prefetch(c, 1);
		__builtin_prefetch(c->due_ms, 1);
	}
	return count ? count : 1;
}

void sy_stack_mark_seen(struct sy_stack *s, uint64_t seen_ns)
{
	s->seen_ns = seen_ns;
}

uint64_t sy_stack_advance(struct sy_stack *s, uint64_t now_ns)
{
	uint64_t due_ms, next;
	unsigned prefetched = 0;
	uint32_t index;

	stack_time(s, now_ns);
	due_ms = (s->seen_ns < s->now_ns ? s->seen_ns : s->now_ns) / MS_NS;
	s->due_ms = (uint32_t)due_ms;
	while ((index = wheel_take(&s->wheel, due_ms)) != WHEEL_NONE) {
		prefetched = prefetched > 1 ? prefetched - 1 : timers_prefetch(s, due_ms);
		struct connection *c = &s->connection[index];
		c->in_wheel = false;
		timer_run(s, c);
	}
	if (s->priority && s->priority->waiting.count > 0)
		return s->now_ns;
	next = wheel_next(&s->wheel);
	next = next > UINT64_MAX / MS_NS ? UINT64_MAX : next * MS_NS;
	return s->coalesced_count > 0 && s->coalesced_ns < next ? s->coalesced_ns : next;
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
	        .listeners = s->listeners.count,
	        .send_bytes = (uint64_t)s->chunks.used * CHUNK_SIZE,
	        .receive_bytes = s->receive_queued,
	        .ranges = pools_used(s),
	        .fixed = s->fixed,
	        .orphans = s->orphans,
	        .orphans_taken = s->orphans_taken,
	};
}
