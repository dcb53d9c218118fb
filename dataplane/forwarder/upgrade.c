// SPDX-License-Identifier: Apache-2.0
#include "upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "upgrade_message.h"

#define CHILD_FD    3
#define PREPARE_S   60 /* for EAL, memory, mirror, configuration */
#define TAKE_OVER_S 15
#define STEP_MS     100 /* between checks of the time limit */
#define SETTLE_S                                                                                   \
	30 /* for sweeps: without them, the successor checks each session during the gap           \
	    */
#define SETTLE_MS      10 /* between checks for that */
#define ENDING_STEP_MS 20
#define ENDING_MS      1000    /* for a process that is freeing its memory */
#define BARRIER_US     1000000 /* for the service manager to learn of its new main process */
#define SOCKET_GROUP   "--socket-group"
#define SELF           "/proc/self/exe"
#define SELF_DELETED   " (deleted)"

static bool is_inherit(const char *word)
{
	return !strcmp(word, "--inherit");
}

void upgrade_init(struct upgrade *u, const struct options *o, char *const *argv)
{
	*u = (struct upgrade){.options = o, .argv = argv, .fd = -1, .timer = -1};
	ssize_t n = readlink(SELF, u->binary, sizeof(u->binary) - 1);
	u->binary[n > 0 ? n : 0] = '\0';
	size_t cut = strlen(SELF_DELETED);
	if (n > (ssize_t)cut && !strcmp(u->binary + n - cut, SELF_DELETED))
		u->binary[n - cut] = '\0';
}

/* ---- starting the child ---------------------------------------------------------------------- */

static int binary_check(const char *path, struct sy_error *err)
{
	struct stat st;
	if (path[0] != '/')
		return sy_fail(err, EINVAL, "%s: the new binary's path must begin with a slash",
		               path);
	if (stat(path, &st) < 0)
		return sy_fail(err, errno, "%s: %s; install it, or name another with --binary",
		               path, strerror(errno));
	if (!S_ISREG(st.st_mode) || access(path, X_OK) < 0)
		return sy_fail(err, EACCES, "%s is not an executable file", path);
	return 0;
}

/* The value of an option in this process's command line, or NULL. */
static const char *own_value(const struct upgrade *u, const char *option)
{
	const char *value = NULL;
	for (unsigned i = 1; u->argv[i]; i++)
		if (!strcmp(u->argv[i], option) && u->argv[i + 1])
			value = u->argv[++i];
	return value;
}

static bool is_wanted(const struct sy_balance_upgrade *wanted, const char *option)
{
	size_t len = strlen(option);
	for (unsigned i = 0; i < wanted->argc; i++)
		if (!strncmp(wanted->argv[i], option, len) &&
		    (!wanted->argv[i][len] || wanted->argv[i][len] == '='))
			return true;
	return false;
}

/* Builds the command line of a forwarder called `name`: the wanted arguments, or this process's own
 * without --inherit and its value; plus --inherit with a descriptor, if given. The socket's group
 * stays unless another one is wanted: a running agent must be able to connect again. Freed by one
 * free(). */
static char **argv_make(const struct upgrade *u, const char *name,
                        const struct sy_balance_upgrade *wanted, const char *inherit)
{
	unsigned own = 0, n = 0;
	while (u->argv[own])
		own++;
	unsigned given = wanted && wanted->argv ? wanted->argc : own;
	char **argv = calloc(given + 6, sizeof(*argv));
	if (!argv)
		return NULL;
	argv[n++] = (char *)(uintptr_t)name;
	if (inherit) { /* first, so errors after it can be reported */
		argv[n++] = "--inherit";
		argv[n++] = (char *)(uintptr_t)inherit;
	}
	if (wanted && wanted->argv) {
		for (unsigned i = 0; i < wanted->argc; i++)
			argv[n++] = (char *)(uintptr_t)wanted->argv[i];
		const char *group = own_value(u, SOCKET_GROUP);
		if (group && !is_wanted(wanted, SOCKET_GROUP)) {
			argv[n++] = SOCKET_GROUP;
			argv[n++] = (char *)(uintptr_t)group;
		}
	} else {
		for (unsigned i = 1; i < own; i++)
			if (is_inherit(u->argv[i]) && u->argv[i + 1])
				i++;
			else
				argv[n++] = u->argv[i];
	}
	return argv;
}

/* Not by fork(): it would copy page tables, and pinned pages do not work with copy-on-write. The
 * child gets only its end of the socket and the standard descriptors: a packet socket in the child
 * would keep the queue bound. */
static int child_spawn(struct upgrade *u, const char *path, char **argv, int end)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t defaults, none;
	sigemptyset(&none);
	sigemptyset(&defaults);
	sigaddset(&defaults, SIGPIPE);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigdefault(&attr, &defaults);
	posix_spawnattr_setsigmask(&attr, &none);
	int rc = posix_spawn_file_actions_adddup2(&actions, end, CHILD_FD);
	if (rc == 0)
		rc = posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_FD + 1);
	if (rc == 0)
		rc = posix_spawn(&u->child, path, &actions, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -rc;
}

static void on_message(void *ctx);
static void on_timer(void *ctx);

static int timer_set(struct upgrade *u, unsigned ms)
{
	struct itimerspec in = {.it_value = {.tv_nsec = ms * 1000000l}};
	return timerfd_settime(u->timer, 0, &in, NULL) < 0 ? -errno : 0;
}

/* Begins to wait for the child. A stall of both processes does not count. */
static int patience_begin(struct upgrade *u, unsigned seconds)
{
	u->patience =
	        sy_patience_begin(seconds * UINT64_C(1000000000), 2 * STEP_MS * UINT64_C(1000000));
	return timer_set(u, STEP_MS);
}

/* Socket and timer of one attempt. */
static void attempt_close(struct upgrade *u)
{
	if (u->fd >= 0) {
		sy_runtime_unwatch(u->rt, u->fd);
		close(u->fd);
	}
	if (u->timer >= 0) {
		sy_runtime_unwatch(u->rt, u->timer);
		close(u->timer);
	}
	u->fd = u->timer = -1;
}

static int attempt_open(struct upgrade *u, int *end)
{
	int pair[2];
	char identity[512];
	u->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (u->timer < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	u->fd = pair[0];
	*end = pair[1];
	options_identity(u->options, identity, sizeof(identity));
	int rc = upgrade_message_send(u->fd, UPGRADE_MESSAGE_HELLO, identity, NULL);
	if (rc == 0)
		rc = sy_runtime_watch(u->rt, u->fd, on_message, u);
	if (rc == 0)
		rc = sy_runtime_watch(u->rt, u->timer, on_timer, u);
	if (rc == 0)
		rc = patience_begin(u, PREPARE_S);
	return rc;
}

static void loop_end(void *ctx)
{
	struct upgrade *u = ctx;
	sy_runtime_stop(u->rt);
}

int upgrade_begin(void *ctx, const struct sy_balance_upgrade *wanted, struct sy_error *err)
{
	struct upgrade *u = ctx;
	if (wanted->restart) {
		u->restarts = true;
		sy_runtime_defer(u->rt, loop_end, u);
		return 0;
	}
	const char *path = wanted->binary ? wanted->binary : u->binary;
	char inherit[12];
	int end = -1, rc = binary_check(path, err);
	if (rc < 0)
		return rc;
	snprintf(inherit, sizeof(inherit), "%d", CHILD_FD);
	char **argv = argv_make(u, path, wanted, inherit);
	rc = argv ? attempt_open(u, &end) : -ENOMEM;
	/* Before the child can read: a journal truncated later does not match an older snapshot. */
	if (rc == 0)
		sy_balance_hold_snapshots(u->balance, true);
	if (rc == 0)
		rc = child_spawn(u, path, argv, end);
	if (end >= 0)
		close(end);
	free(argv);
	if (rc < 0) {
		attempt_close(u);
		sy_balance_hold_snapshots(u->balance, false);
		return sy_fail(err, -rc, "starting %s: %s", path, strerror(-rc));
	}
	u->phase = UPGRADE_PREPARING;
	u->prepared_ns = 0;
	sy_log(SY_LOG_INFO, "upgrade", "%s is starting as process %d", path, (int)u->child);
	return 0;
}

/* ---- the child's end ------------------------------------------------------------------------- */

/* The child has closed its socket, so it is probably exiting: waits for its status. */
static void child_await(const struct upgrade *u)
{
	struct pollfd end = {.fd = pidfd_open(u->child, 0), .events = POLLIN};
	if (end.fd < 0)
		return;
	struct sy_patience patience = sy_patience_begin(ENDING_MS * UINT64_C(1000000),
	                                                2 * ENDING_STEP_MS * UINT64_C(1000000));
	while (poll(&end, 1, ENDING_STEP_MS) == 0 && sy_patience_left(&patience) > 0)
		;
	close(end.fd);
}

/* Kills the child if it is still running, and writes to `how` how it ended. */
static void child_end(struct upgrade *u, char *how, size_t cap)
{
	int status = 0;
	bool ended = waitpid(u->child, &status, WNOHANG) == u->child;
	if (!ended) {
		kill(u->child, SIGKILL);
		while (waitpid(u->child, &status, 0) < 0 && errno == EINTR)
			;
		snprintf(how, cap, "it was killed");
	} else if (WIFSIGNALED(status)) {
		snprintf(how, cap, "it was ended by signal %d (%s)", WTERMSIG(status),
		         strsignal(WTERMSIG(status)));
	} else {
		snprintf(how, cap, "it ended with status %d", WEXITSTATUS(status));
	}
	u->child = 0;
}

static void upgrade_fail(struct upgrade *u, const struct sy_error *why)
{
	struct sy_error failure = {0}, what;
	char how[96];
	bool sealed = u->phase == UPGRADE_SEALED;
	attempt_close(u);
	if (why->code == ENOTCONN)
		child_await(u);
	child_end(u, how, sizeof(how));
	if (why->code == ENOTCONN)
		sy_fail(&failure, EIO,
		        "the new forwarder ended before it took over: %s; see its log", how);
	else
		sy_fail(&failure, why->code, "the new forwarder: %s", why->text);
	sy_log(SY_LOG_ERROR, "upgrade", "%s; %s", failure.text,
	       sealed ? "starting again with its sessions" : "continuing as before");
	what = failure;
	if (sealed)
		sy_fail(&failure, what.code,
		        "%.230s; the old forwarder starts again with its sessions", what.text);
	else
		sy_balance_hold_snapshots(u->balance, false);
	u->phase = sealed ? UPGRADE_RESTART : UPGRADE_NONE;
	sy_balance_upgrade_answer(u->balance, NULL, &failure);
	if (sealed) /* after the loop iteration that sends the reply */
		sy_runtime_defer(u->rt, loop_end, u);
}

static void hand_over_once_settled(struct upgrade *u);

static void on_timer(void *ctx)
{
	struct upgrade *u = ctx;
	struct sy_error err;
	if (u->phase == UPGRADE_PREPARING && u->prepared_ns) {
		hand_over_once_settled(u);
		return;
	}
	if (sy_patience_left(&u->patience) > 0 && timer_set(u, STEP_MS) == 0)
		return;
	sy_fail(&err, ETIMEDOUT, "%s within %d s; see its log and this one's",
	        u->phase == UPGRADE_SEALED ? "it did not take over" : "it was not prepared",
	        u->phase == UPGRADE_SEALED ? TAKE_OVER_S : PREPARE_S);
	upgrade_fail(u, &err);
}

/* ---- the hand-over --------------------------------------------------------------------------- */

static void hand_over(struct upgrade *u)
{
	struct upgrade_message b = {0};
	struct sy_error err;
	while (b.ticket == 0) /* 0 means a clean stop */
		if (getrandom(&b.ticket, sizeof(b.ticket), 0) < 0)
			b.ticket = sy_clock_ns();
	sy_balance_save(u->balance); /* ends a transaction, whose tables may take long to build */
	u->phase = UPGRADE_SEALED;
	patience_begin(u, TAKE_OVER_S);
	sy_balance_leave_socket(u->balance);
	b.last_ns = sy_clock_ns();
	sy_runtime_quiesce(u->rt);
	sy_balance_seal(u->balance, b.ticket);
	close(*u->note);
	*u->note = -1;
	int rc = upgrade_message_send(u->fd, UPGRADE_MESSAGE_SEALED, NULL, &b);
	if (rc < 0) {
		sy_fail(&err, rc == -EPIPE ? ENOTCONN : -rc, "%s", strerror(-rc));
		upgrade_fail(u, &err);
	}
}

/* The successor has everything except the sessions. Soon after an upgrade of this process, records
 * may still have path ids of its predecessor. Until sweeps have renewed them, the successor would
 * have to check each record during the gap. So this process waits, and goes on forwarding. */
static void hand_over_once_settled(struct upgrade *u)
{
	uint64_t waited_ns = sy_clock_ns() - u->prepared_ns;
	if (sy_balance_is_settled(u->balance) || waited_ns > SETTLE_S * UINT64_C(1000000000) ||
	    timer_set(u, SETTLE_MS) < 0)
		hand_over(u);
}

static void succeed(struct upgrade *u, const struct upgrade_message *b)
{
	struct sy_balance_upgraded done = {
	        .build = b->text,
	        .pid = (int)u->child,
	        .gap_ns = b->gap_ns,
	        .sessions = b->sessions,
	};
	attempt_close(u);
	u->phase = UPGRADE_DONE;
	sy_log(SY_LOG_INFO, "upgrade",
	       "process %d (%s) has taken over %lu sessions; no packet was received for %.1f ms",
	       done.pid, done.build, (unsigned long)done.sessions, (double)done.gap_ns / 1e6);
	sd_notifyf(0, "MAINPID=%d\nSTATUS=Upgraded to %s.", done.pid, done.build);
	sd_notify_barrier(0, BARRIER_US); /* while this process is still the main process */
	sy_balance_upgrade_answer(u->balance, &done, NULL);
	sy_runtime_defer(u->rt, loop_end, u);
}

static void on_message(void *ctx)
{
	struct upgrade *u = ctx;
	struct upgrade_message b;
	struct sy_error err = {0};
	int rc = upgrade_message_receive(u->fd, &b, &err);
	if (rc == 0)
		return;
	if (rc > 0 && b.kind == UPGRADE_MESSAGE_PREPARED && u->phase == UPGRADE_PREPARING &&
	    !u->prepared_ns) {
		u->prepared_ns = sy_clock_ns();
		hand_over_once_settled(u);
		return;
	}
	if (rc > 0 && b.kind == UPGRADE_MESSAGE_READY && u->phase == UPGRADE_SEALED) {
		succeed(u, &b);
		return;
	}
	if (rc > 0 && b.kind == UPGRADE_MESSAGE_FAILED)
		sy_fail(&err, EIO, "%s", b.text);
	else if (rc > 0)
		sy_fail(&err, EPROTO, "unexpected message %u", b.kind);
	upgrade_fail(u, &err);
}

void upgrade_stop(struct upgrade *u)
{
	char how[96];
	if (u->phase != UPGRADE_PREPARING && u->phase != UPGRADE_SEALED)
		return;
	attempt_close(u);
	child_end(u, how, sizeof(how));
	sy_log(SY_LOG_WARN, "upgrade", "stopped during an upgrade: the new forwarder: %s", how);
	if (u->phase == UPGRADE_PREPARING) /* changes accepted meanwhile are saved at the end */
		sy_balance_hold_snapshots(u->balance, false);
	u->phase = u->phase == UPGRADE_SEALED ? UPGRADE_DONE : UPGRADE_NONE;
}

int upgrade_execute(const struct upgrade *u, struct sy_error *err)
{
	char **argv = argv_make(u, u->argv[0], NULL, NULL);
	if (!argv)
		return sy_fail(err, ENOMEM, "no memory to start again");
	close_range(CHILD_FD, ~0u, CLOSE_RANGE_CLOEXEC);
	execv(SELF, argv); /* works even if the file is gone */
	int rc = sy_fail(err, errno, "starting again from %s: %s", u->binary, strerror(errno));
	free(argv);
	return rc;
}
