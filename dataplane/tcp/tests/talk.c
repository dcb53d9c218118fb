// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "large.h"
#include "talk.h"
#include "talk_network.h"

#define START_NS  UINT64_C(1000000000000)
#define END_NS    (UINT64_C(3 * 3600) * 1000 * MS_NS)
#define TURNS_MAX 4000000u /* without an arrival */
#define MAX       3000000u /* bytes of a side */
#define PIECE     8192u

/* The bytes that each side writes. */
static const uint8_t *bytes_of(unsigned side)
{
	static uint8_t bytes[2][MAX + PIECE];

	if (bytes[1][0] == 0)
		for (unsigned i = 0; i < 2; i++)
			for (uint32_t n = 0; n < sizeof(bytes[i]); n++)
				bytes[i][n] = (uint8_t)((n ^ n >> 8 ^ n >> 16) + 77 * i);
	return bytes[side];
}

/* ---- the applications ------------------------------------------------------------------------ */

static void side_write(struct talk *t, unsigned i)
{
	struct side *side = &t->side[i];

	while (side->written < side->to_write) {
		uint32_t len = 1 + some(t, PIECE - 1);
		if (len > side->to_write - side->written)
			len = side->to_write - side->written;
		int64_t done = sy_stack_send(side->s, side->id, bytes_of(i) + side->written, len,
		                             chance(t, 100) ? SY_STACK_MORE : 0, t->now);
		if (done < 0 && done != -EAGAIN)
			t->wrong = "send fails";
		if (done <= 0)
			return;
		side->written += (uint32_t)done;
		if (chance(t, 300))
			return;
	}
}

static void side_read(struct talk *t, unsigned i)
{
	struct side *side = &t->side[i];
	uint8_t bytes[PIECE];

	for (;;) {
		int64_t got = sy_stack_receive_bytes(side->s, side->id, bytes,
		                                     1 + some(t, PIECE - 1), t->now);
		if (got == 0) {
			side->eof = true;
			if (side->read != side->to_read)
				t->wrong = "the stream ends too early";
			return;
		}
		if (got < 0) {
			if (got != -EAGAIN)
				t->wrong = "receive fails";
			return;
		}
		if (got > side->to_read - side->read) {
			t->wrong = "there are more bytes than were written";
			return;
		}
		if (memcmp(bytes, bytes_of(!i) + side->read, (size_t)got) != 0)
			t->wrong = "a byte is wrong";
		side->read += (uint32_t)got;
		if (chance(t, 300))
			return;
	}
}

/* Connections that timed out because their peer read nothing. */
static uint64_t given_up(const struct talk *t, unsigned i)
{
	const struct sy_stack_counters *c = sy_stack_counters(t->side[i].s);
	return c->timed_out + c->orphans_ended;
}

/* For an orphan after 100 s (RFC 6429 5). The reset may be lost: then the other side waits for
 * ever, as any TCP without keepalive. */
static bool is_given_up(const struct talk *t)
{
	for (unsigned i = 0; i < 2; i++)
		if (t->side[i].closed && given_up(t, i) > 0)
			return true;
	return false;
}

static void side_act(struct talk *t, unsigned i)
{
	struct side *side = &t->side[i];
	struct sy_stack_info info;

	side->next = t->now + MS_NS + below(t, side->nap_us + 1) * UINT64_C(1000);
	if (!side->id && side->listener &&
	    sy_stack_accept(side->s, side->listener, 5, NULL, &side->id) < 0)
		return;
	if (!side->id || side->closed)
		return;
	if (sy_stack_info(side->s, side->id, &info) < 0) {
		t->wrong = "the id is gone";
		return;
	}
	if (info.state == SY_STACK_SYN_SENT || info.state == SY_STACK_SYN_RECEIVED)
		return;
	if (sy_stack_ready(side->s, side->id) & SY_STACK_ERROR) {
		t->over = is_given_up(t);
		t->wrong = t->over ? NULL : "the connection has failed";
		return;
	}
	if (!side->shut)
		side_write(t, i);
	if (!side->eof)
		side_read(t, i);
	if (!side->shut && side->written == side->to_write) {
		sy_stack_shutdown(side->s, side->id, t->now);
		side->shut = true;
	}
	if (side->shut && side->eof) {
		sy_stack_close(side->s, side->id, t->now);
		side->closed = true;
		side->next = UINT64_MAX;
	}
}

/* Duplicates of a SYN and its ACK may arrive after the end. If the ISN clock has advanced, they
 * open another connection, which RFC 6528 permits; no application uses it, so reset it. */
static void strays_refuse(struct talk *t, unsigned i)
{
	struct side *side = &t->side[i];
	sy_stack_id id;

	while (side->closed && side->listener &&
	       sy_stack_accept(side->s, side->listener, 5, NULL, &id) >= 0)
		sy_stack_abort(side->s, id, t->now);
}

/* Events trigger the application immediately, mostly. */
static void side_events(struct talk *t, unsigned i)
{
	struct sy_stack_event e[8];
	unsigned count = sy_stack_events(t->side[i].s, e, 8);

	if (count > 0 && t->side[i].next != UINT64_MAX && chance(t, 700))
		t->side[i].next = t->now;
	strays_refuse(t, i);
}

/* ---- a schedule ------------------------------------------------------------------------------ */

static void wire_open(struct talk *t, unsigned i, unsigned kind)
{
	t->side[i].out = (struct wire){
	        .loss = kind & 1 ? some(t, 250) : 0,
	        .doubled = kind & 2 ? some(t, 200) : 0,
	        .late = kind & 4 ? some(t, 400) : 0,
	        .late_us = some(t, 300000),
	        .delay_us = some(t, 100000),
	        .jitter_us = kind & 8 ? some(t, 50000) : 0,
	        .rate = kind & 16 ? 100 + some(t, 100000) : 0,
	        .mtu = kind & 32 ? 1280 + below(t, 220) : 1500,
	        .marks = kind & 64,
	        .hole = kind & 128,
	        .packet = t->space[i],
	};
}

/* Offloads of both sides' ports. Drawn independently, so that they do not change a seed's schedule.
 */
static struct sy_stack_tso tso_of(uint64_t seed)
{
	bool cuts = seed & 1;

	return (struct sy_stack_tso){.ipv4 = cuts,
	                             .ipv6 = cuts,
	                             .frame = seed & 4 ? 1500 : 0,
	                             .buffers = seed & 8 ? 6 : 0};
}

static void side_open(struct talk *t, unsigned i)
{
	static const uint32_t window[] = {600, 2000, 8000, 65535, 1 << 20, 6 << 20};
	struct side *side = &t->side[i];
	struct sy_stack_options o = {
	        .pool = tests_pool(),
	        .connections = 4,
	        .receive_max = window[below(t, SY_ARRAY_LEN(window))],
	        .send_max = 4096 + some(t, 1 << 20),
	        .send_all = 1 << 21,
	        .receive_all = 1 << 23,
	        .congestion = chance(t, 500) ? "cubic" : "newreno",
	        .no_sack = chance(t, 200),
	        .no_timestamps = chance(t, 300),
	        .no_scale = chance(t, 200),
	        .ecn = chance(t, 300),
	        .pacing = chance(t, 300),
	        .tso = tso_of(t->seed),
	};
	for (unsigned k = 0; k < sizeof(o.secret); k++)
		o.secret[k] = (uint8_t)random64(t);
	if (sy_stack_create(&o, t->now, &side->s, NULL))
		t->wrong = "no stack";
	side->to_write = some(t, chance(t, 5) ? MAX : chance(t, 150) ? 200000 : 20000);
	side->nap_us = some(t, 200000);
	side->next = t->now;
}

static void options_set(struct talk *t, unsigned i, sy_stack_id id)
{
	struct sy_stack *s = t->side[i].s;

	sy_stack_set(s, id, SY_STACK_NO_DELAY, chance(t, 500), t->now);
	sy_stack_set(s, id, SY_STACK_QUICK_ACK, chance(t, 100), t->now);
	if (chance(t, 200))
		sy_stack_set(s, id, SY_STACK_MSS, 64 + some(t, 1400), t->now);
	if (chance(t, 200))
		sy_stack_set(s, id, SY_STACK_KEEPALIVE_S, 1 + some(t, 100), t->now);
	sy_stack_set(s, id, SY_STACK_USER_TIMEOUT_MS, UINT32_C(4 * 3600 * 1000), t->now);
}

static void talk_open(struct talk *t)
{
	struct sy_stack_endpoint a = {.port = 0}, b = {.port = htons(80)};
	unsigned kind = below(t, 256);
	struct side *side = t->side;

	t->v4 = chance(t, 500);
	sy_addr_parse(t->v4 ? "10.0.0.1" : "2001:db8::1", &a.addr);
	sy_addr_parse(t->v4 ? "10.0.0.2" : "2001:db8::2", &b.addr);
	for (unsigned i = 0; i < 2; i++) {
		wire_open(t, i, chance(t, 700) ? kind : below(t, 128));
		side_open(t, i);
	}
	side[0].to_read = side[1].to_write;
	side[1].to_read = side[0].to_write;
	if (chance(t, 100)) { /* simultaneous open (RFC 9293 3.5) */
		a.port = htons(81);
		if (sy_stack_connect(side[1].s, &b, &a, 1, t->now, &side[1].id))
			t->wrong = "connect fails";
		options_set(t, 1, side[1].id);
	} else {
		if (sy_stack_listen(side[1].s, &b, 2, 1, &side[1].listener))
			t->wrong = "listen fails";
		options_set(t, 1, side[1].listener);
	}
	if (sy_stack_connect(side[0].s, &a, &b, 1, t->now, &side[0].id))
		t->wrong = "connect fails";
	options_set(t, 0, side[0].id);
}

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void port_send(struct talk *t, unsigned from, struct rte_mbuf *m)
{
	struct rte_mbuf *piece[LARGE_PIECES];
	unsigned count = large_cut(m, piece);

	for (unsigned i = 0; i < count; i++)
		wire_send(t, from, piece[i]);
}

static void turn(struct talk *t)
{
	uint64_t next = UINT64_MAX;
	struct rte_mbuf *out[32];

	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &t->side[i];
		unsigned count;
		wire_deliver(t, !i);
		uint64_t due = sy_stack_advance(side->s, t->now);
		side_events(t, i);
		if (side->next <= t->now)
			side_act(t, i);
		while ((count = sy_stack_transmit(side->s, out, 1 + below(t, 32), t->now)) > 0)
			for (unsigned k = 0; k < count; k++)
				port_send(t, i, out[k]);
		due = min(due, sy_stack_advance(side->s, t->now));
		next = min(next, min(due, side->next));
	}
	for (unsigned i = 0; i < 2; i++)
		if (t->side[i].out.count > 0)
			next = min(next, t->side[i].out.packet[0].at);
	if (next != UINT64_MAX) /* otherwise done */
		t->now = next > t->now ? next : t->now + 1000;
}

static bool is_over(const struct talk *t)
{
	for (unsigned i = 0; i < 2; i++) {
		struct sy_stack_usage usage;
		sy_stack_usage(t->side[i].s, &usage);
		if (!t->side[i].closed || usage.connections > 0)
			return false;
	}
	return true;
}

static void show(const struct talk *t, const char *when)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct side *side = &t->side[i];
		struct sy_stack_info info = {0};
		struct sy_stack_usage usage;
		sy_stack_usage(side->s, &usage);
		sy_stack_info(side->s, side->id, &info);
		fprintf(stderr,
		        "  %s side %u: wrote %u/%u read %u/%u shut %d eof %d closed %d, state %s, "
		        "cwnd %u flight %u rtt %u %u rto %u window %u/%u unsent %u unread %u "
		        "retries %u, "
		        "used %u, loss %u\n",
		        when, i, side->written, side->to_write, side->read, side->to_read,
		        side->shut, side->eof, side->closed, sy_stack_state_name(info.state),
		        info.window, info.in_flight, info.rtt_us, info.rtt_var_us, info.rto_ms,
		        info.peer_window, info.receive_window, info.unsent, info.unread,
		        info.retries, usage.connections, side->out.loss);
	}
}

static void result_fill(const struct talk *t, struct talk_result *r)
{
	*r = (struct talk_result){.ns = t->now - START_NS, .given_up = t->over};
	for (unsigned i = 0; i < 2; i++) {
		const struct sy_stack_counters *c = sy_stack_counters(t->side[i].s);
		r->packets += c->packets_out;
		r->bytes += t->side[i].read;
		r->retransmitted += c->retransmitted;
		r->timeouts += c->timeouts;
		r->undone += c->undone;
		r->raised += c->path_raised;
		r->cut += c->tso_segments;
		r->joined += c->lro_packets;
	}
}

static void memory_check(struct talk *t)
{
	for (unsigned i = 0; i < 2; i++) {
		struct sy_stack_usage usage;
		sy_stack_usage(t->side[i].s, &usage);
		if (usage.send_bytes || usage.receive_bytes || usage.ranges)
			t->wrong = "memory is left";
	}
}

const char *talk(uint64_t seed, bool explain, struct talk_result *result)
{
	static struct talk talks;
	struct talk *t = &talks;
	struct rte_mempool *pool = tests_pool();
	unsigned before = rte_mempool_avail_count(pool), turns = 0, moved = 0;
	uint64_t read = 0;

	memset(t->side, 0, sizeof(t->side));
	t->random = t->seed = seed;
	t->joins = seed & 2;
	t->now = START_NS;
	t->wrong = NULL;
	t->over = false;
	t->explain = explain;
	talk_open(t);
	for (; !t->wrong && !t->over && !is_over(t); turns++) {
		turn(t);
		if (t->side[0].read + t->side[1].read > read) {
			read = t->side[0].read + t->side[1].read;
			moved = turns;
		}
		if (t->now > START_NS + END_NS || turns - moved > TURNS_MAX) {
			t->over = is_given_up(t);
			t->wrong = t->over ? NULL : "the connection is stuck";
		}
		if (explain && turns % 10000 == 0)
			show(t, "now");
	}
	if (!t->wrong && !t->over)
		memory_check(t);
	if (t->wrong)
		show(t, "end");
	result_fill(t, result);
	for (unsigned i = 0; i < 2; i++) {
		while (t->side[i].out.count > 0)
			rte_pktmbuf_free(wire_take(&t->side[i].out));
		sy_stack_destroy(t->side[i].s);
	}
	if (!t->wrong && rte_mempool_avail_count(pool) != before)
		t->wrong = "packets are lost";
	return t->wrong;
}
