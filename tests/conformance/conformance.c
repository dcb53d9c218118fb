// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-conformance PEER OWN PORT SILENT REFUSED UNREACHABLE UNUSED [PATTERN]
 *
 * SILENT: a port of the peer that drops SYNs. REFUSED: one that nothing listens at. UNREACHABLE: an
 * address for which a router sends ICMP errors. UNUSED: an address on the link that no host has.
 * PATTERN: only cases ("state mode call") that match it, as fnmatch().
 */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "conformance.h"

#define LISTEN 8100 /* the first one */

void *volatile const null = NULL, *volatile const bad = (void *)0x10,
                     *volatile const kernel = (void *)0xffffffff80000000;
volatile const int minus_one = -1;

static char text[MORE_BYTES * 2];
static volatile sig_atomic_t pipes;
static const char *pattern = "*";

void pipe_report(const int ends[2], char report[MORE_BYTES])
{
	close(ends[1]);
	for (size_t got = 0; got < MORE_BYTES - 1;) {
		ssize_t n = read(ends[0], report + got, MORE_BYTES - 1 - got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	close(ends[0]);
}

void require(bool holds, const char *what)
{
	if (holds)
		return;
	printf("%s: %s\n", what, strerror(errno));
	fflush(stdout);
	_exit(1);
}

void more(const char *format, ...)
{
	size_t used = strlen(text);
	va_list list;

	va_start(list, format);
	vsnprintf(text + used, sizeof(text) - used, format, list);
	va_end(list);
}

const char *error_name(int error)
{
	const char *name = strerrorname_np(error);

	return error == 0 ? "ok" : name ? name : "?";
}

const char *address_name(const struct sockaddr_storage *a, socklen_t len)
{
	struct sockaddr_storage own, other, any;

	address_of(peer.own, 0, &own);
	address_of(peer.address, 0, &other);
	address_of(peer.family == AF_INET ? "0.0.0.0" : "::", 0, &any);
	bool port = ((const struct sockaddr_in *)a)->sin_port != 0;
	struct sockaddr_storage plain = *a;
	((struct sockaddr_in *)&plain)->sin_port = 0;
	size_t size = peer.family == AF_INET ? 8 : sizeof(struct sockaddr_in6);
	const char *host = memcmp(&plain, &own, size) == 0     ? "own"
	                   : memcmp(&plain, &other, size) == 0 ? "peer"
	                   : memcmp(&plain, &any, size) == 0   ? "any"
	                                                       : "other";
	static char out[64];
	snprintf(out, sizeof(out), "%s%s (%u)", host, port ? ":port" : "", len);
	return out;
}

const char *events_name(unsigned events)
{
	static const struct {
		unsigned bit;
		const char *name;
	} all[] = {{POLLIN, "IN"},         {POLLPRI, "PRI"},       {POLLOUT, "OUT"},
	           {POLLERR, "ERR"},       {POLLHUP, "HUP"},       {POLLNVAL, "NVAL"},
	           {POLLRDNORM, "RDNORM"}, {POLLWRNORM, "WRNORM"}, {POLLRDHUP, "RDHUP"}};
	static char out[96];

	out[0] = '\0';
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (events & all[i].bit)
			strcat(strcat(out, out[0] ? "|" : ""), all[i].name);
	return out[0] ? out : "none";
}

static void count_pipe(int number)
{
	pipes++;
}

static bool is_opening(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       info.tcpi_state == TCP_SYN_SENT;
}

/* connect() may be slow on a busy machine. */
void mode_set(int fd, bool nonblocking)
{
	struct timeval soon = {.tv_usec = SHORT_MS * 1000};

	if (nonblocking) {
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
		return;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	if (is_opening(fd))
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
}

static bool is_run(const struct state *s, unsigned mode, const struct call *c)
{
	if (mode == 1 && (!c->blocks || s->only[0]))
		return false;
	for (size_t i = 0; i < sizeof(s->only) / sizeof(*s->only) && s->only[i]; i++)
		if (strcmp(s->only[i], c->name) == 0)
			return true;
	return !s->only[0] && (s->all || !c->few);
}

static bool is_wanted(const struct state *s, const char *mode, const struct call *c)
{
	char name[128];

	snprintf(name, sizeof(name), "%s %s %s", s->name, mode, c->name);
	return fnmatch(pattern, name, 0) == 0;
}

static void case_run(const struct state *s, const char *mode, const struct call *c, int fd)
{
	text[0] = '\0';
	pipes = 0;
	long rc = c->run(fd);
	char result[32];
	if (rc < 0)
		snprintf(result, sizeof(result), "%s", error_name((int)-rc));
	else
		snprintf(result, sizeof(result), "%ld", rc);
	printf("%s %s %s: %s%s%s%s\n", s->name, mode, c->name, result, pipes ? " SIGPIPE" : "",
	       text[0] ? ", " : "", text);
	fflush(stdout);
}

static void actions_run(const struct state *s, const struct call *calls, size_t count)
{
	static const char *mode[] = {"blocking", "nonblocking"};

	for (size_t i = 0; i < count; i++)
		for (unsigned m = 0; m < 2; m++) {
			if (!is_run(s, m, &calls[i]) || !is_wanted(s, mode[m], &calls[i]))
				continue;
			int fd = state_open(s);
			mode_set(fd, m == 1);
			case_run(s, mode[m], &calls[i], fd);
			state_close(fd);
		}
}

/* This process has no socket yet, so the stack is the children's. */
static void replacements_run(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (size_t i = 0; i < state_count; i++)
		for (size_t k = 0; k < replacement_count; k++) {
			const struct replacement *r = &replacements[k];
			const struct call c = {.name = r->name, .few = r->few};
			if (!is_run(&states[i], 0, &c) || !is_wanted(&states[i], "alone", &c))
				continue;
			text[0] = '\0';
			replacement_run(&states[i], r);
			printf("%s alone %s: %s\n", states[i].name, r->name, text);
			fflush(stdout);
		}
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void queries_run(const struct state *s)
{
	int fd = -1;

	for (size_t i = 0; i < query_count; i++) {
		if (!is_wanted(s, "any", &queries[i]))
			continue;
		if (fd < 0)
			fd = state_open(s);
		case_run(s, "any", &queries[i], fd);
	}
	if (fd >= 0)
		state_close(fd);
}

int main(int count, char **arg)
{
	if (count > 1 && strcmp(arg[0], "--executed") == 0)
		return executed(arg + 1);
	if (count > 2 && strcmp(arg[1], "--executed") == 0)
		return executed(arg + 2);
	require(count == 8 || count == 9, "arguments");
	peer.address = arg[1];
	peer.own = arg[2];
	peer.port = atoi(arg[3]);
	peer.silent = atoi(arg[4]);
	peer.refused = atoi(arg[5]);
	peer.unreachable = arg[6];
	peer.unused = arg[7];
	peer.listen = LISTEN;
	peer.family = strchr(peer.address, ':') ? AF_INET6 : AF_INET;
	pattern = count == 9 ? arg[8] : pattern;
	struct sigaction pipe_action = {.sa_handler = count_pipe};
	sigaction(SIGPIPE, &pipe_action, NULL);
	replacements_run();
	pools_open();
	for (size_t i = 0; i < state_count; i++) {
		queries_run(&states[i]);
		actions_run(&states[i], actions, action_count);
		actions_run(&states[i], transfers, transfer_count);
		actions_run(&states[i], several, several_count);
		actions_run(&states[i], variants, variant_count);
		actions_run(&states[i], executing, executing_count);
	}
	puts("done");
	return 0;
}
