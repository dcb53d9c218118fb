// SPDX-License-Identifier: Apache-2.0
/* steelyard-access: in which named sets is an address, and what does the answer cost? A set of
 * random prefixes is built as the table of ranges and as what DPDK has for it (rte_fib or rte_fib6,
 * rte_hash by length); random addresses, some of them in the set, are looked up in bursts. Reported
 * as nanoseconds per address, bytes, and seconds to build. Every look-up's answer is verified
 * against the table of ranges. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>

#include "address_ranges.h"
#include "bench_options.h"
#include "measure.h"

#define ADDRESSES 65536u /* looked up in a run; a power of two */

struct arguments {
	unsigned entries, hits, burst, runs, family, length, memory;
	uint64_t seed;
	bool no_fib;
};

struct bench {
	struct arguments a;
	struct sy_prefix *prefix;
	uint32_t prefixes;
	struct sy_addr *addr; /* [ADDRESSES] */
	uint32_t *v4;         /* the same, host order, as rte_fib wants them */
	uint8_t (*v6)[16];
	bool *expect;
	uint64_t random;
	struct address_ranges *ranges;
	struct rte_fib *fib;
	struct rte_fib6 *fib6;
	struct rte_hash *hash;
};

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *why)
{
	fprintf(stderr, "steelyard-access: %s\n", why);
	exit(1);
}

/* ---- the set --------------------------------------------------------------------------------- */

static struct sy_addr random_host(struct bench *b)
{
	uint64_t one = measure_random(&b->random), other = measure_random(&b->random);
	if (b->a.family == 4)
		return sy_addr_v4(htonl((uint32_t)one % 0xe0000000u));
	struct sy_addr a = {.d = {one, other}};
	a.w[0] = htonl(0x20000000u | (uint32_t)(one % 50000) << 8);
	return a;
}

static void address_mask(struct sy_addr *a, unsigned bits)
{
	for (unsigned bit = bits; bit < 128; bit++)
		a->b[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
}

static int prefix_compare(const void *one, const void *other)
{
	return memcmp(one, other, sizeof(struct sy_addr));
}

static void set_make(struct bench *b)
{
	b->prefix = calloc(b->a.entries + 1, sizeof(*b->prefix));
	if (!b->prefix)
		die("no memory");
	for (uint32_t i = 0; i < b->a.entries; i++) {
		b->prefix[i] =
		        (struct sy_prefix){.addr = random_host(b), .bits = (uint8_t)b->a.length};
		address_mask(&b->prefix[i].addr, b->a.length + (b->a.family == 4 ? 96 : 0));
	}
	qsort(b->prefix, b->a.entries, sizeof(*b->prefix), prefix_compare);
	for (uint32_t i = 0; i < b->a.entries; i++)
		if (i == 0 || prefix_compare(&b->prefix[i], &b->prefix[b->prefixes - 1]) != 0)
			b->prefix[b->prefixes++] = b->prefix[i];
}

static void addresses_make(struct bench *b)
{
	b->addr = calloc(ADDRESSES, sizeof(*b->addr));
	b->v4 = calloc(ADDRESSES, sizeof(*b->v4));
	b->v6 = calloc(ADDRESSES, sizeof(*b->v6));
	b->expect = calloc(ADDRESSES, sizeof(*b->expect));
	if (!b->addr || !b->v4 || !b->v6 || !b->expect)
		die("no memory");
	for (unsigned i = 0; i < ADDRESSES; i++) {
		struct sy_addr a = random_host(b);
		if (b->prefixes && measure_random(&b->random) % 100 < b->a.hits) {
			const struct sy_prefix *p =
			        &b->prefix[measure_random(&b->random) % b->prefixes];
			struct sy_addr host = a;
			address_mask(&a, 0);
			for (unsigned bit = 0; bit < 128; bit++) {
				bool net = bit < p->bits + (b->a.family == 4 ? 96u : 0u);
				const uint8_t *from = net ? p->addr.b : host.b;
				a.b[bit / 8] |= from[bit / 8] & (uint8_t)(0x80 >> bit % 8);
			}
		}
		b->addr[i] = a;
		b->v4[i] = ntohl(a.w[3]);
		memcpy(b->v6[i], a.b, 16);
	}
}

/* ---- the tables ------------------------------------------------------------------------------ */

static size_t heap_used(void)
{
	struct rte_malloc_socket_stats stats;
	rte_malloc_get_socket_stats(0, &stats);
	return stats.heap_allocsz_bytes;
}

static void ranges_open(struct bench *b)
{
	const struct prefix_list list = {b->prefix, b->prefixes};
	if (address_ranges_build(&list, 1, &b->ranges) < 0)
		die("no memory for the table of ranges");
}

static void ranges_run(const struct bench *b, unsigned at, unsigned n, bool *in)
{
	const struct sy_addr *addr[64] = {0};
	uint32_t sets[64];
	for (unsigned i = 0; i < n; i++)
		addr[i] = &b->addr[at + i];
	address_ranges_find(b->ranges, addr, sets, n);
	for (unsigned i = 0; i < n; i++)
		in[i] = sets[i] != 0;
}

static void fib_open(struct bench *b)
{
	struct rte_fib_conf conf = {.type = RTE_FIB_DIR24_8, .max_routes = (int)b->prefixes + 1};
	conf.dir24_8.nh_sz = RTE_FIB_DIR24_8_4B;
	conf.dir24_8.num_tbl8 = b->prefixes + 256;
	struct rte_fib6_conf conf6 = {.type = RTE_FIB6_TRIE, .max_routes = (int)b->prefixes + 1};
	conf6.trie.nh_sz = RTE_FIB6_TRIE_4B;
	conf6.trie.num_tbl8 = b->prefixes * 5 + 256;
	if (b->a.family == 4)
		b->fib = rte_fib_create("fib", SOCKET_ID_ANY, &conf);
	else
		b->fib6 = rte_fib6_create("fib6", SOCKET_ID_ANY, &conf6);
	if (!b->fib && !b->fib6)
		die("no memory for rte_fib: raise --memory");
	for (uint32_t i = 0; i < b->prefixes; i++) {
		struct sy_prefix *p = &b->prefix[i];
		int rc = b->fib ? rte_fib_add(b->fib, ntohl(p->addr.w[3]), p->bits, 1)
		                : rte_fib6_add(b->fib6, p->addr.b, p->bits, 1);
		if (rc)
			die("rte_fib_add failed");
	}
	if (b->fib)
		rte_fib_select_lookup(b->fib, RTE_FIB_LOOKUP_DEFAULT);
	else
		rte_fib6_select_lookup(b->fib6, RTE_FIB6_LOOKUP_DEFAULT);
}

static void fib_run(const struct bench *b, unsigned at, unsigned n, bool *in)
{
	uint64_t hop[64];
	if (b->fib)
		rte_fib_lookup_bulk(b->fib, b->v4 + at, hop, (int)n);
	else
		rte_fib6_lookup_bulk(b->fib6, b->v6 + at, hop, (int)n);
	for (unsigned i = 0; i < n; i++)
		in[i] = hop[i] != 0;
}

/* All prefixes have one length: the best case. */
static void hash_open(struct bench *b)
{
	const struct rte_hash_parameters params = {
	        .name = "hash",
	        .entries = b->prefixes + b->prefixes / 4 + 64,
	        .key_len = b->a.family == 4 ? 4 : 16,
	        .hash_func = rte_hash_crc,
	        .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF,
	};
	b->hash = rte_hash_create(&params);
	if (!b->hash)
		die("no memory for rte_hash: raise --memory");
	for (uint32_t i = 0; i < b->prefixes; i++) {
		const struct sy_addr *a = &b->prefix[i].addr;
		const void *key = b->a.family == 4 ? (const void *)&a->w[3] : a;
		if (rte_hash_add_key(b->hash, key) < 0)
			die("rte_hash_add_key failed");
	}
}

static void hash_run(const struct bench *b, unsigned at, unsigned n, bool *in)
{
	struct sy_addr masked[64];
	const void *key[64] = {0};
	uint64_t hits = 0;
	void *data[64];
	uint64_t mask[2] = {UINT64_MAX, UINT64_MAX};
	if (b->a.family == 6 && b->a.length < 128) {
		struct sy_addr m;
		memset(&m, 0xff, sizeof(m));
		address_mask(&m, b->a.length);
		mask[0] = m.d[0];
		mask[1] = m.d[1];
	}
	const uint32_t mask4 = b->a.length ? htonl(UINT32_MAX << (32 - b->a.length % 33)) : 0;
	for (unsigned i = 0; i < n; i++) {
		masked[i] = b->addr[at + i];
		if (b->a.family == 4) {
			masked[i].w[3] &= mask4;
			key[i] = &masked[i].w[3];
		} else {
			masked[i].d[0] &= mask[0];
			masked[i].d[1] &= mask[1];
			key[i] = &masked[i];
		}
	}
	rte_hash_lookup_bulk_data(b->hash, key, n, &hits, data);
	for (unsigned i = 0; i < n; i++)
		in[i] = hits >> i & 1;
}

/* ---- measuring ------------------------------------------------------------------------------- */

typedef void (*run_function)(const struct bench *b, unsigned at, unsigned n, bool *in);

static double run(struct bench *b, run_function function, bool verify)
{
	static double ns[ADDRESSES];
	bool in[64];
	unsigned bursts = 0;
	for (unsigned at = 0; at + b->a.burst <= ADDRESSES; at += b->a.burst) {
		uint64_t begin = rte_rdtsc();
		function(b, at, b->a.burst, in);
		ns[bursts++] = measure_ns(rte_rdtsc() - begin);
		for (unsigned i = 0; verify && i < b->a.burst; i++)
			if (in[i] != b->expect[at + i])
				die("two tables give different answers");
	}
	/* The median: some bursts contain the time of other programs. */
	return measure_median(ns, bursts) / b->a.burst;
}

struct table {
	const char *name;
	void (*open)(struct bench *b);
	run_function run;
	size_t bytes;
	double build_s;
	double *ns;
};

int main(int argc, char **argv)
{
	struct bench b = {.a = {.entries = 1000000,
	                        .hits = 10,
	                        .burst = 64,
	                        .runs = 9,
	                        .family = 4,
	                        .length = 0,
	                        .memory = 2048,
	                        .seed = 1}};
	const struct option_entry options[] = {
	        {"entries", "N", OPTION_UNSIGNED, &b.a.entries, 0, 1 << 24, "prefixes of the set"},
	        {"hits", "PERCENT", OPTION_UNSIGNED, &b.a.hits, 0, 100, "addresses in the set"},
	        {"burst", "N", OPTION_UNSIGNED, &b.a.burst, 1, 64, "addresses per look-up"},
	        {"runs", "N", OPTION_UNSIGNED, &b.a.runs, 1, 1000, "the median is reported"},
	        {"family", "4|6", OPTION_UNSIGNED, &b.a.family, 4, 6, "of all addresses"},
	        {"length", "BITS", OPTION_UNSIGNED, &b.a.length, 1, 128,
	         "of all prefixes (32, or 64 for IPv6)"},
	        {"memory", "MB", OPTION_UNSIGNED, &b.a.memory, 1, 1 << 20, "for DPDK's tables"},
	        {"seed", "S", OPTION_COUNT, &b.a.seed, 0, 0, "of the random prefixes"},
	        {"no-fib", NULL, OPTION_FLAG, &b.a.no_fib, 0, 0, "leave rte_fib out"},
	};
	OPTIONS_TAKE(argc, argv,
	             "Looks up random addresses in a set of prefixes: the table of ranges, rte_fib "
	             "and rte_hash.",
	             options);
	char memory[16];
	snprintf(memory, sizeof(memory), "%u", b.a.memory);
	char *eal[] = {"steelyard-access",
	               "--no-shconf",
	               "--no-huge",
	               "--no-pci",
	               "--no-telemetry",
	               "--log-level=error",
	               "-m",
	               memory,
	               "-l",
	               "0",
	               NULL};
	if (rte_eal_init(10, eal) < 0)
		die("EAL does not start");
	b.random = b.a.seed;
	if (b.a.length == 0)
		b.a.length = b.a.family == 4 ? 32 : 64;
	set_make(&b);
	addresses_make(&b);

	double ns[3][1000];
	struct table tables[] = {{"ranges", ranges_open, ranges_run, 0, 0, ns[0]},
	                         {"rte_hash", hash_open, hash_run, 0, 0, ns[1]},
	                         {"rte_fib", fib_open, fib_run, 0, 0, ns[2]}};
	const unsigned count = b.a.no_fib ? 2 : 3;
	for (unsigned t = 0; t < count; t++) {
		size_t before = heap_used();
		double begin = now_s();
		tables[t].open(&b);
		tables[t].build_s = now_s() - begin;
		tables[t].bytes = t == 0 ? address_ranges_bytes(b.ranges) : heap_used() - before;
	}
	for (unsigned at = 0; at < ADDRESSES; at++)
		ranges_run(&b, at, 1, &b.expect[at]);
	for (unsigned r = 0; r < b.a.runs; r++)
		for (unsigned t = 0; t < count; t++)
			ns[t][r] = run(&b, tables[t].run, true);
	for (unsigned t = 0; t < count; t++) {
		char params[160], evidence[80];
		snprintf(params, sizeof(params),
		         "\"table\": \"%s\", \"entries\": %" PRIu32
		         ", \"hits\": %u, \"burst\": %u, \"family\": \"IPv%u\", \"length\": %u",
		         tables[t].name, b.prefixes, b.a.hits, b.a.burst, b.a.family, b.a.length);
		snprintf(evidence, sizeof(evidence), "\"bytes\": %zu, \"build_s\": %.3f",
		         tables[t].bytes, tables[t].build_s);
		const struct measure m = {"access", params, "cost", "ns/address", evidence};
		measure_report(&m, measure_median(ns[t], b.a.runs), NULL, 0);
	}
	return 0;
}
