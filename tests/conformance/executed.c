// SPDX-License-Identifier: Apache-2.0
/* The program that call_exec.c executes with a socket: reports the socket by a pipe. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "conformance.h"

#define SETTLE_MS 2000 /* until bytes from before the execution have arrived */

unsigned settled(int fd, short before)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};

	for (int i = 0; i < SETTLE_MS; i++) {
		poll(&p, 1, 0);
		if ((p.revents & before) == before)
			break;
		poll(NULL, 0, 1);
	}
	return (unsigned short)p.revents;
}

/* Returns how many signals this thread blocks. */
static int blocked(void)
{
	sigset_t set;
	int count = 0;

	pthread_sigmask(SIG_BLOCK, NULL, &set);
	for (int i = 1; i < NSIG; i++)
		count += sigismember(&set, i) == 1;
	return count;
}

static void names_report(int fd, int out)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int value = -1;
	socklen_t size = sizeof(value);

	dprintf(out, "own %s, ",
	        getsockname(fd, (void *)&a, &len) ? error_name(errno) : address_name(&a, len));
	len = sizeof(a);
	dprintf(out, "peer %s, ",
	        getpeername(fd, (void *)&a, &len) ? error_name(errno) : address_name(&a, len));
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &size);
	dprintf(out, "domain %d, ", value == peer.family);
	value = -1;
	getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size);
	dprintf(out, "listens %d, ", value);
}

/* bare: without the library, a program does not see the names of relays. */
static void report(int fd, int out, bool bare, short before)
{
	char bytes[16];
	int flags = fcntl(fd, F_GETFD);

	dprintf(out, "flags %s", flags < 0 ? error_name(errno) : flags ? "cloexec" : "0");
	if (flags < 0)
		return;
	dprintf(out, " %d, blocked %d, ", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, blocked());
	if (!bare)
		names_report(fd, out);
	dprintf(out, "poll %s, ", events_name(settled(fd, before)));
	int got = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
	dprintf(out, "accept %s, ", error_name(got < 0 ? errno : 0));
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	dprintf(out, "read %s %.*s, ", error_name(n < 0 ? errno : 0), n > 0 ? (int)n : 0, bytes);
	n = send(fd, "a", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	dprintf(out, "write %s", error_name(n < 0 ? errno : 0));
}

/* Reports an epoll instance that was passed on. */
static void report_set(int set, int out, short before)
{
	struct epoll_event got = {0};
	int n = 0;

	for (int i = 0; i < SETTLE_MS; i++) {
		n = epoll_wait(set, &got, 1, before ? 0 : SHORT_MS);
		if (!before || (n > 0 && (got.events & (unsigned)before) == (unsigned)before))
			break;
		poll(NULL, 0, 1);
	}
	dprintf(out, "%d %u %s", n, n > 0 ? got.data.u32 : 0, events_name(n > 0 ? got.events : 0));
}

int executed(char **arg)
{
	const char *how = arg[0];
	int fd = atoi(arg[1]), out = atoi(arg[2]);

	peer.own = arg[4];
	peer.address = arg[5];
	peer.family = strchr(peer.address, ':') ? AF_INET6 : AF_INET;
	if (strcmp(how, "set") == 0)
		report_set(fd, out, (short)atoi(arg[3]));
	else
		report(fd, out, strcmp(how, "bare") == 0, (short)atoi(arg[3]));
	return 0;
}
