// SPDX-License-Identifier: Apache-2.0
#include "shed.h"

#include <arpa/inet.h>

#include "challenge.h"
#include "proven.h"
#include "repeat.h"

/* Being behind cuts the share by a CUT-th, once in CUT_NS at most; it grows by one of SHED_NONE in
 * RECOVERY_NS. */
#define CUT         4
#define CUT_NS      UINT64_C(5000000)
#define RECOVERY_NS UINT64_C(1000000)

/* A packet that would begin a session of a service. */
struct asked {
	uint64_t client; /* hash of address and service */
	uint64_t repeat; /* what must come again */
};

/* A SYN that its sender repeats is the same segment again. A datagram is another one, maybe from
 * another port: it only has its address in common with the one before. */
static uint64_t repeat_of(const struct sy_burst *burst, unsigned i, uint64_t client)
{
	const struct sy_view *v = &burst->view[i];
	if (v->proto != SY_PROTO_TCP)
		return client;
	uint64_t number = ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), v)->seq);
	return burst->hash[i] ^ number * UINT64_C(0x9e3779b97f4a7c15);
}

static struct asked asked_of(struct sy_worker *w, const struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	const struct balance_worker *bw = balance_worker_of(w);
	uint64_t client = challenge_client(b, bw->service[i], &burst->view[i].tuple.src);
	const struct asked asked = {client, repeat_of(burst, i, client)};
	proven_prefetch(b->proven, asked.client);
	repeat_prefetch(bw->repeats, asked.repeat);
	return asked;
}

/* Is the client known, or does it ask again? A known client's credit pays for the session; the
 * defence of one-way services takes it itself. */
static bool asked_may_begin(struct sy_worker *w, const struct asked *asked, bool one_way)
{
	const struct sy_balance *b = w->app;
	uint32_t now = balance_seconds(w);
	bool known = one_way ? proven_has_credit(b->proven, asked->client, now)
	                     : proven_take(b->proven, asked->client, now);
	return known || repeat_note(balance_worker_of(w)->repeats, asked->repeat, now);
}

/* The share that begins now: none while the burst is behind. That cuts the share for later bursts,
 * which then recovers with time. */
static uint32_t shed_share(struct shed *shed, bool behind, uint64_t now_ns)
{
	uint64_t since = now_ns - shed->at_ns;
	uint64_t share = shed->share + since / RECOVERY_NS;
	if (share > SHED_NONE)
		share = SHED_NONE;
	if (behind && since >= CUT_NS)
		*shed = (struct shed){.share = (uint32_t)(share - share / CUT), .at_ns = now_ns};
	else if (!behind && share == SHED_NONE)
		shed->share = SHED_NONE;
	return behind ? 0 : (uint32_t)share;
}

unsigned shed_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at, unsigned count)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct asked asked[SY_BURST];
	unsigned left = 0;
	if (count * 4 < burst->count)
		return count;
	const uint32_t share = shed_share(&bw->shed, burst->behind, w->now_ns);
	if (share == SHED_NONE)
		return count;
	for (unsigned k = 0; k < count; k++)
		asked[k] = asked_of(w, burst, at[k]);
	for (unsigned k = 0; k < count; k++) {
		const struct service *service = bw->service[at[k]];
		if (burst->hash[at[k]] % SHED_NONE < share ||
		    asked_may_begin(w, &asked[k], service->one_way)) {
			at[left++] = at[k];
			continue;
		}
		SY_COUNT(bw->counts[service->id].refused[REFUSED_FULL], 1);
		sy_burst_drop(w, burst, at[k], SY_DROP_OVERLOAD);
	}
	return left;
}
