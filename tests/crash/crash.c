// SPDX-License-Identifier: Apache-2.0
/* steelyard-crash: kills a balancer at random moments, again and again. The sessions that each
 * successor adopts are compared with a plain model of the packets that went in and came out.
 *
 * Every run is a process of its own on the same files; this process only forks, waits and kills. */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rte_memory.h>
#include <rte_pause.h>

#include "../folder.h"
#include "run.h"

#define SECOND_NS   UINT64_C(1000000000)
#define FIRST_NS    (100000 * SECOND_NS) /* initial value of the chronicle's clock */
#define MEMORY_MB   512                  /* of address space; untouched memory costs nothing */
#define SPAN_STARTS 3                    /* longest time to a kill, in start times */
#define MOMENT_NS   60000                /* duration of a burst or a sweep */
#define PATIENCE_S  60                   /* for a run that ends by itself */
#define PROOFS      10                   /* runs that may find nothing to damage */

static const struct scenario scenarios[] = {
        {.name = "padded",
         .sessions = 32 * SY_SLOTS,
         .sessions_other = 48 * SY_SLOTS,
         .flows = 1500},
        /* full slots, and an index so full that entries have to move */
        {.name = "tight", .sessions = 64 * SY_SLOTS, .slots = 3, .flows = 260},
        /* tables that grow as they fill */
        {.name = "growing",
         .sessions = 8 * SY_SLOTS,
         .sessions_other = 12 * SY_SLOTS,
         .sessions_limit = 64 * SY_SLOTS,
         .slots = 6,
         .flows = 260},
        /* all local ports of a slot in use towards one server, by TCP and by UDP */
        {.name = "ports",
         .sessions = 800 * SY_SLOTS,
         .slots = 1,
         .services = 2,
         .flows = 600,
         .still = true},
};

static const char *const spoil_name[SPOIL_COUNT] = {
#define X(id, name, help) [SPOIL_##id] = name,
        SPOILS(X)
#undef X
};

struct options {
	unsigned kills;
	uint64_t seed;
	bool prove;
};

/* All runs of one scenario. */
struct play {
	const struct scenario *scenario;
	struct chronicle *h;
	struct rng rng;
	uint64_t seed;
	uint64_t span_ns; /* longest time until a kill */
	unsigned runs;
	unsigned killed[PHASE_COUNT];
	char directory[FOLDER_NAME];
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

static uint64_t real_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* DPDK's memory is a file, which children would share: from here on this process has its own
 * copy. */
static int memory_own(const struct rte_memseg_list *list, const struct rte_memseg *segment,
                      size_t len, void *ctx)
{
	int fd = rte_memseg_get_fd_thread_unsafe(segment);
	return fd < 0 || mmap(segment->addr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
	                      fd,
	                      (off_t)((char *)segment->addr - (char *)list->base_va)) == MAP_FAILED
	               ? -1
	               : 0;
}

/* Forks a child that ends with its parent, however the parent ends. */
static pid_t fork_bound(int cpu)
{
	pid_t pid = fork();
	if (pid < 0) {
		perror("crash: fork");
		exit(EXIT_FAILURE);
	}
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	if (cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET((unsigned)cpu, &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	return 0;
}

static pid_t run_fork(struct play *p, int cpu, enum spoil spoil, bool last)
{
	char label[80];
	uint64_t seed = (uint64_t)rng_below(&p->rng, UINT32_MAX) << 32 | ++p->runs;
	snprintf(label, sizeof(label), "seed %lu, %s, run %u%s%s", p->seed, p->scenario->name,
	         p->runs, spoil ? ", spoilt on purpose: " : "", spoil ? spoil_name[spoil] : "");
	pid_t pid = fork_bound(cpu);
	if (pid == 0 && rte_memseg_contig_walk_thread_unsafe(memory_own, NULL) != 0) {
		perror("crash: memory of its own");
		_exit(EXIT_FAILURE);
	}
	if (pid == 0)
		run_start(p->h, p->scenario, p->directory, label, seed, spoil, last);
	return pid;
}

/* A process that takes the CPU away from the other one at random moments. */
static pid_t rival_fork(int cpu)
{
	pid_t pid = fork_bound(cpu);
	if (pid == 0)
		for (;;)
			rte_pause();
	return pid;
}

static void wait_ns(uint64_t ns)
{
	const struct timespec t = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
	nanosleep(&t, NULL);
}

/* Waits until the balancer is processing a burst or a sweep, and a moment longer. */
static void wait_for_burst(struct play *p)
{
	uint64_t deadline = real_ns() + p->span_ns;
	unsigned wanted = 1 + rng_below(&p->rng, 30);
	while (p->h->turns < wanted && real_ns() < deadline)
		rte_pause();
	uint64_t until = real_ns() + rng_below(&p->rng, MOMENT_NS);
	while (real_ns() < until)
		rte_pause();
}

static bool is_over(pid_t pid)
{
	siginfo_t info = {0};
	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid;
}

static void wait_for_workload(struct play *p, pid_t pid)
{
	uint64_t deadline = real_ns() + PATIENCE_S * SECOND_NS;
	while (!p->h->ready_ns && !is_over(pid) && real_ns() < deadline && !interrupted)
		wait_ns(100000);
}

static bool run_killed(struct play *p, pid_t pid)
{
	int status;
	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		return false;
	/* the child may have been about to report an error */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !p->h->failed) {
		p->killed[p->h->phase]++;
		return true;
	}
	fprintf(stderr, "crash: FAILED: seed %lu, %s, run %u was not merely killed: status %x\n",
	        p->seed, p->scenario->name, p->runs, status);
	return false;
}

/* A run that is killed at a random moment; false: it reported an error before. */
static bool run_and_death(struct play *p)
{
	bool contended = rng_percent(&p->rng, 25);
	int cpu = contended ? sched_getcpu() : -1;
	pid_t rival = contended ? rival_fork(cpu) : 0;
	p->h->turns = 0;
	p->h->ready_ns = 0;
	p->h->phase = PHASE_START;
	pid_t pid = run_fork(p, cpu, SPOIL_NOTHING, false);
	if (p->runs == 1) /* duration of a start */
		wait_for_workload(p, pid);
	if (rng_percent(&p->rng, 60))
		wait_for_burst(p);
	else
		wait_ns((uint64_t)rng_below(&p->rng, 1000) * (p->span_ns / 1000));
	bool ok = run_killed(p, pid);
	if (rival) {
		kill(rival, SIGKILL);
		waitpid(rival, NULL, 0);
	}
	/* A start's duration depends on the machine, the build and the number of sessions. */
	if (p->h->ready_ns)
		p->span_ns = SPAN_STARTS * p->h->ready_ns;
	else
		p->span_ns += p->span_ns / 8;
	uint32_t away = rng_below(&p->rng, 100);
	p->h->now_ns += away < 35   ? 0
	                : away < 96 ? rng_below(&p->rng, 2500) * (SECOND_NS / 1000)
	                            : 20 * SECOND_NS;
	return ok;
}

/* A run that ends by itself; returns its exit status. */
static int run_whole(struct play *p, enum spoil spoil)
{
	int status;
	pid_t pid = run_fork(p, -1, spoil, true);
	uint64_t deadline = real_ns() + PATIENCE_S * SECOND_NS;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (interrupted || real_ns() > deadline)
			kill(pid, SIGKILL);
		wait_ns(1000000);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- scenarios ------------------------------------------------------------------------------- */

static void directory_empty(const char *directory)
{
	static const char *const names[] = {"harness",        "harness.refused", "harness.next",
	                                    "config",         "journal",         "config.new",
	                                    "config.damaged", "journal.damaged"};
	char path[128];
	for (size_t i = 0; i < SY_ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
	}
	if (rmdir(directory) != 0)
		fprintf(stderr, "crash: %s: %s\n", directory, strerror(errno));
}

static void play_begin(struct play *p, const struct scenario *scenario, uint64_t seed)
{
	*p = (struct play){
	        .scenario = scenario,
	        .seed = seed,
	};
	p->rng.state = seed * 0x9e3779b97f4a7c15u + 1;
	p->h = mmap(NULL, sizeof(*p->h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p->h == MAP_FAILED || !folder_make(p->directory, "/dev/shm")) {
		perror("crash: /dev/shm");
		exit(EXIT_FAILURE);
	}
	p->h->now_ns = FIRST_NS;
}

static void play_end(struct play *p, bool ok)
{
	if (ok || interrupted)
		directory_empty(p->directory);
	munmap(p->h, sizeof(*p->h));
}

static bool play_report(const struct play *p)
{
	const struct chronicle *h = p->h;
	if (p->scenario->sessions_limit)
		printf("%s: %lu tables grew\n", p->scenario->name, h->grown);
	printf("%s: killed %u times while starting, %u while checking, %u in the workload, %u in a "
	       "commit;\n"
	       "    %lu sessions adopted (%lu first packets uncertain), %lu of them asked at once; "
	       "%lu packets, %lu sessions, %lu commits\n    results:",
	       p->scenario->name, p->killed[PHASE_START], p->killed[PHASE_CHECK],
	       p->killed[PHASE_WORKLOAD], p->killed[PHASE_COMMIT], h->adopted, h->uncertain,
	       h->probed, h->forwarded, h->created, h->commits);
	for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
		printf(" %lu %s%s", h->result[v], session_result_name((enum session_result)v),
		       v + 1 < SESSION_RESULT_COUNT ? "," : "\n");
	if (h->adopted && h->probed)
		return true;
	fprintf(stderr, "crash: FAILED: no session was ever adopted and asked\n");
	return false;
}

static bool play(const struct scenario *scenario, uint64_t seed, unsigned kills)
{
	struct play p;
	bool ok = true;
	play_begin(&p, scenario, seed);
	for (unsigned n = 0; n < kills && ok && !interrupted; n++)
		ok = run_and_death(&p);
	if (ok && !interrupted) {
		ok = run_whole(&p, SPOIL_NOTHING) == EXIT_SUCCESS;
		ok = play_report(&p) && ok;
	}
	if (!ok && !interrupted)
		fprintf(stderr,
		        "crash: FAILED: seed %lu, %s; until the next `make test` the files are in "
		        "%s\n",
		        seed, scenario->name, p.directory);
	play_end(&p, ok);
	return ok;
}

/* Two runs must find the tables sound; the next one damages them and must report it. Where it finds
 * nothing to damage, as no such session happens to live, another sound run brings new ones. */
static bool prove(enum spoil spoil, uint64_t seed)
{
	struct play p;
	play_begin(&p, &scenarios[0], seed);
	bool ok = run_whole(&p, SPOIL_NOTHING) == EXIT_SUCCESS;
	int spoilt = RUN_NOTHING_THERE;
	for (unsigned n = 0; n < PROOFS && ok && spoilt == RUN_NOTHING_THERE; n++) {
		ok = run_whole(&p, SPOIL_NOTHING) == EXIT_SUCCESS;
		spoilt = run_whole(&p, spoil);
	}
	ok = ok && spoilt == EXIT_FAILURE;
	if (ok)
		printf("%s: noticed\n", spoil_name[spoil]);
	else
		fprintf(stderr, "crash: FAILED: the checks miss it: %s\n", spoil_name[spoil]);
	play_end(&p, true);
	return ok;
}

/* ---- main ------------------------------------------------------------------------------------ */

/* Takes longer than the rest of a start, and changes no persistent state: children inherit it. */
static void dpdk_start(void)
{
	const struct sy_runtime_options o = {.memory_mb = MEMORY_MB};
	struct sy_error err;
	sy_log_set_level(SY_LOG_ERROR);
	if (eal_start(&o, &err) == 0)
		return;
	fprintf(stderr, "crash: %s\n", err.text);
	exit(EXIT_FAILURE);
}

static bool options_read(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {{"kills", required_argument, NULL, 'k'},
	                                      {"seed", required_argument, NULL, 's'},
	                                      {"prove", no_argument, NULL, 'p'},
	                                      {0}};
	*o = (struct options){.kills = 200, .seed = (uint64_t)time(NULL)};
	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		char *end = "";
		if (c == 'k')
			o->kills = (unsigned)strtoul(optarg, &end, 10);
		else if (c == 's')
			o->seed = strtoull(optarg, &end, 10);
		else if (c == 'p')
			o->prove = true;
		if (c == '?' || *end || o->kills == 0) {
			fprintf(stderr,
			        "usage: steelyard-crash [--kills N] [--seed S] [--prove]\n");
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	struct options o;
	bool ok = true;
	if (!options_read(argc, argv, &o))
		return EXIT_FAILURE;
	const struct sigaction act = {.sa_handler = on_signal};
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("seed %lu\n", o.seed);
	dpdk_start();
	if (o.prove) {
		for (enum spoil s = SPOIL_NOTHING + 1; s < SPOIL_COUNT && !interrupted; s++)
			ok = prove(s, o.seed) && ok;
	} else {
		unsigned n = SY_ARRAY_LEN(scenarios);
		for (unsigned i = 0; i < n && ok && !interrupted; i++)
			ok = play(&scenarios[i], o.seed + i,
			          o.kills * (i + 1) / n - o.kills * i / n);
	}
	return ok && !interrupted ? EXIT_SUCCESS : EXIT_FAILURE;
}
