// SPDX-License-Identifier: Apache-2.0
/* steelyard-forwarder: packets only. Everything it knows comes by netlink and the control socket.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "leftovers.h"
#include "options.h"
#include "pipeline.h"

#define SYNC_TIMEOUT_MS 30000

static struct sy_runtime *running; /* for the signal handler */

static void on_signal(int number)
{
	sy_runtime_stop(running);
}

static void signals_install(struct sy_runtime *rt)
{
	struct sigaction stop = {.sa_handler = on_signal};
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	running = rt;
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
}

/* mkdir -p of a directory, or of a file's directory. */
static int make_directories(const char *path, bool is_file, struct sy_error *err)
{
	char part[256];
	snprintf(part, sizeof(part), "%s", path);
	for (char *slash = part + 1; *slash; slash++) {
		if (*slash != '/')
			continue;
		*slash = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return sy_fail(err, errno, "%s: %s", part, strerror(errno));
		*slash = '/';
	}
	if (!is_file && mkdir(part, 0700) < 0 && errno != EEXIST)
		return sy_fail(err, errno, "%s: %s", part, strerror(errno));
	return 0;
}

static int forward(struct sy_balance *balance, struct sy_runtime *rt, const struct options *o,
                   struct sy_error *err)
{
	signals_install(rt);
	int rc = sy_runtime_wait_synced(rt, SYNC_TIMEOUT_MS, err);
	if (rc == 0)
		rc = sy_balance_attach(balance, rt, err);
	if (rc == 0)
		rc = sy_runtime_bind(rt, err);
	if (rc == 0)
		rc = sy_runtime_start(rt, err);
	if (rc == 0)
		rc = sy_balance_serve(balance, o->socket, err);
	if (rc == 0) {
		sy_log(SY_LOG_INFO, "forwarder",
		       "ready: workers: %u, ports: %u, control socket: %s", sy_worker_count(rt),
		       sy_port_count(rt), o->socket);
		rc = sy_runtime_run(rt);
		if (rc < 0)
			sy_fail(err, -rc, "the interaction loop failed: %s", strerror(-rc));
	}
	sy_balance_detach(balance);
	return rc == -ECANCELED ? 0 : rc; /* stopped before it was ready */
}

static int run(struct options *o, struct sy_error *err)
{
	struct sy_balance *balance;
	struct sy_runtime *rt;
	int rc = make_directories(o->socket, true, err);
	if (rc == 0)
		rc = make_directories(o->state, false, err);
	int note = rc == 0 ? leftovers_note(o, err) : rc;
	if (note < 0)
		return note;
	rc = sy_balance_create(&o->balance, &balance, err);
	if (rc < 0) {
		leftovers_clear(note);
		return rc;
	}
	o->runtime.pipeline = pipeline;
	o->runtime.round = sy_balance_round;
	o->runtime.app = balance;
	rc = sy_runtime_open(&o->runtime, &rt, err);
	if (rc == 0) {
		rc = forward(balance, rt, o, err);
		sy_log(SY_LOG_INFO, "forwarder", "stopped");
		sy_runtime_close(rt);
	}
	sy_balance_destroy(balance);
	leftovers_clear(note);
	return rc;
}

static void tell_removed(void *ctx, const char *text)
{
	printf("removed %s\n", text);
}

int main(int argc, char **argv)
{
	struct options o;
	struct sy_error err = {0};
	int rc = options_read(argc, argv, &o, &err);
	o.balance.build = SY_BUILD;
	sy_log_set_level(o.log);
	if (rc == 0) {
		switch (o.action) {
		case ACTION_RUN:
			rc = run(&o, &err);
			break;
		case ACTION_CLEANUP:
			rc = sy_kernel_cleanup(tell_removed, NULL, &err);
			if (rc == 0)
				leftovers_cleanup(tell_removed, NULL);
			break;
		case ACTION_VERSION:
			printf("steelyard-forwarder %s\n", SY_BUILD);
			break;
		case ACTION_HELP:
			options_help();
			break;
		}
	}
	if (rc < 0)
		fprintf(stderr, "steelyard-forwarder: %s\n", err.text);
	options_free(&o);
	return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
