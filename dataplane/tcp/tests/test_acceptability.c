// SPDX-License-Identifier: Apache-2.0
/*
 * A segment that is dropped as unacceptable, or answered with a challenge ACK or a reset, changes
 * nothing (RFC 9293 3.10.7, RFC 5961, RFC 7323 5.3): off-path attackers send such segments.
 *
 * In each state, with each kind of data pending, generated segments arrive: all flags, sequence
 * numbers and acknowledgements on both sides of every limit, timestamps on both sides of TS.Recent.
 * A model of the RFC's checks, which shares nothing with the stack, says what is due. For a segment
 * that fails a check, the whole connection, what it has in pools, and the stack are compared with
 * before; after an answer, with a copy that has sent an acknowledgement by itself.
 */
#include <arpa/inet.h>

#include "../client.h"
#include "../emit.h"
#include "../stack.h"

#include "acceptability_model.h"
#include "random.h"
#include "script.h"

#define BEGIN_NS UINT64_C(5000000000000)
#define SEGMENTS 400 /* in each state and variant */
#define PEER_ISS 0xfffffe00u
#define WINDOW   5000
#define TS_BEGIN 0x7ffffff0u

enum variant {
	WITH_TS = 1,      /* timestamps */
	WITH_SACK = 2,    /* SACK */
	WITH_FLIGHT = 4,  /* our data is under way */
	WITH_UNREAD = 8,  /* the peer's data is unread, and not acknowledged yet */
	WITH_GAP = 16,    /* the peer's data has a gap */
	WITH_CLOSED = 32, /* the peer's window is closed, and probed by a byte */
	WITH_IPV6 = 64,
	VARIANTS = 128,
};

static const char *const answer_name[] = {"nothing", "an ACK", "a reset", "acceptance"};

static struct world {
	struct sy_stack *s;
	struct connection *c;
	sy_stack_id id, listener;
	struct sy_tuple from_peer;
	uint64_t now;
	unsigned variant;
	bool acks_nothing;        /* the peer's next segments */
	uint32_t peer_next, time; /* SND.NXT and the timestamp of the peer */
} w;

/* ---- the peer -------------------------------------------------------------------------------- */

static void peer_sends(const struct sent_segment *in)
{
	struct sy_tuple to = {w.from_peer.dst, w.from_peer.src, w.from_peer.dport,
	                      w.from_peer.sport, SY_PROTO_TCP};
	struct segment_plan plan = {
	        .from_peer = &to,
	        .seq = in->seq,
	        .ack = in->ack,
	        .len = in->len,
	        .flags = in->flags,
	        .window = in->window,
	        .options = {.scale = SY_TCP_NO_SCALE,
	                    .timestamps = in->timestamps,
	                    .time = in->time,
	                    .echo = w.c ? w.s->now_ms + w.c->ts_offset : 0,
	                    .sack = in->flags & SY_TCP_SYN && w.variant & WITH_SACK,
	                    .mss = in->flags & SY_TCP_SYN ? 1000 : 0},
	};
	uint8_t *payload;
	struct rte_mbuf *m = segment_make(tests_pool(), &plan, &payload);

	assert_non_null(m);
	memset(payload, 'x', in->len);
	segment_finish(m, &plan, false);
	sy_stack_receive(w.s, &m, 1, w.now);
}

/* An acceptable one. */
static void peer_goes_on(uint8_t flags, uint32_t skip, uint32_t len)
{
	const struct sent_segment in = {.seq = w.peer_next + skip,
	                                .ack = !w.c             ? 0
	                                       : w.acks_nothing ? w.c->snd_una
	                                                        : w.c->snd_nxt,
	                                .len = len,
	                                .time = ++w.time,
	                                .window = w.variant & WITH_CLOSED && w.c &&
	                                                          w.c->state >= SY_STACK_ESTABLISHED
	                                                  ? 0
	                                                  : WINDOW,
	                                .flags = flags,
	                                .timestamps = w.variant & WITH_TS};
	peer_sends(&in);
	if (skip == 0)
		w.peer_next += len + !!(flags & SY_TCP_SYN) + !!(flags & SY_TCP_FIN);
}

/* What the stack sends. Returns the flags of the last segment; 0: it sends none. */
static uint8_t drain(unsigned *count)
{
	struct rte_mbuf *m;
	uint8_t flags = 0;

	for (*count = 0; sy_stack_transmit(w.s, &m, 1, w.now) == 1; (*count)++) {
		struct sy_view v;
		assert_int_equal(sy_packet_parse(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, &v),
		                 SY_DROP_NONE);
		flags = rte_pktmbuf_mtod_offset(m, const uint8_t *, v.l4)[13];
		rte_pktmbuf_free(m);
	}
	return flags;
}

static void settle(void)
{
	unsigned count;

	do
		drain(&count);
	while (count > 0);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void tuple_of_peer(bool v4, uint16_t port)
{
	w.from_peer = (struct sy_tuple){.sport = htons(4000), .dport = port, .proto = SY_PROTO_TCP};
	sy_addr_parse(v4 ? "198.51.100.2" : "2001:db8:1::2", &w.from_peer.src);
	sy_addr_parse(v4 ? "192.0.2.1" : "2001:db8::1", &w.from_peer.dst);
}

static void stack_begin(unsigned variant)
{
	const struct sy_stack_options o = {.pool = tests_pool(),
	                                   .connections = 4,
	                                   .listeners = 1,
	                                   .receive_max = 20000,
	                                   .no_scale = true,
	                                   .toa = true};

	w = (struct world){
	        .now = BEGIN_NS, .variant = variant, .peer_next = PEER_ISS, .time = TS_BEGIN};
	tuple_of_peer(!(variant & WITH_IPV6), htons(80));
	assert_int_equal(sy_stack_create(&o, w.now, &w.s, NULL), 0);
}

static void open_actively(void)
{
	const struct sy_stack_endpoint local = {w.from_peer.dst, 0},
	                               peer = {w.from_peer.src, w.from_peer.sport};

	assert_int_equal(sy_stack_connect(w.s, &local, &peer, 0, w.now, &w.id), 0);
	w.c = connection_of(w.s, w.id);
	w.from_peer = w.c->tuple;
	settle();
}

static void open_passively(void)
{
	const struct sy_stack_endpoint local = {w.from_peer.dst, w.from_peer.dport};

	assert_int_equal(sy_stack_listen(w.s, &local, 4, 0, &w.listener), 0);
	peer_goes_on(SY_TCP_SYN, 0, 0);
	w.c = connection_find(w.s, &w.from_peer);
	assert_non_null(w.c);
	settle();
}

static void established(void)
{
	open_passively();
	peer_goes_on(SY_TCP_ACK, 0, 0);
	assert_int_equal(sy_stack_accept(w.s, w.listener, 0, NULL, &w.id), 0);
	settle();
}

static void pending_begin(void)
{
	uint8_t bytes[1500] = {0};

	if (w.variant & WITH_UNREAD)
		peer_goes_on(SY_TCP_ACK, 0, 100);
	if (w.variant & WITH_CLOSED) {
		peer_goes_on(SY_TCP_ACK, 0, 0);
		assert_int_equal(sy_stack_send(w.s, w.id, bytes, 200, 0, w.now), 200);
		settle();
		w.now += UINT64_C(1000000000);
		sy_stack_advance(w.s, w.now);
		settle();
		assert_true(w.c->flags & C_PROBED);
	} else if (w.variant & WITH_FLIGHT) {
		assert_int_equal(sy_stack_send(w.s, w.id, bytes, sizeof(bytes), 0, w.now),
		                 sizeof(bytes));
		settle();
	}
}

/* What may be pending in the end, and has not been answered. */
static void pending_end(void)
{
	w.acks_nothing = true;
	if (w.variant & WITH_GAP && connection_receives(w.c)) {
		peer_goes_on(SY_TCP_ACK, 300, 50);
		peer_goes_on(SY_TCP_ACK, 500, 50);
		settle();
	}
	if (w.variant & WITH_UNREAD && connection_receives(w.c))
		peer_goes_on(SY_TCP_ACK, 0, 10);
	w.now += UINT64_C(3000000);
}

/* Its FIN, without an acknowledgement of ours. */
static void peer_ends(bool acks)
{
	const struct sent_segment in = {.seq = w.peer_next,
	                                .ack = acks ? w.c->snd_nxt : w.c->snd_una,
	                                .time = ++w.time,
	                                .window = WINDOW,
	                                .flags = SY_TCP_FIN | SY_TCP_ACK,
	                                .timestamps = w.variant & WITH_TS};
	peer_sends(&in);
	w.peer_next++;
	settle();
}

static void we_end(bool acked)
{
	sy_stack_shutdown(w.s, w.id, w.now);
	settle();
	if (acked)
		peer_goes_on(SY_TCP_ACK, 0, 0);
	settle();
}

static void reach(enum sy_stack_state state, bool passive)
{
	bool quiet = !(w.variant & (WITH_FLIGHT | WITH_CLOSED));

	if (state == SY_STACK_SYN_SENT || (state == SY_STACK_SYN_RECEIVED && !passive)) {
		open_actively();
		if (state == SY_STACK_SYN_RECEIVED)
			peer_goes_on(SY_TCP_SYN, 0, 0);
		settle();
	} else if (state == SY_STACK_SYN_RECEIVED) {
		open_passively();
	} else {
		established();
		if (state == SY_STACK_CLOSE_WAIT || state == SY_STACK_LAST_ACK)
			peer_ends(true);
		if (quiet || state < SY_STACK_FIN_WAIT_2 || state == SY_STACK_CLOSE_WAIT ||
		    state == SY_STACK_LAST_ACK)
			pending_begin();
		if (state != SY_STACK_ESTABLISHED && state != SY_STACK_CLOSE_WAIT)
			we_end(state == SY_STACK_FIN_WAIT_2 || state == SY_STACK_TIME_WAIT);
		if (state == SY_STACK_CLOSING || state == SY_STACK_TIME_WAIT)
			peer_ends(state == SY_STACK_TIME_WAIT);
		pending_end();
	}
	assert_int_equal(w.c->state, state);
}

/* ---- all that may change --------------------------------------------------------------------- */

#define CELLS 64

struct image {
	struct sy_stack stack;
	struct connection connection[4];
	union flight flight[4];
	struct sent_range sent[CELLS];
	uint8_t arrived[CELLS * 24];
	struct sy_stack_endpoint client[4];
	struct listener listener;
	uint32_t bucket;
};

static void image_take(struct image *i)
{
	memset(i, 0, sizeof(*i));
	i->stack = *w.s;
	memcpy(i->connection, w.s->connection, sizeof(i->connection));
	memcpy(i->flight, w.s->flights.cells, sizeof(i->flight));
	memcpy(i->sent, w.s->sent.cells, sizeof(i->sent));
	memcpy(i->arrived, w.s->arrived.cells, sizeof(i->arrived));
	memcpy(i->client, w.s->client, sizeof(i->client));
	i->listener = w.s->listeners.slot[0];
	i->bucket = *bucket_of(w.s, &w.from_peer);
}

/* Counters, rate limits, the clock, and packets that come and go. */
static void image_mask(struct image *i)
{
	struct sy_stack *s = &i->stack;

	memset(&s->counters, 0, sizeof(s->counters));
	s->now_ns = s->challenge_s = 0;
	s->now_ms = s->challenges = s->checked_ms = s->unchecked = 0;
	memset(&s->spent, 0, sizeof(s->spent));
	memset(s->control, 0, sizeof(s->control));
	s->control_first = s->control_count = 0;
	for (unsigned k = 0; k < SY_ARRAY_LEN(i->connection); k++)
		i->connection[k].challenges = i->connection[k].challenge_s = 0;
}

/* What leaves before all connections, that is answers. */
static uint8_t answers_drain(unsigned *count)
{
	unsigned levels = w.s->send_levels;
	uint8_t flags;

	w.s->send_levels = 0;
	flags = drain(count);
	w.s->send_levels = levels;
	return flags;
}

/* As after an acknowledgement that answers nothing; and back to before. */
static void image_acknowledge(const struct image *before, struct image *after)
{
	unsigned count;

	emit_ack_now(w.s, w.c);
	image_take(after);
	answers_drain(&count);
	assert_int_equal(count, 1);
	memcpy(w.s->connection, before->connection, sizeof(before->connection));
}

/* ---- segments -------------------------------------------------------------------------------- */

static uint32_t near(const uint32_t *limits, unsigned count)
{
	static const int32_t steps[] = {-70000, -1000, -100, -2, -1, -1,   0,      0,
	                                0,      1,     1,    2,  99, 1000, 100000, 1 << 30};

	return limits[random_below(count)] + (uint32_t)steps[random_below(SY_ARRAY_LEN(steps))];
}

static struct sent_segment generate(void)
{
	const struct connection *c = w.c;
	const uint32_t seqs[] = {c->rcv_nxt, c->rcv_nxt, c->rcv_edge, w.peer_next, w.peer_next - 1},
	               acks[] = {c->snd_una, c->snd_nxt, c->snd_nxt, c->snd_una - c->snd_wnd_max},
	               times[] = {c->flags & C_TIMESTAMPS ? c->ts_recent : w.time};
	static const uint8_t usual[] = {SY_TCP_ACK,
	                                SY_TCP_ACK | SY_TCP_PSH,
	                                SY_TCP_ACK | SY_TCP_FIN,
	                                SY_TCP_SYN,
	                                SY_TCP_SYN | SY_TCP_ACK,
	                                SY_TCP_RST,
	                                SY_TCP_RST | SY_TCP_ACK,
	                                SY_TCP_ACK | SY_TCP_URG};
	static const uint16_t lens[] = {0, 0, 1, 100, 1000};

	return (struct sent_segment){
	        .seq = near(seqs, SY_ARRAY_LEN(seqs)),
	        .ack = near(acks, SY_ARRAY_LEN(acks)),
	        .len = lens[random_below(SY_ARRAY_LEN(lens))],
	        .time = near(times, 1),
	        .window = (uint16_t)random_below(UINT16_MAX + 1),
	        .flags = random_below(3) ? usual[random_below(SY_ARRAY_LEN(usual))]
	                                 : (uint8_t)random_below(256),
	        .timestamps = random_below(8) ? w.variant & WITH_TS : random_below(2),
	};
}

static bool is_malformed(uint8_t flags)
{
	uint8_t all = flags &
	              (SY_TCP_SYN | SY_TCP_FIN | SY_TCP_RST | SY_TCP_ACK | SY_TCP_PSH | SY_TCP_URG);

	return (flags & SY_TCP_SYN && flags & (SY_TCP_FIN | SY_TCP_RST)) || all == 0;
}

static void describe(const struct sent_segment *in, const char *what)
{
	fprintf(stderr,
	        "%s, variant %u: flags %02x, seq RCV.NXT%+d of window %u, len %u, ack SND.NXT%+d "
	        "of "
	        "flight %u, time %+d%s: %s\n",
	        sy_stack_state_name(w.c->state), w.variant, in->flags,
	        (int32_t)(in->seq - w.c->rcv_nxt), w.c->rcv_edge - w.c->rcv_nxt, in->len,
	        (int32_t)(in->ack - w.c->snd_nxt), w.c->snd_nxt - w.c->snd_una,
	        (int32_t)(in->time - w.c->ts_recent), in->timestamps ? "" : " (none)", what);
}

static void compare(const struct sent_segment *in, struct image *now, struct image *before)
{
	image_mask(now);
	image_mask(before);
	if (memcmp(now, before, sizeof(*now)) == 0)
		return;
	for (size_t i = 0; i < sizeof(*now); i++)
		if (((uint8_t *)now)[i] != ((uint8_t *)before)[i])
			fprintf(stderr, "byte %zu (%zu of the connections) differs\n", i,
			        i - offsetof(struct image, connection));
	describe(in, "it changes the connection");
	fail();
}

/* Returns true if it was one that must change nothing. */
static bool one(const struct sent_segment *in)
{
	static struct image before, acknowledged, now;
	enum answer due = model(w.c, in, w.peer_next), got;
	uint64_t limited;
	unsigned count;

	if (due == ACCEPTED)
		return false;
	limited = w.s->counters.challenges_limited;
	image_take(&before);
	image_acknowledge(&before, &acknowledged);
	peer_sends(in);
	image_take(&now);
	uint8_t flags = answers_drain(&count);
	got = count == 0 ? NOTHING : flags & SY_TCP_RST ? RESET : ACKNOWLEDGED;
	if (w.s->counters.challenges_limited > limited && count == 0)
		got = due == ACKNOWLEDGED ? due : got;
	if (got != due || count > 1) {
		describe(in, answer_name[due]);
		fprintf(stderr, "it is answered by %s\n", answer_name[got]);
		fail();
	}
	compare(in, &now, count > 0 && got == ACKNOWLEDGED ? &acknowledged : &before);
	return true;
}

static void state_play(enum sy_stack_state state, bool passive, unsigned variant)
{
	unsigned packets = rte_mempool_avail_count(tests_pool()), tried = 0;

	stack_begin(variant);
	reach(state, passive);
	for (unsigned i = 0; i < SEGMENTS; i++) {
		struct sent_segment in = generate();
		w.now += 7000000; /* and so the second of the rate limits passes */
		tried += !is_malformed(in.flags) && one(&in);
	}
	assert_true(tried > SEGMENTS / 4);
	sy_stack_destroy(w.s);
	assert_int_equal(rte_mempool_avail_count(tests_pool()), packets);
}

static void test_nothing_changes(void **unused)
{
	for (unsigned variant = 0; variant < VARIANTS; variant++) {
		if (variant & WITH_CLOSED && variant & WITH_FLIGHT)
			continue;
		state_play(SY_STACK_SYN_SENT, false, variant);
		state_play(SY_STACK_SYN_RECEIVED, false, variant);
		state_play(SY_STACK_SYN_RECEIVED, true, variant);
		for (unsigned state = SY_STACK_ESTABLISHED; state < SY_STACK_STATE_COUNT; state++)
			state_play((enum sy_stack_state)state, true, variant);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_changes)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
