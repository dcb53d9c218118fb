// SPDX-License-Identifier: Apache-2.0
#include "trial.h"

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_pause.h>

#include "core_watch.h"
#include "generator_pace.h"
#include "measure.h"

#define ARREARS  512 /* packets that may be due at once */
#define QUIET_MS 5   /* silence that ends a trial: idle forwarders back off for 1 ms */
#define DRAIN_MS 100 /* longest wait for that */
#define BACK_OFF 16  /* pauses before a full link is tried again: polling costs the other side */

struct trial {
	struct link *link;
	struct flows *flows;
	const struct traffic *traffic;
	struct trial_result *result;
	struct pace *pace;
	enum frame_way way;
	struct rte_mbuf *waiting[LINK_BURST]; /* made, but refused by a full link */
	unsigned waits;
	uint64_t sendings, fulls, receivings;
	uint64_t tsc_ns_32; /* nanoseconds per tick, times 2^32 */
};

static uint64_t ticks(double seconds)
{
	static double per_ns;
	if (per_ns == 0)
		per_ns = 1e6 / measure_ns(1000000);
	return (uint64_t)(seconds * 1e9 * per_ns);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* In sequence, so that the generator does not read memory at random, which would cost more than
 * what it measures. For the other side this order is as good as any: flows were learned in another
 * order, and tables are hashed. */
static uint32_t flow_next(struct trial *t)
{
	struct flows *f = t->flows;
	if (t->traffic->fresh)
		return f->next_fresh++;
	uint32_t flow = f->next[t->way];
	f->next[t->way] = flow + 1 < t->traffic->flows ? flow + 1 : 0;
	return flow;
}

static void frames_write(struct trial *t, struct rte_mbuf **m, unsigned n)
{
	const struct frame_template *template = &t->link->template[t->way];
	uint64_t stamp = t->traffic->stamped ? rte_rdtsc() : 0;

	for (unsigned i = 0; i < n; i++) {
		uint32_t flow = flow_next(t);
		struct frame_fields fields =
		        t->way == FRAME_IN ? frame_of_client(template, flow)
		                           : frame_of_server(template, flow, t->flows->reply[flow]);
		fields.stamp = stamp;
		frame_write(template, rte_pktmbuf_mtod(m[i], uint8_t *), &fields);
	}
}

/* Sends as many as possible, first the frames that a full link refused. */
static void send_max(struct trial *t)
{
	unsigned burst = t->traffic->burst;
	if (t->waits == 0) {
		if (!link_take(t->link, t->way, t->waiting, burst))
			return;
		frames_write(t, t->waiting, burst);
		t->waits = burst;
	}
	unsigned sent = link_send(t->link, t->waiting, t->waits);
	t->result->offered += sent;
	t->sendings++;
	if (sent < t->waits) {
		t->fulls++;
		memmove(t->waiting, t->waiting + sent, (t->waits - sent) * sizeof(*t->waiting));
		for (unsigned i = 0; i < BACK_OFF; i++)
			rte_pause();
	}
	t->waits -= sent;
	if (t->waits == 0 && t->traffic->in && t->traffic->out)
		t->way = !t->way;
}

/* Sends the packets that are due; packets that the link refuses are lost, as on a wire. */
static void send_due(struct trial *t, uint64_t now)
{
	struct rte_mbuf *m[LINK_BURST];
	unsigned n = pace_take(t->pace, now, t->traffic->burst), sent = 0;
	if (n == 0)
		return;
	if (link_take(t->link, t->way, m, n)) {
		frames_write(t, m, n);
		sent = link_send(t->link, m, n);
		rte_mempool_put_bulk(t->link->sent[t->way], (void **)(m + sent), n - sent);
	}
	t->sendings++;
	t->fulls += sent < n;
	t->result->offered += n;
	t->result->refused += n - sent;
	if (t->traffic->in && t->traffic->out)
		t->way = !t->way;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void delays_note(struct trial *t, struct rte_mbuf **m, unsigned n)
{
	struct frame_fields f;
	for (unsigned i = 0; i < n; i++)
		__builtin_prefetch(rte_pktmbuf_mtod(m[i], uint8_t *));
	uint64_t now = rte_rdtsc();
	for (unsigned i = 0; i < n; i++) {
		if (!frame_read(rte_pktmbuf_mtod(m[i], uint8_t *), m[i]->data_len, &f) ||
		    f.stamp == 0)
			continue;
		uint64_t passed = now > f.stamp ? now - f.stamp : 0;
		histogram_add(&t->result->delay, passed * t->tsc_ns_32 >> 32);
	}
}

static unsigned receive(struct trial *t)
{
	struct rte_mbuf *m[LINK_BURST];
	struct frame_fields f;
	unsigned n = link_receive(t->link, m);
	if (n == 0)
		return 0;
	t->result->received += n;
	t->receivings++;
	if (t->traffic->stamped)
		delays_note(t, m, n);
	if (!frame_read(rte_pktmbuf_mtod(m[0], uint8_t *), m[0]->data_len, &f))
		t->result->alien++;
	rte_pktmbuf_free_bulk(m, n);
	return n;
}

/* ---- the trial ------------------------------------------------------------------------------- */

static void run_until(struct trial *t, uint64_t end)
{
	uint64_t now, last = rte_rdtsc(), held = 0;
	for (; (now = rte_rdtsc()) < end; last = now) {
		held = now - last > held ? now - last : held;
		receive(t);
		if (t->pace != NULL)
			send_due(t, now);
		else
			send_max(t);
	}
	uint64_t held_ns = (uint64_t)measure_ns(held);
	t->result->held_ns = held_ns > t->result->held_ns ? held_ns : t->result->held_ns;
}

static void drain(struct trial *t)
{
	uint64_t now = rte_rdtsc(), quiet = now, end = now + ticks(DRAIN_MS / 1e3);
	while (now < end && now - quiet < ticks(QUIET_MS / 1e3)) {
		unsigned n = receive(t);
		now = rte_rdtsc();
		if (n)
			quiet = now;
	}
}

static int traffic_check(const struct flows *f, const struct traffic *t, struct sy_error *err)
{
	if (!t->in && !t->out)
		return sy_fail(err, EINVAL, "no way is chosen");
	if (t->out && (t->fresh || t->flows > f->learned))
		return sy_fail(err, EINVAL, "servers know %u flows, not %u: learn them first",
		               f->learned, t->flows);
	if (t->flows == 0 || t->burst == 0 || t->burst > LINK_BURST)
		return sy_fail(err, EINVAL, "at least one flow, and bursts of 1 to %u", LINK_BURST);
	return 0;
}

int trial_run(struct link *l, struct flows *f, const struct traffic *traffic,
              struct trial_result *r, struct sy_error *err)
{
	struct pace pace;
	struct trial t = {.link = l,
	                  .flows = f,
	                  .traffic = traffic,
	                  .result = r,
	                  .way = traffic->in ? FRAME_IN : FRAME_OUT,
	                  .tsc_ns_32 = (uint64_t)(measure_ns(1u << 20) * 4096)};
	int rc = traffic_check(f, traffic, err);
	if (rc == 0)
		rc = link_prepare(l, traffic->family, traffic->size, traffic->fresh, err);
	if (rc != 0)
		return rc;
	memset(r, 0, sizeof(*r));
	/* Clients are ahead of servers by half of all flows: each flow has left the caches when it
	 * returns. */
	f->next[FRAME_OUT] %= traffic->flows;
	f->next[FRAME_IN] =
	        (uint32_t)((f->next[FRAME_OUT] + (uint64_t)traffic->flows / 2) % traffic->flows);
	uint64_t waited = watch_waited(traffic->watch), start = rte_rdtsc();
	if (traffic->rate > 0) {
		pace = pace_begin(start, traffic->rate / (double)ticks(1), ARREARS);
		t.pace = &pace;
	}
	run_until(&t, start + ticks(traffic->warm));
	uint64_t offered = r->offered, received = r->received, counted = rte_rdtsc();
	memset(&r->delay, 0, sizeof(r->delay));
	run_until(&t, counted + ticks(traffic->seconds));
	double seconds = measure_ns(rte_rdtsc() - counted) / 1e9;
	r->offered_pps = (double)(r->offered - offered) / seconds;
	r->received_pps = (double)(r->received - received) / seconds;
	rte_mempool_put_bulk(l->sent[t.way], (void **)t.waiting, t.waits);
	drain(&t);
	r->waited_ns = watch_waited(traffic->watch) - waited;
	r->forgiven = t.pace ? pace.forgiven : 0;
	r->lost = r->offered > r->received ? 1 - (double)r->received / (double)r->offered : 0;
	r->full = t.sendings ? (double)t.fulls / (double)t.sendings : 0;
	r->burst = t.receivings ? (double)r->received / (double)t.receivings : 0;
	return 0;
}
