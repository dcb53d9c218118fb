// SPDX-License-Identifier: Apache-2.0
/* Ports that no process of the program serves: Linux gets their new connections, and the user a
 * warning. */
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>

#include "supervisor.h"

#define MS           UINT64_C(1000000)
#define PATIENCE     (1000 * MS) /* how long a port may be unserved */
#define NOTE_STALLED 2 /* of the registry; the first two are those of supervisor_workers.c */
#define NOTE_PORTS   3

/* A list in a note; entries that exceed it are left out. */
struct list {
	char text[120];
	unsigned count;
};

__attribute__((format(printf, 2, 3))) static void list_add(struct list *l, const char *format, ...)
{
	size_t at = strlen(l->text);
	va_list args;

	if (at + 16 > sizeof(l->text))
		return;
	if (l->count++)
		at += (size_t)snprintf(l->text + at, sizeof(l->text) - at, ", ");
	va_start(args, format);
	vsnprintf(l->text + at, sizeof(l->text) - at, format, args);
	va_end(args);
}

/* ---- processes that do not run --------------------------------------------------------------- */

/* Finds processes that are stopped by a signal or a debugger, or frozen: otherwise the helper
 * thread of their stack runs. */
static void stalls_find(struct supervisor *sv, uint64_t now_ns)
{
	char text[SY_HOOK_NOTE_TEXT] = "";
	struct list pids = {0};

	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++) {
		struct peer *p = &peer[i];
		if (!p->fd || !p->bound)
			continue;
		bool stalled = now_ns - p->heartbeat_ns >= PATIENCE;
		if (stalled && !p->stalled)
			sy_log(SY_LOG_WARN, "run",
			       "pid %d has not run for a second: Linux accepts the new "
			       "connections to its ports until it continues",
			       p->pid);
		if (stalled != p->stalled) {
			p->stalled = stalled;
			ports_steer(sv, p);
		}
		if (stalled)
			list_add(&pids, "%d", p->pid);
	}
	if (pids.count)
		snprintf(text, sizeof(text),
		         "stopped: Linux accepts their new connections until they continue: pid %s",
		         pids.text);
	sy_hook_registry_note(sv->hooks, NOTE_STALLED, text);
}

/* ---- ports without a process that waits there ------------------------------------------------ */

static void port_warn(const struct port *at, pid_t pid)
{
	if (at->yielded)
		sy_log(SY_LOG_WARN, "run",
		       "port %u: pid %d has not accepted pending connections for a second: Linux "
		       "accepts the new ones until it does",
		       ntohs(at->port), pid);
	else
		sy_log(SY_LOG_WARN, "run",
		       "port %u: pid %d listens there, and for a second no process has waited "
		       "there for connections by the C library: Linux accepts them until one does",
		       ntohs(at->port), pid);
}

/* Returns whether a warning was logged: several processes may have the same listener. */
static bool port_was_warned(uint16_t port)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++)
		for (unsigned n = 0; peer[i].fd && n < peer[i].ports; n++)
			if (peer[i].port[n].port == port && peer[i].port[n].warned)
				return true;
	return false;
}

static bool port_is_unserved(const struct port *at, uint64_t now_ns)
{
	return !at->closed && !at->serves && now_ns - at->since_ns >= PATIENCE &&
	       !port_is_served(at);
}

static void unserved_find(struct supervisor *sv, uint64_t now_ns)
{
	char text[SY_HOOK_NOTE_TEXT] = "";
	struct list ports = {0};
	uint16_t last = 0;

	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++) {
		for (unsigned n = 0; peer[i].fd && n < peer[i].ports; n++) {
			struct port *at = &peer[i].port[n];
			if (!port_is_unserved(at, now_ns))
				continue;
			if (!port_was_warned(at->port))
				port_warn(at, peer[i].pid);
			at->warned = true;
			if (at->port != last) /* listed once for both families */
				list_add(&ports, "%u", ntohs(at->port));
			last = at->port;
		}
	}
	if (ports.count)
		snprintf(text, sizeof(text),
		         "Linux accepts the new connections to port %s: no process accepts them by "
		         "the C library, or it passes them on to others",
		         ports.text);
	sy_hook_registry_note(sv->hooks, NOTE_PORTS, text);
}

/* ---- the supervisor's loop ------------------------------------------------------------------- */

int supervisor_watch_ms(void)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++)
		if (peer[i].fd && (peer[i].bound || peer[i].ports))
			return MESSAGE_HEARTBEAT_MS;
	return -1;
}

void supervisor_watch(struct supervisor *sv)
{
	static uint64_t next_ns;
	uint64_t now_ns = sy_clock_ns();

	if (now_ns < next_ns)
		return;
	next_ns = now_ns + MESSAGE_HEARTBEAT_MS * MS;
	stalls_find(sv, now_ns);
	unserved_find(sv, now_ns);
	ports_check(sv, now_ns);
}
