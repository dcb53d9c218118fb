// SPDX-License-Identifier: Apache-2.0
#include "overload.h"

#include <arpa/inet.h>

#include "challenge.h"
#include "defence.h"
#include "repeat.h"
#include "service_drop.h"
#include "validated.h"

/* When the worker is behind, the share of unknown clients shrinks by 1/CUT, at most once per
 * CUT_NS. Once the unknown share is at its minimum (MIN_SHARE), the repeated share shrinks. Both
 * grow by 1/OVERLOAD_WHOLE per RECOVERY_NS. The repeated share applies only in bursts where
 * repeated attempts are at least 1/REPEATED_PART of all attempts: a flood of repetitions. */
#define CUT           4
#define CUT_NS        UINT64_C(5000000)
#define RECOVERY_NS   UINT64_C(1000000)
#define MIN_SHARE     (OVERLOAD_WHOLE / 16)
#define REPEATED_PART 4

/* Counts of attempts halve every 2^26 ns, about 67 ms. */
#define WINDOW_BITS 26
/* A service has few attempts if another one has FEW_PART times as many. */
#define FEW_PART 8

/* A packet that would begin a session. */
struct attempt {
	uint64_t client; /* hash of address and service */
	uint64_t repeat; /* hash that identifies a repetition */
};

/* A repeated SYN is the same segment. A repeated datagram may differ, even in its port: only the
 * client's address identifies it. */
static uint64_t repeat_of(const struct sy_burst *burst, unsigned i, uint64_t client)
{
	const struct sy_view *v = &burst->view[i];
	if (v->proto != SY_PROTO_TCP)
		return client;
	uint64_t number = ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), v)->seq);
	return burst->hash[i] ^ number * UINT64_C(0x9e3779b97f4a7c15);
}

/* Also prefetches what attempt_classify() reads. */
static struct attempt attempt_of(struct sy_worker *w, const struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	const struct balance_worker *bw = balance_worker_of(w);
	uint64_t client = challenge_client(b, bw->burst.service[i], &burst->view[i].tuple.src);
	const struct attempt attempt = {client, repeat_of(burst, i, client)};
	validated_prefetch(b->validated, attempt.client);
	repeat_prefetch(bw->repeats, attempt.repeat);
	return attempt;
}

/* ---- services: those with few attempts are not dropped because of a flood at another --------- */

/* A count after `windows` windows without attempts. */
static uint32_t count_aged(uint32_t count, uint32_t windows)
{
	return windows < 32 ? count >> windows : 0;
}

static void overload_age(struct overload *overload, uint32_t window)
{
	const uint32_t windows = window - overload->window;
	overload->all = count_aged(overload->all, windows);
	overload->largest = count_aged(overload->largest, windows);
	overload->few = count_aged(overload->few, windows);
	overload->window = window;
}

/* Counts the attempts by service. */
static void overload_count(struct balance_worker *bw, const uint8_t *at, unsigned count,
                           uint32_t window)
{
	overload_age(&bw->overload, window);
	bw->overload.all += count;
	for (unsigned k = 0; k < count; k++) {
		struct service_load *load = &bw->load[bw->burst.service[at[k]]->id];
		load->attempts = 1 + count_aged(load->attempts, window - load->attempts_window);
		load->attempts_window = window;
		if (load->attempts > bw->overload.largest)
			bw->overload.largest = load->attempts;
	}
}

/* Does the service of packet i have few attempts, and capacity left? Such services may use at most
 * half of the budget, since many small services together can be the overload. */
static bool service_has_few_attempts(struct balance_worker *bw, unsigned i)
{
	struct overload *overload = &bw->overload;
	if ((uint64_t)bw->load[bw->burst.service[i]->id].attempts * FEW_PART >= overload->largest ||
	    overload->few >= overload->all / 2)
		return false;
	overload->few++;
	return true;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* Returns the shares of this burst. If the worker is behind, reduces one for later bursts. */
static struct overload overload_shares(struct overload *overload, bool behind, uint64_t now_ns)
{
	const uint64_t since = now_ns - overload->at_ns, grown = since / RECOVERY_NS;
	struct overload now = *overload;
	now.at_ns = now_ns;
	for (unsigned kind = 0; kind < OVERLOAD_KINDS; kind++) {
		uint64_t share = overload->share[kind] + grown;
		now.share[kind] = share < OVERLOAD_WHOLE ? (uint32_t)share : OVERLOAD_WHOLE;
	}
	if (behind && since >= CUT_NS) {
		*overload = now;
		uint32_t *cut = &overload->share[now.share[OVERLOAD_UNKNOWN] > MIN_SHARE
		                                         ? OVERLOAD_UNKNOWN
		                                         : OVERLOAD_REPEATED];
		*cut -= *cut / CUT;
	} else if (!behind && now.share[OVERLOAD_UNKNOWN] == OVERLOAD_WHOLE) {
		*overload = now;
	}
	if (behind)
		now.share[OVERLOAD_UNKNOWN] = 0;
	return now;
}

enum attempt_class {
	ATTEMPT_UNKNOWN,
	ATTEMPT_ACCEPTED, /* within the share, or its service has few attempts */
	ATTEMPT_KNOWN,    /* of a validated client */
	ATTEMPT_REPEATED, /* a repetition */
};

/* Classifies an attempt by its client. A known client pays with a credit; for one-way services
 * under defence, the defence consumes the credit later. */
static enum attempt_class attempt_classify(struct sy_worker *w, unsigned i,
                                           const struct attempt *attempt)
{
	const struct sy_balance *b = w->app;
	const struct balance_worker *bw = balance_worker_of(w);
	const struct service *service = bw->burst.service[i];
	uint32_t seconds = balance_seconds(w);
	bool pays_later = service->one_way && defence_is_on(b, service);
	if (pays_later ? validated_has_credit(b->validated, attempt->client, seconds)
	               : validated_consume(b->validated, attempt->client, seconds))
		return ATTEMPT_KNOWN;
	return repeat_note(bw->repeats, attempt->repeat, seconds) ? ATTEMPT_REPEATED
	                                                          : ATTEMPT_UNKNOWN;
}

/* Does the attempt's hash fall into the share? */
static bool is_within_share(uint64_t hash, uint32_t share)
{
	return hash % OVERLOAD_WHOLE < share;
}

void overload_see_client(struct sy_worker *w, const struct session *s)
{
	const struct sy_balance *b = w->app;
	const struct service *service = endpoint_service(b, &b->endpoint[s->server]);
	if (service)
		validated_add_seen(b->validated, challenge_client(b, service, &s->client),
		                   VALIDATED_CREDITS, balance_seconds(w));
}

unsigned overload_drop_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at,
                             unsigned count)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct attempt attempt[SY_BURST];
	uint8_t class[SY_BURST];
	unsigned left = 0, repeated = 0;
	struct overload now = overload_shares(&bw->overload, burst->behind, w->now_ns);
	if (now.share[OVERLOAD_UNKNOWN] == OVERLOAD_WHOLE)
		return count;
	overload_count(bw, at, count, (uint32_t)(w->now_ns >> WINDOW_BITS));
	for (unsigned k = 0; k < count; k++)
		attempt[k] = attempt_of(w, burst, at[k]);
	for (unsigned k = 0; k < count; k++) {
		class[k] = service_has_few_attempts(bw, at[k]) ||
		                           is_within_share(burst->hash[at[k]],
		                                           now.share[OVERLOAD_UNKNOWN])
		                   ? ATTEMPT_ACCEPTED
		                   : attempt_classify(w, at[k], &attempt[k]);
		repeated += class[k] == ATTEMPT_REPEATED;
	}
	if (repeated * REPEATED_PART < count)
		now.share[OVERLOAD_REPEATED] = OVERLOAD_WHOLE;
	for (unsigned k = 0; k < count; k++) {
		if (class[k] == ATTEMPT_ACCEPTED || class[k] == ATTEMPT_KNOWN ||
		    (class[k] == ATTEMPT_REPEATED &&
		     is_within_share(burst->hash[at[k]] / OVERLOAD_WHOLE,
		                     now.share[OVERLOAD_REPEATED]))) {
			at[left++] = at[k];
			continue;
		}
		SY_COUNT(bw->counts[bw->burst.service[at[k]]->id].refused[REFUSED_FULL], 1);
		service_packet_drop(w, burst, at[k], bw->burst.service[at[k]], SY_DROP_OVERLOAD);
	}
	return left;
}
