// SPDX-License-Identifier: Apache-2.0
#include "watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "control_plane.h"
#include "model.h"

#define PASS_NS UINT64_C(250000000)
#define AT_ONCE 1024u /* max services per tick */
/* Rate limit of log lines: one a second, after a burst. */
#define LOG_COST_NS UINT64_C(1000000000)
#define LOG_BURST   20u

const char *watch_reason_text(enum watch_reason reason)
{
	static const char *const texts[] = {
#define X(id, text) [WATCH_##id] = (text),
	        WATCH_REASONS(X)
#undef X
	};
	return texts[reason];
}

int watch_create(struct sy_balance *b, struct sy_error *err)
{
	struct watch *w = calloc(1, sizeof(*w));
	b->ctl->watch = w;
	if (w)
		w->of_service = calloc(b->options.max_services, sizeof(*w->of_service));
	if (!w || !w->of_service)
		return sy_fail(err, ENOMEM, "no memory for the switch of the SYN defence");
	return 0;
}

void watch_destroy(struct sy_balance *b)
{
	if (b->ctl->watch)
		free(b->ctl->watch->of_service);
	free(b->ctl->watch);
	b->ctl->watch = NULL;
}

struct watch_counts watch_counts_of(const struct sy_balance *b, uint32_t service)
{
	struct watch_counts sum = {0};
	int64_t half_open = 0; /* a single worker's value may be negative after slots have moved */
	for (unsigned w = 0; w < b->workers; w++) {
		const struct service_counts *c = &b->worker[w].counts[service];
		const struct service_load *load = &b->worker[w].load[service];
		sum.begun += SY_READ(c->begun);
		sum.answered += SY_READ(c->answered);
		sum.returned += SY_READ(c->right);
		sum.established += SY_READ(load->established);
		half_open += (int32_t)SY_READ(load->embryonic);
	}
	sum.half_open = half_open > 0 ? (uint64_t)half_open : 0;
	return sum;
}

static void watch_log(struct sy_balance *b, const struct model_service *s,
                      const struct watched *one, const struct watch_counts *counts)
{
	struct watch *w = b->ctl->watch;
	char vip[SY_ADDR_TEXT], more[64] = "";
	if (!rate_charge(&w->log_rate, w->sample.now_ns, LOG_COST_NS, LOG_BURST)) {
		w->not_logged++;
		return;
	}
	if (w->not_logged)
		snprintf(more, sizeof(more), "; %lu switches of services were not logged",
		         (unsigned long)w->not_logged);
	w->not_logged = 0;
	sy_addr_format(&s->key.vip, vip);
	if (one->now.on)
		sy_log(SY_LOG_WARN, "defence",
		       "SYN defence of service %s (%s, port %u) is on: %s (%lu are half open)%s",
		       s->name, vip, ntohs(s->key.vport), watch_reason_text(one->now.reason),
		       (unsigned long)counts->half_open, more);
	else
		sy_log(SY_LOG_INFO, "defence",
		       "SYN defence of service %s (%s, port %u) is off: %s; it answered %lu "
		       "SYNs%s",
		       s->name, vip, ntohs(s->key.vport), watch_reason_text(one->now.reason),
		       (unsigned long)(counts->answered - one->answered), more);
}

static uint64_t unix_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void watch_service(struct sy_balance *b, uint32_t id)
{
	struct watched *one = &b->ctl->watch->of_service[id];
	const struct model_service *s = b->ctl->model->service[id];
	if (!s || s->snat || s->policy.syn_defence != DEFENCE_AUTO) {
		if (one->now.seen) {
			*one = (struct watched){0};
			__atomic_store_n(&b->defends[id], 0, __ATOMIC_RELAXED);
		}
		return;
	}
	const struct watch_counts counts = watch_counts_of(b, id);
	if (watch_switch_update(&one->now, &counts, &b->ctl->watch->sample) == WATCH_STAYS)
		return;
	__atomic_store_n(&b->defends[id], one->now.on, __ATOMIC_RELAXED);
	one->since_ms = unix_ms();
	if (one->now.on) {
		one->switched_on++;
		one->answered = counts.answered;
	}
	watch_log(b, s, one, &counts);
}

static void pass_begin(struct sy_balance *b, uint64_t now)
{
	struct watch *w = b->ctl->watch;
	w->sample = (struct watch_sample){
	        .now_ns = now, .elapsed_ns = now - w->pass_ns, .workers = b->workers};
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		w->sample.capacity += session_capacity(b->table[slot]);
	w->pass_ns = now;
	if (SY_UNLIKELY(b->watches_since == 0))
		__atomic_store_n(&b->watches_since, (uint32_t)(now / 1000000000), __ATOMIC_RELAXED);
}

void watch_tick(struct sy_balance *b)
{
	struct watch *w = b->ctl->watch;
	uint32_t fresh = b->ctl->model->service_ids.fresh, end;
	if (w->at == 0) {
		uint64_t now = balance_now(b);
		if (now - w->pass_ns < PASS_NS)
			return;
		pass_begin(b, now);
	}
	end = fresh - w->at < AT_ONCE ? fresh : w->at + AT_ONCE;
	for (uint32_t id = w->at; id < end; id++)
		watch_service(b, id);
	w->at = end < fresh ? end : 0;
}
