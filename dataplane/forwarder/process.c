// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <sy_phase.h>

#include "pipeline.h"
#include "stale_state.h"
#include "upgrade.h"
#include "upgrade_message.h"

#define SYNC_TIMEOUT_MS 30000
#define ADOPT_THREADS   4

struct process {
	struct options *options;
	struct sy_balance *balance;
	struct sy_runtime *rt;
	struct upgrade upgrade;        /* to this process's successor */
	int note;                      /* −1: not acquired */
	bool bound;                    /* ports were bound, and must be released in order */
	struct upgrade_message sealed; /* the predecessor's message */
	int rc;                        /* result of acquiring the sessions within the loop */
	struct sy_error *err;
};

/* For the signal handler. */
static struct sy_runtime *volatile running;
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	stopped = 1;
	if (running)
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

/* Workers do not run yet: adoption may use all CPUs. */
static unsigned adopt_threads(const struct options *o)
{
	cpu_set_t set;
	unsigned cpus =
	        sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
	unsigned wanted = cpus < ADOPT_THREADS ? cpus : ADOPT_THREADS;
	return o->runtime.workers > wanted ? o->runtime.workers : wanted;
}

/* ---- starting -------------------------------------------------------------------------------- */

static int adopt_and_start(struct process *l)
{
	int rc = sy_balance_adopt(l->balance, adopt_threads(l->options), l->err);
	sy_phase_end(SY_PHASE_ADOPT);
	if (rc == 0) {
		l->bound = true;
		rc = sy_runtime_bind(l->rt, l->err);
	}
	return rc == 0 ? sy_runtime_start(l->rt, l->err) : rc;
}

static int serve(struct process *l)
{
	const struct options *o = l->options;
	int rc = sy_balance_serve(l->balance, o->socket, l->err);
	sy_phase_end(SY_PHASE_SERVE);
	if (rc < 0)
		return rc;
	sy_balance_hold_snapshots(l->balance, false);
	sy_phases_log("forwarder", "started");
	sy_log(SY_LOG_INFO, "forwarder", "ready: workers: %u, ports: %u, control socket: %s",
	       sy_worker_count(l->rt), sy_port_count(l->rt), o->socket);
	if (o->inherit < 0)
		sd_notifyf(0, "READY=1\nSTATUS=Forwarding with %u workers on %u ports.",
		           sy_worker_count(l->rt), sy_port_count(l->rt));
	return 0;
}

static int take_over(struct process *l)
{
	struct sy_balance_totals totals;
	struct upgrade_message ready = {0};
	int rc = stale_state_note(l->options, l->err);
	if (rc < 0)
		return rc;
	l->note = rc;
	rc = sy_balance_acquire(l->balance, l->sealed.ticket, l->err);
	sy_phase_end(SY_PHASE_ACQUIRE);
	if (rc == 0)
		rc = adopt_and_start(l);
	if (rc < 0)
		return rc;
	ready.gap_ns = sy_clock_ns() - l->sealed.last_ns;
	sy_balance_get_totals(l->balance, &totals);
	ready.sessions = totals.live;
	sy_runtime_claim(l->rt, l->err); /* failures are logged; the rest continues */
	sy_phase_end(SY_PHASE_CLAIM);
	rc = serve(l);
	if (rc < 0)
		return rc;
	upgrade_message_send(l->options->inherit, UPGRADE_MESSAGE_READY, SY_BUILD, &ready);
	sy_runtime_unwatch(l->rt, l->options->inherit);
	close(l->options->inherit);
	l->options->inherit = -1;
	return 0;
}

static int predecessor_fail(struct process *l, int code)
{
	if (code == ENOTCONN || code == EPIPE)
		return sy_fail(
		        l->err, code,
		        "the forwarder to be replaced is gone; start this one again, without "
		        "--inherit");
	return sy_fail(l->err, code, "the forwarder to be replaced: %s", strerror(code));
}

static void on_sealed(void *ctx)
{
	struct process *l = ctx;
	int rc = upgrade_message_receive(l->options->inherit, &l->sealed, l->err);
	if (rc == 0)
		return;
	sy_phase_split(SY_PHASE_WAIT, SY_PHASE_RELEASE, l->sealed.last_ns);
	if (rc == -ENOTCONN)
		predecessor_fail(l, ENOTCONN);
	else if (rc > 0 && l->sealed.kind != UPGRADE_MESSAGE_SEALED)
		rc = sy_fail(l->err, EPROTO, "unexpected message %u", l->sealed.kind);
	l->rc = rc < 0 ? rc : take_over(l);
	if (l->rc < 0)
		sy_runtime_stop(l->rt);
}

static int begin(struct process *l)
{
	int fd = l->options->inherit;
	/* An older build may be unable to read this build's snapshots. If this start fails, the
	 * older build starts next, and must find everything as it was. */
	sy_balance_hold_snapshots(l->balance, true);
	int rc = sy_runtime_wait_synced(l->rt, SYNC_TIMEOUT_MS, l->err);
	sy_phase_end(SY_PHASE_MIRROR);
	if (rc == 0)
		rc = sy_balance_attach(l->balance, l->rt, l->err);
	sy_phase_end(SY_PHASE_CONFIG);
	if (rc < 0)
		return rc;
	if (fd < 0) {
		rc = adopt_and_start(l);
		return rc == 0 ? serve(l) : rc;
	}
	rc = sy_runtime_watch(l->rt, fd, on_sealed, l);
	if (rc == 0)
		rc = upgrade_message_send(fd, UPGRADE_MESSAGE_PREPARED, NULL, NULL);
	return rc < 0 ? predecessor_fail(l, -rc) : 0;
}

/* ---- running and stopping -------------------------------------------------------------------- */

static int run(struct process *l)
{
	signals_install(l->rt);
	int rc = begin(l);
	if (rc == 0) {
		rc = sy_runtime_run(l->rt);
		if (rc < 0)
			sy_fail(l->err, -rc, "the control loop failed: %s", strerror(-rc));
		else
			rc = l->rc;
	}
	upgrade_stop(&l->upgrade);
	if (l->bound && l->upgrade.phase == UPGRADE_NONE) {
		if (!l->upgrade.restarts)
			sd_notify(0, "STOPPING=1");
		sy_balance_save(l->balance); /* the disk may be slow: save while packets flow */
		sy_runtime_quiesce(l->rt);
		sy_balance_seal(l->balance, 0);
	}
	sy_balance_detach(l->balance);
	return rc == -ECANCELED ? 0 : rc; /* stopped before the start was complete */
}

static int open_and_run(struct process *l)
{
	struct options *o = l->options;
	o->balance.upgrade = upgrade_begin;
	o->balance.upgrade_ctx = &l->upgrade;
	int rc = sy_memory_near(o->runtime.cores, o->runtime.workers, l->err);
	if (rc == 0)
		rc = sy_balance_create(&o->balance, &l->balance, l->err);
	sy_secret_wipe(&o->slot_key, sizeof(o->slot_key)); /* the session file has it */
	sy_secret_wipe(o->balance.peers.secret, sizeof(o->balance.peers.secret));
	sy_phase_end(SY_PHASE_TABLES);
	if (rc < 0)
		return rc;
	o->runtime.pipeline = pipeline;
	o->runtime.round = sy_balance_round;
	o->runtime.poll = sy_balance_poll;
	o->runtime.is_idle = sy_balance_is_idle;
	o->runtime.wake_ns = sy_balance_wake_ns;
	o->runtime.refused = sy_balance_refused;
	o->runtime.app = l->balance;
	o->runtime.path_half = sy_balance_path_half(l->balance);
	l->upgrade.balance = l->balance;
	rc = sy_runtime_open(&o->runtime, &l->rt, l->err);
	if (rc == 0) {
		l->upgrade.rt = l->rt;
		rc = run(l);
		sy_log(SY_LOG_INFO, "forwarder", "stopped");
		running = NULL;
		sy_runtime_close(l->rt);
	} else if (rc == -ENOMEM && o->inherit >= 0) {
		sy_fail_in(l->err, "during an upgrade two forwarders need their memory");
	}
	sy_balance_destroy(l->balance);
	return rc;
}

/* Checks that this process matches the predecessor's HELLO. */
static int hello_check(const struct options *o, struct sy_error *err)
{
	struct upgrade_message hello;
	int rc = upgrade_message_receive(o->inherit, &hello, err);
	if (rc == 0 || (rc > 0 && hello.kind != UPGRADE_MESSAGE_HELLO))
		return sy_fail(err, EPROTO, "--inherit %d: no message from the running forwarder",
		               o->inherit);
	return rc < 0 ? rc : options_check_identity(o, hello.text, err);
}

int process_run(struct options *o, char *const *argv, struct sy_error *err)
{
	struct process l = {.options = o, .note = -1, .err = err};
	upgrade_init(&l.upgrade, o, argv);
	l.upgrade.note = &l.note;
	bool all_xsk = true; /* drivers of other backends make other system calls */
	for (unsigned i = 0; i < o->runtime.ports; i++)
		all_xsk &= o->runtime.port[i].backend == SY_PORT_XSK;
	int rc = sy_confine_process(o->confine, all_xsk, err);
	if (rc == 0 && o->inherit >= 0)
		rc = hello_check(o, err);
	if (rc == 0)
		rc = make_directories(o->socket, true, err);
	if (rc == 0)
		rc = make_directories(o->state, false, err);
	if (rc == 0 && o->inherit < 0)
		rc = l.note = stale_state_note(o, err);
	if (rc >= 0)
		rc = open_and_run(&l);
	if (l.note >= 0)
		stale_state_keep(l.note, o);
	if ((l.upgrade.phase == UPGRADE_RESTART || l.upgrade.restarts) && !stopped)
		rc = upgrade_execute(&l.upgrade, err);
	return rc;
}
