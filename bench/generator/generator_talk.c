// SPDX-License-Identifier: Apache-2.0
#include "generator_talk.h"

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_pause.h>

#include "measure.h"

#define BURST    32
#define WORDS    (2 * TALK_WINDOW_MAX) /* segments that may wait to be sent: two per connection */
#define SILENT_S 0.02 /* after this long without a packet, packets in flight count as lost */
#define BACK_OFF 16   /* pauses before a full link is tried again */

struct talk {
	struct link *link;
	struct connections connections;
	const struct talk_options *options;
	uint64_t *next; /* next connection */
	struct connection_step word[WORDS];
	uint32_t first, last; /* of the steps, modulo WORDS */
	uint64_t open, heard; /* connections in progress; when the last packet came, in ticks */
	struct rte_mbuf *frame[BURST];
	unsigned frames; /* written, but refused by a full link */
	uint64_t sendings, fulls, lost;
};

static double seconds_since(uint64_t ticks)
{
	return measure_ns(rte_rdtsc() - ticks) / 1e9;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Both ends are on one link: the MAC address shows which end a frame is for. */
static enum connection_side side_of(const uint8_t *frame)
{
	return memcmp(frame, frame_server_mac, 6) == 0 ? CONNECTION_SERVER : CONNECTION_CLIENT;
}

static void hear(struct talk *t)
{
	struct rte_mbuf *m[LINK_BURST];
	struct connection_step said[2];
	uint64_t completed = t->connections.completed;
	unsigned n = link_receive(t->link, m);

	if (n == 0)
		return;
	for (unsigned i = 0; i < n; i++)
		__builtin_prefetch(rte_pktmbuf_mtod(m[i], uint8_t *));
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *frame = rte_pktmbuf_mtod(m[i], uint8_t *);
		unsigned words = connections_receive(&t->connections, side_of(frame), frame,
		                                     m[i]->data_len, said);
		for (unsigned k = 0; k < words && t->last - t->first < WORDS; k++)
			t->word[t->last++ % WORDS] = said[k];
	}
	rte_pktmbuf_free_bulk(m, n);
	completed = t->connections.completed - completed;
	t->open -= completed < t->open ? completed : t->open;
	t->heard = rte_rdtsc();
}

/* ---- sending --------------------------------------------------------------------------------- */

static void frames_write(struct talk *t, bool begin)
{
	uint64_t capacity =
	        begin && t->open < t->options->window ? t->options->window - t->open : 0;
	uint64_t ready = t->last - t->first + capacity;
	unsigned n = ready < BURST ? (unsigned)ready : BURST;
	struct connection_step begun;

	if (n == 0 || !link_take(t->link, FRAME_IN, t->frame, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		const struct connection_step *w = &begun;
		if (t->first != t->last) {
			w = &t->word[t->first++ % WORDS];
		} else {
			connections_begin(&t->connections, (*t->next)++, &begun);
			t->open++;
		}
		uint8_t *frame = rte_pktmbuf_mtod(t->frame[i], uint8_t *);
		uint16_t length = (uint16_t)connections_answer(&t->connections, w, frame);
		t->frame[i]->data_len = length;
		t->frame[i]->pkt_len = length;
	}
	t->frames = n;
}

static void say(struct talk *t, bool begin)
{
	if (t->frames == 0)
		frames_write(t, begin);
	if (t->frames == 0)
		return;
	unsigned sent = link_send(t->link, t->frame, t->frames);
	t->sendings++;
	t->frames -= sent;
	if (t->frames == 0)
		return;
	t->fulls++;
	memmove(t->frame, t->frame + sent, t->frames * sizeof(t->frame[0]));
	for (unsigned i = 0; i < BACK_OFF; i++)
		rte_pause();
}

/* ---- the run --------------------------------------------------------------------------------- */

static void silence_check(struct talk *t)
{
	if (t->open == 0 || t->first != t->last || seconds_since(t->heard) < SILENT_S)
		return;
	t->lost += t->open;
	t->open = 0;
	t->heard = rte_rdtsc();
}

static void run_for(struct talk *t, double seconds)
{
	for (uint64_t start = rte_rdtsc(); seconds_since(start) < seconds;) {
		hear(t);
		say(t, true);
		silence_check(t);
	}
}

static int connections_open(struct talk *t, struct sy_error *err)
{
	bool six = t->options->family == 6;
	struct connections_options o = {.port = PORT_CONNECTIONS};

	if ((t->options->family != 4 && !six) || t->options->window == 0 ||
	    t->options->window > TALK_WINDOW_MAX)
		return sy_fail(err, EINVAL, "families are 4 and 6; 1 to %u connections at once",
		               TALK_WINDOW_MAX);
	sy_addr_parse(frame_clients[six], &o.client);
	sy_addr_parse(frame_vip[six], &o.vip);
	memcpy(o.own_mac[CONNECTION_CLIENT], frame_mac, 6);
	memcpy(o.own_mac[CONNECTION_SERVER], frame_server_mac, 6);
	memcpy(o.gate_mac[CONNECTION_CLIENT], frame_forwarder_mac, 6);
	memcpy(o.gate_mac[CONNECTION_SERVER], frame_forwarder_mac, 6);
	connections_init(&t->connections, &o);
	return 0;
}

int talk_run(struct link *l, uint64_t *first, const struct talk_options *o, struct talk_result *r,
             struct sy_error *err)
{
	static struct talk t;

	t = (struct talk){.link = l, .options = o, .next = first, .heard = rte_rdtsc()};
	int rc = connections_open(&t, err);
	if (rc != 0)
		return rc;
	l->template[FRAME_IN].length = 0; /* the next user of the buffers fills them again */
	run_for(&t, o->warm);
	uint64_t completed = t.connections.completed, counted = rte_rdtsc();
	run_for(&t, o->seconds);
	*r = (struct talk_result){.rate = (double)(t.connections.completed - completed) /
	                                  seconds_since(counted)};
	while (t.open > 0) {
		hear(&t);
		say(&t, false);
		silence_check(&t);
	}
	rte_mempool_put_bulk(l->sent[FRAME_IN], (void **)t.frame, t.frames);
	r->begun = t.connections.begun;
	r->completed = t.connections.completed;
	r->lost = t.lost;
	r->strange = t.connections.strange;
	r->resets = t.connections.resets;
	r->full = t.sendings ? (double)t.fulls / (double)t.sendings : 0;
	return 0;
}
