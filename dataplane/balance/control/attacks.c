// SPDX-License-Identifier: Apache-2.0
#include "attacks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "control_plane.h"
#include "model.h"

#define PASS_NS UINT64_C(1000000000)
#define AT_ONCE 1024u /* max services per tick */

static const struct {
	const char *name, *help, *done;
} kinds[] = {
#define X(id, kind_name, kind_help, kind_done) [ATTACK_##id] = {kind_name, kind_help, kind_done},
        ATTACK_KINDS(X)
#undef X
};

const char *attack_kind_name(enum attack_kind kind)
{
	return kinds[kind].name;
}

const char *attack_kind_help(enum attack_kind kind)
{
	return kinds[kind].help;
}

const char *attack_kind_done(enum attack_kind kind)
{
	return kinds[kind].done;
}

int attacks_create(struct sy_balance *b, struct sy_error *err)
{
	struct attacks *a = calloc(1, sizeof(*a));
	b->ctl->attacks = a;
	if (a)
		a->of_service = calloc(b->options.max_services, sizeof(*a->of_service));
	if (!a || !a->of_service)
		return sy_fail(err, ENOMEM, "no memory for what is usual");
	return 0;
}

void attacks_destroy(struct sy_balance *b)
{
	if (b->ctl->attacks)
		free(b->ctl->attacks->of_service);
	free(b->ctl->attacks);
	b->ctl->attacks = NULL;
}

/* ---- counters -------------------------------------------------------------------------------- */

struct service_counts attacks_counts(const struct sy_balance *b, uint32_t service)
{
	struct service_counts sum = {0};
	for (unsigned w = 0; w < b->workers; w++) {
		const struct service_counts *c = &b->worker[w].counts[service];
		sum.begun += SY_READ(c->begun);
		for (unsigned why = 0; why < REFUSALS; why++)
			sum.refused[why] += SY_READ(c->refused[why]);
		sum.answered += SY_READ(c->answered);
		sum.right += SY_READ(c->right);
		sum.wrong += SY_READ(c->wrong);
	}
	return sum;
}

static uint64_t count_drops(const struct sy_balance *b, const enum sy_drop *reason, size_t reasons)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < reasons; i++) {
		for (unsigned w = 0; w < b->workers; w++)
			sum += SY_READ(sy_worker_at(b->rt, w)->counters.drop[reason[i]]);
		sum += sy_port_drops(b->rt, reason[i]);
	}
	return sum;
}

#define COUNT_DROPS(b, ...)                                                                        \
	count_drops(b, (const enum sy_drop[]){__VA_ARGS__},                                        \
	            SY_ARRAY_LEN(((const enum sy_drop[]){__VA_ARGS__})))

static uint64_t count_missed(const struct sy_balance *b)
{
	uint64_t sum = COUNT_DROPS(b, SY_DROP_STEERING_FULL, SY_DROP_NO_BUFFER, SY_DROP_OVERLOAD);
	for (unsigned i = 0; i < sy_port_count(b->rt); i++) {
		struct sy_port_stats stats;
		sy_port_get_stats(b->rt, i, &stats);
		sum += stats.rx_missed;
	}
	return sum;
}

static uint64_t count_total(const struct sy_balance *b, enum attack_kind kind)
{
	switch (kind) {
	case ATTACK_NO_SERVICE:
		return COUNT_DROPS(b, SY_DROP_NO_SERVICE, SY_DROP_UNKNOWN_DESTINATION);
	case ATTACK_FRAGMENTS:
		return COUNT_DROPS(b, SY_DROP_FRAGMENT_TIMEOUT, SY_DROP_FRAGMENT_DUPLICATE,
		                   SY_DROP_FRAGMENT_OVERLAP, SY_DROP_FRAGMENT_WAIT_FULL,
		                   SY_DROP_FRAGMENT_TOO_MANY, SY_DROP_TINY_FRAGMENT,
		                   SY_DROP_BAD_FRAGMENT);
	case ATTACK_ICMP:
		return COUNT_DROPS(b, SY_DROP_ICMP_UNHANDLED, SY_DROP_ICMP_NO_SESSION,
		                   SY_DROP_ICMP_RATE, SY_DROP_ECHO_RATE, SY_DROP_ICMP_FRAGMENT);
	case ATTACK_MALFORMED:
		return COUNT_DROPS(b, SY_DROP_TRUNCATED, SY_DROP_BAD_IP_HEADER,
		                   SY_DROP_BAD_IP_CHECKSUM, SY_DROP_BAD_SOURCE, SY_DROP_OWN_SOURCE,
		                   SY_DROP_LAND, SY_DROP_IP_OPTIONS, SY_DROP_SOURCE_ROUTE,
		                   SY_DROP_ROUTING_HEADER, SY_DROP_BAD_L4_HEADER,
		                   SY_DROP_BAD_TCP_FLAGS, SY_DROP_BAD_L4_CHECKSUM);
	case ATTACK_OVERRUN:
		return count_missed(b);
	default:
		return 0;
	}
}

static uint64_t count_of_service(const struct service_counts *c, uint16_t proto,
                                 enum attack_kind kind)
{
	bool tcp = proto == SY_PROTO_TCP;
	/* Clients that the SYN defence answered either have a session or count here. */
	uint64_t unreturned = c->answered > c->right ? c->answered - c->right : 0;
	if (kind == ATTACK_STRAY_TCP)
		return tcp ? c->refused[REFUSED_NO_SESSION] : 0;
	return tcp == (kind == ATTACK_SYN_FLOOD) ? c->begun + c->refused[REFUSED_FULL] +
	                                                   c->refused[REFUSED_SERVER] + unreturned
	                                         : 0;
}

/* ---- attacks --------------------------------------------------------------------------------- */

static uint64_t unix_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static const char *attack_text(const struct attack *a, char *text, size_t size)
{
	char vip[SY_ADDR_TEXT];
	if (a->service == SERVICE_NONE)
		snprintf(text, size, "%s", attack_kind_name(a->kind));
	else
		snprintf(text, size, "%s at service %s (%s, port %u)", attack_kind_name(a->kind),
		         a->name, sy_addr_format(&a->key.vip, vip), ntohs(a->key.vport));
	return text;
}

/* Returns a free entry, otherwise that of the attack that ended first. NULL: all are in
 * progress. */
static struct attack *attack_alloc(struct attacks *all)
{
	struct attack *oldest = NULL;
	for (unsigned i = 0; i < ATTACKS_KEPT; i++) {
		struct attack *a = &all->attack[i];
		if (a->began_ms == 0)
			return a;
		if (a->ended_ms && (!oldest || a->ended_ms < oldest->ended_ms))
			oldest = a;
	}
	return oldest;
}

static void attack_begin(struct sy_balance *b, struct attack_rate *r, enum attack_kind kind,
                         const struct model_service *s, uint64_t rate)
{
	struct attack *a = attack_alloc(b->ctl->attacks);
	char text[200];
	if (!a) {
		b->ctl->attacks->left_out++;
		return;
	}
	*a = (struct attack){.kind = kind,
	                     .service = s ? s->id : SERVICE_NONE,
	                     .began_ms = unix_ms(),
	                     .packets = rate,
	                     .rate = rate,
	                     .peak = rate,
	                     .usual = (uint64_t)r->usual};
	if (s) {
		a->key = s->key;
		snprintf(a->name, sizeof(a->name), "%s", s->name);
		a->before = attacks_counts(b, s->id);
	}
	r->attack = (uint16_t)(1 + (a - b->ctl->attacks->attack));
	sy_log(SY_LOG_WARN, "attacks",
	       "%s begins: %lu packets/s, usually %lu; see `steelyard get attacks`",
	       attack_text(a, text, sizeof(text)), (unsigned long)rate, (unsigned long)a->usual);
}

static void attack_end(struct sy_balance *b, struct attack_rate *r)
{
	char text[200];
	if (r->attack) {
		struct attack *a = &b->ctl->attacks->attack[r->attack - 1];
		a->ended_ms = unix_ms();
		if (a->service != SERVICE_NONE)
			a->after = attacks_counts(b, a->service);
		sy_log(SY_LOG_INFO, "attacks", "%s is over: %lu packets, at most %lu packets/s",
		       attack_text(a, text, sizeof(text)), (unsigned long)a->packets,
		       (unsigned long)a->peak);
	}
	r->attack = 0;
}

static void rate_update(struct sy_balance *b, struct attack_rate *r, enum attack_kind kind,
                        const struct model_service *s, uint64_t count)
{
	struct attacks *all = b->ctl->attacks;
	uint64_t before = r->last, rate;
	switch (attack_rate_update(r, count, all->elapsed_ns, &rate)) {
	case ATTACK_BEGINS:
		attack_begin(b, r, kind, s, rate);
		return;
	case ATTACK_GOES_ON:
		if (r->attack) {
			struct attack *a = &all->attack[r->attack - 1];
			a->packets += count >= before ? count - before : 0;
			a->rate = rate;
			a->subsided = r->seconds > 0;
			a->peak = rate > a->peak ? rate : a->peak;
		}
		return;
	case ATTACK_ENDS:
		attack_end(b, r);
		return;
	case ATTACK_NONE:
		return;
	}
}

static void service_update(struct sy_balance *b, uint32_t id)
{
	struct attack_rate *r = b->ctl->attacks->of_service[id];
	const struct model_service *s = b->ctl->model->service[id];
	if (!s || s->snat) {
		for (unsigned kind = 0; kind < ATTACK_FIRST_TOTAL; kind++) {
			if (r[kind].samples == 0)
				continue;
			attack_end(b, &r[kind]);
			r[kind] = (struct attack_rate){0};
		}
		return;
	}
	struct service_counts counts = attacks_counts(b, id);
	for (enum attack_kind kind = 0; kind < ATTACK_FIRST_TOTAL; kind++)
		rate_update(b, &r[kind], kind, s, count_of_service(&counts, s->key.proto, kind));
}

void attacks_tick(struct sy_balance *b)
{
	struct attacks *all = b->ctl->attacks;
	uint32_t fresh = b->ctl->model->service_ids.fresh, end;
	if (all->at == 0) {
		uint64_t now = sy_clock_ns();
		if (now - all->pass_ns < PASS_NS)
			return;
		all->elapsed_ns = now - all->pass_ns;
		all->pass_ns = now;
		for (enum attack_kind kind = ATTACK_FIRST_TOTAL; kind < ATTACK_KIND_COUNT; kind++)
			rate_update(b, &all->total[kind], kind, NULL, count_total(b, kind));
	}
	end = fresh - all->at < AT_ONCE ? fresh : all->at + AT_ONCE;
	for (uint32_t id = all->at; id < end; id++)
		service_update(b, id);
	all->at = end < fresh ? end : 0;
}
