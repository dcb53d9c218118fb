// SPDX-License-Identifier: Apache-2.0
#include "sync_traffic.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>

#include <rte_cycles.h>

#include "measure.h"

#define PAYLOAD     12 /* bytes: frame_udp() makes no checksum for less */
#define CLIENT_BITS 22 /* addresses of UDP clients */
#define CALL_US     60 /* a longer call was interrupted and is not counted */
/* Connections that are due for longer, as this process did not run, do not begin. */
#define BEHIND_MS 5

/* A port's operations take no context argument; a process has one. */
static struct sync_traffic *traffic;

/* ---- frames ---------------------------------------------------------------------------------- */

/* Offsets in a frame: the protocol, the addresses and their length, the ports. */
struct layout {
	unsigned proto, addr, addr_len, ports;
};
static const struct layout layout_v4 = {23, 26, 4, 34}, layout_v6 = {20, 22, 16, 54};

static inline const struct layout *layout_of(const struct sync_traffic *t)
{
	return t->bed->options.family == 4 ? &layout_v4 : &layout_v6;
}

static inline bool is_udp(const struct sync_traffic *t, const struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod(m, const uint8_t *)[layout_of(t)->proto] == SY_PROTO_UDP;
}

static void bytes_swap(uint8_t *a, uint8_t *b, unsigned len)
{
	uint8_t hand[16];
	memcpy(hand, a, len);
	memcpy(a, b, len);
	memcpy(b, hand, len);
}

/* A packet that left a port comes back to it: its checksums stay right. */
static void frame_turn(const struct sync_traffic *t, struct rte_mbuf *m, unsigned port)
{
	const struct layout *l = layout_of(t);
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	memcpy(frame, harness_mac[port], 6);
	bytes_swap(frame + l->addr, frame + l->addr + l->addr_len, l->addr_len);
	bytes_swap(frame + l->ports, frame + l->ports + 2, 2);
}

/* The first packet of UDP session n. */
static unsigned frame_make(const struct sync_traffic *t, uint64_t n, uint8_t *to)
{
	const struct service_key *key = &t->bed->udp;
	struct rng rng = {1};
	struct frame f;
	const uint32_t host = (uint32_t)(n * 0x9e3779b1u) & ((1u << CLIENT_BITS) - 1);
	const struct sy_tuple tuple = {
	        .src = endpoints_addr(t->bed->options.family, "100.64.0.0", "2001:db8:9::", host),
	        .dst = key->vip,
	        .sport = htons((uint16_t)(1024 + (n >> CLIENT_BITS))),
	        .dport = key->vport,
	        .proto = SY_PROTO_UDP};
	frame_udp(&f, &rng, &tuple, PAYLOAD);
	memcpy(f.bytes, harness_mac[HARNESS_WAN], 6);
	memcpy(to, f.bytes, f.len);
	return f.len;
}

/* ---- the ports ------------------------------------------------------------------------------- */

static void cycles_count(struct sync_traffic *t, uint64_t start)
{
	const uint64_t cycles = rte_rdtsc() - start;
	if (SY_LIKELY(cycles < rte_get_tsc_hz() / 1000000 * CALL_US))
		t->cycles += cycles;
}

static unsigned stream_rx(struct sync_traffic *t, struct rte_mbuf **m, unsigned n)
{
	const struct injector_stream *s = &t->stream;
	for (unsigned i = 0; i < n; i++) {
		m[i] = spares_get(&t->spares, t->bed->harness.rt->pool);
		if (!m[i])
			return i;
		memcpy(rte_pktmbuf_mtod(m[i], uint8_t *), injector_frame(s, t->at), s->len);
		m[i]->data_len = (uint16_t)s->len;
		m[i]->pkt_len = s->len;
		t->at = t->at + 1 == s->count ? 0 : t->at + 1;
	}
	return n;
}

static unsigned new_rx(struct sync_traffic *t, struct rte_mbuf **m, unsigned n)
{
	unsigned i = 0;
	for (; i < n && t->arriving && (m[i] = spares_get(&t->spares, t->bed->harness.rt->pool));
	     i++, t->arriving--) {
		uint8_t *frame = rte_pktmbuf_mtod(m[i], uint8_t *);
		m[i]->data_len = (uint16_t)frame_make(t, t->opened, frame);
		m[i]->pkt_len = m[i]->data_len;
		if (t->opened < t->stream.count)
			memcpy(injector_frame(&t->stream, t->opened), frame, m[i]->data_len);
		t->opened++;
	}
	return i;
}

/* Those that were held in the phase before. */
static unsigned held_rx(struct sync_traffic *t, struct rte_mbuf **m, unsigned n)
{
	unsigned i = 0;
	for (; i < n && t->arriving; i++)
		m[i] = t->held[--t->arriving];
	return i;
}

static unsigned udp_rx(struct sync_traffic *t, unsigned port, struct rte_mbuf **m, unsigned n)
{
	const bool client = port == HARNESS_WAN;
	switch (t->phase) {
	case TRAFFIC_FORWARD:
		return client && t->fills ? stream_rx(t, m, n) : 0;
	case TRAFFIC_NEW:
		return client ? new_rx(t, m, n) : 0;
	case TRAFFIC_ANSWER:
		return client ? 0 : held_rx(t, m, n);
	case TRAFFIC_SECOND:
		return client ? held_rx(t, m, n) : 0;
	}
	return 0;
}

static unsigned traffic_rx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct sync_traffic *t = traffic;
	const uint64_t start = rte_rdtsc();
	unsigned got = t->below[p->id]->rx(p, queue, m, n);
	got += udp_rx(t, p->id, m + got, n - got);
	cycles_count(t, start);
	return got;
}

static void udp_tx(struct sync_traffic *t, unsigned port, struct rte_mbuf *m)
{
	t->passed++;
	if ((t->phase != TRAFFIC_NEW && t->phase != TRAFFIC_ANSWER) || t->holds == SY_BURST) {
		spares_put(&t->spares, m);
		return;
	}
	frame_turn(t, m, port);
	t->held[t->holds++] = m;
}

static unsigned traffic_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct sync_traffic *t = traffic;
	const uint64_t start = rte_rdtsc();
	unsigned tcp = 0;
	for (unsigned i = 0; i < n; i++) {
		if (is_udp(t, m[i]))
			udp_tx(t, p->id, m[i]);
		else
			m[tcp++] = m[i];
	}
	if (tcp)
		t->below[p->id]->tx(p, queue, m, tcp);
	cycles_count(t, start);
	return n;
}

/* ---- opening --------------------------------------------------------------------------------- */

bool traffic_open(struct sync_traffic *t, struct sync_bed *bed, uint64_t concurrent, uint64_t kept)
{
	const struct connections_options connections = {
	        .client = endpoints_addr(bed->options.family, "198.18.0.0", "2001:db8:8::", 0),
	        .vip = bed->tcp.vip,
	        .port = 80};
	uint8_t frame[FRAME_MAX];
	*t = (struct sync_traffic){.bed = bed};
	if (!endpoints_open(&t->endpoints, &bed->harness, connections, concurrent) ||
	    !injector_stream_open(&t->stream, kept, frame_make(t, 0, frame))) {
		fprintf(stderr, "no memory for the packets\n");
		return false;
	}
	t->endpoints.max_begun = 0;
	traffic = t;
	for (unsigned i = 0; i < HARNESS_PORTS; i++) {
		struct port *port = bed->harness.rt->port[i];
		t->below[i] = port->ops;
		t->ops[i] = *port->ops;
		t->ops[i].rx = traffic_rx;
		t->ops[i].tx = traffic_tx;
		port->ops = &t->ops[i];
	}
	return true;
}

void traffic_close(struct sync_traffic *t)
{
	if (!t->bed)
		return;
	for (unsigned i = 0; i < HARNESS_PORTS && t->below[i]; i++)
		t->bed->harness.rt->port[i]->ops = t->below[i];
	spares_free(&t->spares);
	endpoints_close(&t->endpoints);
	injector_stream_close(&t->stream);
}

static uint64_t drops(const struct sync_traffic *t)
{
	uint64_t n = 0;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		n += harness_drops(&t->bed->harness, (enum sy_drop)reason);
	return n;
}

static void drops_report(const struct sync_traffic *t)
{
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		if (harness_drops(&t->bed->harness, (enum sy_drop)reason))
			fprintf(stderr, "  dropped: %s %" PRIu64 "\n",
			        sy_drop_name((enum sy_drop)reason),
			        harness_drops(&t->bed->harness, (enum sy_drop)reason));
}

static bool phase_run(struct sync_traffic *t, enum traffic_phase phase, unsigned n)
{
	const uint64_t before = t->passed;
	t->phase = phase;
	t->arriving = n;
	t->holds = 0;
	for (unsigned i = 0; i < 3 && t->passed - before < n; i++)
		sync_bed_poll(t->bed);
	return t->passed - before == n;
}

bool traffic_sessions(struct sync_traffic *t, uint64_t n)
{
	bool ok = true;
	for (uint64_t left = n; ok && left > 0;) {
		const unsigned some = left < SY_BURST ? (unsigned)left : SY_BURST;
		ok = phase_run(t, TRAFFIC_NEW, some) && phase_run(t, TRAFFIC_ANSWER, some) &&
		     phase_run(t, TRAFFIC_SECOND, some);
		left -= some;
	}
	t->phase = TRAFFIC_FORWARD;
	if (ok)
		return true;
	fprintf(stderr, "session %" PRIu64 " or the next ones were not made\n", t->opened);
	drops_report(t);
	return false;
}

/* ---- running --------------------------------------------------------------------------------- */

void traffic_rate(struct sync_traffic *t, uint64_t per_second)
{
	const bool paced = per_second > 0 && per_second < UINT64_MAX;
	t->begun = t->endpoints.connections.begun;
	t->start_tsc = rte_rdtsc();
	t->per_cycle = paced ? (double)per_second / (1e9 / measure_ns(1)) : 0;
	t->endpoints.max_begun = per_second == UINT64_MAX ? UINT64_MAX : t->begun;
}

void traffic_poll(struct sync_traffic *t)
{
	const uint64_t now = rte_rdtsc(), behind = rte_get_tsc_hz() / 1000 * BEHIND_MS;
	if (t->per_cycle > 0) {
		const uint64_t due =
		        t->begun + (uint64_t)((double)(now - t->start_tsc) * t->per_cycle);
		t->endpoints.max_begun = due;
		if (due - t->endpoints.connections.begun >
		    (uint64_t)((double)behind * t->per_cycle)) {
			t->begun = t->endpoints.connections.begun;
			t->start_tsc = now;
		}
	}
	sync_bed_poll(t->bed);
}

void traffic_run(struct sync_traffic *t, unsigned ms)
{
	const uint64_t until = rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;
	while (rte_rdtsc() < until)
		traffic_poll(t);
}

bool traffic_finish(struct sync_traffic *t)
{
	const struct connections *c = &t->endpoints.connections;
	uint64_t live = 0;
	t->fills = false;
	traffic_rate(t, 0);
	for (unsigned ms = 0; ms < 20000; ms++) {
		traffic_run(t, 1);
		live = harness_totals(&t->bed->harness).live;
		if (c->completed == c->begun && live == t->opened)
			break;
	}
	if (c->completed == c->begun && live == t->opened && !c->strange && !drops(t))
		return true;
	fprintf(stderr,
	        "%" PRIu64 " of %" PRIu64 " connections were completed; %" PRIu64 " of %" PRIu64
	        " sessions are live; %" PRIu64 " packets were dropped, %" PRIu64 " out of place\n",
	        c->completed, c->begun, live, t->opened, drops(t), c->strange);
	drops_report(t);
	return false;
}
