// SPDX-License-Identifier: Apache-2.0
/*
 * Replies to requests for samples. A request makes workers sample for two more seconds, and
 * collects their samples in one buffer, from which each client gets those that it has not seen. So
 * clients do not take samples from each other, and a client that stops leaves nothing behind.
 */
#include <errno.h>
#include <stdlib.h>

#include "control.h"
#include "control_plane.h"
#include "model_message.h"
#include "samples.h"

#define LIMIT_USUAL 1000u
#define LIMIT_MAX   4096u

void samples_destroy(struct sy_balance *b)
{
	free(b->ctl->samples);
	b->ctl->samples = NULL;
}

/* Discards samples that workers have queued since the last request: they are outdated. */
static void samples_forget(struct sy_balance *b, struct samples *s)
{
	struct sy_sample scratch[32];
	for (unsigned w = 0; w < b->workers; w++)
		while (sy_samples_dequeue(b->rt, w, scratch, SY_ARRAY_LEN(scratch)))
			;
	s->before = s->last;
}

/* The smallest requested rate applies until no client requests it any more. */
static void samples_want(struct sy_balance *b, struct samples *s, enum sy_sample_kind kind,
                         uint32_t one_in, uint64_t now_ns)
{
	if (!one_in || (one_in > s->one_in[kind] && now_ns < s->until_ns[kind]))
		return;
	s->one_in[kind] = one_in < SY_SAMPLE_MAX_GAP ? one_in : SY_SAMPLE_MAX_GAP;
	s->until_ns[kind] = now_ns + SAMPLES_WANT_NS;
	sy_samples_want(b->rt, kind, s->one_in[kind], s->until_ns[kind]);
}

static void samples_collect(struct sy_balance *b, struct samples *s)
{
	/* At most the buffer's size, shared by all workers. */
	unsigned share = SAMPLES_KEPT / b->workers;
	for (unsigned w = 0; w < b->workers; w++) {
		for (unsigned left = share; left > 0;) {
			unsigned at = (s->last + 1) % SAMPLES_KEPT, max = SAMPLES_KEPT - at;
			unsigned n =
			        sy_samples_dequeue(b->rt, w, &s->kept[at], left < max ? left : max);
			if (!n)
				break;
			left -= n;
			s->last += n;
		}
	}
	if (s->last - s->before > SAMPLES_KEPT)
		s->before = s->last - SAMPLES_KEPT;
}

/* Was the packet dropped on its way out? Then its port is the egress. */
static bool is_outward(enum sy_drop reason)
{
	return reason == SY_DROP_TX_FULL || reason == SY_DROP_PORT_DOWN ||
	       reason == SY_DROP_NO_NEIGHBOUR || reason == SY_DROP_NEIGHBOUR_QUEUE ||
	       reason == SY_DROP_SHAPING_FULL || reason == SY_DROP_SHAPING_EARLY;
}

static int reply_sample(struct arena *a, const struct sy_sample *s, const uint32_t *if_index,
                        Steelyard__Forwarder__V1__Sample **out)
{
	Steelyard__Forwarder__V1__Sample *pb = arena_alloc(a, sizeof(*pb));
	if (!pb)
		return -ENOMEM;
	steelyard__forwarder__v1__sample__init(pb);
	pb->header.data = (uint8_t *)(uintptr_t)s->header;
	pb->header.len = s->header_length;
	pb->length = s->length;
	pb->one_in = s->one_in;
	if (s->drop != SY_DROP_NONE)
		pb->drop = (char *)(uintptr_t)sy_drop_name(s->drop);
	if (s->port != SY_PORT_NONE)
		*(is_outward(s->drop) ? &pb->out_if_index : &pb->if_index) = if_index[s->port];
	*out = pb;
	return 0;
}

static int reply_samples(struct sy_balance *b, const struct samples *s,
                         const Steelyard__Forwarder__V1__FetchSamplesRequest *request,
                         struct arena *a, Steelyard__Forwarder__V1__Samples *l)
{
	uint32_t if_index[SY_MAX_PORTS] = {0};
	size_t limit = request->limit ? request->limit : LIMIT_USUAL;
	limit = limit < LIMIT_MAX ? limit : LIMIT_MAX;
	for (unsigned i = 0; i < sy_port_count(b->rt); i++) {
		struct sy_port_info info;
		sy_port_get_info(b->rt, i, &info);
		if_index[i] = (uint32_t)info.ifindex;
	}
	l->samples = arena_alloc(a, limit * sizeof(*l->samples));
	if (!l->samples)
		return -ENOMEM;
	while (l->last < s->last && l->n_samples < limit) {
		const struct sy_sample *one = &s->kept[++l->last % SAMPLES_KEPT];
		if (one->drop == SY_DROP_NONE ? !request->received : !request->dropped)
			continue;
		if (reply_sample(a, one, if_index, &l->samples[l->n_samples]) < 0)
			return -ENOMEM;
		l->n_samples++;
	}
	l->more = l->last < s->last;
	return 0;
}

int list_samples(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                 struct sy_error *err)
{
	const Steelyard__Forwarder__V1__FetchSamplesRequest *request = q->fetch_samples;
	struct samples *s = b->ctl->samples;
	uint64_t now_ns = sy_clock_ns();
	Steelyard__Forwarder__V1__Samples *l;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__samples__init);
	if (!s) {
		s = b->ctl->samples = calloc(1, sizeof(*s));
		if (!s)
			return sy_fail(err, ENOMEM, "no memory for samples");
		s->before = s->last = 1; /* 0 in a request means the client's first one */
	}
	if (now_ns >= s->until_ns[SY_SAMPLE_RECEIVED] && now_ns >= s->until_ns[SY_SAMPLE_DROPPED])
		samples_forget(b, s);
	samples_want(b, s, SY_SAMPLE_RECEIVED, request->received, now_ns);
	samples_want(b, s, SY_SAMPLE_DROPPED, request->dropped, now_ns);
	samples_collect(b, s);
	l->last = request->after;
	if (request->after == 0 ||
	    request->after >
	            s->last) { /* first request, or from before a restart of the forwarder */
		l->last = s->last;
	} else if (request->after < s->before) {
		l->missed = s->before - request->after;
		l->last = s->before;
	}
	struct sy_sample_counts counts = sy_samples_count(b->rt);
	l->taken = counts.enqueued;
	l->lost = counts.lost;
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_FETCH_SAMPLES;
	out->fetch_samples = l;
	return reply_samples(b, s, request, a, l) < 0
	               ? sy_fail(err, ENOMEM, "no memory for the answer")
	               : 0;
}
