// SPDX-License-Identifier: Apache-2.0
#include "priority_serve.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "rule.h"

/* Writer: the thread that executes orders. Readers: serving threads; relaxed. */
static uint64_t sleep_from_ns;

uint64_t serve_clock(void)
{
	return sy_clock_ns();
}

void serve_sleep(uint64_t ns)
{
	__atomic_store_n(&sleep_from_ns, ns, __ATOMIC_RELAXED);
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

uint64_t serve_busy(uint64_t ns)
{
	uint64_t start = serve_clock(), took = 0;
	uint64_t from = __atomic_load_n(&sleep_from_ns, __ATOMIC_RELAXED);

	if (from && ns >= from) {
		sleep_until(start + ns);
		took = serve_clock() - start;
	}

	while (took < ns) {
		__builtin_ia32_pause();
		took = serve_clock() - start;
	}
	return took;
}

/* Clocks of two programs may differ by the time to read them. */
static uint64_t between(uint64_t from, uint64_t to)
{
	return to > from ? to - from : 0;
}

size_t serve_request(struct serve_class class[static SERVE_CLASSES], const struct request *r,
                     uint8_t answer[static SERVE_ANSWER])
{
	const struct raw_header *h = &r->header;
	struct serve_class *k = &class[h->class < SERVE_CLASSES ? h->class : SERVE_CLASSES - 1];
	uint64_t took;

	if (h->answer > SERVE_ANSWER)
		return 0;
	took = serve_busy(h->service_ns);
	k->requests++;
	k->busy_ns += took;
	if (r->tcp_ns) {
		histogram_add(&k->before_tcp, between(h->number, r->tcp_ns));
		histogram_add(&k->before_application, between(r->tcp_ns, r->read_ns));
	}
	histogram_add(&k->service, took);
	raw_write(answer, &(struct raw_header){.kind = RAW_ANSWER,
	                                       .class = h->class,
	                                       .type = h->type,
	                                       .length = h->answer,
	                                       .service_ns = took,
	                                       .number = h->number});
	memcpy(answer + RAW_HEADER, pattern_from(0), h->answer - RAW_HEADER);
	return h->answer;
}

/* Finds the first complete request. Returns its length; 0: incomplete; -EPROTO. */
static int64_t request_find(const struct sy_tcp_request *t, struct request *r)
{
	struct raw_reader reader = {0};
	int64_t used = 0;

	for (int i = 0; i < t->count; i++)
		for (size_t at = 0; at < t->v[i].iov_len;) {
			enum raw_got got;
			int64_t taken = raw_take(&reader, RAW_REQUEST,
			                         (const uint8_t *)t->v[i].iov_base + at,
			                         t->v[i].iov_len - at, &r->header, &got);
			if (taken < 0)
				return taken;
			at += (size_t)taken;
			used += taken;
			if (got == RAW_MESSAGE_DONE)
				return raw_read(reader.header, &r->header) ? -EPROTO : used;
		}
	return 0;
}

void serve_lent(struct serve_counts *n, struct sy_tcp_request *t)
{
	const struct note *note = t->own;
	struct request r = {.tcp_ns = note ? note->tcp_ns : 0, .read_ns = serve_clock()};
	int64_t used = request_find(t, &r);
	uint8_t *room = sy_tcp_request_buffer(t, SERVE_ANSWER);
	size_t answer = 0;

	if (used > 0 && room)
		answer = serve_request(n->class, &r, room);
	else if (used < 0)
		n->bad++;
	sy_tcp_request_complete(t, used < 0 ? t->len : (size_t)used, answer);
}

static void part_report(FILE *out, const char *name, const struct histogram *h)
{
	fprintf(out, ", \"%s_us\": {\"count\": %lu, \"mean\": %.3f, \"p50\": %.3f, \"p99\": %.3f}",
	        name, h->count, histogram_mean(h) / 1e3, (double)histogram_at(h, 0.5) / 1e3,
	        (double)histogram_at(h, 0.99) / 1e3);
}

void serve_report(FILE *out, const struct serve_counts *n)
{
	fprintf(out, "\"accepted\": %lu, \"closed\": %lu, \"bad\": %lu, \"classes\": [",
	        n->accepted, n->closed, n->bad);
	for (unsigned i = 0; i < SERVE_CLASSES; i++) {
		const struct serve_class *k = &n->class[i];
		fprintf(out, "%s{\"requests\": %lu, \"busy_us\": %.3f", i ? ", " : "", k->requests,
		        (double)k->busy_ns / 1e3);
		part_report(out, "before_tcp", &k->before_tcp);
		part_report(out, "before_application", &k->before_application);
		part_report(out, "service", &k->service);
		fputc('}', out);
	}
	fputc(']', out);
}
