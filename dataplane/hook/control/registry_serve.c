// SPDX-License-Identifier: Apache-2.0
/*
 * The registry's socket: only root and this process's user may connect. One client is served at a
 * time: a request takes as long as the slowest stack's poll iteration.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "registry.h"
#include "registry_request.h"

#define FRAME_MAX  (SY_HOOK_OBJECT_MAX + 65536)
#define SILENT_S   5 /* timeout per request and per response */
#define SUFFIX     ".sock"
#define DIRECTORY  "/run/steelyard"
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* ---- one client ------------------------------------------------------------------------------ */

static bool client_is_authorized(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
	       (who.uid == 0 || who.uid == geteuid());
}

/* For a whole message: a client that sends a byte at a time must not hold up others. */
static uint64_t deadline(void)
{
	return sy_clock_ns() + SILENT_S * UINT64_C(1000000000);
}

static bool is_ready(int fd, short events, uint64_t until)
{
	struct pollfd p = {.fd = fd, .events = events};
	uint64_t now = sy_clock_ns();
	return now < until && poll(&p, 1, (int)((until - now) / 1000000 + 1)) > 0;
}

static bool bytes_read(int fd, void *to, size_t len, uint64_t until)
{
	for (size_t done = 0; done < len;) {
		if (!is_ready(fd, POLLIN, until))
			return false;
		ssize_t n = recv(fd, (uint8_t *)to + done, len - done, MSG_DONTWAIT);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static bool bytes_write(int fd, const void *from, size_t len, uint64_t until)
{
	for (size_t done = 0; done < len;) {
		if (!is_ready(fd, POLLOUT, until))
			return false;
		ssize_t n = send(fd, (const uint8_t *)from + done, len - done,
		                 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN)
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool request_serve(struct sy_hook_registry *d, int fd)
{
	uint32_t head;
	uint64_t until = deadline();
	if (!bytes_read(fd, &head, sizeof(head), until))
		return false;
	size_t len = ntohl(head), out_len = 0;
	if (len > FRAME_MAX)
		return false;
	uint8_t *body = malloc(len + 1), *out = NULL;
	bool good = body && bytes_read(fd, body, len, until);
	if (good)
		out = request_answer(d, body, len, &out_len);
	head = htonl((uint32_t)out_len);
	until = deadline(); /* excludes the time of the stacks */
	good = out && bytes_write(fd, &head, sizeof(head), until) &&
	       bytes_write(fd, out, out_len, until);
	free(out);
	free(body);
	return good;
}

/* registry_serve_end() shuts this client down. Returns false if the registry is closing. */
static bool client_set(struct sy_hook_registry *d, int fd)
{
	pthread_mutex_lock(&d->lock);
	d->client = fd;
	bool go = !d->ending;
	pthread_mutex_unlock(&d->lock);
	return go;
}

static void client_serve(struct sy_hook_registry *d, int fd)
{
	if (client_set(d, fd) && client_is_authorized(fd))
		while (request_serve(d, fd))
			;
	client_set(d, -1);
	close(fd);
}

/* Polls sockets of stacks with queued orders for space. Returns their number. */
static unsigned missed_watch(struct sy_hook_registry *d, struct pollfd *p)
{
	unsigned count = 0;
	pthread_mutex_lock(&d->lock);
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++)
		if (stack_has_missed(&d->stack[i]))
			p[count++] = (struct pollfd){.fd = d->stack[i].socket, .events = POLLOUT};
	pthread_mutex_unlock(&d->lock);
	return count;
}

static void *serve(void *arg)
{
	struct sy_hook_registry *d = arg;
	struct pollfd p[2 + SY_HOOK_REGISTRY_STACKS] = {{.fd = d->stop, .events = POLLIN},
	                                                {.fd = d->listener, .events = POLLIN}};
	pthread_setname_np(pthread_self(), "sy-hooks");
	while (poll(p, 2 + missed_watch(d, p + 2), -1) >= 0 || errno == EINTR) {
		if (p[0].revents)
			break;
		int fd = p[1].revents ? accept4(d->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (fd >= 0)
			client_serve(d, fd);
		registry_catch_up(d);
	}
	return NULL;
}

/* ---- the socket's file ----------------------------------------------------------------------- */

static int address_of(const char *path, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	return snprintf(out->sun_path, sizeof(out->sun_path), "%s", path) <
	                       (int)sizeof(out->sun_path)
	               ? 0
	               : -ENAMETOOLONG;
}

/* Returns true if no process listens (ECONNREFUSED). A stopped process with a full backlog is not
 * stale. */
static bool socket_is_stale(const char *path)
{
	struct sockaddr_un to;
	struct stat st;
	if (lstat(path, &st) || !S_ISSOCK(st.st_mode) || address_of(path, &to))
		return false;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool left = fd >= 0 && connect(fd, (void *)&to, sizeof(to)) && errno == ECONNREFUSED;
	if (fd >= 0)
		close(fd);
	return left;
}

static void stale_sockets_remove(void)
{
	DIR *dir = opendir(SY_HOOK_REGISTRY_DIR);
	char path[sizeof(SY_HOOK_REGISTRY_DIR) + 256];
	struct dirent *e;
	while (dir && (e = readdir(dir))) {
		snprintf(path, sizeof(path), SY_HOOK_REGISTRY_DIR "/%s", e->d_name);
		if (socket_is_stale(path))
			unlink(path);
	}
	if (dir)
		closedir(dir);
}

static int path_build(struct sy_hook_registry *d, const char *name, struct sy_error *err)
{
	bool whole = strchr(name, '/');
	if (!whole && (!*name || *name == '.' || strlen(name) >= SY_HOOK_REGISTRY_NAME ||
	               strspn(name, NAME_CHARS) != strlen(name)))
		return sy_fail(err, EINVAL, "\"%s\" is not a valid name of a hook socket", name);
	if (!whole) {
		mkdir(DIRECTORY, 0755);
		mkdir(SY_HOOK_REGISTRY_DIR, 0755);
	}
	snprintf(d->path, sizeof(d->path), "%s%s%s", whole ? "" : SY_HOOK_REGISTRY_DIR "/", name,
	         whole ? "" : SUFFIX);
	return 0;
}

/* Binds under a temporary name and renames: d->path exists only while it listens. */
static int listener_open(struct sy_hook_registry *d, struct sy_error *err)
{
	struct sockaddr_un to;
	char path[sizeof(d->path) + 32];
	snprintf(path, sizeof(path), "%s.%d", d->path, (int)getpid());
	int rc = address_of(path, &to);
	if (access(d->path, F_OK) == 0 && !socket_is_stale(d->path))
		return sy_fail(err, EADDRINUSE,
		               "%s is in use by another process; choose another name", d->path);
	d->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!rc && (d->listener < 0 || bind(d->listener, (void *)&to, sizeof(to)) ||
	            chmod(path, 0600) || listen(d->listener, 16) || rename(path, d->path)))
		rc = -errno;
	if (rc) {
		unlink(path);
		return sy_fail(err, -rc, "%s: %s", d->path, strerror(-rc));
	}
	return 0;
}

/* Locks the directory: of two processes that start at once, one would remove the other's socket
 * before it listens. */
static int listener_open_alone(struct sy_hook_registry *d, bool shared, struct sy_error *err)
{
	if (!shared)
		return listener_open(d, err);
	int dir = open(SY_HOOK_REGISTRY_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || flock(dir, LOCK_EX)) {
		int rc = -errno;
		if (dir >= 0)
			close(dir);
		return sy_fail(err, -rc, "%s: %s", SY_HOOK_REGISTRY_DIR, strerror(-rc));
	}
	stale_sockets_remove();
	int rc = listener_open(d, err);
	close(dir);
	return rc;
}

static int server_start(struct sy_hook_registry *d)
{
	sigset_t all, before;
	sigfillset(&all); /* other threads handle signals */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int code = pthread_create(&d->server, NULL, serve, d);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -code;
}

int sy_hook_registry_serve(struct sy_hook_registry *d, const char *name,
                           const struct sy_hook_registry_owner *owner, struct sy_error *err)
{
	d->ending = false;
	d->owner = *owner;
	/* Copies: a program may overwrite its argv. */
	text_copy_printable(d->program, owner->program, sizeof(d->program));
	text_copy_printable(d->interfaces, owner->interfaces, sizeof(d->interfaces));
	d->owner.program = d->program;
	d->owner.interfaces = d->interfaces;
	int rc = path_build(d, name, err);
	if (!rc)
		rc = listener_open_alone(d, !strchr(name, '/'), err);
	if (rc) {
		d->path[0] = '\0'; /* the file belongs to another process */
		registry_serve_end(d);
		return rc;
	}
	d->stop = eventfd(0, EFD_CLOEXEC);
	rc = d->stop < 0 ? -errno : server_start(d);
	if (!rc)
		return 0;
	close(d->stop);
	d->stop = -1;
	registry_serve_end(d);
	return sy_fail(err, -rc, "a thread for hooks: %s", strerror(-rc));
}

void registry_serve_end(struct sy_hook_registry *d)
{
	uint64_t one = 1;
	pthread_mutex_lock(&d->lock);
	d->ending = true;
	if (d->client >= 0)
		shutdown(d->client, SHUT_RDWR);
	pthread_mutex_unlock(&d->lock);
	if (d->stop >= 0) {
		if (write(d->stop, &one, sizeof(one)) == sizeof(one))
			pthread_join(d->server, NULL);
		close(d->stop);
		d->stop = -1;
	}
	if (d->path[0])
		unlink(d->path);
	d->path[0] = '\0';
	if (d->listener >= 0)
		close(d->listener);
	d->listener = -1;
}
