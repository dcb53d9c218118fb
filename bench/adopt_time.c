// SPDX-License-Identifier: Apache-2.0
/* steelyard-adopt: the time that a restarted forwarder needs to adopt its sessions. Random FNAT
 * sessions fill a session file, which is left as by a crash, opened again and adopted. Beside each
 * adoption the same threads read the file's bytes once, as a baseline for the machine. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench_options.h"
#include "network.h"

#define RUNS        5
#define THREADS_MAX 256

struct arguments {
	uint64_t sessions;
	unsigned family, threads;
	const char *directory;
	bool json;
};

/* Times in seconds, per run. */
struct result {
	uint64_t found, kept, bytes;
	double open[RUNS], adopt[RUNS], read[RUNS];
};

static double seconds_since(uint64_t start_ns)
{
	return (double)(sy_clock_ns() - start_ns) / 1e9;
}

static int fail(const char *what)
{
	fprintf(stderr, "steelyard-adopt: %s\n", what);
	return 1;
}

/* ---- the baseline: all bytes, once ----------------------------------------------------------- */

struct reader {
	pthread_t thread;
	const uint64_t *from;
	size_t words;
	uint64_t sum;
};

static void *reader_run(void *reader)
{
	struct reader *r = reader;
	uint64_t sum = 0;

	for (size_t i = 0; i < r->words; i++)
		sum += r->from[i];
	r->sum = sum;
	return NULL;
}

static int bytes_read(const char *path, unsigned threads, double *seconds)
{
	struct reader reader[THREADS_MAX];
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) != 0)
		return fail("cannot read the file back");
	size_t size = (size_t)st.st_size;
	const uint64_t *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		return fail("cannot map the file to read it");
	uint64_t start = sy_clock_ns();
	unsigned started = 0;
	for (size_t words = size / sizeof(*bytes), at = 0; started < threads; started++) {
		size_t part = (words - at) / (threads - started);
		reader[started] = (struct reader){.from = bytes + at, .words = part};
		at += part;
		if (pthread_create(&reader[started].thread, NULL, reader_run, &reader[started]))
			break;
	}
	for (unsigned i = 0; i < started; i++)
		pthread_join(reader[i].thread, NULL);
	*seconds = seconds_since(start);
	munmap((void *)(uintptr_t)bytes, size);
	return started == threads ? 0 : fail("cannot start threads");
}

/* ---- the measurement ------------------------------------------------------------------------- */

static int sessions_fill(struct network *n, uint64_t sessions)
{
	struct session_table *t;
	uint32_t record;

	n->seen = (uint16_t)(sy_clock_ns() / 1000000000);
	for (uint64_t live = 0, refused = 0; live < sessions;) {
		switch (network_create(n, &t, &record)) {
		case NETWORK_INSERTED:
			live++;
			break;
		case NETWORK_NO_PORT:
			return fail("no local port is left");
		case NETWORK_FULL: /* this slot is full; others are not */
			if (++refused > sessions)
				return fail("the tables are full");
			break;
		case NETWORK_KNOWN:
			break;
		}
	}
	return 0;
}

static int run_once(const struct session_store_options *o, struct network *n, unsigned threads,
                    struct result *r, unsigned run)
{
	const struct session_validator validator = network_validator(n);
	uint64_t count[SESSION_RESULT_COUNT];
	struct session_store *store;
	struct sy_error err;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", o->directory, o->name);
	uint64_t start = sy_clock_ns();
	if (session_store_open(o, &store, &err) != 0)
		return fail(err.text);
	r->open[run] = seconds_since(start);
	start = sy_clock_ns();
	int rc = session_store_adopt(store, &validator, threads, count, &err);
	r->adopt[run] = seconds_since(start);
	if (rc != 0) {
		session_store_close(store);
		return fail(err.text);
	}
	r->found = 0;
	for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
		r->found += count[v];
	r->kept = count[SESSION_KEPT];
	r->bytes = session_store_mapped(store);
	rc = bytes_read(path, threads, &r->read[run]);
	session_store_close(store);
	return rc;
}

static int measure(const struct arguments *a, struct result *r)
{
	struct session_store_options o = {.sessions = a->sessions + a->sessions / 20 + 1,
	                                  .directory = a->directory};
	struct session_store *store;
	struct network n;
	struct sy_error err;
	char name[64];

	snprintf(name, sizeof(name), "steelyard-adopt-%d", getpid());
	o.name = name;
	sy_slot_init();
	if (!network_init(&n, a->family, a->sessions, 1))
		return fail("out of memory");
	o.servers = n.server_count;
	if (session_store_open(&o, &store, &err) != 0)
		return fail(err.text);
	network_use(&n, store);
	int rc = sessions_fill(&n, a->sessions);
	session_store_close(store);
	for (unsigned run = 0; rc == 0 && run < RUNS; run++)
		rc = run_once(&o, &n, a->threads, r, run);
	if (session_store_open(&o, &store, &err) == 0)
		session_store_discard(store);
	network_free(&n);
	return rc;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median(double value[static RUNS])
{
	qsort(value, RUNS, sizeof(*value), compare);
	return value[RUNS / 2];
}

static void report(const struct arguments *a, struct result *r)
{
	double adopt = median(r->adopt), read = median(r->read), open_s = median(r->open);
	double each = adopt / (double)a->sessions * 1e9;
	const char *format = a->json ? "{\"family\": %u, \"threads\": %u, \"bytes\": %" PRIu64
	                               ", \"found\": %" PRIu64 ", \"kept\": %" PRIu64
	                               ", \"open_s\": %.4f, \"adopt_s\": %.4f"
	                               ", \"ns_per_session\": %.1f, \"read_s\": %.4f"
	                               ", \"adopt_per_read\": %.2f}\n"
	                             : "family             IPv%u\n"
	                               "threads            %u\n"
	                               "mapped             %" PRIu64 " bytes\n"
	                               "found              %" PRIu64 " sessions\n"
	                               "kept               %" PRIu64 "\n"
	                               "open               %.3f s (map, check)\n"
	                               "adopt              %.3f s\n"
	                               "per session        %.1f ns\n"
	                               "baseline          %.3f s to read all bytes once\n"
	                               "adopt / baseline  %.2f\n";

	printf(format, a->family, a->threads, r->bytes, r->found, r->kept, open_s, adopt, each,
	       read, adopt / read);
}

static struct arguments arguments_parse(int argc, char **argv)
{
	struct arguments a = {.sessions = 10000000, .threads = 2, .directory = "/dev/shm"};
	const char *family = "4";
	const struct option_entry options[] = {
	        {"sessions", "N", OPTION_COUNT, &a.sessions, 0, 0, "how many"},
	        {"family", "4|6", OPTION_WORD, &family, 0, 0,
	         "of clients, servers and local addresses"},
	        {"threads", "N", OPTION_UNSIGNED, &a.threads, 1, THREADS_MAX, "that adopt"},
	        {"directory", "DIR", OPTION_WORD, &a.directory, 0, 0,
	         "where the file goes: hugetlbfs for huge pages"},
	        {"json", NULL, OPTION_FLAG, &a.json, 0, 0, "one line of JSON"},
	};
	OPTIONS_TAKE(argc, argv,
	             "Fills a session file with random FNAT sessions, leaves it as a crash would, "
	             "adopts it again, prints how long that takes: the median of some runs.",
	             options);
	a.family = *family == '6' ? 6 : 4;
	return a;
}

int main(int argc, char **argv)
{
	struct arguments a = arguments_parse(argc, argv);
	struct result r = {0};

	if (measure(&a, &r) != 0)
		return 1;
	report(&a, &r);
	return r.found == a.sessions && r.kept == a.sessions
	               ? 0
	               : fail("not every session was found again");
}
