// SPDX-License-Identifier: Apache-2.0
/* steelyard-shaping: a shaped port's rates, the delay of its highest class, and the cost of a
 * packet, in real time. One thread enqueues and dequeues, like the worker that owns the port. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_sched.h>

#include <sy_shape.h>

#include "bench_options.h"
#include "event_eal.h"
#include "measure.h"

#define SECOND  UINT64_C(1000000000)
#define LEN     1500 /* bytes of a frame, with what the line adds */
#define BURST   32u
#define BUFFERS 65535u
#define SAMPLES (1u << 20)
#define CLASSES 4u
#define EF      46u

struct arguments {
	const char *experiment;
	unsigned services, runs, packets, milliseconds;
	uint64_t rate, seed;
	bool rates;
};

static struct rte_mempool *pool;
static uint64_t random_state;

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "steelyard-shaping: no memory\n");
		exit(EXIT_FAILURE);
	}
	return p;
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* Tenants of eight services each, and four classes; the first, of EF, has priority. */
static struct sy_shape_config *config_make(unsigned services, uint64_t rate, uint64_t burst)
{
	struct sy_shape_config *c = must(calloc(1, sizeof(*c)));
	c->rate = rate;
	c->burst = burst;
	c->classes = CLASSES;
	c->services = services;
	c->tenants = (services + 7) / 8;
	c->tenant = must(calloc(c->tenants, sizeof(*c->tenant)));
	c->service = must(calloc(c->services, sizeof(*c->service)));
	for (unsigned i = 0; i < CLASSES; i++) {
		c->class[i] = (struct sy_shape_class){
		        .priority = i ? 7 : 0, .weight = (uint8_t)(i + 1), .queue = 64};
		snprintf(c->class[i].name, sizeof(c->class[i].name), "%u", i);
		c->class_of[i * 8] = (uint8_t)i;
	}
	c->class_of[0] = CLASSES - 1;
	c->class_of[EF] = 0;
	for (unsigned i = 0; i < c->tenants; i++)
		c->tenant[i] = (struct sy_shape_branch){.weight = 1, .class = SY_SHAPE_BY_DSCP};
	for (unsigned i = 0; i < services; i++)
		c->service[i] = (struct sy_shape_branch){
		        .weight = 1, .class = SY_SHAPE_BY_DSCP, .tenant = (uint16_t)(i / 8)};
	return c;
}

static void config_free(struct sy_shape_config *c)
{
	free(c->tenant);
	free(c->service);
	free(c);
}

static struct sy_shape *tree_make(const struct sy_shape_config *c)
{
	struct sy_shape *s;
	struct sy_error err;
	if (sy_shape_create(c, BUFFERS / 2, now_ns(), &s, &err) < 0) {
		fprintf(stderr, "steelyard-shaping: %s\n", err.text);
		exit(EXIT_FAILURE);
	}
	return s;
}

/* What a packet is, and when it came: where its payload would be. */
struct note {
	uint32_t service, class;
	uint64_t came_ns;
};

static struct note *note_of(struct rte_mbuf *m)
{
	return (struct note *)(rte_pktmbuf_mtod(m, uint8_t *) + 64);
}

static struct rte_mbuf *packet_make(unsigned service, unsigned class, unsigned len)
{
	struct rte_mbuf *m = must(rte_pktmbuf_alloc(pool));
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	memset(frame, 0, 16);
	frame[12] = 0x08;
	frame[14] = 0x45;
	frame[15] = (uint8_t)((class ? class * 8 : EF) << 2);
	m->data_len = 64;
	m->pkt_len = len;
	*note_of(m) = (struct note){service, class, 0};
	return m;
}

static bool packet_put(struct sy_shape *s, unsigned service, unsigned class, uint64_t now)
{
	struct rte_mbuf *m = packet_make(service, class, LEN);
	note_of(m)->came_ns = now;
	if (sy_shape_put(s, m, service, now) == SY_DROP_NONE)
		return true;
	rte_pktmbuf_free(m);
	return false;
}

/* ---- rates ----------------------------------------------------------------------------------- */

enum wanted { PORT, TENANT, SERVICE, CLASS, GUARANTEED, WANTED };
static const char *const wanted_name[WANTED] = {"port", "tenant", "service", "class", "guaranteed"};

/* All queues are full. Shares of the port's rate: tenant 0 has a maximum of 6 %, its service 0 of
 * 0.6 %, the third class of each service of 0.2 %; tenant 1 is guaranteed 40 %. */
static void rates_run(const struct arguments *a)
{
	struct sy_shape_config *c = config_make(64, a->rate, a->rate / 8 / 50);
	c->tenant[0].maximum = a->rate / 100 * 6;
	c->service[0].maximum = a->rate / 1000 * 6;
	c->class[3].maximum = a->rate / 1000 * 2;
	c->tenant[1].guaranteed = a->rate / 10 * 4;
	struct sy_shape *s = tree_make(c);
	double bytes[WANTED] = {0};
	static uint64_t sent[64][CLASSES];
	uint64_t begin = now_ns(), warm = begin + SECOND / 4, now;
	unsigned filled = 0;
	memset(sent, 0, sizeof(sent));
	while ((now = now_ns()) < warm + a->milliseconds * UINT64_C(1000000)) {
		struct rte_mbuf *m[BURST];
		for (unsigned tries = 0; tries < 8; tries++, filled++)
			while (packet_put(s, filled / 3 % 64, 1 + filled % 3, now))
				;
		unsigned n = sy_shape_dequeue(s, m, BURST, now);
		for (unsigned i = 0; i < n; i++) {
			const struct note *note = note_of(m[i]);
			sent[note->service][note->class] += now >= warm ? LEN : 0;
			rte_pktmbuf_free(m[i]);
		}
	}
	const double seconds = (double)(now - warm) / 1e9;
	for (unsigned i = 0; i < 64; i++)
		for (unsigned k = 0; k < CLASSES; k++) {
			bytes[PORT] += sent[i][k];
			bytes[TENANT] += i < 8 ? sent[i][k] : 0;
			bytes[SERVICE] += i == 0 ? sent[i][k] : 0;
			bytes[CLASS] += i == 0 && k == 3 ? sent[i][k] : 0;
			bytes[GUARANTEED] += i / 8 == 1 ? sent[i][k] : 0;
		}
	/* 54 % are left for seven tenants, one of which is tenant 1. */
	static const double share[WANTED] = {1, 0.06, 0.006, 0.002, 0.4 + 0.54 / 7};
	for (unsigned i = 0; i < WANTED; i++) {
		char params[64];
		snprintf(params, sizeof(params), "\"level\": \"%s\"", wanted_name[i]);
		const struct measure m = {"shaping", params, "error of a rate", "%", NULL};
		measure_report(
		        &m, fabs(bytes[i] * 8 / seconds / ((double)a->rate * share[i]) - 1) * 100,
		        NULL, 0);
	}
	sy_shape_destroy(s);
	config_free(c);
}

/* ---- delay ----------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct delays {
	double p50, p99;
	unsigned count;
};

/* The high class sends a tenth of the rate, at random times, in all services; a packet's delay ends
 * when its last bit has left. flood: all other queues are always full. */
static struct delays delay_run(const struct arguments *a, bool flood)
{
	struct sy_shape_config *c = config_make(a->services, a->rate, 4096);
	struct sy_shape *s = tree_make(c);
	double *delay = must(calloc(SAMPLES, sizeof(*delay)));
	const double own = LEN * 8e9 / (double)a->rate, gap = 10 * own;
	unsigned count = 0, filled = 0;
	uint64_t now = now_ns(), due = now, end = now + a->milliseconds * UINT64_C(1000000);
	while ((now = now_ns()) < end) {
		struct rte_mbuf *m[BURST];
		if (now >= due) {
			const double u = (double)(measure_random(&random_state) >> 11) / 0x1p53;
			packet_put(s, (unsigned)(measure_random(&random_state) % a->services), 0,
			           now);
			due = now + (uint64_t)(-log1p(-u) * gap);
		}
		for (unsigned tries = 0; flood && tries < 4; tries++, filled++)
			while (packet_put(s, filled / 3 % a->services, 1 + filled % 3, now))
				;
		now = now_ns();
		unsigned n = sy_shape_dequeue(s, m, BURST, now);
		for (unsigned i = 0; i < n; i++) {
			const struct note *note = note_of(m[i]);
			if (note->class == 0 && count < SAMPLES)
				delay[count++] = (double)(now - note->came_ns) + own;
			rte_pktmbuf_free(m[i]);
		}
	}
	qsort(delay, count, sizeof(*delay), compare);
	const struct delays d = {delay[count / 2], delay[count * 99 / 100], count};
	free(delay);
	sy_shape_destroy(s);
	config_free(c);
	return d;
}

static void delay_perform(const struct arguments *a)
{
	char params[96], evidence[64];
	snprintf(params, sizeof(params), "\"rate\": \"%" PRIu64 " Mbit/s\", \"services\": %u",
	         a->rate / 1000000, a->services);
	for (unsigned run = 0; run < a->runs; run++) {
		struct delays alone = delay_run(a, false), beside = delay_run(a, true);
		snprintf(evidence, sizeof(evidence), "\"packets\": %u", beside.count);
		const struct measure p50 = {"shaping", params, "delay of the high class, median",
		                            "µs", evidence},
		                     p99 = {"shaping", params,
		                            "delay of the high class, 99th percentile", "µs",
		                            evidence};
		measure_report(&p50, beside.p50 / 1e3, "alone", alone.p50 / 1e3);
		measure_report(&p99, beside.p99 / 1e3, "alone", alone.p99 / 1e3);
	}
}

/* ---- cost ------------------------------------------------------------------------------------ */

static struct rte_sched_port *sched_make(unsigned services)
{
	struct rte_sched_subport_profile_params subport = {
	        .tb_rate = UINT64_C(12500000000), .tb_size = 100000000, .tc_period = 10};
	static struct rte_sched_pipe_params pipe = {.tb_rate = UINT64_C(12500000000),
	                                            .tb_size = 100000000,
	                                            .tc_period = 10,
	                                            .tc_ov_weight = 1};
	unsigned pipes = 1;
	while (pipes < services)
		pipes *= 2;
	struct rte_sched_subport_params of = {.n_pipes_per_subport_enabled = pipes,
	                                      .pipe_profiles = &pipe,
	                                      .n_pipe_profiles = 1,
	                                      .n_max_pipe_profiles = 1};
	for (unsigned i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++) {
		subport.tc_rate[i] = pipe.tc_rate[i] = UINT64_C(12500000000);
		of.qsize[i] = 64;
	}
	for (unsigned i = 0; i < RTE_SCHED_BE_QUEUES_PER_PIPE; i++)
		pipe.wrr_weights[i] = 1;
	struct rte_sched_port_params port = {.name = "bench",
	                                     .rate = UINT64_C(12500000000),
	                                     .mtu = 1522,
	                                     .n_subports_per_port = 1,
	                                     .subport_profiles = &subport,
	                                     .n_subport_profiles = 1,
	                                     .n_max_subport_profiles = 1,
	                                     .n_pipes_per_subport = pipes};
	struct rte_sched_port *s = must(rte_sched_port_config(&port));
	int rc = rte_sched_subport_config(s, 0, &of, 0);
	for (unsigned i = 0; i < pipes && rc == 0; i++)
		rc = rte_sched_pipe_config(s, 0, i, 0);
	return rc == 0 ? s : must(NULL);
}

/* Nanoseconds of a packet that is put and taken, in bursts, through s or sched, or neither. */
static double cost_run(const struct arguments *a, struct sy_shape *s, struct rte_sched_port *sched)
{
	uint64_t cycles = 0, packets = 0;
	for (unsigned done = 0; done < a->packets; done += BURST) {
		struct rte_mbuf *m[BURST], *out[BURST];
		for (unsigned i = 0; i < BURST; i++) {
			const uint64_t r = measure_random(&random_state);
			const unsigned service = (unsigned)(r % a->services), class = r >> 32 & 3;
			m[i] = packet_make(service, class, LEN);
			if (sched)
				rte_sched_port_pkt_write(sched, m[i], 0, service,
				                         class ? RTE_SCHED_TRAFFIC_CLASS_BE : 0,
				                         class ? class - 1 : 0, RTE_COLOR_GREEN);
		}
		const uint64_t begin = rte_rdtsc();
		unsigned taken = 0;
		if (sched) {
			rte_sched_port_enqueue(sched, m, BURST);
			for (unsigned tries = 0; tries < 64 && taken < BURST; tries++)
				taken += (unsigned)rte_sched_port_dequeue(sched, out + taken,
				                                          BURST - taken);
		} else {
			const uint64_t now = now_ns();
			for (unsigned i = 0; i < BURST; i++)
				if (sy_shape_put(s, m[i], note_of(m[i])->service, now) !=
				    SY_DROP_NONE)
					must(NULL);
			taken = sy_shape_dequeue(s, out, BURST, now);
		}
		cycles += rte_rdtsc() - begin;
		packets += taken;
		for (unsigned i = 0; i < taken; i++)
			rte_pktmbuf_free(out[i]);
	}
	return measure_ns(cycles) / (double)(packets ? packets : 1);
}

static void cost_perform(const struct arguments *a)
{
	char params[96];
	snprintf(params, sizeof(params), "\"services\": %u, \"rates\": %s", a->services,
	         a->rates ? "\"all\"" : "\"port\"");
	const struct measure m = {"shaping", params, "cost", "ns/packet", NULL};
	struct sy_shape_config *c = config_make(a->services, SY_SHAPE_RATE_MAX, SECOND);
	for (unsigned i = 0; a->rates && i < c->tenants; i++)
		c->tenant[i].guaranteed = c->tenant[i].maximum = SY_SHAPE_RATE_MAX;
	for (unsigned i = 0; a->rates && i < c->services; i++)
		c->service[i].guaranteed = c->service[i].maximum = SY_SHAPE_RATE_MAX;
	struct sy_shape *s = tree_make(c);
	struct rte_sched_port *sched = sched_make(a->services);
	cost_run(a, s, NULL); /* warms up */
	cost_run(a, NULL, sched);
	for (unsigned run = 0; run < a->runs; run++) {
		const double ours = cost_run(a, s, NULL);
		measure_report(&m, ours, "rte_sched", cost_run(a, NULL, sched));
	}
	rte_sched_port_free(sched);
	sy_shape_destroy(s);
	config_free(c);
}

int main(int argc, char **argv)
{
	struct arguments a = {.experiment = "delay",
	                      .services = 8,
	                      .runs = 5,
	                      .packets = 1u << 16,
	                      .milliseconds = 1000,
	                      .rate = SECOND,
	                      .seed = 1};
	const struct option_entry options[] = {
	        {"experiment", "rate|delay|cost", OPTION_WORD, &a.experiment, 0, 0, NULL},
	        {"services", "N", OPTION_UNSIGNED, &a.services, 1, SY_SHAPE_SERVICES,
	         "in tenants of eight; for delay and cost"},
	        {"rate", "BITS/S", OPTION_COUNT, &a.rate, 1e6, 4e11, "of the port, not for cost"},
	        {"milliseconds", "N", OPTION_UNSIGNED, &a.milliseconds, 0, 0,
	         "of a run, not for cost"},
	        {"packets", "N", OPTION_UNSIGNED, &a.packets, BURST, 1e9, "of a run, for cost"},
	        {"rates", NULL, OPTION_FLAG, &a.rates, 0, 0,
	         "tenants and services have guaranteed and maximum rates, for cost"},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 0, 0, NULL},
	        {"seed", "N", OPTION_COUNT, &a.seed, 0, 0, NULL},
	};
	OPTIONS_TAKE(argc, argv,
	             "The rates of a shaped port, the delay of its highest class and the cost of a "
	             "packet, in real time.",
	             options);
	event_eal_start();
	random_state = a.seed;
	pool = must(rte_pktmbuf_pool_create("bench", BUFFERS, 256, 0, RTE_PKTMBUF_HEADROOM + 128,
	                                    SOCKET_ID_ANY));
	for (unsigned run = 0; strcmp(a.experiment, "rate") == 0 && run < a.runs; run++)
		rates_run(&a);
	if (strcmp(a.experiment, "delay") == 0)
		delay_perform(&a);
	if (strcmp(a.experiment, "cost") == 0)
		cost_perform(&a);
	return 0;
}
