// SPDX-License-Identifier: Apache-2.0
/* Plays: epoll. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#include "plays.h"

static struct epoll_event event_of(uint32_t events, uint64_t data)
{
	return (struct epoll_event){.events = events, .data.u64 = data};
}

static void note_events(const struct both *b, int side, int ep, int timeout_ms)
{
	struct epoll_event e[8];
	int count = b->epoll_wait(side, ep, e, 8, timeout_ms);

	note_result("epoll_wait", count);
	for (int i = 0; i < count; i++)
		note("  %llx: %x\n", (unsigned long long)e[i].data.u64, e[i].events);
}

static void wrong_calls(const struct both *b, bool v6)
{
	int ep = b->epoll_create(CLIENT), other = b->epoll_create(CLIENT);
	int fd = b->socket(CLIENT, v6 ? AF_INET6 : AF_INET);
	struct epoll_event e = event_of(EPOLLIN, 1);
	char byte;

	note_result("add", b->epoll_ctl(CLIENT, ep, EPOLL_CTL_ADD, fd, &e));
	note_result("add again", b->epoll_ctl(CLIENT, ep, EPOLL_CTL_ADD, fd, &e));
	note_result("itself", b->epoll_ctl(CLIENT, ep, EPOLL_CTL_ADD, ep, &e));
	note_result("no instance", b->epoll_ctl(CLIENT, fd, EPOLL_CTL_ADD, ep, &e));
	note_result("no descriptor", b->epoll_ctl(CLIENT, ep, EPOLL_CTL_ADD, 250, &e));
	note_result("no operation", b->epoll_ctl(CLIENT, ep, 7, fd, &e));
	note_result("other modifies", b->epoll_ctl(CLIENT, other, EPOLL_CTL_MOD, fd, &e));
	note_result("other deletes", b->epoll_ctl(CLIENT, other, EPOLL_CTL_DEL, fd, NULL));
	note_result("delete", b->epoll_ctl(CLIENT, ep, EPOLL_CTL_DEL, fd, NULL));
	note_result("delete again", b->epoll_ctl(CLIENT, ep, EPOLL_CTL_DEL, fd, NULL));
	note_result("wait for none", b->epoll_wait(CLIENT, ep, &e, 0, 0));
	note_result("wait on a socket", b->epoll_wait(CLIENT, fd, &e, 1, 0));
	note_result("recv", b->recv(CLIENT, ep, &byte, 1, 0));
	note_result("send", b->send(CLIENT, ep, &byte, 1, 0));
	note_result("listen", b->listen(CLIENT, ep, 1));
	b->close(CLIENT, fd);
	b->close(CLIENT, other);
	b->close(CLIENT, ep);
}

static void levels(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);
	int ep = b->epoll_create(SERVER);
	struct epoll_event e = event_of(EPOLLIN, 0x123456789abcdef0);
	char bytes[8];

	b->epoll_ctl(SERVER, ep, EPOLL_CTL_ADD, p.server, &e);
	note_events(b, SERVER, ep, 0);
	b->send(CLIENT, p.client, "abcd", 4, 0);
	note_events(b, SERVER, ep, 30000);
	note_events(b, SERVER, ep, 30000); /* still */
	b->recv(SERVER, p.server, bytes, 2, 0);
	note_events(b, SERVER, ep, 30000);
	e = event_of(EPOLLOUT, 2);
	note_result("modify", b->epoll_ctl(SERVER, ep, EPOLL_CTL_MOD, p.server, &e));
	note_events(b, SERVER, ep, 0);
	e = event_of(0, 3);
	b->epoll_ctl(SERVER, ep, EPOLL_CTL_MOD, p.server, &e);
	note_events(b, SERVER, ep, 0);
	e = event_of(EPOLLIN | EPOLLRDHUP, 4);
	b->epoll_ctl(SERVER, ep, EPOLL_CTL_MOD, p.server, &e);
	b->recv(SERVER, p.server, bytes, 8, 0);
	note_events(b, SERVER, ep, 0);
	b->close(CLIENT, p.client);
	await(b, SERVER, p.server, POLLRDHUP);
	note_events(b, SERVER, ep, 30000);
	b->close(SERVER, p.server); /* leaves the instance by itself */
	note_events(b, SERVER, ep, 0);
	b->close(SERVER, ep);
	b->close(SERVER, p.listener);
}

static void edges(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);
	int ep = b->epoll_create(SERVER);
	struct epoll_event e = event_of(EPOLLIN | EPOLLRDHUP | EPOLLET, 5);
	char bytes[8];

	b->send(CLIENT, p.client, "ab", 2, 0);
	await(b, SERVER, p.server, POLLIN);
	b->epoll_ctl(SERVER, ep, EPOLL_CTL_ADD, p.server, &e);
	note_events(b, SERVER, ep, 30000);
	note_events(b, SERVER, ep, 0);
	b->recv(SERVER, p.server, bytes, 1, 0);
	note_events(b, SERVER, ep, 0);
	b->send(CLIENT, p.client, "c", 1, 0); /* more data is a new edge */
	note_events(b, SERVER, ep, 30000);
	note_events(b, SERVER, ep, 0);
	b->epoll_ctl(SERVER, ep, EPOLL_CTL_MOD, p.server, &e); /* re-arms */
	note_events(b, SERVER, ep, 0);
	b->recv(SERVER, p.server, bytes, 8, 0);
	note_result("recv", b->recv(SERVER, p.server, bytes, 8, 0));
	b->shutdown(CLIENT, p.client, SHUT_WR);
	note_events(b, SERVER, ep, 30000);
	note_events(b, SERVER, ep, 0);
	b->close(SERVER, ep);
	pair_close(b, &p);
}

static void one_shot(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);
	int ep = b->epoll_create(SERVER);
	struct epoll_event e = event_of(EPOLLIN | EPOLLONESHOT, 6);

	b->epoll_ctl(SERVER, ep, EPOLL_CTL_ADD, p.server, &e);
	b->send(CLIENT, p.client, "ab", 2, 0);
	note_events(b, SERVER, ep, 30000);
	note_events(b, SERVER, ep, 0);
	b->send(CLIENT, p.client, "cd", 2, 0);
	note_events(b, SERVER, ep, 0);
	b->epoll_ctl(SERVER, ep, EPOLL_CTL_MOD, p.server, &e);
	note_events(b, SERVER, ep, 30000);
	b->shutdown(CLIENT, p.client, SHUT_WR);
	await(b, SERVER, p.server, POLLRDHUP);
	note_events(b, SERVER, ep, 0); /* not even hang-ups */
	b->close(SERVER, ep);
	pair_close(b, &p);
}

/* Nested instances, in poll(), and too deeply. */
static void nested(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);
	int inner = b->epoll_create(SERVER), outer = b->epoll_create(SERVER);
	struct epoll_event e = event_of(EPOLLIN, 7);
	char bytes[8];

	b->epoll_ctl(SERVER, inner, EPOLL_CTL_ADD, p.server, &e);
	e = event_of(EPOLLIN, 8);
	note_result("add", b->epoll_ctl(SERVER, outer, EPOLL_CTL_ADD, inner, &e));
	note_result("a circle", b->epoll_ctl(SERVER, inner, EPOLL_CTL_ADD, outer, &e));
	note_ready(b, SERVER, "inner", inner);
	note_events(b, SERVER, outer, 0);
	b->send(CLIENT, p.client, "ab", 2, 0);
	note_events(b, SERVER, outer, 30000);
	note_ready(b, SERVER, "inner", inner);
	note_ready(b, SERVER, "outer", outer);
	note_events(b, SERVER, outer, 0);
	b->recv(SERVER, p.server, bytes, 8, 0);
	note_ready(b, SERVER, "inner", inner);
	note_events(b, SERVER, outer, 0);
	int chain[8], made = 0, rc = 0;
	for (; made < 8 && rc == 0; made++) {
		chain[made] = b->epoll_create(SERVER);
		rc = b->epoll_ctl(SERVER, chain[made], EPOLL_CTL_ADD,
		                  made ? chain[made - 1] : outer, &e);
	}
	note_result("too deep", rc);
	note_result("after", made);
	while (made > 0)
		b->close(SERVER, chain[--made]);
	b->close(SERVER, inner);
	note_events(b, SERVER, outer, 0);
	b->close(SERVER, outer);
	pair_close(b, &p);
}

/* Ready descriptors are reported round robin. */
static void round_robin(const struct both *b, bool v6)
{
	int listener = listener_make(b, v6, PORT), ep = b->epoll_create(SERVER), client[4],
	    server[4];
	struct epoll_event one;
	unsigned seen = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct epoll_event e = event_of(EPOLLIN, i);
		client[i] = client_make(b, v6, PORT);
		await(b, SERVER, listener, POLLIN);
		server[i] = b->accept(SERVER, listener, NULL, NULL);
		b->epoll_ctl(SERVER, ep, EPOLL_CTL_ADD, server[i], &e);
		await(b, CLIENT, client[i], POLLOUT);
		b->send(CLIENT, client[i], "x", 1, 0);
		await(b, SERVER, server[i], POLLIN);
	}
	for (unsigned i = 0; i < 4; i++)
		if (b->epoll_wait(SERVER, ep, &one, 1, 0) == 1)
			seen |= 1u << one.data.u64;
	note_result("all had a turn", seen == 15);
	for (unsigned i = 0; i < 4; i++) {
		b->close(CLIENT, client[i]);
		b->close(SERVER, server[i]);
	}
	b->close(SERVER, ep);
	b->close(SERVER, listener);
}

const struct play plays_epoll[] = {
        {"wrong calls", wrong_calls},
        {"levels", levels},
        {"edges", edges},
        {"one-shot", one_shot},
        {"nested", nested},
        {"round_robin", round_robin},
        {NULL, NULL},
};
