// SPDX-License-Identifier: Apache-2.0
/* Sends the packets of clients and servers, and compares the balancer's with the plain model. */
#include <arpa/inet.h>

#include "control_plane.h"
#include "run.h"
#include "sight.h"

#define SECOND_NS UINT64_C(1000000000)
#define ASKED     128 /* adopted sessions probed from each side; the last run probes all */

struct burst {
	unsigned count;
	uint16_t flow[SY_BURST];
	bool again;          /* repeated, after a predecessor */
	uint64_t refused[2]; /* drops that a new session can meet, before and after */
};

/* ---- packets in ------------------------------------------------------------------------------ */

static struct sy_tuple flow_tuple(const struct flow *f)
{
	if (f->side == PLAIN_CLIENT)
		return (struct sy_tuple){f->client, plain_vip(f->service), f->client_port,
		                         htons(PLAIN_PORT), plain_proto(f->service)};
	return (struct sy_tuple){plain_server(f->service, f->server), plain_local(f->local),
	                         plain_server_port(f->service), f->local_port,
	                         plain_proto(f->service)};
}

static void flow_send(struct run *l, unsigned i)
{
	struct flow *f = &l->h->flow[i];
	const struct mark mark = {.flow = i, .serial = l->h->serial};
	const struct sy_tuple t = flow_tuple(f);
	bool begins = f->flags & SY_TCP_SYN;
	/* A server's numbers include the bytes inserted before the client's data. */
	uint32_t more = f->side == PLAIN_SERVER && !begins ? plain_inserted(f->service) : 0;
	const struct segment s = {f->flags, f->seq[f->side], f->seq[!f->side] + more,
	                          begins ? 1300 : 0};
	struct frame frame;
	if (t.proto == SY_PROTO_TCP)
		frame_tcp(&frame, &l->rng, &t, &s, sizeof(mark));
	else
		frame_udp(&frame, &l->rng, &t, sizeof(mark));
	memcpy(frame.bytes + frame.len - sizeof(mark), &mark, sizeof(mark));
	frame_fix_l4(&frame);
	MUST(harness_inject(&l->harness, f->side == PLAIN_CLIENT ? HARNESS_WAN : HARNESS_LAN,
	                    frame.bytes, frame.len),
	     "no buffer for a packet");
}

/* ---- results of a packet --------------------------------------------------------------------- */

static bool part_is_open(const struct plain_part *p, bool again)
{
	return again ? p->state
	             : p->state == STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP;
}

/* No other flow may have this local address and port towards this server. */
static void must_be_alone(struct run *l, const struct flow *f)
{
	const struct plain_config *c = &l->h->config[l->h->accepted];
	const struct sy_addr server = plain_server(f->service, f->server);
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		const struct flow *other = &l->h->flow[i];
		if (other == f || (l->evicted && flow_may_be_evicted(other)) ||
		    !flow_must_live(other, c, plain_seconds(l->h)) ||
		    other->local_port != f->local_port || other->local != f->local ||
		    plain_proto(other->service) != plain_proto(f->service))
			continue;
		const struct sy_addr its = plain_server(other->service, other->server);
		MUST(!sy_addr_equal(&its, &server), "a port that is held was given out again: %s",
		     flow_text(f));
	}
}

/* Learns from a client's first packet which server it went to. */
static void flow_learn(struct run *l, struct flow *f, const struct sight *s, bool again)
{
	const struct plain_config *c = &l->h->config[l->h->accepted];
	unsigned server = 0, local = 0;
	while (server < PLAIN_SERVERS) {
		const struct sy_addr a = plain_server(f->service, server);
		if (sy_addr_equal(&a, &s->tuple.dst))
			break;
		server++;
	}
	while (local < PLAIN_LOCALS) {
		const struct sy_addr a = plain_local(local);
		if (sy_addr_equal(&a, &s->tuple.src))
			break;
		local++;
	}
	MUST(server < PLAIN_SERVERS && local < PLAIN_LOCALS && c->local[local].state &&
	             s->tuple.dport == plain_server_port(f->service) &&
	             ntohs(s->tuple.sport) >= 1024,
	     "a session began at no server of its service: %s", flow_text(f));
	MUST(part_is_open(&c->server[f->service][server], again),
	     "a session began at server %u, whose state is %u since revision %u, %s: %s", server,
	     c->server[f->service][server].state, c->server[f->service][server].since,
	     again ? "when it was asked again" : "at once", flow_text(f));
	f->server = (uint8_t)server;
	f->local = (uint8_t)local;
	f->local_port = s->tuple.sport;
	f->server_since = c->server[f->service][server].since;
	f->local_since = c->local[local].since;
	must_be_alone(l, f);
}

/* Returns the expected tuple of the pending packet, for a flow whose session is known. */
static struct sy_tuple flow_rewritten(const struct flow *f)
{
	struct flow other = *f;
	other.side = !f->side;
	const struct sy_tuple t = flow_tuple(&other); /* the reverse direction */
	return (struct sy_tuple){t.dst, t.src, t.dport, t.sport, t.proto};
}

static bool tuple_equal(const struct sy_tuple *a, const struct sy_tuple *b)
{
	return sy_addr_equal(&a->src, &b->src) && sy_addr_equal(&a->dst, &b->dst) &&
	       a->sport == b->sport && a->dport == b->dport && a->proto == b->proto;
}

/* Sequence numbers must be the receiver's own, across any number of runs. */
static void must_be_counted(struct run *l, struct flow *f, const struct sight *s)
{
	uint32_t inserted = plain_inserted(f->service), client = f->seq[PLAIN_CLIENT];
	bool begins = s->flags & SY_TCP_SYN, header = s->payload > sizeof(struct mark);
	uint32_t more = f->side == PLAIN_CLIENT && !begins && !header ? inserted : 0;
	MUST(s->seq == f->seq[f->side] + more, "its number is %u, not %u: %s", s->seq,
	     f->seq[f->side] + more, flow_text(f));
	MUST(!(s->flags & SY_TCP_ACK) || s->ack == f->seq[!f->side],
	     "it acknowledges %u, not %u: %s", s->ack, f->seq[!f->side], flow_text(f));
	MUST(!header || (inserted && f->side == PLAIN_CLIENT && client == f->first &&
	                 s->payload == inserted + sizeof(struct mark)),
	     "there is a header where none may be: %s", flow_text(f));
	MUST(header || !inserted || f->acknowledged || begins || f->side == PLAIN_SERVER ||
	             client != f->first,
	     "the header is missing: %s", flow_text(f));
	/* The balancer decides whether a SYN restarts a connection that was reset. */
	if (begins && f->side == PLAIN_CLIENT) {
		f->first = client + 1;
		f->acknowledged =
		        f->state == PLAIN_RESET_BY_CLIENT || f->state == PLAIN_RESET_BY_SERVER;
	} else if (f->side == PLAIN_SERVER && !begins && !(s->flags & SY_TCP_RST)) {
		f->acknowledged = true;
	}
}

/* Returns the bytes of the packet that count in its sender's sequence numbers. Data in a SYN is
 * removed where a header must come first; its sender repeats it. */
static uint32_t flow_taken(const struct flow *f, const struct sight *s)
{
	bool cut = f->flags & SY_TCP_SYN && s->payload == 0;
	return (cut ? 0 : (uint32_t)sizeof(struct mark)) + !!(f->flags & (SY_TCP_SYN | SY_TCP_FIN));
}

/* The flow's packet has passed: the uncertain state is now certain. `pending` is cleared last. */
static void flow_settle(struct run *l, struct flow *f, const struct sight *s, bool again)
{
	const struct sy_tuple known = flow_rewritten(f);
	bool same = f->certainty == FLOW_CERTAIN && tuple_equal(&known, &s->tuple);
	uint8_t state, fins;
	MUST(s->port == (f->side == PLAIN_CLIENT ? HARNESS_LAN : HARNESS_WAN), "wrong port: %s",
	     flow_text(f));
	flow_after(f, &state, &fins);
	if (s->tuple.proto == SY_PROTO_TCP)
		must_be_counted(l, f, s);
	if (f->certainty == FLOW_UNCERTAIN || f->reopens) {
		/* A server that was down when the client moved may be up now. */
		if (again && same &&
		    (f->state == PLAIN_SYN_SENT || f->state == PLAIN_RESET_BY_CLIENT ||
		     f->state == PLAIN_RESET_BY_SERVER || state == PLAIN_UDP_ONE_WAY)) {
			state = f->state;
			fins = f->fins;
		} else {
			flow_learn(l, f, s, again);
			l->h->created++;
		}
	} else {
		MUST(same, "a packet came out otherwise than before: %s", flow_text(f));
	}
	/* Packets after a FIN repeat it. */
	if (f->flags & SY_TCP_SYN || !(f->fins & 1 << f->side))
		f->seq[f->side] += flow_taken(f, s);
	f->state = state;
	f->fins = fins;
	f->seen_first = f->seen_last = plain_seconds(l->h);
	f->reopens = false;
	f->certainty = FLOW_CERTAIN;
	__atomic_store_n(&f->pending, false, __ATOMIC_RELEASE);
	l->h->forwarded++;
}

/* ---- a burst --------------------------------------------------------------------------------- */

/* From here the balancer acts. */
static void turn_begins(struct run *l)
{
	if (l->slow)
		anatomy_chill(l);
	l->h->turns++;
}

/* Drops that a client's first packet can meet, and those of an evicted session's packets. */
static uint64_t refusals(const struct harness *r)
{
	return harness_drops(r, SY_DROP_NO_SERVER) + harness_drops(r, SY_DROP_TABLE_FULL) +
	       harness_drops(r, SY_DROP_NO_LOCAL_PORT) + harness_drops(r, SY_DROP_NO_SESSION);
}

/* Records that flow i sends its planned packet. */
static void burst_add(struct run *l, struct burst *b, unsigned i)
{
	struct flow *f = &l->h->flow[i];
	f->seen_last = plain_seconds(l->h);
	__atomic_store_n(&f->pending, true, __ATOMIC_RELEASE);
	b->flow[b->count++] = (uint16_t)i;
}

/* A SYN without its data is identified by its number: number_draw(). */
static void mark_find(const struct run *l, const struct burst *b, struct sight *s)
{
	if (s->tuple.proto != SY_PROTO_TCP || !(s->flags & SY_TCP_SYN) || s->payload > 0)
		return;
	for (unsigned i = 0; i < b->count; i++) {
		const struct flow *f = &l->h->flow[b->flow[i]];
		if (plain_proto(f->service) == SY_PROTO_TCP && f->side == PLAIN_CLIENT &&
		    f->flags & SY_TCP_SYN && f->seq[PLAIN_CLIENT] == s->seq)
			s->mark = (struct mark){.flow = b->flow[i], .serial = l->h->serial};
	}
}

static void burst_collect(struct run *l, const struct burst *b, unsigned port)
{
	struct rte_mbuf *m;
	while ((m = harness_collect(&l->harness, port))) {
		struct sight s = {.port = port};
		if (frame_is_originated(m)) {
			rte_pktmbuf_free(m);
			continue;
		}
		const char *wrong = sight_read(m, &s);
		rte_pktmbuf_free(m);
		MUST(!wrong, "a packet that was sent %s", wrong);
		mark_find(l, b, &s);
		MUST(s.mark.serial == l->h->serial && s.mark.flow < PLAIN_FLOWS,
		     "a packet that no side sent");
		struct flow *f = &l->h->flow[s.mark.flow];
		MUST(f->pending, "a packet came out twice: %s", flow_text(f));
		if (f->certainty == FLOW_LOOSE)
			f->pending = false;
		else
			flow_settle(l, f, &s, b->again);
	}
}

static const char *drops_text(const struct harness *r)
{
	static char text[300];
	size_t at = 0;
	text[0] = '\0';
	for (unsigned reason = SY_DROP_NONE + 1; reason < SY_DROP_COUNT; reason++)
		if (harness_drops(r, (enum sy_drop)reason) && at < sizeof(text))
			at += (size_t)snprintf(text + at, sizeof(text) - at, " %s %lu",
			                       sy_drop_name((enum sy_drop)reason),
			                       harness_drops(r, (enum sy_drop)reason));
	return text;
}

static uint64_t evictions(const struct harness *h)
{
	return harness_drops(h, SY_DROP_SESSION_EVICTED) +
	       harness_drops(h, SY_DROP_EMBRYONIC_EVICTED);
}

static void burst_run(struct run *l, struct burst *b)
{
	const struct plain_config *c = &l->h->config[l->h->accepted];
	uint64_t refused = refusals(&l->harness), missing = 0;
	l->h->serial++;
	for (unsigned i = 0; i < b->count; i++)
		flow_send(l, b->flow[i]);
	uint64_t evicted = evictions(&l->harness);
	l->h->evicting = l->scenario->slots;
	turn_begins(l);
	harness_poll(&l->harness);
	evicted = evictions(&l->harness) - evicted;
	l->evicted = evicted;
	if (evicted)
		flows_loosen(l->h);
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		burst_collect(l, b, port);
	if (evicted) /* a newly created session may be among them */
		flows_loosen(l->h);
	__atomic_store_n(&l->h->evicting, false, __ATOMIC_RELEASE);
	uint64_t grown = l->harness.b->ctl->growth.grown;
	harness_attend(&l->harness);
	l->h->grown += l->harness.b->ctl->growth.grown - grown;
	for (unsigned i = 0; i < b->count; i++) {
		struct flow *f = &l->h->flow[b->flow[i]];
		if (!f->pending)
			continue;
		MUST(f->certainty == FLOW_UNCERTAIN || f->certainty == FLOW_LOOSE || f->reopens,
		     "a packet was lost: %s; drops:%s", flow_text(f), drops_text(&l->harness));
		missing++;
		/* Without a server for the new session the old one may stay. */
		if (f->reopens && !plain_accepts(c, f->service))
			f->certainty = FLOW_LOOSE;
		else if (f->certainty != FLOW_LOOSE)
			f->certainty = FLOW_NONE;
		f->pending = false;
	}
	MUST(missing == refusals(&l->harness) - refused,
	     "%lu first packets did not come out; drops:%s", missing, drops_text(&l->harness));
}

/* ---- new and old clients --------------------------------------------------------------------- */

static bool tuple_is_used(const struct chronicle *h, const struct flow *new)
{
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		const struct flow *f = &h->flow[i];
		if (f->certainty != FLOW_NONE && f->client_port == new->client_port &&
		    f->service == new->service &&sy_addr_equal(&f->client, &new->client))
			return true;
	}
	return false;
}

/* A client's first number, which no other flow's first number equals. */
static uint32_t number_draw(struct run *l, unsigned i)
{
	return rng_below(&l->rng, UINT32_MAX / PLAIN_FLOWS) * PLAIN_FLOWS + i;
}

static bool flow_begin(struct run *l, unsigned i)
{
	struct rng *d = &l->rng;
	const struct plain_config *c = &l->h->config[l->h->accepted];
	struct flow f = {.certainty = FLOW_UNCERTAIN,
	                 .service = (uint8_t)rng_below(
	                         d, l->scenario->services ? l->scenario->services : PLAIN_SERVICES),
	                 .side = PLAIN_CLIENT,
	                 .flags = SY_TCP_SYN,
	                 .pressed = l->scenario->slots || l->scenario->sessions < 64 * SY_SLOTS};
	if (!c->service[f.service].state)
		return false;
	f.client = plain_client(f.service, rng_below(d, 60));
	f.client_port = htons((uint16_t)(1 + rng_below(d, 65535)));
	if (l->scenario->slots)
		f.client_port = sy_slot_port((uint8_t)(40 + rng_below(d, l->scenario->slots)),
		                             &f.client, rng_below(d, SY_SLOT_PORTS));
	f.seq[PLAIN_CLIENT] = number_draw(l, i);
	f.seq[PLAIN_SERVER] = rng_below(d, UINT32_MAX);
	f.seen_first = f.seen_last = plain_seconds(l->h);
	if (f.client_port == 0 || tuple_is_used(l->h, &f))
		return false;
	/* Written in this order: an incomplete entry has no effect. */
	f.certainty = FLOW_NONE;
	l->h->flow[i] = f;
	l->h->flow[i].pending = true;
	__atomic_store_n(&l->h->flow[i].certainty, FLOW_UNCERTAIN, __ATOMIC_RELEASE);
	return true;
}

static unsigned flows_count(const struct chronicle *h)
{
	unsigned n = 0;
	for (unsigned i = 0; i < PLAIN_FLOWS; i++)
		n += h->flow[i].certainty != FLOW_NONE;
	return n;
}

/* Some flows send a packet, new ones begin. */
static void workload_packets(struct run *l)
{
	struct chronicle *h = l->h;
	struct rng *d = &l->rng;
	struct burst b = {0};
	unsigned creations = flows_count(h) < l->scenario->flows ? rng_below(d, SY_BURST) : 0;
	unsigned at = rng_below(d, PLAIN_FLOWS), wanted = 1 + rng_below(d, SY_BURST);
	for (unsigned n = 0; n < PLAIN_FLOWS && b.count < wanted; n++) {
		unsigned i = (at + n) % PLAIN_FLOWS;
		struct flow *f = &h->flow[i];
		if (f->certainty == FLOW_NONE && creations > 0) {
			creations--;
			if (flow_begin(l, i))
				burst_add(l, &b, i);
		} else if (flow_is_fresh(f, plain_seconds(h)) && rng_percent(d, 30) &&
		           flow_plan(f, &h->config[h->accepted], d)) {
			if (f->reopens)
				f->seq[PLAIN_CLIENT] = number_draw(l, i);
			burst_add(l, &b, i);
		}
	}
	burst_run(l, &b);
}

static void workload_time(struct run *l)
{
	/* Now and then enough time for a sweep to end many sessions at once. */
	uint32_t max = rng_percent(&l->rng, 10) ? 12000 : 2000;
	uint64_t ns = rng_below(&l->rng, max) * (SECOND_NS / 1000);
	l->h->now_ns = l->harness.now_ns + ns;
	turn_begins(l);
	harness_advance(&l->harness, ns);
	flows_forget(l->h);
}

void workload_step(struct run *l)
{
	workload_packets(l);
	if (rng_percent(&l->rng, 20))
		workload_time(l);
}

/* ---- after a kill ---------------------------------------------------------------------------- */

/* Probes up to this many sessions from one side, in any state. No session restarts, because the
 * existing ones must continue first. */
static void workload_ask(struct run *l, enum plain_side side, unsigned max)
{
	struct chronicle *h = l->h;
	const struct plain_config *c = &h->config[h->accepted];
	unsigned at = rng_below(&l->rng, PLAIN_FLOWS);
	for (unsigned n = 0; n < PLAIN_FLOWS && max > 0;) {
		struct burst b = {0};
		for (; n < PLAIN_FLOWS && b.count < SY_BURST && max > 0; n++) {
			unsigned i = (at + n) % PLAIN_FLOWS;
			if (!flow_is_fresh(&h->flow[i], plain_seconds(h)) ||
			    !flow_ask(&h->flow[i], c, side))
				continue;
			burst_add(l, &b, i);
			max--;
		}
		h->probed += b.count;
		burst_run(l, &b);
	}
}

void workload_resume(struct run *l)
{
	struct chronicle *h = l->h;
	unsigned max = l->last ? PLAIN_FLOWS : ASKED;
	for (unsigned i = 0; i < PLAIN_FLOWS;) {
		struct burst b = {.again = true};
		for (; i < PLAIN_FLOWS && b.count < SY_BURST; i++)
			if (h->flow[i].pending && (h->flow[i].certainty == FLOW_UNCERTAIN ||
			                           h->flow[i].certainty == FLOW_CERTAIN))
				burst_add(l, &b, i);
		burst_run(l, &b);
	}
	workload_ask(l, PLAIN_SERVER, max);
	workload_ask(l, PLAIN_CLIENT, max);
}
