// SPDX-License-Identifier: Apache-2.0
/* steelyard-cookies: what a SYN from a forged source costs a worker whose service has the SYN
 * defence, on one core and without a device: it is answered by a cookie (fnat, nat) or a challenge
 * (dr, ipip). And what an access list adds, whose rule names a set of so many random addresses: to
 * these SYNs, or to SYNs that begin sessions. The forwarder's own loop and stages run; injector.h
 * supplies the SYNs, and its own time is subtracted. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include <sy_tcp_segment.h>

#include "access.h"
#include "address_ranges.h"
#include "bench_options.h"
#include "fixture.h"
#include "measure.h"

#define MAX_RUNS 1000
#define SOURCES  65536u /* SYNs in the stream, each from an address of its own */
#define ROOM     (8 * SOURCES)
#define EXPIRY_S 600 /* within which a session without an answer has gone */

struct arguments {
	struct fixture_options fixture;
	const char *mode, *family;
	unsigned runs, entries;
	bool create, empty_list;
	uint64_t packets; /* per run */
};

struct bench {
	struct arguments a;
	struct fixture fixture;
	struct injector_stream syns;
	/* The table of ranges is put under the published list: by messages, a set would have to be
	 * configured in many small ones. */
	struct access *access;
	const struct address_ranges *configured;
	struct address_ranges *ranges;
	uint64_t random;
	uint64_t fresh; /* SYNs whose sources have no session */
};

/* By enum mode. */
static const char *const mode_name[] = {"", "fnat", "dr", "nat", "ipip"};

static void die(const char *why)
{
	fprintf(stderr, "steelyard-cookies: %s\n", why);
	exit(1);
}

static void arguments_parse(struct arguments *a, int argc, char **argv)
{
	const struct option_entry options[] = {
	        {"mode", "fnat|nat|dr|ipip", OPTION_WORD, &a->mode, 0, 0, NULL},
	        {"family", "4|6", OPTION_WORD, &a->family, 0, 0, "of clients and servers"},
	        {"entries", "N", OPTION_UNSIGNED, &a->entries, 0, 1 << 24,
	         "of the set that the access list names"},
	        {"empty-list", NULL, OPTION_FLAG, &a->empty_list, 0, 0,
	         "an access list is measured also if its set has no entries"},
	        {"ports", NULL, OPTION_FLAG, &a->fixture.list_ports, 0, 0,
	         "the list's rule names ports too, so rte_acl decides"},
	        {"rules", "N", OPTION_UNSIGNED, &a->fixture.list_rules, 0, FIXTURE_RULES,
	         "before it, each of a prefix and a port"},
	        {"create", NULL, OPTION_FLAG, &a->create, 0, 0,
	         "the service has no SYN defence, and each SYN creates a session"},
	        {"runs", "N", OPTION_UNSIGNED, &a->runs, 1, MAX_RUNS, NULL},
	        {"packets", "N", OPTION_COUNT, &a->packets, SY_BURST, SOURCES, "of a run"},
	        FIXTURE_DIRECTORY(a->fixture),
	};
	OPTIONS_TAKE(
	        argc, argv,
	        "Nanoseconds that answering a SYN costs, by a cookie or a challenge, and asking "
	        "an access list.",
	        options);
	for (unsigned mode = MODE_FNAT; mode < SY_ARRAY_LEN(mode_name); mode++)
		if (strcmp(mode_name[mode], a->mode) == 0)
			a->fixture.mode = (enum mode)mode;
	a->fixture.client_v6 = a->fixture.server_v6 = *a->family == '6';
	a->fixture.tcp = true;
	a->fixture.defended = !a->create;
	a->fixture.room = a->create ? ROOM : 0;
	a->fixture.listed = a->entries || a->empty_list;
}

/* ---- forged SYNs ----------------------------------------------------------------------------- */

/* 64.0.0.0/3 or 2400::/8: the sources of steelyard-attack. */
static struct sy_addr random_source(struct bench *b)
{
	uint64_t one = measure_random(&b->random), other = measure_random(&b->random);
	if (!b->a.fixture.client_v6)
		return sy_addr_v4(htonl(0x40000000u | ((uint32_t)one & 0x1fffffff)));
	struct sy_addr a = {.d = {one, other}};
	a.b[0] = 0x24;
	return a;
}

/* What a client's kernel offers. */
static void syns_make(struct bench *b)
{
	static const uint8_t peer[6] = {2, 0, 0, 0, 9, 9};
	uint8_t frame[128];
	for (unsigned n = 0; n < SOURCES; n++) {
		const struct sy_tuple t = {
		        random_source(b), b->fixture.service.vip,
		        htons((uint16_t)(1024 + measure_random(&b->random) % 64512)),
		        b->fixture.service.vport, SY_PROTO_TCP};
		const struct sy_tcp_segment s = {
		        .seq = (uint32_t)measure_random(&b->random),
		        .flags = SY_TCP_SYN,
		        .window = 64240,
		        .options = {.mss = 1460,
		                    .scale = 7,
		                    .sack = true,
		                    .timestamps = true,
		                    .time = (uint32_t)measure_random(&b->random)}};
		memcpy(frame, harness_mac[HARNESS_WAN], 6);
		memcpy(frame + 6, peer, 6);
		uint32_t len = sy_tcp_segment_make(frame, sizeof(frame), &t, &s);
		if (n == 0 && !injector_stream_open(&b->syns, SOURCES, len))
			die("no memory for the SYNs");
		memcpy(injector_frame(&b->syns, n), frame, len);
	}
}

/* ---- the access list ------------------------------------------------------------------------- */

static int prefix_compare(const void *one, const void *other)
{
	return memcmp(one, other, sizeof(struct sy_addr));
}

/* Random hosts among the flood's sources, so few look-ups end early. */
static void set_make(struct bench *b)
{
	struct sy_prefix *prefix = calloc(b->a.entries, sizeof(*prefix));
	uint32_t count = 0;
	if (!prefix)
		die("no memory");
	for (unsigned i = 0; i < b->a.entries; i++)
		prefix[i] = (struct sy_prefix){random_source(b), b->a.fixture.client_v6 ? 128 : 32};
	qsort(prefix, b->a.entries, sizeof(*prefix), prefix_compare);
	for (unsigned i = 0; i < b->a.entries; i++)
		if (count == 0 || prefix_compare(&prefix[i], &prefix[count - 1]) != 0)
			prefix[count++] = prefix[i];
	const struct prefix_list list = {prefix, count};
	if (address_ranges_build(&list, 1, &b->ranges) < 0)
		die("no memory for the set");
	free(prefix);
	b->access = (struct access *)(uintptr_t)b->fixture.harness.b->access;
	b->configured = b->access->ranges;
	b->access->ranges = b->ranges;
}

static void list_use(struct bench *b, bool used)
{
	b->fixture.harness.b->access = used ? b->access : NULL;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static uint64_t answered(const struct bench *b)
{
	return b->fixture.injector.queue[b->a.create ? HARNESS_LAN : HARNESS_WAN][0].sent;
}

/* Ends the sessions before SYNs of the same sources would follow. */
static void sessions_expire(struct bench *b)
{
	for (unsigned s = 0; harness_totals(&b->fixture.harness).live > 0; s += 10) {
		if (s > EXPIRY_S)
			die("sessions did not end");
		harness_advance(&b->fixture.harness, UINT64_C(10000000000));
	}
	b->fresh = SOURCES;
}

static double run_ns(struct bench *b, bool empty)
{
	if (b->a.create && b->fresh < b->a.packets)
		sessions_expire(b);
	b->fresh -= b->a.packets;
	injector_give(&b->fixture.injector, HARNESS_WAN, 0, &b->syns, b->a.packets);
	uint64_t before = answered(b), start = rte_rdtsc();
	if (empty)
		injector_run_empty(&b->fixture.injector);
	else
		while (harness_poll_worker(&b->fixture.harness, 0))
			;
	double ns = measure_ns(rte_rdtsc() - start) / (double)b->a.packets;
	/* a few sources are members of the set, and are dropped */
	if (!empty && answered(b) - before < b->a.packets - b->a.packets / 100)
		die("SYNs were not answered");
	return ns;
}

/* Does the list need rte_acl? */
static bool is_by_acl(const struct bench *b)
{
	return b->a.fixture.list_ports || b->a.fixture.list_rules;
}

static void report(const struct bench *b, const char *metric, const char *unit, double value)
{
	char params[200];
	const bool one_way = fixture_is_one_way(&b->fixture);
	const char *answer = b->a.create ? "session" : one_way ? "challenge" : "cookie";
	char rules[24] = "";
	if (is_by_acl(b))
		snprintf(rules, sizeof(rules), ", \"rules\": %u", b->a.fixture.list_rules + 1);
	snprintf(params, sizeof(params),
	         "\"answer\": \"%s\", \"mode\": \"%s\", \"family\": \"%s\", \"entries\": %u%s",
	         answer, b->a.mode, b->a.family, b->a.entries, rules);
	const struct measure m = {"attack", params, metric, unit, NULL};
	measure_report(&m, value, NULL, 0);
}

/* Runs are short, so that few contain the time of other programs. */
static void measure(struct bench *b)
{
	static double empty[MAX_RUNS], plain[MAX_RUNS], added[MAX_RUNS];
	const bool listed = b->a.fixture.listed;
	list_use(b, false);
	run_ns(b, false); /* warms up caches and page tables */
	for (unsigned i = 0; i < b->a.runs; i++) {
		double with[2] = {0, 0};
		empty[i] = run_ns(b, true);
		for (unsigned k = 0; k < (listed ? 2 : 1); k++) {
			const bool used = listed && (i + k) % 2 != 0; /* either comes first */
			list_use(b, used);
			with[used] = run_ns(b, false);
		}
		plain[i] = with[0];
		added[i] = with[1] - with[0];
	}
	list_use(b, false);
	double injection = measure_median(empty, b->a.runs);
	for (unsigned i = 0; i < b->a.runs && !listed; i++)
		report(b, "answering a SYN", "ns", plain[i] - injection);
	if (!listed)
		report(b, "answers", "SYN/s", 1e9 / (measure_median(plain, b->a.runs) - injection));
	double list = measure_median(added, b->a.runs);
	if (listed) /* noise may make it negative */
		report(b, is_by_acl(b) ? "asking a list by rte_acl" : "asking a list", "ns",
		       list > 0 ? list : 0);
}

int main(int argc, char **argv)
{
	static struct bench b;
	b.random = 1;
	b.a = (struct arguments){.fixture = fixture_defaults(0),
	                         .mode = "fnat",
	                         .family = "4",
	                         .runs = 1000,
	                         .packets = 1280};
	arguments_parse(&b.a, argc, argv);
	if (!fixture_open(&b.fixture, &b.a.fixture))
		return 1;
	syns_make(&b);
	if (b.a.fixture.listed)
		set_make(&b);
	measure(&b);
	if (b.a.fixture.listed) {
		b.access->ranges = b.configured;
		list_use(&b, true);
		address_ranges_free(b.ranges);
	}
	injector_stream_close(&b.syns);
	fixture_close(&b.fixture);
	return 0;
}
