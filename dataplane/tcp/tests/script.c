// SPDX-License-Identifier: Apache-2.0
#include "play.h"

#define START_NS UINT64_C(5000000000000)
#define PORT     80
#define SECRET   "0123456789abcde"

/* ---- packets --------------------------------------------------------------------------------- */

static uint32_t *ours_of(struct play *p, uint16_t peer_port)
{
	return &p->ours[(ntohs(peer_port) - PEER) % PEERS];
}

void pump(struct play *p)
{
	while (p->first == p->count) {
		p->first = 0;
		p->count = sy_stack_transmit(p->s, p->out, OUT_MAX, p->now);
		if (p->count == 0)
			return;
	}
}

static void describe(struct play *p, const struct segment *seg)
{
	fprintf(stderr, "    sent: flags %#x seq %u len %u ack %u win %u", seg->flags,
	        seg->seq - *ours_of(p, seg->view->tuple.dport), seg->len, seg->ack - PEER_ISS,
	        seg->window);
	if (seg->options.timestamps)
		fprintf(stderr, " ts %u %u", seg->options.time - p->ts_base, seg->options.echo);
	for (unsigned i = 0; i < seg->blocks; i++)
		fprintf(stderr, " %u-%u", seg->block[i].from - PEER_ISS,
		        seg->block[i].to - PEER_ISS);
	fprintf(stderr, "\n");
}

void nothing_left(struct play *p)
{
	struct segment seg;
	struct sy_view v;

	pump(p);
	if (p->first == p->count)
		return;
	sy_packet_parse(rte_pktmbuf_mtod(p->out[p->first], uint8_t *), p->out[p->first]->data_len,
	                &v);
	segment_read(&seg, p->out[p->first], &v);
	describe(p, &seg);
	FAIL(p, "the stack sends before this line");
}

static void numbers_learn(struct play *p, const struct segment *seg)
{
	unsigned peer = (ntohs(seg->view->tuple.dport) - PEER) % PEERS;

	if (seg->flags & SY_TCP_SYN && !p->ours_known[peer]) {
		p->ours[peer] = seg->seq;
		p->begun[peer] = p->now;
		p->ours_known[peer] = true;
	}
	if (seg->options.timestamps && !p->ts_known) {
		p->ts_base = seg->options.time;
		p->ts_known = true;
	}
	if (p->local.port == 0)
		p->local.port = seg->view->tuple.sport;
}

#define SAME(p, what, got, want)                                                                   \
	do {                                                                                       \
		if ((uint32_t)(got) != (uint32_t)(want)) {                                         \
			describe(p, &seg);                                                         \
			FAIL(p, "%s is %u, not %u", what, (unsigned)(got), (unsigned)(want));      \
		}                                                                                  \
	} while (0)

static void payload_check(struct play *p, const struct segment *seg, const uint8_t *frame)
{
	/* Byte 0 of the stream has number 1. */
	for (uint32_t i = 0; i < seg->len; i++)
		if (frame[seg->data + i] !=
		    script_byte(seg->seq - *ours_of(p, seg->view->tuple.dport) + i))
			FAIL(p, "byte %u of the segment is wrong", i);
}

static void expect(struct play *p, char *words)
{
	struct script_segment want;
	struct segment seg;
	struct rte_mbuf *m;
	struct sy_view v;

	script_segment_read(&want, words);
	pump(p);
	if (p->first == p->count)
		FAIL(p, "the stack sends nothing");
	m = p->out[p->first++];
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	WANT(p, sy_packet_parse(frame, m->data_len, &v) == SY_DROP_NONE);
	WANT(p, sy_packet_check_l4(frame, &v) == SY_CSUM_OK);
	WANT(p, sy_addr_equal(&v.tuple.dst, &p->peer.addr));
	segment_read(&seg, m, &v);
	numbers_learn(p, &seg);
	SAME(p, "flags", seg.flags, want.flags);
	SAME(p, "seq", seg.seq - *ours_of(p, v.tuple.dport), want.seq);
	SAME(p, "length", seg.len, want.len);
	if (want.has.ack)
		SAME(p, "ack", seg.ack - PEER_ISS, want.ack);
	if (want.has.window)
		SAME(p, "window", seg.window, want.window);
	if (want.has.urgent)
		SAME(p, "urgent", seg.urgent, want.urgent);
	if (want.has.mss)
		SAME(p, "mss", seg.options.mss, want.mss);
	if (want.has.scale)
		SAME(p, "scale", seg.options.scale, want.scale);
	if (want.has.sackok)
		SAME(p, "sackok", seg.options.sack, 1);
	if (want.has.tos)
		SAME(p, "ECN", seg.ecn, want.tos);
	if (want.has.port)
		SAME(p, "port", ntohs(v.tuple.dport), want.port);
	if (want.has.ts) {
		SAME(p, "ts", seg.options.time - p->ts_base, want.time);
		SAME(p, "echo", seg.options.echo, want.echo);
	}
	if (want.has.blocks) {
		SAME(p, "blocks", seg.blocks, want.blocks);
		for (unsigned i = 0; i < want.blocks; i++) {
			SAME(p, "block", seg.block[i].from - PEER_ISS, want.block[i].from);
			SAME(p, "block", seg.block[i].to - PEER_ISS, want.block[i].to);
		}
	}
	payload_check(p, &seg, frame);
	rte_pktmbuf_free(m);
}

/* Inserts TOA like a load balancer. */
static void toa_put(struct play *p, struct rte_mbuf *m, uint32_t port)
{
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	struct sy_view v;

	WANT(p, sy_packet_parse(frame, m->data_len, &v) == SY_DROP_NONE);
	WANT(p, sy_tcp_insert_toa(frame, &v, SY_TOA, &p->peer.addr, htons((uint16_t)port)) != NULL);
	WANT(p, rte_pktmbuf_prepend(m, (uint16_t)(v.frame_len - m->data_len)) != NULL);
}

void inject(struct play *p, char *words)
{
	struct script_segment in;
	uint8_t *payload;

	script_segment_read(&in, words);
	struct sy_tuple t = {.src = p->local.addr,
	                     .dst = p->peer.addr,
	                     .sport = p->local.port,
	                     .dport = in.has.port ? htons((uint16_t)in.port) : p->peer.port,
	                     .proto = SY_PROTO_TCP};
	uint32_t ours = *ours_of(p, t.dport);
	struct segment_plan plan = {
	        .from_peer = &t,
	        .seq = PEER_ISS + in.seq,
	        .ack = ours + in.ack,
	        .len = in.len,
	        .window = (uint16_t)in.window,
	        .urgent = (uint16_t)in.urgent,
	        .flags = in.flags,
	        .tos = in.tos,
	        .blocks = in.blocks,
	        .options = {.mss = (uint16_t)in.mss,
	                    .scale = (uint8_t)in.scale,
	                    .sack = in.sackok,
	                    .timestamps = in.has.ts,
	                    .time = in.time,
	                    .echo = in.echo ? in.echo - 1 + p->ts_base : 0},
	};
	for (unsigned i = 0; i < in.blocks; i++)
		plan.block[i] = (struct sack_block){ours + in.block[i].from, ours + in.block[i].to};
	struct rte_mbuf *m = segment_make(p->pool, &plan, &payload);
	WANT(p, m != NULL);
	for (uint32_t i = 0; i < in.len; i++)
		payload[i] = script_byte(in.seq + i);
	segment_finish(m, &plan, false);
	if (in.toa)
		toa_put(p, m, in.toa);
	sy_stack_receive(p->s, &m, 1, p->now);
}

/* The stack's segment with this number, quoted by a router. */
static void icmp(struct play *p, char *words)
{
	char kind[16];
	unsigned code, seq, mtu = 0;
	uint8_t error[1400];
	struct sy_view v;

	WANT(p, sscanf(words, "%15s %u %u %u", kind, &code, &seq, &mtu) >= 3);
	const struct sy_tuple t = {p->peer.addr, p->local.addr, p->peer.port, p->local.port,
	                           SY_PROTO_TCP};
	const struct segment_plan plan = {.from_peer = &t,
	                                  .seq = p->ours[0] + seq,
	                                  .len = 1460,
	                                  .flags = SY_TCP_ACK,
	                                  .options = {.scale = SY_TCP_NO_SCALE}};
	struct rte_mbuf *m = segment_make(p->pool, &plan, NULL);
	const uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	WANT(p, sy_packet_parse(frame, m->data_len, &v) == SY_DROP_NONE);
	enum sy_icmp_error what = strcmp(kind, "toobig") == 0 ? SY_ICMP_TOO_BIG
	                          : strcmp(kind, "port") == 0 ? SY_ICMP_PORT_UNREACHABLE
	                          : strcmp(kind, "ttl") == 0  ? SY_ICMP_TTL_EXPIRED
	                                                      : SY_ICMP_HOST_UNREACHABLE;
	uint32_t len = sy_packet_icmp_error(error, sizeof(error), frame, &v, what, &p->peer.addr,
	                                    (uint16_t)mtu);
	WANT(p, len > 0);
	rte_pktmbuf_reset(m);
	memcpy(rte_pktmbuf_append(m, (uint16_t)len), error, len);
	sy_stack_receive(p->s, &m, 1, p->now);
}

void pass(struct play *p, const char *words, bool wait)
{
	uint64_t until = p->now + strtoul(words, NULL, 0) * MS_NS;

	for (;;) {
		uint64_t next = sy_stack_advance(p->s, p->now);
		pump(p);
		if (p->first != p->count && p->now < until && !wait)
			nothing_left(p);
		if (p->now == until || (wait && p->first != p->count))
			return;
		p->now = next < until && next > p->now ? next
		         : next <= p->now              ? p->now + MS_NS
		                                       : until;
		if (p->now > until)
			p->now = until;
	}
}

static bool is_reset(struct play *p, struct rte_mbuf *m)
{
	struct segment seg;
	struct sy_view v;

	WANT(p, sy_packet_parse(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, &v) == SY_DROP_NONE);
	segment_read(&seg, m, &v);
	return seg.flags & SY_TCP_RST;
}

/* Advances the time and answers each segment but resets by this one. */
static void answer(struct play *p, char *words)
{
	uint64_t until = p->now + strtoul(words, &words, 0) * MS_NS;
	char again[128];

	for (unsigned answers = 0; p->now < until;) {
		uint64_t next = sy_stack_advance(p->s, p->now);
		pump(p);
		if (p->first == p->count) {
			p->now = next <= p->now ? p->now + MS_NS : next < until ? next : until;
			continue;
		}
		struct rte_mbuf *m = p->out[p->first++];
		bool end = is_reset(p, m);
		rte_pktmbuf_free(m);
		if (end)
			continue;
		WANT(p, ++answers < 2000);
		snprintf(again, sizeof(again), "%s", words);
		inject(p, again);
	}
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void line_play(struct play *p, char *line)
{
	char *words = strchr(line, ' ');

	if (*line == '\0' || *line == '#')
		return;
	if (line[0] == 'v' && (line[1] == '4' || line[1] == '6')) { /* of one family only */
		if (p->v4 != (line[1] == '4'))
			return;
		line += 2;
	}
	if (*line != '>')
		nothing_left(p);
	if (*line == '+' || *line == '~') {
		pass(p, line + 1, *line == '~');
		return;
	}
	if (words)
		*words++ = '\0';
	words = words ? words : line + strlen(line);
	if (strcmp(line, "<") == 0)
		inject(p, words);
	else if (strcmp(line, ">") == 0)
		expect(p, words);
	else if (strcmp(line, ">*") == 0)
		run_expect(p, words);
	else if (strcmp(line, "icmp") == 0)
		icmp(p, words);
	else if (strcmp(line, "answer") == 0)
		answer(p, words);
	else if (!step_play(p, line, words))
		FAIL(p, "no such step");
}

static unsigned word_value(const char *options, const char *word, unsigned otherwise)
{
	const char *at = strstr(options, word);
	return at ? (unsigned)strtoul(at + strlen(word), NULL, 0) : otherwise;
}

void stack_start(struct play *p, const char *secret)
{
	const char *o = p->script->options;
	struct sy_error err = {0};
	struct sy_stack_options options = {
	        .pool = p->pool,
	        .connections = word_value(o, "connections ", 64),
	        .mtu = (uint16_t)(word_value(o, "mtu ", 1500) + (p->v4 ? 0 : 20)),
	        .send_all = 1 << 24,
	        .receive_all = 1 << 24,
	        .receive_max = word_value(o, "receive ", 65535 * 4),
	        .congestion = strstr(o, "cubic") ? "cubic" : "newreno",
	        .time_wait_ms = word_value(o, "tw ", 60000),
	        .orphans = word_value(o, "orphans ", 0),
	        .copies = strstr(o, "copies") ? tests_copies() : NULL,
	        .no_sack = !strstr(o, "sack"),
	        .no_timestamps = !strstr(o, "ts"),
	        .no_scale = !strstr(o, "ws"),
	        .ecn = strstr(o, "ecn") != NULL,
	        .toa = strstr(o, "toa") != NULL,
	};
	memcpy(options.secret, secret, strnlen(secret, sizeof(options.secret)));
	if (sy_stack_create(&options, p->now, &p->s, &err))
		FAIL(p, "%s", err.text);
}

static void play_open(struct play *p, const struct script *script, bool v4)
{
	*p = (struct play){.script = script, .v4 = v4, .pool = tests_pool(), .now = START_NS};
	stack_start(p, SECRET);
	sy_addr_parse(v4 ? "192.0.2.1" : "2001:db8::1", &p->local.addr);
	sy_addr_parse(v4 ? "198.51.100.2" : "2001:db8:1::2", &p->peer.addr);
	p->local.port = htons(PORT);
	p->peer.port = htons(PEER);
}

static void play(const struct script *script, bool v4)
{
	struct play p;
	const char *at = script->text;
	char line[256];

	play_open(&p, script, v4);
	p.packets = rte_mempool_avail_count(p.pool);
	for (; *at; p.number++) {
		size_t len = strcspn(at, "\n");
		assert_true(len < sizeof(line));
		memcpy(line, at, len);
		line[len] = '\0';
		char shown[sizeof(line)];
		memcpy(shown, line, len + 1);
		p.line = shown;
		line_play(&p, line);
		at += len + (at[len] != '\0');
	}
	p.line = "the end";
	nothing_left(&p);
	sy_stack_destroy(p.s);
	rte_pktmbuf_free_bulk(p.taken, p.taken_count);
	free(p.taken);
	WANT(&p, rte_mempool_avail_count(p.pool) == p.packets);
}

void script_play(const struct script *script)
{
	play(script, true);
	play(script, false);
}

void script_play_all(const struct script *scripts, size_t count)
{
	const char *only = getenv("SCRIPT"); /* for manual runs: a part of the name */

	for (size_t i = 0; i < count; i++)
		if (!only || strstr(scripts[i].section, only))
			script_play(&scripts[i]);
}
