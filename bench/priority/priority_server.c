// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-priority-server: the synthetic server of the experiments with priorities
 * (docs/design/0047-priority-experiments.md), on libsteelyard-tcp. Reads commands from standard
 * input, one per line, and answers each by one line:
 *
 *     use schedule=none rule=type driver=0 transport=0 aside=0 fetch=1 awake=0 stack=0 sleep=0
 *                                                 "used"; struct setting says what they are
 *     report                                      JSON: counts since the last report
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../bench_options.h"
#include "priority_worker.h"
#include "queue_thread.h"

#define QUEUE_REQUESTS 4096u /* capacity of the second thread's queue */

static struct {
	const char *interface, *address;
	unsigned port, core, aside, memory;
	bool no_huge;
} options = {.port = 7000, .aside = 1024};

static struct worker *worker;
/* NULL without a second thread. */
static struct sy_tcp_queue *queue;
static struct queue_thread *queue_thread;

/* ---- orders ---------------------------------------------------------------------------------- */

static bool word_is(const char *word, const char *name, const char **value)
{
	size_t len = strlen(name);

	*value = word + len + 1;
	return !strncmp(word, name, len) && word[len] == '=';
}

/* Parses "schedule=lns rule=label …"; other fields keep their values. Returns NULL, or an error
 * text. */
static const char *setting_read(struct setting *s, char *line)
{
	static char schedule[16];
	char *save;
	const char *value;

	for (char *word = strtok_r(line, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
		if (word_is(word, "schedule", &value)) {
			snprintf(schedule, sizeof(schedule), "%s", value);
			s->schedule = schedule;
		} else if (word_is(word, "rule", &value) && rule_named(value)) {
			s->rule = rule_named(value);
		} else if (word_is(word, "driver", &value)) {
			s->driver = (unsigned)atoi(value);
		} else if (word_is(word, "transport", &value)) {
			s->transport = (unsigned)atoi(value);
		} else if (word_is(word, "aside", &value)) {
			s->aside = (unsigned)atoi(value);
		} else if (word_is(word, "awake", &value)) {
			s->awake = (unsigned)atoi(value);
		} else if (word_is(word, "stack", &value)) {
			s->stack_us = (unsigned)atoi(value);
		} else if (word_is(word, "sleep", &value)) {
			s->sleep_us = (unsigned)atoi(value);
		} else if (word_is(word, "fetch", &value) && atoi(value) > 0 &&
		           atoi(value) <= (int)WORKER_FETCH) {
			s->fetch = (unsigned)atoi(value);
		} else {
			return word;
		}
	}
	return NULL;
}

static void counts_add(struct serve_counts *sum, const struct serve_counts *n)
{
	sum->accepted += n->accepted;
	sum->closed += n->closed;
	sum->bad += n->bad;
	for (unsigned i = 0; i < SERVE_CLASSES; i++) {
		sum->class[i].requests += n->class[i].requests;
		sum->class[i].busy_ns += n->class[i].busy_ns;
		histogram_merge(&sum->class[i].before_tcp, &n->class[i].before_tcp);
		histogram_merge(&sum->class[i].before_application, &n->class[i].before_application);
		histogram_merge(&sum->class[i].service, &n->class[i].service);
	}
}

static void report(void)
{
	static struct serve_counts sum, one;

	worker_counts(worker, &sum);
	if (queue_thread) {
		queue_thread_counts(queue_thread, &one);
		counts_add(&sum, &one);
	}
	printf("{");
	serve_report(stdout, &sum);
	printf("}\n");
}

/* Executes orders until standard input ends. */
static void obey(void)
{
	struct setting s = {.schedule = "none", .rule = rule_named("type"), .fetch = 1};
	char line[200];

	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "report\n")) {
			report();
		} else if (!strncmp(line, "use ", 4)) {
			const char *wrong = setting_read(&s, line + 4);
			int rc;
			rule_use(s.rule, s.stack_us * UINT64_C(1000));
			serve_sleep(s.sleep_us * UINT64_C(1000));
			rc = wrong ? 0 : worker_set(worker, &s);
			if (wrong || rc)
				printf("error: %s: %s\n", wrong ? "no such setting" : strerror(-rc),
				       wrong ? wrong : s.schedule);
			else
				printf("used\n");
		} else {
			printf("error: no such order: %s", line);
		}
		fflush(stdout);
	}
}

static void fail(const char *why)
{
	fprintf(stderr, "steelyard-priority-server: %s\n", why);
	exit(1);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void pin(unsigned core)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(core, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		perror("sched_setaffinity");
}

static void *first_main(void *arg)
{
	pin(options.core);
	return worker_main(arg);
}

/* If both threads share a core, the second one runs only while the first one is idle. */
static void *second_main(void *arg)
{
	pin(options.aside);
	if (sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0}))
		perror("sched_setscheduler");
	return queue_thread_main(arg);
}

int main(int argc, char **argv)
{
	const struct option_entry entry[] = {
	        {"interface", "NAME", OPTION_WORD, &options.interface, 0, 0, "by AF_XDP"},
	        {"address", "ADDRESS", OPTION_WORD, &options.address, 0, 0, "its own there"},
	        {"port", "N", OPTION_UNSIGNED, &options.port, 1, 65535, "where it listens"},
	        {"core", "N", OPTION_UNSIGNED, &options.core, 0, 1023, "of the server"},
	        {"aside", "N", OPTION_UNSIGNED, &options.aside, 0, 1024,
	         "the core of a second thread, at the lowest priority; 1024: there is none"},
	        {"memory", "MB", OPTION_UNSIGNED, &options.memory, 0, 1e6, "for packets"},
	        {"no-huge", NULL, OPTION_FLAG, &options.no_huge, 0, 0, "ordinary pages"},
	};
	struct sy_tcp_library *library;
	pthread_t first, second;
	char why[300];

	OPTIONS_TAKE(argc, argv,
	             "A server that is busy for as long as each request says; orders come on "
	             "standard input.",
	             entry);
	if (!options.interface || !options.address) {
		fprintf(stderr, "--interface and --address are missing\n");
		return 2;
	}
	const struct sy_tcp_setup setup = {.size = sizeof(setup),
	                                   .interface = &options.interface,
	                                   .interfaces = 1,
	                                   .address = &options.address,
	                                   .addresses = 1,
	                                   .contexts = 1,
	                                   .connections = WORKER_CONNECTIONS,
	                                   .memory_mb = options.memory,
	                                   .no_huge_pages = options.no_huge};
	prctl(PR_SET_TIMERSLACK, 1UL); /* inherited by threads: sleeps are exact */
	if (sy_tcp_open(&setup, &library, why, sizeof(why)))
		fail(why);
	if (options.aside < 1024 && (sy_tcp_queue_open(QUEUE_REQUESTS, &queue) ||
	                             !(queue_thread = queue_thread_new(queue)) ||
	                             pthread_create(&second, NULL, second_main, queue_thread)))
		fail("no memory for a second thread");
	worker = worker_new(library, options.port, queue);
	if (!worker || pthread_create(&first, NULL, first_main, worker))
		fail("no memory for a thread");
	while (!worker_is_ready(worker))
		usleep(1000);
	printf("serving\n");
	fflush(stdout);
	obey();
	worker_stop(worker);
	pthread_join(first, NULL);
	if (queue_thread) {
		queue_thread_stop(queue_thread);
		pthread_join(second, NULL);
		sy_tcp_queue_close(queue);
	}
	sy_tcp_close(library);
	return 0;
}
