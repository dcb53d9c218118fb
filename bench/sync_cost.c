// SPDX-License-Identifier: Apache-2.0
/* steelyard-sync: what session synchronisation costs a worker that forwards packets, and what it
 * delivers: bytes on the wire, the delay until a change is acknowledged, the time of a full copy,
 * completeness meanwhile. Two whole forwarders, in two processes (sync_bed.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_cycles.h>

#include "bench_options.h"
#include "measure.h"
#include "sync_traffic.h"

#define CONCURRENT 1000
#define KEPT       10000 /* UDP sessions whose packets fill bursts */
#define SETTLE_MS  20000
#define COPY_MS    120000
#define SAMPLES    (1u << 22)
#define LVS        "LVS' sync daemon, 4.3 M active connections, published"

struct arguments {
	struct sync_bed_options bed;
	const char *measure;
	uint64_t sessions, rate;
	unsigned runs, run_ms, warm_ms;
};

struct cell {
	struct arguments options;
	struct sync_bed bed;
	struct sync_traffic traffic;
	uint64_t random;
};

static void report(const struct cell *c, const char *metric, const char *unit, double value,
                   const char *baseline, double baseline_value, const char *evidence)
{
	const struct arguments *a = &c->options;
	char params[160];
	snprintf(params, sizeof(params),
	         "\"family\": \"%u\", \"sessions\": %" PRIu64 ", \"rate\": %" PRIu64, a->bed.family,
	         a->sessions, a->rate == UINT64_MAX ? 0 : a->rate);
	const struct measure m = {"sync", params, metric, unit, evidence};
	measure_report(&m, value, baseline, baseline_value);
}

/* Of this thread: time of other programs on its core is not counted. */
static double cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Of both nodes, with headers of UDP and IP. */
static uint64_t wire_bytes(const struct cell *c)
{
	return c->bed.bytes + atomic_load(&c->bed.shared->bytes);
}

/* ---- where the time goes --------------------------------------------------------------------- */

/* Cycles in the code of synchronisation. Writer: this thread. */
static struct spent {
	uint64_t change, poll, receive, send; /* send: the part of poll in the kernel */
} spent;

#define WRAP(part, type, name, parameters, arguments)                                              \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		const uint64_t start = rte_rdtsc();                                                \
		type result = __real_##name arguments;                                             \
		spent.part += rte_rdtsc() - start;                                                 \
		return result;                                                                     \
	}
#define WRAP_VOID(part, name, parameters, arguments)                                               \
	void __real_##name parameters;                                                             \
	void __wrap_##name parameters;                                                             \
	void __wrap_##name parameters                                                              \
	{                                                                                          \
		const uint64_t start = rte_rdtsc();                                                \
		__real_##name arguments;                                                           \
		spent.part += rte_rdtsc() - start;                                                 \
	}

WRAP(poll, uint64_t, sync_lane_poll, (struct sync_node * n, unsigned worker, uint64_t now_ns),
     (n, worker, now_ns))
WRAP(receive, bool, peers_receive, (struct peers * p, struct sy_worker *w, bool *more),
     (p, w, more))
WRAP_VOID(change, sync_node_change, (struct sync_node * n, unsigned slot, uint32_t record),
          (n, slot, record))
WRAP_VOID(change, sync_node_end, (struct sync_node * n, unsigned slot, uint32_t record),
          (n, slot, record))
WRAP_VOID(send, peers_send,
          (void *peers, unsigned worker, uint8_t node, const uint8_t *bytes, size_t len),
          (peers, worker, node, bytes, len))

/* ---- the packet path ------------------------------------------------------------------------- */

/* What a worker did, without the ports' own time. */
struct half {
	double ns, packets, connections, all_ns;
	struct spent spent;
};

/* A run of the options' length, longer until one of *counted is complete: a core that others use
 * may be away for all of it. Returns how many are. */
static double counted_run(struct cell *c, const uint64_t *counted)
{
	const uint64_t before = *counted;
	traffic_run(&c->traffic, c->options.run_ms);
	for (unsigned ms = 0; *counted == before && ms < SETTLE_MS; ms++)
		traffic_run(&c->traffic, 1);
	return (double)(*counted - before);
}

static void half_run(struct cell *c, struct half *h)
{
	const struct sync_traffic *t = &c->traffic;
	const uint64_t *completed = &t->endpoints.connections.completed, before = *completed,
	               passed = t->passed, cycles = t->cycles;
	const double start = cpu_ns();
	spent = (struct spent){0};
	counted_run(c, c->options.rate > 0 ? completed : &t->passed);
	const double all = cpu_ns() - start;
	h->all_ns += all;
	h->spent.change += spent.change;
	h->spent.poll += spent.poll;
	h->spent.send += spent.send;
	h->spent.receive += spent.receive;
	h->ns += all - measure_ns(t->cycles - cycles);
	h->packets += (double)(t->passed - passed);
	h->connections += (double)(*completed - before);
}

/* Switches synchronisation; after that, everything is as it stays. */
static bool switch_settled(struct cell *c, bool on)
{
	if (c->options.rate == UINT64_MAX) { /* a copy would never end beside so many changes */
		if (!traffic_finish(&c->traffic))
			return false;
		sync_bed_switch(&c->bed, on);
		traffic_rate(&c->traffic, UINT64_MAX);
		traffic_run(&c->traffic, c->options.warm_ms);
		return true;
	}
	sync_bed_switch(&c->bed, on);
	if (!on || c->options.rate == 0) {
		traffic_run(&c->traffic, c->options.rate ? c->options.warm_ms : 1);
		return true;
	}
	sync_bed_copy(&c->bed); /* of what has begun and ended meanwhile */
	traffic_run(&c->traffic, c->options.warm_ms);
	for (unsigned ms = 0; ms < SETTLE_MS; ms++) {
		bool copies = false;
		for (unsigned slot = 0; slot < SY_SLOTS; slot++)
			copies |=
			        sync_node_log(c->bed.harness.b->sync, slot)->copy != SYNC_COPY_NONE;
		if (!copies)
			return true;
		traffic_run(&c->traffic, 1);
	}
	fprintf(stderr, "the copy does not end\n");
	return false;
}

/* ABBA or BAAB: half[true] is with synchronisation. */
static bool pair_run(struct cell *c, struct half half[2])
{
	bool on = measure_random(&c->random) & 1, ok = true;
	for (unsigned slot = 0; ok && slot < 4; slot++) {
		if (slot != 2)
			on = !on;
		if (slot != 2)
			ok = switch_settled(c, on);
		half_run(c, &half[on]);
	}
	return ok;
}

/* A percentage of the core's time with synchronisation. */
static double share_of(const struct half *h, uint64_t cycles)
{
	return 100 * measure_ns(cycles) / h->all_ns;
}

static void packets_report(const struct cell *c, const struct half *on, const struct half *off)
{
	const bool beside = c->options.rate > 0;
	const struct spent *s = &on->spent;
	char evidence[160];
	report(c, beside ? "packets beside new sessions" : "established packets", "Mpps",
	       on->packets / on->ns * 1e3, "without peers", off->packets / off->ns * 1e3, NULL);
	if (!beside)
		return;
	snprintf(evidence, sizeof(evidence),
	         "\"changes\": %.3f, \"sendto\": %.3f, \"other_sending\": %.3f, "
	         "\"receiving\": %.3f, \"a_second\": %.0f",
	         share_of(on, s->change), share_of(on, s->send), share_of(on, s->poll - s->send),
	         share_of(on, s->receive), on->connections / (2e-3 * c->options.run_ms));
	report(c, "core in the code of synchronisation", "%",
	       share_of(on, s->change + s->poll + s->receive), NULL, 0, evidence);
	report(c, "core in sendto() on loopback, the peer's half of the kernel included", "%",
	       share_of(on, s->send), NULL, 0, NULL);
}

/* Packets of established sessions, beside new connections at the rate, which both halves have. */
static bool measure_packets(struct cell *c)
{
	if (!traffic_sessions(&c->traffic, KEPT))
		return false;
	c->traffic.fills = true;
	traffic_rate(&c->traffic, c->options.rate);
	traffic_run(&c->traffic, c->options.warm_ms);
	for (unsigned run = 0; run < c->options.runs; run++) {
		struct half half[2] = {{0}};
		if (!pair_run(c, half))
			return false;
		packets_report(c, &half[true], &half[false]);
	}
	sync_bed_switch(&c->bed, true);
	return traffic_finish(&c->traffic);
}

/* As many connections as the worker can. */
static bool measure_connections(struct cell *c)
{
	c->options.rate = UINT64_MAX;
	for (unsigned run = 0; run < c->options.runs; run++) {
		struct half half[2] = {{0}};
		if (!pair_run(c, half))
			return false;
		report(c, "connections alone", "ns/connection",
		       half[true].ns / half[true].connections, "without peers",
		       half[false].ns / half[false].connections, NULL);
	}
	sync_bed_switch(&c->bed, true);
	return traffic_finish(&c->traffic);
}

/* ---- bytes on the wire ----------------------------------------------------------------------- */

/* New sessions that stay, at the rate. */
static bool stays_run(struct cell *c)
{
	const uint64_t bytes = wire_bytes(c), from = c->traffic.opened, start = rte_rdtsc();
	const double per_cycle = (double)c->options.rate / (1e9 / measure_ns(1));
	const uint64_t count = 1 + c->options.rate * c->options.run_ms / 1000;
	while (c->traffic.opened - from < count) {
		const double due = (double)(rte_rdtsc() - start) * per_cycle;
		if (due < (double)(c->traffic.opened - from + SY_BURST))
			sync_bed_poll(&c->bed);
		else if (!traffic_sessions(&c->traffic, SY_BURST))
			return false;
	}
	if (!sync_bed_settle(&c->bed, SETTLE_MS))
		return false;
	report(c, "bytes, a new session", "bytes/session",
	       (double)(wire_bytes(c) - bytes) / (double)(c->traffic.opened - from), NULL, 0, NULL);
	return true;
}

static bool measure_bytes(struct cell *c)
{
	for (unsigned run = 0; run < c->options.runs; run++)
		if (!stays_run(c))
			return false;
	traffic_rate(&c->traffic, c->options.rate);
	traffic_run(&c->traffic, c->options.warm_ms);
	for (unsigned run = 0; run < c->options.runs; run++) {
		const uint64_t own = c->bed.bytes, bytes = wire_bytes(c);
		char evidence[64];
		const double n = counted_run(c, &c->traffic.endpoints.connections.completed);
		snprintf(evidence, sizeof(evidence), "\"to_the_peer\": %.1f",
		         (double)(c->bed.bytes - own) / n);
		report(c, "bytes, a connection from handshake to deletion", "bytes/session",
		       (double)(wire_bytes(c) - bytes) / n, NULL, 0, evidence);
	}
	return traffic_finish(&c->traffic);
}

/* ---- delays ---------------------------------------------------------------------------------- */

#define WINDOW_ENTRIES 1024 /* more than fit into a log's window */

/* By slot: entries in the log's window, and when their records had changed. */
static struct delays {
	struct {
		uint32_t number;
		uint64_t since; /* TSC */
	} entry[WINDOW_ENTRIES];
	unsigned first, next;
} delays[SY_SLOTS];

static uint64_t *changed_at; /* by record; NULL: delays are not measured */
static double *sample;
static size_t samples;
static bool (*describe_below)(void *, unsigned, uint32_t, bool, uint8_t[static SYNC_ENTRY],
                              uint64_t *);

void __real_sync_log_change(struct sync_log *log, const struct sync_source *source,
                            uint32_t record);
void __wrap_sync_log_change(struct sync_log *log, const struct sync_source *source,
                            uint32_t record);

static uint64_t *changed_of(unsigned slot, uint32_t record)
{
	return &changed_at[(size_t)slot * SESSION_RECORDS_MAX + record];
}

void __wrap_sync_log_change(struct sync_log *log, const struct sync_source *source, uint32_t record)
{
	uint32_t count;
	if (changed_at && log->slot < SY_SLOTS &&
	    !(source->marks(source->context, log->slot, 0, &count)[record] & SYNC_CHANGED))
		*changed_of(log->slot, record) = rte_rdtsc();
	__real_sync_log_change(log, source, record);
}

static struct sync_node *measured;

static bool describe(void *context, unsigned slot, uint32_t record, bool known,
                     uint8_t entry[static SYNC_ENTRY], uint64_t *hash)
{
	const bool enters = describe_below(context, slot, record, known, entry, hash);
	if (slot >= SY_SLOTS)
		return enters;
	struct delays *d = &delays[slot];
	uint64_t *at = changed_of(slot, record);
	if (enters && *at && d->next - d->first < WINDOW_ENTRIES) {
		d->entry[d->next % WINDOW_ENTRIES].number = measured->log[slot].window.next;
		d->entry[d->next++ % WINDOW_ENTRIES].since = *at;
	}
	*at = 0;
	return enters;
}

static void delays_note(void)
{
	const uint64_t now = rte_rdtsc();
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		struct delays *d = &delays[slot];
		const uint32_t first = measured->log[slot].window.first;
		for (; d->first != d->next &&
		       (int32_t)(first - d->entry[d->first % WINDOW_ENTRIES].number) > 0;
		     d->first++)
			if (samples < SAMPLES)
				sample[samples++] =
				        measure_ns(now - d->entry[d->first % WINDOW_ENTRIES].since);
	}
}

static void delays_run(struct cell *c, unsigned ms)
{
	const uint64_t until = rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;
	samples = 0;
	while (rte_rdtsc() < until) {
		traffic_poll(&c->traffic);
		delays_note();
	}
}

static bool delays_open(struct cell *c)
{
	measured = c->bed.harness.b->sync;
	describe_below = measured->options.source.describe;
	measured->options.source.describe = describe;
	sample = calloc(SAMPLES, sizeof(*sample));
	changed_at =
	        mmap(NULL, (size_t)SY_SLOTS * SESSION_RECORDS_MAX * sizeof(*changed_at),
	             PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sample && changed_at != MAP_FAILED)
		return true;
	fprintf(stderr, "no memory for the delays\n");
	return false;
}

/* From a change at this node to its acknowledgement by the peer: the median while it is idle, a
 * percentile beside a load. */
static bool measure_delay(struct cell *c)
{
	const bool idle = c->options.rate <= 100;
	if (!delays_open(c))
		return false;
	traffic_rate(&c->traffic, c->options.rate);
	delays_run(c, c->options.warm_ms);
	for (unsigned run = 0; run < c->options.runs; run++) {
		char evidence[96];
		delays_run(c, c->options.run_ms);
		if (samples == 0) {
			fprintf(stderr, "no change was acknowledged\n");
			return false;
		}
		const double p50 = measure_median(sample, samples) / 1e6,
		             p99 = sample[samples * 99 / 100] / 1e6;
		snprintf(evidence, sizeof(evidence),
		         "\"changes\": %zu, \"p50_ms\": %.3f, \"p99_ms\": %.3f", samples, p50, p99);
		report(c, idle ? "delay, idle, median" : "delay, 99th percentile", "ms",
		       idle ? p50 : p99, NULL, 0, evidence);
	}
	return traffic_finish(&c->traffic);
}

/* ---- copies, completeness -------------------------------------------------------------------- */

/* How many of them the peer has, so long after the copy began. */
static void series_report(const struct cell *c, uint64_t ms)
{
	const uint64_t there = atomic_load(&c->bed.shared->live);
	char params[128];
	snprintf(params, sizeof(params),
	         "\"family\": \"%u\", \"sessions\": %" PRIu64 ", \"second\": %.1f",
	         c->options.bed.family, c->options.sessions, (double)ms / 1e3);
	const struct measure m = {"sync", params, "sessions at the peer while they are copied", "%",
	                          NULL};
	measure_report(&m, 100 * (double)there / (double)c->options.sessions, NULL, 0);
}

/* Until the peer has all sessions. */
static bool copy_run(struct cell *c)
{
	const uint64_t bytes = wire_bytes(c), cpu = atomic_load(&c->bed.shared->cpu_ns),
	               start_ns = sy_clock_ns();
	const uint64_t step = c->options.sessions > 2000000 ? 1000 : 100;
	char evidence[96];
	spent = (struct spent){0};
	sync_bed_copy(&c->bed);
	for (uint64_t ms = 0, due = step; !sync_bed_is_acknowledged(&c->bed);
	     due += ms >= due ? step : 0) {
		traffic_run(&c->traffic, 1);
		ms = (sy_clock_ns() - start_ns) / 1000000;
		if (ms >= due)
			series_report(c, due);
		if (ms > COPY_MS) {
			fprintf(stderr, "the copy does not end\n");
			return false;
		}
	}
	const double seconds = (double)(sy_clock_ns() - start_ns) / 1e9;
	const double own = 100 * measure_ns(spent.poll + spent.receive) / 1e9 / seconds;
	const double peers = (double)(atomic_load(&c->bed.shared->cpu_ns) - cpu) / 1e7 / seconds;
	sync_bed_run(&c->bed, 200); /* the peer publishes its count */
	const uint64_t there = atomic_load(&c->bed.shared->live);
	if (there != c->options.sessions) {
		fprintf(stderr, "the peer has %" PRIu64 " sessions\n", there);
		return false;
	}
	snprintf(evidence, sizeof(evidence),
	         "\"core_percent\": %.1f, \"core_percent_of_the_peer\": %.1f", own, peers);
	report(c, "full copy", "s", seconds, NULL, 0, evidence);
	report(c, "bytes, a session of a full copy", "bytes/session",
	       (double)(wire_bytes(c) - bytes) / (double)c->options.sessions, NULL, 0, NULL);
	return true;
}

static bool measure_copy(struct cell *c)
{
	sync_bed_switch(&c->bed, false);
	if (!traffic_sessions(&c->traffic, c->options.sessions))
		return false;
	sync_bed_switch(&c->bed, true);
	return copy_run(c); /* once: afterwards the peer would not be empty */
}

/* While connections begin and end: how many of the sessions that the peer is to have it has
 * acknowledged, every 10 ms. At the end: are both tables equal? */
static bool measure_completeness(struct cell *c)
{
	if (!traffic_sessions(&c->traffic, c->options.sessions))
		return false;
	if (!sync_bed_settle(&c->bed, SETTLE_MS))
		return false;
	traffic_rate(&c->traffic, c->options.rate);
	traffic_run(&c->traffic, c->options.warm_ms);
	for (unsigned run = 0; run < c->options.runs; run++) {
		const uint64_t cpu = atomic_load(&c->bed.shared->cpu_ns), start_ns = sy_clock_ns();
		double least = 100, sum = 0;
		unsigned n = 0;
		char evidence[64];
		for (unsigned ms = 0; ms < c->options.run_ms; ms += 10, n++) {
			traffic_run(&c->traffic, 10);
			const double offered = (double)sync_bed_offered(&c->bed),
			             share = 100 -
			                     100 * (double)sync_bed_waiting(&c->bed) / offered;
			least = share < least ? share : least;
			sum += share;
		}
		snprintf(evidence, sizeof(evidence), "\"least\": %.4f", least);
		report(c, "sessions at the peer, acknowledged", "%", sum / n, LVS, 92.8, evidence);
		report(c, "core of the peer", "%",
		       (double)(atomic_load(&c->bed.shared->cpu_ns) - cpu) /
		               (double)(sy_clock_ns() - start_ns) * 100,
		       LVS, 40, NULL);
	}
	if (!traffic_finish(&c->traffic) || !sync_bed_settle(&c->bed, SETTLE_MS))
		return false;
	sync_bed_run(&c->bed, 200);
	const uint64_t there = atomic_load(&c->bed.shared->live);
	if (there == c->options.sessions)
		return true;
	fprintf(stderr, "the peer has %" PRIu64 " sessions\n", there);
	return false;
}

/* ---- the command ----------------------------------------------------------------------------- */

static const struct {
	const char *name;
	bool (*run)(struct cell *c);
} kinds[] = {
        {"packets", measure_packets}, {"connections", measure_connections},
        {"bytes", measure_bytes},     {"delay", measure_delay},
        {"copy", measure_copy},       {"completeness", measure_completeness},
};

static struct arguments arguments_parse(int argc, char **argv)
{
	struct arguments a = {.bed = {.sessions = 4 << 20, .time_wait = 1},
	                      .measure = "packets",
	                      .rate = 100000,
	                      .runs = 7,
	                      .warm_ms = 3000,
	                      .run_ms = 1000};
	const char *family = "4";
	bool none = false;
	const struct option_entry options[] = {
	        {"measure", "packets|connections|bytes|delay|copy|completeness", OPTION_WORD,
	         &a.measure, 0, 0, NULL},
	        {"family", "4|6", OPTION_WORD, &family, 0, 0, NULL},
	        {"rate", "N", OPTION_COUNT, &a.rate, 1, 1000000, "connections begun a second"},
	        {"no-rate", NULL, OPTION_FLAG, &none, 0, 0, "none begin"},
	        {"sessions", "N", OPTION_COUNT, &a.sessions, 0, 0,
	         "UDP sessions that exist, of copy and completeness"},
	        {"table", "N", OPTION_COUNT, &a.bed.sessions, 0, 0,
	         "sessions that each table holds"},
	        {"warm", "MS", OPTION_UNSIGNED, &a.warm_ms, 0, 0, "before runs"},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 0, 0, NULL},
	        {"run", "MS", OPTION_UNSIGNED, &a.run_ms, 0, 0, "length of a run, or of its half"},
	        {"busy", NULL, OPTION_FLAG, &a.bed.busy, 0, 0, "the peer's worker never sleeps"},
	        {"directory", "DIR", OPTION_WORD, &a.bed.store, 0, 0, OPTIONS_DIRECTORY},
	};
	OPTIONS_TAKE(argc, argv,
	             "What session synchronisation costs the packet path, and what it delivers.",
	             options);
	a.bed.family = *family == '6' ? 6 : 4;
	a.rate = none ? 0 : a.rate;
	return a;
}

int main(int argc, char **argv)
{
	static struct cell cell = {.random = 1};
	cell.options = arguments_parse(argc, argv);
	unsigned kind = 0;
	while (strcmp(kinds[kind].name, cell.options.measure) != 0)
		kind++;
	sy_slot_init();
	bool ok = sync_bed_open(&cell.bed, &cell.options.bed) &&
	          traffic_open(&cell.traffic, &cell.bed, CONCURRENT, KEPT) &&
	          kinds[kind].run(&cell);
	traffic_close(&cell.traffic);
	sync_bed_close(&cell.bed);
	return ok ? 0 : 1;
}
