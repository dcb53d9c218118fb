// SPDX-License-Identifier: Apache-2.0
#include "fuzz_traffic.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_hexdump.h>
#include <rte_mempool.h>

#include "../../dataplane/balance/tests/client_sessions_check.h"
#include "../../dataplane/forwarder/pipeline.h"
#include "address_set.h"
#include "model.h"

#define STAGES_MAX 16
#define SECOND_NS  UINT64_C(1000000000)
/* Longer than any timeout, and than an id waits for its sessions. */
#define IDLE_S 100

/* ---- looking into the pipeline --------------------------------------------------------------- */

static uint64_t reached, fast; /* of the current soak test; one thread runs all workers */

static void probe_classified(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++)
		reached += !sy_next_has_left(b->next[i]);
}

/* A packet to be looked up takes the fast path, unless look up sends it to the slow path. */
static void probe_looked_up(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++)
		fast += b->next[i] == SY_NEXT_LOOKUP || b->next[i] == SY_NEXT_SLOW;
}

static void probe_passed(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++)
		fast -= b->next[i] == SY_NEXT_SLOW;
}

/* The forwarder's pipeline with probes after classify, look up and the fast path. */
static const struct sy_stage *pipeline_probed(void)
{
	static struct sy_stage probed[STAGES_MAX];
	unsigned n = 0;
	for (const struct sy_stage *s = pipeline; s->name; s++) {
		probed[n++] = *s;
		if (s->run == sy_classify_stage)
			probed[n++] = (struct sy_stage){"classified", probe_classified};
		if (s->run == sy_lookup_stage)
			probed[n++] = (struct sy_stage){"looked up", probe_looked_up};
		if (s->run == sy_fast_stage)
			probed[n++] = (struct sy_stage){"passed", probe_passed};
	}
	probed[n] = (struct sy_stage){0};
	return probed;
}

/* The linker redirects these calls here: the balancer makes frames of its own only through them. */
static uint64_t answered;
uint32_t __real_sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                     const struct sy_view *v, enum sy_icmp_error kind,
                                     const struct sy_addr *source, uint16_t mtu);
uint32_t __wrap_sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                     const struct sy_view *v, enum sy_icmp_error kind,
                                     const struct sy_addr *source, uint16_t mtu);
uint32_t __wrap_sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                     const struct sy_view *v, enum sy_icmp_error kind,
                                     const struct sy_addr *source, uint16_t mtu)
{
	uint32_t len = __real_sy_packet_icmp_error(out, cap, frame, v, kind, source, mtu);
	answered += len > 0;
	return len;
}

#define COUNT_FRAMES(name, parameters, arguments)                                                  \
	uint32_t __real_##name parameters;                                                         \
	uint32_t __wrap_##name parameters;                                                         \
	uint32_t __wrap_##name parameters                                                          \
	{                                                                                          \
		uint32_t len = __real_##name arguments;                                            \
		answered += len > 0;                                                               \
		return len;                                                                        \
	}
COUNT_FRAMES(sy_tcp_reset_make,
             (uint8_t * out, uint32_t cap, const struct sy_tuple *t, uint32_t seq, uint32_t ack,
              bool with_ack),
             (out, cap, t, seq, ack, with_ack))
COUNT_FRAMES(sy_tcp_probe_make,
             (uint8_t * out, uint32_t cap, const struct sy_tuple *t, uint32_t seq, uint32_t ack),
             (out, cap, t, seq, ack))
COUNT_FRAMES(sy_tcp_syn_make,
             (uint8_t * out, uint32_t cap, const struct sy_tuple *t,
              const struct sy_tcp_segment *s),
             (out, cap, t, s))
COUNT_FRAMES(sy_tcp_reset_answer,
             (uint8_t * out, uint32_t cap, const uint8_t *frame, const struct sy_view *v),
             (out, cap, frame, v))

/* The first fragment replaces the packet that is fragmented. */
uint32_t __real_sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                                   uint32_t id, uint16_t *at);
uint32_t __wrap_sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                                   uint32_t id, uint16_t *at);
uint32_t __wrap_sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                                   uint32_t id, uint16_t *at)
{
	bool more = *at > 0;
	uint32_t len = __real_sy_packet_fragment(out, cap, frame, mtu, id, at);
	answered += len > 0 && more;
	return len;
}

/* A copy that becomes a segment of the balancer's own, valid if the client's was. */
void __real_sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep);
void __wrap_sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep);
void __wrap_sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep)
{
	if (keep == SY_TCP_ACK) {
		struct rte_mbuf *own = (struct rte_mbuf *)(frame - RTE_PKTMBUF_HEADROOM) - 1;
		own->hash.usr = sy_packet_check_l4(frame, v) == SY_CSUM_OK;
		answered++;
	}
	__real_sy_tcp_strip(frame, v, keep);
}

/* ---- frames in ------------------------------------------------------------------------------- */

static bool frame_is_right(const struct frame *f)
{
	struct sy_view v;
	return sy_packet_parse(f->bytes, f->len, &v) == SY_DROP_NONE &&
	       sy_packet_check_l4(f->bytes, &v) == SY_CSUM_OK;
}

void fuzz_traffic_send(struct fuzz_traffic *w, const struct frame *f)
{
	struct harness *r = &w->topology.harness;
	struct rte_mbuf *m = rte_pktmbuf_alloc(r->rt->pool);
	if (!m)
		return;
	memcpy(rte_pktmbuf_append(m, f->len), f->bytes, f->len);
	harness_address(m, f->port);
	m->hash.usr =
	        frame_is_right(f); /* stays with the buffer on its path through the pipeline */
	if (rte_ring_enqueue(r->rx[f->port], m) < 0)
		rte_pktmbuf_free(m);
	else
		w->tally.in++;
}

static void remember(struct fuzz_traffic *w, const struct frame *f)
{
	w->history[w->history_at] = *f;
	w->history_at = (w->history_at + 1) % HISTORY;
	w->history_count += w->history_count < HISTORY;
}

/* A place for a valid pending frame; if all are used, another one is dropped. */
static struct frame *pending_add(struct fuzz_traffic *w)
{
	if (w->pending_count < PENDING)
		return &w->pending[w->pending_count++];
	return &w->pending[rng_below(&w->rng, PENDING)];
}

struct sy_tuple fuzz_traffic_client(struct fuzz_traffic *w, const struct service_key *key)
{
	bool v4 = sy_addr_is_v4(&key->vip);
	struct sy_tuple t = {.src = harness_addr(v4 ? "198.18.0.0" : "2001:db8:c::"),
	                     .dst = key->vip,
	                     .dport = key->vport,
	                     .proto = key->proto};
	t.src.b[15] = (uint8_t)(1 + rng_below(&w->rng, 64));
	t.sport = htons((uint16_t)(1 + rng_below(&w->rng, 65535)));
	return t;
}

/* Sometimes more than the next network's MTU. */
static uint32_t payload_roll(struct rng *d, uint32_t below)
{
	return rng_percent(d, 5) ? 1250 + rng_below(d, 300) : rng_below(d, below);
}

void fuzz_traffic_greet(struct fuzz_traffic *w, struct frame *f, const struct sy_tuple *t)
{
	const struct segment syn = {SY_TCP_SYN, rng_below(&w->rng, UINT32_MAX), 0, 1460};
	f->port = HARNESS_WAN;
	if (t->proto == SY_PROTO_TCP)
		frame_tcp(f, &w->rng, t, &syn, 0);
	else
		frame_udp(f, &w->rng, t, payload_roll(&w->rng, 600));
	if (rng_percent(&w->rng, 50))
		frame_let_fragment(f);
}

/* ---- frames out ------------------------------------------------------------------------------ */

/* The segment with which a client or server would answer; false: none. */
static bool tcp_answer(struct fuzz_traffic *w, const struct sy_view *v, const struct sy_tcp *in,
                       struct segment *out, unsigned *payload)
{
	struct rng *d = &w->rng;
	uint32_t len = v->l4_len - (in->offset >> 4) * 4u;
	bool ends = in->flags & (SY_TCP_SYN | SY_TCP_FIN);
	*out = (struct segment){SY_TCP_ACK, ntohl(in->ack), ntohl(in->seq) + len + ends, 0};
	*payload = 0;
	if (in->flags & SY_TCP_RST || rng_percent(d, 8))
		return false;
	if ((in->flags & (SY_TCP_SYN | SY_TCP_ACK)) == SY_TCP_SYN) {
		out->flags = rng_percent(d, 95) ? SY_TCP_SYN | SY_TCP_ACK : SY_TCP_RST | SY_TCP_ACK;
		out->seq = rng_below(d, UINT32_MAX);
		out->mss = 1460;
		return true;
	}
	uint32_t choice = rng_below(d, 100);
	if (choice < 45) {
		out->flags |= SY_TCP_PSH;
		*payload = rng_below(d, 20) ? rng_below(d, 300) : 1380 + rng_below(d, 80);
	} else if (choice < (in->flags & SY_TCP_FIN ? 90u : 60u)) {
		out->flags |= SY_TCP_FIN;
	} else if (choice >= 98) {
		out->flags = SY_TCP_RST;
	}
	return true;
}

/* Is it the balancer's own ACK to a client that it does not know? */
static bool is_challenge(const struct sy_view *v, const struct sy_tcp *in, unsigned port)
{
	return port == HARNESS_WAN && in->flags == SY_TCP_ACK && in->window == UINT16_MAX &&
	       v->l4_len == sizeof(*in);
}

/* A client whose SYN was challenged sends a reset, mostly the right one, and its SYN again. */
static void react_proving(struct fuzz_traffic *w, const struct sy_tuple *t, uint32_t number)
{
	struct rng *d = &w->rng;
	struct frame next = {.port = HARNESS_WAN};
	const struct segment proof = {SY_TCP_RST, number ^ rng_percent(d, 10), 0, 0};
	const struct segment syn = {SY_TCP_SYN, rng_below(d, UINT32_MAX), 0, 1460};
	frame_tcp(&next, d, t, &proof, 0);
	fuzz_traffic_send(w, &next);
	remember(w, &next);
	frame_tcp(&next, d, t, &syn, 0);
	*pending_add(w) = next;
}

/* A DR server's answer does not pass the balancer; only the client's next packet is seen. */
static void react_past_us(struct fuzz_traffic *w, const struct sy_view *v)
{
	static const uint8_t flags[] = {SY_TCP_ACK, SY_TCP_ACK | SY_TCP_PSH,
	                                SY_TCP_ACK, SY_TCP_ACK | SY_TCP_FIN,
	                                SY_TCP_RST, SY_TCP_SYN};
	struct rng *d = &w->rng;
	struct frame next = {.port = HARNESS_WAN};
	const struct segment s = {flags[rng_below(d, SY_ARRAY_LEN(flags))],
	                          rng_below(d, UINT32_MAX), 1, 0};
	if (v->proto == SY_PROTO_TCP)
		frame_tcp(&next, d, &v->tuple, &s, rng_below(d, 300));
	else
		frame_udp(&next, d, &v->tuple, rng_below(d, 300));
	*pending_add(w) = next;
	remember(w, &next);
}

/* A router reports an error about the packet. */
static void react_complaining(struct fuzz_traffic *w, unsigned port, const uint8_t *frame,
                              const struct sy_view *v)
{
	static const uint8_t type[][2][2] = {{{3, 1}, {1, 3}},
	                                     {{3, 3}, {1, 4}},
	                                     {{3, 4}, {2, 0}},
	                                     {{11, 0}, {3, 0}},
	                                     {{12, 0}, {4, 0}}};
	struct rng *d = &w->rng;
	struct frame error = {.port = (uint8_t)port};
	const struct sy_addr router = harness_addr(v->v4 ? "203.0.113.9" : "2001:db8:99::9");
	unsigned least = v->l4 - v->l3 + 8u, all = v->frame_len - v->l3;
	unsigned quoted = least + rng_below(d, all - least + 1);
	frame_error(&error, d, &router, type[rng_below(d, SY_ARRAY_LEN(type))][!v->v4],
	            rng_below(d, 2000), frame, quoted < 1200 ? quoted : 1200);
	*pending_add(w) = error;
	remember(w, &error);
}

/* Turns part of the payload into as many options as fit. */
static void fill_header(struct frame *f, unsigned l4)
{
	f->bytes[l4 + 12] = 15 << 4;
	memset(f->bytes + l4 + sizeof(struct sy_tcp), 1, 40);
	frame_mend_l4(f);
}

static void react_to(struct fuzz_traffic *w, unsigned port, const uint8_t *frame,
                     const struct sy_view *v)
{
	const struct sy_tuple back = {v->tuple.dst, v->tuple.src, v->tuple.dport, v->tuple.sport,
	                              v->tuple.proto};
	struct frame answer = {.port = (uint8_t)port};
	if ((v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP) && rng_percent(&w->rng, 4))
		react_complaining(w, port, frame, v);
	if (port == HARNESS_LAN &&
	    address_set_find(inspect_address_set(w->topology.harness.b), &v->tuple.dst) ==
	            ADDRESS_SET_VIP &&
	    (v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP)) {
		if (!rng_percent(&w->rng, 20))
			react_past_us(w, v);
		return; /* the server's answer does not pass the balancer */
	}
	if (v->proto == SY_PROTO_TCP) {
		struct segment s;
		unsigned payload;
		const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
		if (is_challenge(v, tcp, port)) {
			react_proving(w, &back, ntohl(tcp->ack));
			return;
		}
		if (!tcp_answer(w, v, tcp, &s, &payload))
			return;
		frame_tcp(&answer, &w->rng, &back, &s, payload);
		if (!s.mss && payload >= 40 && rng_percent(&w->rng, 10))
			fill_header(&answer, SY_ETH_LEN + (v->v4 ? 20 : 40));
	} else if (v->proto == SY_PROTO_UDP) {
		if (rng_percent(&w->rng, 10))
			return;
		frame_udp(&answer, &w->rng, &back, payload_roll(&w->rng, 300));
	} else {
		return;
	}
	if (rng_percent(&w->rng, 50))
		frame_let_fragment(&answer);
	*pending_add(w) = answer;
	remember(w, &answer);
}

/* Shows the first of the frames that must not be sent. */
static void ugly_show(const struct fuzz_traffic *w, const struct rte_mbuf *m, unsigned port)
{
	char title[64];
	if (w->tally.ugly > 0)
		return;
	snprintf(title, sizeof(title), "soak: sent by port %u, right before %u", port, m->hash.usr);
	rte_hexdump(stderr, title, rte_pktmbuf_mtod(m, const void *), m->data_len);
}

void fuzz_traffic_collect(struct fuzz_traffic *w, bool react)
{
	for (unsigned port = 0; port < HARNESS_PORTS; port++) {
		struct rte_mbuf *m;
		while ((m = harness_collect(&w->topology.harness, port))) {
			struct sy_view v;
			bool ugly = !topology_sent_is_right(m, port, m->hash.usr, &v);
			w->tally.out++;
			if (ugly)
				ugly_show(w, m, port);
			w->tally.ugly += ugly;
			if (react && !ugly && v.fragment == SY_FRAGMENT_NONE)
				react_to(w, port, rte_pktmbuf_mtod(m, const uint8_t *), &v);
			rte_pktmbuf_free(m);
		}
	}
}

void fuzz_traffic_turn(struct fuzz_traffic *w)
{
	harness_turn(&w->topology.harness);
	harness_attend(&w->topology.harness);
	fuzz_traffic_collect(w, true);
}

/* ---- bursts ---------------------------------------------------------------------------------- */

/* Sends a recent frame again, on its old port. */
static bool send_again(struct fuzz_traffic *w, bool spoil)
{
	if (w->history_count == 0)
		return false;
	struct frame f = w->history[rng_below(&w->rng, w->history_count)];
	if (spoil)
		frame_mutate(&f, &w->rng);
	fuzz_traffic_send(w, &f);
	return true;
}

static void send_client(struct fuzz_traffic *w)
{
	struct frame f;
	struct service_key key = topology_service(rng_below(&w->rng, TOPOLOGY_SERVICES));
	struct sy_tuple t = fuzz_traffic_client(w, &key);
	fuzz_traffic_greet(w, &f, &t);
	remember(w, &f);
	fuzz_traffic_send(w, &f);
}

/* Valid frames with a wrong destination, source or time. */
static void send_stray(struct fuzz_traffic *w)
{
	struct frame f;
	struct rng *d = &w->rng;
	struct service_key key =
	        rng_percent(d, 50) ? topology_special_service(
	                                     (enum topology_special)rng_below(d, SPECIAL_SERVICES))
	                           : topology_service(rng_below(d, TOPOLOGY_SERVICES));
	struct sy_tuple t = fuzz_traffic_client(w, &key);
	const struct segment late = {SY_TCP_ACK | SY_TCP_FIN, rng_below(d, UINT32_MAX), 1, 0};
	switch (rng_below(d, 7)) {
	case 0:
		t.dport = htons((uint16_t)rng_below(d, 65536));
		break;
	case 1:
		if (sy_addr_is_v4(&t.src))
			t.src.b[13] = 19; /* a blackhole route */
		break;
	case 2:
		t.src.b[sy_addr_is_v4(&t.src) ? 12 : 5] = 0x77; /* no route */
		break;
	case 3:
		t.dst.b[15] ^= 0x80;
		break;
	case 4: /* link-local */
		memcpy(t.src.b + (sy_addr_is_v4(&t.src) ? 12 : 0),
		       sy_addr_is_v4(&t.src) ? "\xa9\xfe" : "\xfe\x80", 2);
		break;
	default:
		break;
	}
	fuzz_traffic_greet(w, &f, &t);
	if (t.proto == SY_PROTO_TCP && rng_percent(d, 20))
		frame_tcp(&f, d, &t, &late, 0);
	if (rng_percent(d, 10))
		frame_unfinish(&f);
	fuzz_traffic_send(w, &f);
}

static void send_icmp(struct fuzz_traffic *w)
{
	struct frame f = {.port = (uint8_t)rng_below(&w->rng, HARNESS_PORTS)};
	struct service_key key = topology_service(rng_below(&w->rng, TOPOLOGY_SERVICES));
	struct sy_tuple t = fuzz_traffic_client(w, &key);
	uint8_t echo = sy_addr_is_v4(&t.src) ? 8 : 128;
	bool other = rng_percent(&w->rng, 60);
	frame_icmp(&f, &w->rng, &t, other ? (uint8_t)rng_below(&w->rng, 256) : echo,
	           other ? (uint8_t)rng_below(&w->rng, 4) : 0, rng_below(&w->rng, 200));
	if (rng_percent(&w->rng, 20))
		frame_mutate(&f, &w->rng);
	fuzz_traffic_send(w, &f);
}

static void send_noise(struct fuzz_traffic *w)
{
	static const uint8_t type[2][2] = {{0x08, 0x00}, {0x86, 0xdd}};
	struct frame f = {.port = (uint8_t)rng_below(&w->rng, HARNESS_PORTS),
	                  .len = (uint16_t)rng_below(&w->rng, 1600)};
	rng_fill(&w->rng, f.bytes, f.len);
	if (rng_percent(&w->rng, 70))
		memcpy(f.bytes + 12, type[rng_below(&w->rng, 2)], 2);
	fuzz_traffic_send(w, &f);
}

/* A datagram from a client or a server in fragments: in any order, with some lost, duplicated, or
 * cut to overlap. */
static void send_fragments(struct fuzz_traffic *w)
{
	struct rng *d = &w->rng;
	struct frame f, piece[16];
	struct service_key key = topology_service(rng_below(d, TOPOLOGY_SERVICES));
	const struct sy_tuple t = fuzz_traffic_client(w, &key);
	const struct segment s = {rng_percent(d, 50) ? SY_TCP_SYN : SY_TCP_ACK, 1, 1, 0};
	uint32_t id = rng_below(d, rng_percent(d, 50) ? 4 : UINT32_MAX);
	bool answer = w->history_count > 0 && rng_percent(d, 40);
	if (answer)
		f = w->history[rng_below(d, w->history_count)];
	else if (t.proto == SY_PROTO_TCP)
		frame_tcp(&f, d, &t, &s, rng_below(d, 1300));
	else
		frame_udp(&f, d, &t, rng_below(d, 1300));
	if (!answer)
		f.port = HARNESS_WAN;
	unsigned cuts = rng_percent(d, 10) ? 2 : 1;
	for (unsigned cut = 0; cut < cuts; cut++) {
		unsigned count = frame_cut(&f, id, 8 * (4 + rng_below(d, 40)), piece, 16);
		for (unsigned n = count; n > 0; n--) {
			unsigned pick = rng_percent(d, 50) ? rng_below(d, n) : 0;
			if (rng_percent(d, 95))
				fuzz_traffic_send(w, &piece[pick]);
			if (!rng_percent(d, 5)) /* sometimes sent again */
				memmove(piece + pick, piece + pick + 1,
				        (count - pick - 1) * sizeof(piece[0]));
		}
	}
}

static void fuzz_frame(struct fuzz_traffic *w)
{
	uint32_t choice = rng_below(&w->rng, 100);
	if (choice < 52 && w->pending_count > 0) {
		struct frame *f = &w->pending[rng_below(&w->rng, w->pending_count)];
		fuzz_traffic_send(w, f);
		*f = w->pending[--w->pending_count];
	} else if (choice < 66) {
		send_client(w);
	} else if (choice < 84) {
		send_again(w, true);
	} else if (choice < 89) {
		send_again(w, false);
	} else if (choice < 94) {
		send_stray(w);
	} else if (choice < 96) {
		send_icmp(w);
	} else if (choice < 97) {
		send_fragments(w);
	} else {
		send_noise(w);
	}
}

static void fuzz_burst(struct fuzz_traffic *w)
{
	struct rng *d = &w->rng;
	for (unsigned n = 1 + rng_below(d, 2 * SY_BURST); n; n--)
		fuzz_frame(w);
	/* Sometimes a single worker runs, and the control thread does not serve its requests. */
	if (rng_percent(d, 10))
		harness_turn_worker(&w->topology.harness,
		                    rng_below(d, w->topology.harness.rt->workers));
	else
		fuzz_traffic_turn(w);
	if (rng_percent(d, 5))
		topology_change(&w->topology);
	if (rng_percent(d, 4))
		harness_advance(&w->topology.harness, rng_below(d, 1500) * (SECOND_NS / 1000));
	if (rng_below(d, 3000) == 0)
		harness_advance(&w->topology.harness, 30 * SECOND_NS);
}

bool fuzz_traffic_open(struct fuzz_traffic *w, uint64_t seed, unsigned workers)
{
	memset(w, 0, sizeof(*w));
	w->rng.state = seed * 0x9e3779b97f4a7c15u + 1;
	reached = fast = answered = 0;
	return topology_open(&w->topology, &w->rng, workers, pipeline_probed());
}

void fuzz_traffic_close(struct fuzz_traffic *w)
{
	topology_close(&w->topology);
}

void fuzz_traffic_run(struct fuzz_traffic *w, uint64_t frames)
{
	uint64_t scenario = 0; /* when the next scenario comes */
	while (w->tally.in < frames) {
		if (w->tally.in >= scenario) {
			scenario_all(w);
			scenario = w->tally.in + frames / 3;
		}
		fuzz_burst(w);
	}
}

/* ---- accounting ------------------------------------------------------------------------------ */

void fuzz_traffic_check_clients(struct fuzz_traffic *w)
{
	harness_advance(&w->topology.harness, 3 * SECOND_NS); /* a pass for limits that are new */
	w->tally.miscounted += !client_sessions_are_right(w->topology.harness.b, true);
}

void fuzz_traffic_settle(struct fuzz_traffic *w)
{
	struct fuzz_tally *t = &w->tally;
	struct harness *r = &w->topology.harness;
	fuzz_traffic_turn(w);
	fuzz_traffic_collect(w, false);
	fuzz_traffic_check_clients(w);
	harness_advance(r, IDLE_S * SECOND_NS);
	fuzz_traffic_check_clients(w);
	fuzz_traffic_collect(w, false);
	const struct sy_balance_totals totals = harness_totals(r);
	t->created = totals.created;
	t->ended = totals.ended;
	t->live = totals.live;
	topology_clear(&w->topology);
	harness_advance(r, 10 * SECOND_NS);
	const struct model *m = inspect_model(r->b);
	for (uint32_t id = 0; id < m->server_ids.fresh; id++)
		t->active += inspect_server_active(w->topology.harness.b, id);
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		t->active += inspect_service_active(w->topology.harness.b, id);
	t->ids = m->service_ids.fresh - m->service_ids.count + m->server_ids.fresh -
	         m->server_ids.count;
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		t->ids += m->local_retired[id];
	t->buffers = rte_mempool_in_use_count(r->rt->pool);
	t->commits = w->topology.commits;
	t->refusals = w->topology.refusals;
	t->reached = reached;
	t->fast = fast;
	t->answered = answered;
	for (unsigned i = 0; i < r->rt->workers; i++)
		t->handed += r->rt->worker[i].counters.handed_in;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++) {
		t->drop[reason] = harness_drops(r, reason);
		t->dropped += t->drop[reason];
	}
	/* Suppressed answers and evicted sessions are counted as drops, but no packet was dropped
	 * with them. */
	t->suppressed = t->drop[SY_DROP_ICMP_RATE] + t->drop[SY_DROP_RESET_RATE] +
	                t->drop[SY_DROP_NO_BUFFER] + t->drop[SY_DROP_SESSION_EVICTED] +
	                t->drop[SY_DROP_UNPROVEN_EVICTED];
	t->dropped -= t->suppressed;
}

void fuzz_traffic_add(struct fuzz_tally *sum, const struct fuzz_tally *t)
{
	sum->in += t->in;
	sum->out += t->out;
	sum->reached += t->reached;
	sum->fast += t->fast;
	sum->created += t->created;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		sum->drop[reason] += t->drop[reason];
}

void fuzz_traffic_print(const struct fuzz_tally *t)
{
	printf("\n%-24s %12lu\n", "frames in", t->in);
	printf("%-24s %12lu\n", "reached session code", t->reached);
	printf("%-24s %12lu\n", "took the fast path", t->fast);
	printf("%-24s %12lu\n", "sent", t->out);
	printf("%-24s %12lu\n\n", "sessions", t->created);
	for (unsigned reason = SY_DROP_NONE + 1; reason < SY_DROP_COUNT; reason++)
		printf("%-24s %12lu\n", sy_drop_name(reason), t->drop[reason]);
}
