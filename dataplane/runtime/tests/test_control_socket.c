// SPDX-License-Identifier: Apache-2.0
/* The control socket: whole and broken frames, many peers, peers that vanish or do not read. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime_fixture.h"

#define PEERS  20
#define FRAMES 40 /* per peer */

static char path[100];
static struct sy_runtime *rt;
static struct sy_control *control;

/* ---- a handler that returns the request, at once or later ------------------------------------ */

struct pending {
	struct sy_control_peer *peer; /* NULL: the peer is gone */
	uint8_t *bytes;
	size_t len;
};

static unsigned requests, broken, gone, late;
static char broken_text[200];
static bool mute; /* accept requests without a reply */

static void pending_answer(void *ctx)
{
	struct pending *p = ctx;
	if (p->peer) {
		*sy_control_peer_data(p->peer) = NULL;
		assert_int_equal(sy_control_reply(p->peer, p->bytes, p->len), 0);
	}
	free(p->bytes);
	free(p);
	late++;
}

static void on_request(void *ctx, struct sy_control_peer *peer, const uint8_t *bytes, size_t len)
{
	assert_null(*sy_control_peer_data(peer)); /* never a second request before the reply */
	if (mute)
		return;
	if (++requests % 2) {
		assert_int_equal(sy_control_reply(peer, bytes, len), 0);
		return;
	}
	struct pending *p = malloc(sizeof(*p));
	*p = (struct pending){peer, malloc(len + 1), len};
	if (len)
		memcpy(p->bytes, bytes, len);
	*sy_control_peer_data(peer) = p;
	sy_runtime_defer(rt, pending_answer, p);
}

static void on_broken(void *ctx, struct sy_control_peer *peer, const char *text)
{
	broken++;
	snprintf(broken_text, sizeof(broken_text), "%s", text);
	assert_int_equal(sy_control_reply(peer, (const uint8_t *)"broken", 6), 0);
}

static void on_gone(void *ctx, struct sy_control_peer *peer)
{
	struct pending *p = *sy_control_peer_data(peer);
	if (p)
		p->peer = NULL;
	gone++;
}

static const struct sy_control_access access_own = {SY_NO_ID, SY_NO_ID};
static const struct sy_control_handler handler = {NULL, on_request, on_broken, on_gone};

/* ---- the peers' side; nonblocking, and the runtime takes turns in between -------------------- */

static int peer_open(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	memcpy(sun.sun_path, path, sizeof(path));
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	return fd;
}

static uint32_t seed = 3;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

struct stream {
	int fd;
	uint8_t *bytes; /* all frames that this peer sends and expects back */
	size_t len, sent, back;
};

static void stream_make(struct stream *s, int fd)
{
	*s = (struct stream){.fd = fd};
	for (unsigned i = 0; i < FRAMES; i++) {
		uint32_t len = draw(10) ? draw(300) : draw(200000), head = htonl(len);
		s->bytes = realloc(s->bytes, s->len + 4 + len);
		memcpy(s->bytes + s->len, &head, 4);
		for (uint32_t k = 0; k < len; k++)
			s->bytes[s->len + 4 + k] = (uint8_t)draw(256);
		s->len += 4 + len;
	}
}

static void stream_poll(struct stream *s)
{
	static uint8_t back[65536];
	size_t n = 1 + draw(draw(2) ? 10 : 50000);
	n = n < s->len - s->sent ? n : s->len - s->sent;
	ssize_t put = n ? send(s->fd, s->bytes + s->sent, n, MSG_NOSIGNAL) : 0;
	s->sent += put > 0 ? (size_t)put : 0;
	ssize_t got = recv(s->fd, back, 1 + draw(sizeof(back)), 0);
	if (got <= 0)
		return;
	assert_true(s->back + (size_t)got <= s->len);
	assert_memory_equal(back, s->bytes + s->back, (size_t)got);
	s->back += (size_t)got;
}

/* Random pieces from many peers at once: each peer gets back what it sent, in order. */
static void test_many(void **state)
{
	struct stream s[PEERS];
	uint64_t deadline = sy_clock_ns() + 4 * WAIT_NS;
	unsigned left = PEERS;
	requests = late = 0;
	for (unsigned i = 0; i < PEERS; i++)
		stream_make(&s[i], peer_open());
	while (left) {
		left = 0;
		for (unsigned i = 0; i < PEERS; i++) {
			stream_poll(&s[i]);
			left += s[i].back < s[i].len;
		}
		runtime_poll(rt, deadline);
	}
	assert_int_equal(requests, PEERS * FRAMES);
	assert_int_equal(late, PEERS * FRAMES / 2);
	for (unsigned i = 0; i < PEERS; i++) {
		close(s[i].fd);
		free(s[i].bytes);
	}
}

static void await_gone(unsigned count)
{
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	while (gone < count)
		runtime_poll(rt, deadline);
}

/* Reads what the peer receives until the forwarder hangs up. */
static size_t peer_receive(int fd, uint8_t *out, size_t cap)
{
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	size_t have = 0;
	for (;;) {
		ssize_t n = recv(fd, out + have, cap - have, 0);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return have;
		have += n > 0 ? (size_t)n : 0;
		runtime_poll(rt, deadline);
	}
}

static void broken_check(int fd, const char *words)
{
	uint8_t heard[64];
	unsigned before = gone;
	assert_int_equal(peer_receive(fd, heard, sizeof(heard)), 10);
	assert_memory_equal(heard, "\0\0\0\6broken", 10);
	assert_non_null(strstr(broken_text, words));
	assert_true(gone > before);
	close(fd);
}

static void test_broken(void **state)
{
	int fd = peer_open();
	assert_int_equal(send(fd, "\xff\xff\xff\xffgarbage", 11, 0), 11);
	broken_check(fd, "over the limit");

	fd = peer_open();
	assert_int_equal(send(fd, "\0\0\0\x64half a frame", 16, 0), 16);
	shutdown(fd, SHUT_WR);
	broken_check(fd, "in the middle");
	assert_int_equal(broken, 2);
}

/* Peers disconnect at every point: idle, in a frame, with a reply due, with a reply unread. */
static void test_vanish(void **state)
{
	static const char *const said[] = {"", "\0\0", "\0\0\0\5ab", "\0\0\0\2ab"};
	static const size_t len[] = {0, 2, 6, 6};
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	unsigned before = gone;
	for (unsigned i = 0; i < 200; i++) {
		int fd = peer_open();
		unsigned what = draw(4);
		if (len[what])
			assert_int_equal(send(fd, said[what], len[what], 0), len[what]);
		for (unsigned turns = draw(4); turns; turns--)
			runtime_poll(rt, deadline);
		close(fd);
	}
	await_gone(before + 200);
}

/* A request is never answered, and the peer disconnects. */
static void test_vanish_unanswered(void **state)
{
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	unsigned before = gone;
	int fd = peer_open();
	mute = true;
	assert_int_equal(send(fd, "\0\0\0\2ab", 6, 0), 6);
	for (unsigned i = 0; i < 20; i++)
		runtime_poll(rt, deadline);
	assert_int_equal(gone, before);
	close(fd);
	await_gone(before + 1);
	mute = false;
}

/* A peer that sends requests and never reads delays no other peer, and is not read from, either. */
static void test_slow(void **state)
{
	struct stream s;
	uint32_t size = 1000000, head = htonl(size);
	uint8_t *big = calloc(1, 4 + size);
	int slow = peer_open();
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	size_t taken = 0;
	memcpy(big, &head, 4);
	for (unsigned quiet = 0; quiet < 50;) { /* until the socket is full */
		ssize_t n = send(slow, big + taken % (4 + size), 4 + size - taken % (4 + size),
		                 MSG_NOSIGNAL);
		taken += n > 0 ? (size_t)n : 0;
		quiet = n > 0 ? 0 : quiet + 1;
		runtime_poll(rt, deadline);
	}
	assert_true(taken < 4 * size);
	stream_make(&s, peer_open());
	deadline = sy_clock_ns() + WAIT_NS;
	while (s.back < s.len) {
		stream_poll(&s);
		runtime_poll(rt, deadline);
	}
	unsigned before = gone;
	close(slow);
	close(s.fd);
	await_gone(before + 2);
	free(s.bytes);
	free(big);
}

static void test_path(void **state)
{
	struct sy_control *other;
	struct sy_error err;
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(sy_control_open(rt, path, &access_own, &handler, &other, &err),
	                 -EADDRINUSE);
	assert_non_null(strstr(err.text, path));
	assert_int_equal(sy_control_open(rt, "/dev/null", &access_own, &handler, &other, &err),
	                 -EEXIST);
	assert_int_equal(stat(path, &st), 0); /* the live socket still exists */

	char stale[110];
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	snprintf(stale, sizeof(stale), "%s.old", path);
	memcpy(sun.sun_path, stale, sizeof(sun.sun_path));
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	close(fd); /* the file stays, but no process listens */
	assert_int_equal(sy_control_open(rt, stale, &access_own, &handler, &other, &err), 0);
	sy_control_close(other);
	assert_int_not_equal(stat(stale, &st), 0);
}

static void request_and_reply(int fd)
{
	struct stream s;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	stream_make(&s, fd);
	while (s.back < s.len) {
		stream_poll(&s);
		runtime_poll(rt, deadline);
	}
	free(s.bytes);
}

/* Clients that are connected, or that wait to be accepted, get answers. No further client can
 * connect, and the path is free for the successor. */
static void test_leave(void **state)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct sy_control *next;
	struct sy_error err;
	struct stat st;
	int early = peer_open();
	request_and_reply(early);
	int unseen = peer_open();
	sy_control_leave(control);
	assert_int_not_equal(stat(path, &st), 0);
	memcpy(sun.sun_path, path, sizeof(path));
	int none = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_not_equal(connect(none, (struct sockaddr *)&sun, sizeof(sun)), 0);
	close(none);

	assert_int_equal(sy_control_open(rt, path, &access_own, &handler, &next, &err), 0);
	sy_control_leave(control); /* a second call does nothing */
	assert_int_equal(stat(path, &st), 0);
	request_and_reply(early);
	request_and_reply(unseen);
	unsigned before = gone;
	close(early);
	close(unseen);
	await_gone(before + 2);
	sy_control_close(control);
	assert_int_equal(stat(path, &st), 0); /* the file belongs to the successor */
	control = next;
}

static int setup(void **state)
{
	struct sy_runtime_options o;
	struct sy_error err;
	options_init(&o, 1);
	ring_port_add(&o, "control");
	rt = runtime_open(&o);
	snprintf(path, sizeof(path), "/tmp/sy-control-test-%d", (int)getpid());
	if (sy_control_open(rt, path, &access_own, &handler, &control, &err))
		fail_msg("%s", err.text);
	return 0;
}

static int teardown(void **state)
{
	sy_control_close(control);
	sy_runtime_close(rt);
	return access(path, F_OK) ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_many),   cmocka_unit_test(test_broken),
	        cmocka_unit_test(test_vanish), cmocka_unit_test(test_vanish_unanswered),
	        cmocka_unit_test(test_slow),   cmocka_unit_test(test_path),
	        cmocka_unit_test(test_leave),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
