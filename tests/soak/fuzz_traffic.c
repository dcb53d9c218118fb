// SPDX-License-Identifier: Apache-2.0
#include "fuzz_traffic.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_hexdump.h>
#include <rte_mempool.h>

#include "../../dataplane/balance/tests/client_sessions_check.h"
#include "address_set.h"
#include "model.h"
#include "pipeline_probe.h"
#include "reaction.h"

#define SECOND_NS UINT64_C(1000000000)
/* Longer than any timeout, and than an id waits for its sessions. */
#define IDLE_S 100

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

void fuzz_traffic_remember(struct fuzz_traffic *w, const struct frame *f)
{
	w->history[w->history_at] = *f;
	w->history_at = (w->history_at + 1) % HISTORY;
	w->history_count += w->history_count < HISTORY;
}

struct frame *fuzz_traffic_pend(struct fuzz_traffic *w)
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

uint32_t fuzz_traffic_payload(struct rng *d, uint32_t below)
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
		frame_udp(f, &w->rng, t, fuzz_traffic_payload(&w->rng, 600));
	if (rng_percent(&w->rng, 50))
		frame_let_fragment(f);
}

/* ---- frames out ------------------------------------------------------------------------------ */

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
	harness_poll(&w->topology.harness);
	harness_attend(&w->topology.harness);
	fuzz_traffic_collect(w, true);
}

/* ---- bursts ---------------------------------------------------------------------------------- */

/* Repeats a recent frame, on its old port. */
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
	fuzz_traffic_remember(w, &f);
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
			if (!rng_percent(d, 5)) /* sometimes repeated */
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
		harness_poll_worker(&w->topology.harness,
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
	probe_counts = (struct probe_counts){0};
	return topology_open(&w->topology, &w->rng, workers, pipeline_probed());
}

void fuzz_traffic_close(struct fuzz_traffic *w)
{
	topology_close(&w->topology);
}

void fuzz_traffic_run(struct fuzz_traffic *w, uint64_t frames)
{
	uint64_t scenario = 0; /* frame count at which the next scenarios run */
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
	t->reached = probe_counts.reached;
	t->fast = probe_counts.fast;
	t->originated = probe_counts.originated;
	for (unsigned i = 0; i < r->rt->workers; i++)
		t->handed += r->rt->worker[i].counters.steered_in;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++) {
		t->drop[reason] = harness_drops(r, reason);
		t->dropped += t->drop[reason];
	}
	/* Suppressed answers and evicted sessions count as drops, but without a packet. */
	t->suppressed = t->drop[SY_DROP_ICMP_RATE] + t->drop[SY_DROP_RESET_RATE] +
	                t->drop[SY_DROP_NO_BUFFER] + t->drop[SY_DROP_SESSION_EVICTED] +
	                t->drop[SY_DROP_EMBRYONIC_EVICTED];
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
