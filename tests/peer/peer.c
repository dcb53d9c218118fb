// SPDX-License-Identifier: Apache-2.0
/* steelyard-peer: a stack behind an interface, for tests against other TCPs. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "peer.h"

static struct peer peer;

/* ---- the worker's side ----------------------------------------------------------------------- */

static void serve(struct sy_stack *s, unsigned worker, uint64_t now, void *ctx)
{
	struct sy_stack_event e[32];
	unsigned count;

	while ((count = sy_stack_events(s, e, 32)) > 0)
		for (unsigned i = 0; i < count; i++)
			talk_event(ctx, &e[i], now);
	talks_turn(ctx, now);
}

void peer_job_over(struct peer *p)
{
	for (const struct job *j = p->jobs; j; j = j->next)
		if (j->left)
			return;
	if (!p->options.input)
		sy_runtime_stop(p->rt);
}

/* ---- commands -------------------------------------------------------------------------------- */

struct command {
	struct peer *peer;
	struct job *job;
	unsigned number;
	int rc;
};

static void begin_on_worker(struct sy_worker *w, void *ctx)
{
	struct command *c = ctx;

	c->job->next = c->peer->jobs;
	c->peer->jobs = c->job;
	c->rc = job_begin(c->peer, c->job, sy_clock_ns());
	if (c->rc == 0) {
		report_job(c->job);
		return;
	}
	report_error(strerror(-c->rc));
	c->peer->failed++;
	c->job->left = 0;
	peer_job_over(c->peer);
}

static void resume_on_worker(struct sy_worker *w, void *ctx)
{
	struct command *c = ctx;
	talks_resume(c->peer, c->number, sy_clock_ns());
}

static void close_on_worker(struct sy_worker *w, void *ctx)
{
	struct command *c = ctx;
	c->rc = job_close(c->peer, c->number, sy_clock_ns());
}

static void stats_on_worker(struct sy_worker *w, void *ctx)
{
	struct command *c = ctx;
	report_stats(c->peer);
}

/* A worker that has no core for a second has not run it; it does later. */
static void call(struct peer *p, void (*fn)(struct sy_worker *w, void *ctx), struct command *c)
{
	while (sy_worker_call(sy_worker_at(p->rt, 0), fn, c) == -ETIMEDOUT)
		;
}

static void execute(struct peer *p, char *line)
{
	struct command c = {.peer = p};
	char error[JOB_ERROR];

	if (strcmp(line, "quit") == 0) {
		sy_runtime_stop(p->rt);
	} else if (strcmp(line, "stats") == 0) {
		call(p, stats_on_worker, &c);
	} else if (sscanf(line, "resume %u", &c.number) == 1) {
		call(p, resume_on_worker, &c);
		puts("{\"event\": \"ok\"}");
		fflush(stdout);
	} else if (sscanf(line, "close %u", &c.number) == 1) {
		call(p, close_on_worker, &c);
		puts(c.rc ? "{\"event\": \"error\", \"text\": \"no such job\"}"
		          : "{\"event\": \"ok\"}");
		fflush(stdout);
	} else if ((c.job = job_read(line, error))) {
		c.job->number = ++p->job_count;
		call(p, begin_on_worker, &c);
	} else {
		report_error(error);
		p->failed++;
	}
}

static void on_input(void *ctx)
{
	static char text[PEER_LINE];
	static size_t len;
	struct peer *p = ctx;
	ssize_t n = read(STDIN_FILENO, text + len, sizeof(text) - 1 - len);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		sy_runtime_stop(p->rt);
		return;
	}
	len += (size_t)n;
	for (char *end; (end = memchr(text, '\n', len));) {
		size_t taken = (size_t)(end - text) + 1;
		*end = '\0';
		execute(p, text);
		len -= taken;
		memmove(text, text + taken, len);
	}
	if (len == sizeof(text) - 1) {
		report_error("the line is too long");
		len = 0;
	}
}

static void on_signal(void *ctx)
{
	struct peer *p = ctx;
	sy_runtime_stop(p->rt);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int signals_open(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int runtime_start(struct peer *p, struct sy_error *err)
{
	struct sy_runtime_options o = {.workers = 1,
	                               .memory_mb = 512,
	                               .kernel = true,
	                               .pipeline = sy_stack_pipeline,
	                               .round = sy_stack_round,
	                               .ports = 1};
	struct sy_port_info port;

	sy_slot_init();
	o.port[0].backend = SY_PORT_XSK;
	if (snprintf(o.port[0].name, sizeof(o.port[0].name), "%s", p->options.port) >=
	    (int)sizeof(o.port[0].name))
		return sy_fail(err, EINVAL, "--port %s: too long a name", p->options.port);
	o.app = p->port = sy_stack_port_new(serve, p);
	if (!p->port)
		return sy_fail(err, ENOMEM, "no memory");
	int rc = sy_runtime_open(&o, &p->rt, err);
	rc = rc ? rc : sy_runtime_bind(p->rt, err);
	if (rc)
		return rc;
	sy_port_get_info(p->rt, 0, &port);
	if (!p->options.stack.mtu)
		p->options.stack.mtu = port.mtu;
	if (getrandom(p->options.stack.secret, sizeof(p->options.stack.secret), 0) < 0)
		return sy_fail(err, errno, "getrandom");
	rc = sy_stack_port_open(p->port, p->rt, &p->options.stack, err);
	rc = rc ? rc : sy_runtime_wait_synced(p->rt, 30000, err);
	if (rc)
		return rc;
	p->stack = sy_stack_port_stack(p->port, 0);
	for (unsigned i = 0; i < p->options.addresses && rc == 0; i++)
		rc = sy_address_claim(p->rt, &p->options.address[i], err);
	if (rc)
		return rc;
	sy_address_settle(p->rt);
	return sy_runtime_start(p->rt, err);
}

static int peer_run(struct peer *p, struct sy_error *err)
{
	int signals = signals_open();
	int rc = runtime_start(p, err);

	if (rc == 0)
		rc = sy_runtime_watch(p->rt, signals, on_signal, p);
	if (rc == 0 && p->options.input) {
		fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
		rc = sy_runtime_watch(p->rt, STDIN_FILENO, on_input, p);
	}
	if (rc)
		return rc;
	puts("{\"event\": \"ready\"}");
	fflush(stdout);
	for (unsigned i = 0; i < p->options.jobs; i++)
		execute(p, p->options.job[i]);
	if (!p->options.input && !p->jobs)
		return sy_fail(err, EINVAL, "there is nothing to do");
	return sy_runtime_run(p->rt);
}

static void peer_close(struct peer *p)
{
	if (p->rt) {
		sy_runtime_quiesce(p->rt);
		if (p->stack)
			report_stats(p);
		for (unsigned i = 0; i < p->options.addresses; i++)
			sy_address_release(p->rt, &p->options.address[i]);
	}
	for (struct talk *t; (t = p->talks);) {
		p->talks = t->next;
		free(t);
	}
	for (struct job *j; (j = p->jobs);) {
		p->jobs = j->next;
		job_free(j);
	}
	sy_stack_port_close(p->port);
	sy_runtime_close(p->rt);
}

int main(int argc, char **argv)
{
	struct sy_error err = {0};
	int rc = peer_options_read(&peer.options, argc, argv);

	if (rc)
		return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	sy_log_set_level(peer.options.verbose ? SY_LOG_DEBUG : SY_LOG_WARN);
	rc = peer_run(&peer, &err);
	if (rc < 0)
		fprintf(stderr, "steelyard-peer: %s\n", err.text);
	peer_close(&peer);
	return rc < 0 || (peer.failed && !peer.options.input) ? EXIT_FAILURE : EXIT_SUCCESS;
}
