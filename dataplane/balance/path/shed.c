// SPDX-License-Identifier: Apache-2.0
#include "shed.h"

#include <arpa/inet.h>

#include "challenge.h"
#include "defence.h"
#include "repeat.h"
#include "service_drop.h"
#include "validated.h"

/* Being behind cuts a share by a CUT-th, once in CUT_NS at most: that of repetitions once that of
 * unknown ones is LEAST. Both grow by one of SHED_NONE in RECOVERY_NS. Repetitions have a share
 * only in bursts where they are a REPEATED_PART-th of what would begin: a flood that repeats
 * itself. */
#define CUT           4
#define CUT_NS        UINT64_C(5000000)
#define RECOVERY_NS   UINT64_C(1000000)
#define LEAST         (SHED_NONE / 16)
#define REPEATED_PART 4

/* Counts of packets halve after each window of time, some 67 ms. */
#define WINDOW_BITS 26
/* A service has few if another one has this many times as many. */
#define FEW_PART 8

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
	uint64_t client = challenge_client(b, bw->burst.service[i], &burst->view[i].tuple.src);
	const struct asked asked = {client, repeat_of(burst, i, client)};
	validated_prefetch(b->validated, asked.client);
	repeat_prefetch(bw->repeats, asked.repeat);
	return asked;
}

/* ---- services: one that has few loses none to the flood of another ------------------------------
 */

/* A count after so many windows without a packet. */
static uint32_t count_aged(uint32_t count, uint32_t windows)
{
	return windows < 32 ? count >> windows : 0;
}

static void shed_age(struct shed *shed, uint32_t window)
{
	const uint32_t windows = window - shed->window;
	shed->all = count_aged(shed->all, windows);
	shed->largest = count_aged(shed->largest, windows);
	shed->few = count_aged(shed->few, windows);
	shed->window = window;
}

/* Counts the packets that would begin sessions, by service. */
static void shed_count(struct balance_worker *bw, const uint8_t *at, unsigned count,
                       uint32_t window)
{
	shed_age(&bw->shed, window);
	bw->shed.all += count;
	for (unsigned k = 0; k < count; k++) {
		struct service_load *load = &bw->load[bw->burst.service[at[k]]->id];
		load->shed_begin = 1 + count_aged(load->shed_begin, window - load->shed_window);
		load->shed_window = window;
		if (load->shed_begin > bw->shed.largest)
			bw->shed.largest = load->shed_begin;
	}
}

/* Does the service of packet i have few of the packets that would begin sessions? Many such
 * services together may be the load: they have half of all at most. */
static bool is_of_few(struct balance_worker *bw, unsigned i)
{
	struct shed *shed = &bw->shed;
	if ((uint64_t)bw->load[bw->burst.service[i]->id].shed_begin * FEW_PART >= shed->largest ||
	    shed->few >= shed->all / 2)
		return false;
	shed->few++;
	return true;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* The shares now; being behind cuts one for later. */
static struct shed shed_now(struct shed *shed, bool behind, uint64_t now_ns)
{
	const uint64_t since = now_ns - shed->at_ns, grown = since / RECOVERY_NS;
	struct shed now = *shed;
	now.at_ns = now_ns;
	for (unsigned kind = 0; kind < SHED_KINDS; kind++) {
		uint64_t share = shed->share[kind] + grown;
		now.share[kind] = share < SHED_NONE ? (uint32_t)share : SHED_NONE;
	}
	if (behind && since >= CUT_NS) {
		*shed = now;
		uint32_t *cut = &shed->share[now.share[SHED_UNKNOWN] > LEAST ? SHED_UNKNOWN
		                                                             : SHED_REPEATED];
		*cut -= *cut / CUT;
	} else if (!behind && now.share[SHED_UNKNOWN] == SHED_NONE) {
		*shed = now;
	}
	if (behind)
		now.share[SHED_UNKNOWN] = 0;
	return now;
}

enum spoken { NOTHING, KNOWN, REPEATED };

/* What speaks for packet i: nothing, a known client, or that it comes again. A known client's
 * credit pays for the session; the defence of one-way services, if it is on, takes it itself. */
static enum spoken asked_spoken(struct sy_worker *w, unsigned i, const struct asked *asked)
{
	const struct sy_balance *b = w->app;
	const struct balance_worker *bw = balance_worker_of(w);
	const struct service *service = bw->burst.service[i];
	uint32_t seconds = balance_seconds(w);
	bool pays_later = service->one_way && defence_is_on(b, service);
	if (pays_later ? validated_has_credit(b->validated, asked->client, seconds)
	               : validated_consume(b->validated, asked->client, seconds))
		return KNOWN;
	return repeat_note(bw->repeats, asked->repeat, seconds) ? REPEATED : NOTHING;
}

/* Not all of a kind begin, by their hashes. */
static bool is_of_share(uint64_t hash, uint32_t share)
{
	return hash % SHED_NONE < share;
}

void shed_see(struct sy_worker *w, const struct session *s)
{
	const struct sy_balance *b = w->app;
	const struct service *service = endpoint_service(b, &b->endpoint[s->server]);
	if (service)
		validated_add_seen(b->validated, challenge_client(b, service, &s->client),
		                   VALIDATED_CREDITS, balance_seconds(w));
}

unsigned shed_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at, unsigned count)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct asked asked[SY_BURST];
	uint8_t spoken[SY_BURST];
	unsigned left = 0, repeated = 0;
	struct shed now = shed_now(&bw->shed, burst->behind, w->now_ns);
	if (now.share[SHED_UNKNOWN] == SHED_NONE)
		return count;
	shed_count(bw, at, count, (uint32_t)(w->now_ns >> WINDOW_BITS));
	for (unsigned k = 0; k < count; k++)
		asked[k] = asked_of(w, burst, at[k]);
	for (unsigned k = 0; k < count; k++) {
		spoken[k] = is_of_few(bw, at[k]) ||
		                            is_of_share(burst->hash[at[k]], now.share[SHED_UNKNOWN])
		                    ? KNOWN
		                    : asked_spoken(w, at[k], &asked[k]);
		repeated += spoken[k] == REPEATED;
	}
	if (repeated * REPEATED_PART < count)
		now.share[SHED_REPEATED] = SHED_NONE;
	for (unsigned k = 0; k < count; k++) {
		if (spoken[k] == KNOWN ||
		    (spoken[k] == REPEATED &&
		     is_of_share(burst->hash[at[k]] / SHED_NONE, now.share[SHED_REPEATED]))) {
			at[left++] = at[k];
			continue;
		}
		SY_COUNT(bw->counts[bw->burst.service[at[k]]->id].refused[REFUSED_FULL], 1);
		service_packet_drop(w, burst, at[k], bw->burst.service[at[k]], SY_DROP_OVERLOAD);
	}
	return left;
}
