// SPDX-License-Identifier: Apache-2.0
/* The peer resets the connection: earlier data, readiness, and which call returns the error. */
#include <linux/sockios.h>
#include <stddef.h>
#include <sys/ioctl.h>

#include "plays.h"

static void reset(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);
	const struct linger now = {1, 0};

	note_result("linger",
	            b->setsockopt(CLIENT, p.client, SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
	b->close(CLIENT, p.client);
	await(b, SERVER, p.server, POLLHUP);
	note_ready(b, SERVER, "server", p.server);
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	note_result("send", b->send(SERVER, p.server, "x", 1, 0));
	note_ready(b, SERVER, "server", p.server);
	b->close(SERVER, p.server);
	b->close(SERVER, p.listener);
	/* Closing with unread data resets the connection. */
	p = pair_make(b, v6);
	b->send(CLIENT, p.client, "unread", 6, 0);
	await(b, SERVER, p.server, POLLIN);
	b->close(SERVER, p.server);
	await(b, CLIENT, p.client, POLLHUP);
	note_ready(b, CLIENT, "client", p.client);
	note_result("send", b->send(CLIENT, p.client, "x", 1, 0));
	note_result("send", b->send(CLIENT, p.client, "x", 1, 0));
	note_recv(b, CLIENT, p.client, 0);
	b->close(CLIENT, p.client);
	b->close(SERVER, p.listener);
}

/* Waits until the peer has acknowledged everything. */
static void await_acknowledged(const struct both *b, int side, int fd)
{
	struct pollfd nothing = {.fd = fd};
	int left;

	while (b->ioctl(side, fd, SIOCOUTQ, &left) == 0 && left > 0)
		b->poll(side, &nothing, 1, 1);
}

/* The client sends data and resets the connection. */
static struct pair pair_reset(const struct both *b, bool v6, bool accepts, bool ends)
{
	struct pair p = {.listener = listener_make(b, v6, PORT), .server = -1};
	const struct linger now = {1, 0};

	p.client = client_make(b, v6, PORT);
	await(b, CLIENT, p.client, POLLOUT);
	await(b, SERVER, p.listener, POLLIN);
	if (accepts)
		p.server = b->accept(SERVER, p.listener, NULL, NULL);
	b->send(CLIENT, p.client, "413 too large", 13, 0);
	await_acknowledged(b, CLIENT, p.client);
	if (ends) {
		b->shutdown(CLIENT, p.client, SHUT_WR);
		await(b, SERVER, p.server, POLLRDHUP);
	}
	b->setsockopt(CLIENT, p.client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	b->close(CLIENT, p.client);
	if (accepts) {
		await(b, SERVER, p.server, POLLHUP);
		note_ready(b, SERVER, "server", p.server);
	}
	return p;
}

static void reset_close(const struct both *b, const struct pair *p)
{
	note_ready(b, SERVER, "server", p->server);
	b->close(SERVER, p->server);
	b->close(SERVER, p->listener);
}

/* First the data, then the error, then EOF. */
static void reset_after_bytes(const struct both *b, bool v6)
{
	struct pair p = pair_reset(b, v6, true, false);
	char bytes[8];
	int unread = -1;

	note_result("FIONREAD", b->ioctl(SERVER, p.server, FIONREAD, &unread));
	note("unread: %d\n", unread);
	note_recv(b, SERVER, p.server, MSG_PEEK);
	note_result("recv of 4", b->recv(SERVER, p.server, bytes, 4, 0));
	note_ready(b, SERVER, "server", p.server);
	note_recv(b, SERVER, p.server, 0);
	note_ready(b, SERVER, "server", p.server);
	note_recv(b, SERVER, p.server, 0);
	note_ready(b, SERVER, "server", p.server);
	note_recv(b, SERVER, p.server, 0);
	note_result("send", b->send(SERVER, p.server, "x", 1, 0));
	reset_close(b, &p);
	/* A call that returns data leaves the error to the next one. */
	p = pair_reset(b, v6, true, false);
	const struct iovec two[2] = {{bytes, 8}, {bytes, 8}};
	note_result("readv", b->readv(SERVER, p.server, two, 2));
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	reset_close(b, &p);
	p = pair_reset(b, v6, true, false);
	note_result("recv of the first", b->recv(SERVER, p.server, bytes, 5, 0));
	const struct iovec whole[2] = {{bytes, 8}, {bytes, 8}};
	note_result("readv of a full part", b->readv(SERVER, p.server, whole, 2));
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	reset_close(b, &p);
}

/* If another call returns the error first, the data stays. */
static void reset_error_first(const struct both *b, bool v6)
{
	struct pair p = pair_reset(b, v6, true, false);

	note_number(b, SERVER, p.server, "error", SOL_SOCKET, SO_ERROR);
	note_ready(b, SERVER, "server", p.server);
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	note_number(b, SERVER, p.server, "error", SOL_SOCKET, SO_ERROR);
	note_result("send", b->send(SERVER, p.server, "x", 1, 0));
	reset_close(b, &p);
	p = pair_reset(b, v6, true, false);
	note_result("send", b->send(SERVER, p.server, "x", 1, 0));
	note_result("send", b->send(SERVER, p.server, "x", 1, 0));
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	reset_close(b, &p);
	p = pair_reset(b, v6, true, false);
	note_result("shutdown", b->shutdown(SERVER, p.server, SHUT_RDWR));
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	reset_close(b, &p);
}

/* After a FIN: EOF precedes the error. */
static void reset_after_end(const struct both *b, bool v6)
{
	struct pair p = pair_reset(b, v6, true, true);

	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	note_number(b, SERVER, p.server, "error", SOL_SOCKET, SO_ERROR);
	note_recv(b, SERVER, p.server, 0);
	note_result("send", b->send(SERVER, p.server, "x", 1, 0));
	reset_close(b, &p);
}

/* Before accept(): it is accepted nevertheless. */
static void reset_before_accept(const struct both *b, bool v6)
{
	struct pair p = pair_reset(b, v6, false, false);
	struct pollfd ready = {.events = POLLERR};

	note_ready(b, SERVER, "listener", p.listener);
	p.server = b->accept(SERVER, p.listener, NULL, NULL);
	ready.fd = p.server;
	note_result("wait", b->poll(SERVER, &ready, 1, 30000));
	note_ready(b, SERVER, "server", p.server);
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	reset_close(b, &p);
	p = pair_reset(b, v6, false, false);
	b->close(SERVER, p.listener); /* or remains in the accept queue */
}

const struct play plays_reset[] = {
        {"reset", reset},
        {"reset after bytes", reset_after_bytes},
        {"reset after bytes, error first", reset_error_first},
        {"reset after the end", reset_after_end},
        {"reset before accept", reset_before_accept},
        {NULL, NULL},
};
