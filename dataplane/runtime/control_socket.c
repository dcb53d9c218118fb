// SPDX-License-Identifier: Apache-2.0
/*
 * The control socket. A peer is not read while a request or reply of it is pending: each peer has
 * at most one frame and one reply in memory. Bytes that it sends meanwhile wait in the kernel.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "control_frame.h"
#include "runtime.h"

#define PEERS_MAX      32
#define PEERS_RESERVED 8 /* reserved for root, this process's user and the agent's */
#define PEERS_OF_USER  8 /* max of each other user */
#define CHECK_S        1 /* between checks for stalled frames */
#define SILENT_NS      (10 * UINT64_C(1000000000)) /* max silence in the middle of a frame */
#define FRAME_NS       (60 * UINT64_C(1000000000)) /* max duration of a frame */

struct sy_control_peer {
	struct sy_control *control;
	struct sy_control_peer *next;
	int fd;
	uint32_t user;              /* uid of the peer */
	bool reserved;              /* may use the reserved connections */
	uint64_t first_ns, last_ns; /* arrival of the frame's first and latest bytes */
	bool busy;                  /* a request is being processed */
	bool ending;                /* no further reads; close after the last reply */
	bool in_serve;              /* peer_serve() is running and will continue */
	struct frame_reader reader;
	uint8_t *out; /* rest of a reply */
	size_t out_len, out_done;
	void *data;
};

struct sy_control {
	struct sy_runtime *rt;
	struct sy_control_handler handler;
	struct sy_control_access access;
	struct sy_control_peer *peers;
	unsigned peer_count, refused; /* connections refused since the last check */
	int fd, spare_fd, timer_fd;
	char path[108];
};

static void peer_close(struct sy_control_peer *p)
{
	struct sy_control *c = p->control;
	struct sy_control_peer **at = &c->peers;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	c->peer_count--;
	c->handler.gone(c->handler.ctx, p);
	loop_unwatch(c->rt->loop, p->fd);
	close(p->fd);
	frame_free(&p->reader);
	free(p->out);
	free(p);
}

static void peer_break(struct sy_control_peer *p, const char *text)
{
	struct sy_control *c = p->control;
	p->ending = true;
	if (c->handler.broken)
		c->handler.broken(c->handler.ctx, p, text);
}

/* Writes as much as the socket accepts. Marks a failed peer as ending. */
static void peer_write(struct sy_control_peer *p)
{
	while (p->out_done < p->out_len) {
		ssize_t n = send(p->fd, p->out + p->out_done, p->out_len - p->out_done,
		                 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			p->ending = true;
			break;
		}
		p->out_done += (size_t)n;
	}
	free(p->out);
	p->out = NULL;
	p->out_len = p->out_done = 0;
}

static void peer_frame(struct sy_control_peer *p, enum frame_state state)
{
	struct sy_control *c = p->control;
	char text[80];
	switch (state) {
	case FRAME_MORE:
		break;
	case FRAME_WHOLE:
		p->busy = true;
		c->handler.request(c->handler.ctx, p, p->reader.body, p->reader.len);
		frame_next(&p->reader);
		break;
	case FRAME_TOO_LARGE:
		snprintf(text, sizeof(text), "a frame of %zu bytes is over the limit of %u",
		         p->reader.len, SY_CONTROL_MAX);
		peer_break(p, text);
		break;
	case FRAME_NO_MEMORY:
		peer_break(p, "no memory for the frame");
		break;
	}
}

/* Reads until a request is complete, the socket is empty, or the peer has used its share. */
static void peer_read(struct sy_control_peer *p)
{
	for (unsigned i = 0; i < 16 && !p->busy && !p->ending && !p->out_len; i++) {
		uint8_t *where;
		size_t want = frame_want(&p->reader, &where);
		ssize_t n = recv(p->fd, where, want, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n > 0) {
			p->last_ns = sy_clock_ns();
			if (!frame_is_cut(&p->reader))
				p->first_ns = p->last_ns;
			peer_frame(p, frame_add(&p->reader, (size_t)n, SY_CONTROL_MAX));
		} else if (n == 0 && frame_is_cut(&p->reader)) {
			peer_break(p, "the connection ended in the middle of a frame");
		} else {
			p->ending = true;
		}
	}
}

static void peer_wait(struct sy_control_peer *p)
{
	unsigned events = p->out_len ? EPOLLOUT : p->busy || p->ending ? 0 : EPOLLIN;
	loop_set_events(p->control->rt->loop, p->fd, events);
}

static void peer_serve(void *ctx)
{
	struct sy_control_peer *p = ctx;
	struct pollfd now = {.fd = p->fd, .events = POLLIN | POLLOUT};
	bool hung_up = poll(&now, 1, 0) > 0 && (now.revents & (POLLHUP | POLLERR)) &&
	               (p->busy || p->out_len); /* otherwise a read finds the end of the stream */
	p->in_serve = true;
	if (!hung_up) {
		peer_write(p);
		peer_read(p);
	}
	p->in_serve = false;
	if (hung_up || (p->ending && !p->out_len))
		peer_close(p);
	else
		peer_wait(p);
}

int sy_control_reply(struct sy_control_peer *peer, const uint8_t *bytes, size_t len)
{
	uint32_t head = htonl((uint32_t)len);
	if (len > SY_CONTROL_MAX)
		return -EMSGSIZE;
	uint8_t *out = realloc(peer->out, peer->out_len + sizeof(head) + len);
	if (!out)
		return -ENOMEM;
	memcpy(out + peer->out_len, &head, sizeof(head));
	if (len)
		memcpy(out + peer->out_len + sizeof(head), bytes, len);
	peer->out = out;
	peer->out_len += sizeof(head) + len;
	peer->busy = false;
	if (!peer->in_serve)
		peer_wait(peer); /* written in the next iteration: the peer outlives this call */
	return 0;
}

void **sy_control_peer_data(struct sy_control_peer *peer)
{
	return &peer->data;
}

bool sy_control_peer_is_owner(const struct sy_control_peer *peer)
{
	return peer->user == 0 || peer->user == geteuid();
}

/* ---- frames that stop ------------------------------------------------------------------------ */

static void control_check(void *ctx)
{
	struct sy_control *c = ctx;
	uint64_t now, times;
	if (read(c->timer_fd, &times, sizeof(times)) < 0)
		return;
	if (c->refused)
		sy_log(SY_LOG_WARN, "control", "connections refused: %u, for %u are open",
		       c->refused, c->peer_count);
	c->refused = 0;
	for (struct sy_control_peer *p = c->peers, *next; p; p = next) {
		next = p->next;
		if (p->busy || p->ending || p->out_len || !frame_is_cut(&p->reader))
			continue;
		/* This thread may have been busy: read what has arrived meanwhile first. */
		p->in_serve = true;
		peer_read(p);
		now = sy_clock_ns();
		if (!p->busy && !p->ending && frame_is_cut(&p->reader) &&
		    (now - p->last_ns > SILENT_NS || now - p->first_ns > FRAME_NS))
			peer_break(p, "the frame has stopped in the middle");
		peer_serve(p);
	}
}

static int control_check_begin(struct sy_control *c)
{
	struct itimerspec every = {{.tv_sec = CHECK_S}, {.tv_sec = CHECK_S}};
	c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (c->timer_fd < 0 || timerfd_settime(c->timer_fd, 0, &every, NULL) < 0)
		return -errno;
	return loop_watch(c->rt->loop, c->timer_fd, control_check, c);
}

/* ---- listening ------------------------------------------------------------------------------- */

/* May this user have another connection? */
static bool peer_is_welcome(const struct sy_control *c, const struct sy_control_peer *one)
{
	unsigned same = 0, others = 0;
	if (one->reserved)
		return c->peer_count < PEERS_MAX;
	for (const struct sy_control_peer *p = c->peers; p; p = p->next) {
		same += p->user == one->user;
		others += !p->reserved;
	}
	return c->peer_count < PEERS_MAX && others < PEERS_MAX - PEERS_RESERVED &&
	       same < PEERS_OF_USER;
}

static void peer_add(struct sy_control *c, int fd)
{
	struct ucred who = {.uid = SY_NO_ID};
	struct sy_control_peer *p = calloc(1, sizeof(*p));
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &(socklen_t){sizeof(who)});
	if (p) {
		p->user = who.uid;
		p->reserved = sy_control_peer_is_owner(p) ||
		              (who.uid == c->access.agent && who.uid != SY_NO_ID);
	}
	if (!p || !peer_is_welcome(c, p) || loop_watch(c->rt->loop, fd, peer_serve, p)) {
		c->refused++; /* control_check() logs it */
		free(p);
		close(fd);
		return;
	}
	p->control = c;
	p->fd = fd;
	p->next = c->peers;
	c->peers = p;
	c->peer_count++;
}

static void control_accept(void *ctx)
{
	struct sy_control *c = ctx;
	int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		peer_add(c, fd);
	} else if ((errno == EMFILE || errno == ENFILE) && c->spare_fd >= 0) {
		/* Out of descriptors: use the spare one to accept and close the connection, or
		 * epoll would report it forever. */
		close(c->spare_fd);
		fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
		c->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		sy_log(SY_LOG_WARN, "control",
		       "a connection is refused: no file descriptor is left");
	}
}

/* Removes the socket file of a killed process: one without a listener. */
static int path_clear(const struct sockaddr_un *sun, struct sy_error *err)
{
	struct stat st;
	if (lstat(sun->sun_path, &st))
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return sy_fail(err, EEXIST, "%s exists and is not a socket; choose another path",
		               sun->sun_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return sy_fail(err, errno, "control socket");
	int code = connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) ? errno : 0;
	close(fd);
	if (code == ECONNREFUSED)
		return unlink(sun->sun_path)
		               ? sy_fail(err, errno, "removing the stale socket %s", sun->sun_path)
		               : 0;
	return sy_fail(err, EADDRINUSE,
	               "another process listens on %s; stop it or choose another path",
	               sun->sun_path);
}

/* In a container the group may have no id: then the socket is this user's alone. */
static void path_share(const char *path, uint32_t group)
{
	if (group == SY_NO_ID)
		return;
	if (lchown(path, (uid_t)-1, group) < 0 || chmod(path, 0660) < 0)
		sy_log(SY_LOG_WARN, "control",
		       "%s is not given to group %u: %s; only user %u and root can connect, an "
		       "agent of another user cannot",
		       path, group, strerror(errno), geteuid());
}

static int control_listen(struct sy_control *c, struct sy_error *err)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	memcpy(sun.sun_path, c->path, sizeof(c->path));
	int rc = path_clear(&sun, err);
	if (rc)
		return rc;
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t before = umask(0177);
	bool bound = c->fd >= 0 && !bind(c->fd, (const struct sockaddr *)&sun, sizeof(sun));
	int code = errno;
	umask(before);
	if (!bound) {
		c->path[0] = 0; /* another process's file: do not remove it */
		return sy_fail(err, code, "control socket %s: %s", sun.sun_path, strerror(code));
	}
	if (listen(c->fd, PEERS_MAX))
		return sy_fail(err, errno, "control socket %s: %s", sun.sun_path, strerror(errno));
	path_share(c->path, c->access.group);
	c->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rc = control_check_begin(c);
	if (rc == 0)
		rc = loop_watch(c->rt->loop, c->fd, control_accept, c);
	return rc ? sy_fail(err, -rc, "watching the control socket: %s", strerror(-rc)) : 0;
}

int sy_control_open(struct sy_runtime *rt, const char *path, const struct sy_control_access *access,
                    const struct sy_control_handler *handler, struct sy_control **out,
                    struct sy_error *err)
{
	struct sy_control *c = calloc(1, sizeof(*c));
	if (!c)
		return sy_fail(err, ENOMEM, "no memory for the control socket");
	c->rt = rt;
	c->handler = *handler;
	c->access = *access;
	c->fd = c->spare_fd = c->timer_fd = -1;
	size_t len = strlen(path);
	int rc = len < sizeof(c->path)
	                 ? 0
	                 : sy_fail(err, ENAMETOOLONG,
	                           "the path of the control socket is longer than %zu bytes",
	                           sizeof(c->path) - 1);
	if (!rc) {
		memcpy(c->path, path, len);
		rc = control_listen(c, err);
	}
	if (rc) {
		sy_control_close(c);
		return rc;
	}
	*out = c;
	return 0;
}

static void control_deafen(struct sy_control *c)
{
	loop_unwatch(c->rt->loop, c->fd);
	if (c->fd >= 0)
		close(c->fd);
	if (c->spare_fd >= 0)
		close(c->spare_fd);
	c->fd = c->spare_fd = -1;
}

void sy_control_leave(struct sy_control *c)
{
	int fd;
	if (c->fd < 0)
		return;
	unlink(c->path);
	/* Accept clients whose connect() has already succeeded. */
	while ((fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		peer_add(c, fd);
	control_deafen(c);
}

void sy_control_close(struct sy_control *c)
{
	if (!c)
		return;
	while (c->peers)
		peer_close(c->peers);
	if (c->fd >= 0 && c->path[0])
		unlink(c->path);
	control_deafen(c);
	loop_unwatch(c->rt->loop, c->timer_fd);
	if (c->timer_fd >= 0)
		close(c->timer_fd);
	free(c);
}
