// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "link_control.h"

/* ---- commands -------------------------------------------------------------------------------- */

static char *fail(const char *text)
{
	char *line;
	return asprintf(&line, "error: %s", text) < 0 ? NULL : line;
}

static char *execute_set(struct link *l, char *rest)
{
	const char *ways = strsep(&rest, " ");
	char error[PARAMS_ERROR];
	struct params new[2];
	bool chosen[2] = {strcmp(ways, "ba") != 0, strcmp(ways, "ab") != 0};
	if (strcmp(ways, "both") != 0 && chosen[0] && chosen[1])
		return fail("set ab, ba or both");
	for (int i = 0; i < 2; i++) {
		char text[CONTROL_LINE];
		snprintf(text, sizeof(text), "%s", rest ? rest : "");
		new[i] = l->lane[i].direction.params;
		if (chosen[i] && params_read(&new[i], text, error))
			return fail(error);
	}
	for (int i = 0; i < 2; i++)
		if (chosen[i])
			direction_set(&l->lane[i].direction, &new[i]);
	return strdup("ok");
}

static char *execute_seed(struct link *l, const char *text)
{
	char *end;
	uint64_t seed = strtoull(text, &end, 10);
	if (end == text || *end)
		return fail("seed needs a number");
	link_seed(l, seed);
	return strdup("ok");
}

char *control_execute(struct control *c, struct link *l, char *line)
{
	char *rest = line, *command = strsep(&rest, " ");
	if (strcmp(command, "set") == 0 && rest)
		return execute_set(l, rest);
	if (strcmp(command, "seed") == 0 && rest)
		return execute_seed(l, rest);
	if (strcmp(command, "stats") == 0)
		return link_report(l);
	if (strcmp(command, "clear") == 0) {
		link_clear(l);
		return strdup("ok");
	}
	if (strcmp(command, "hurry") == 0) {
		for (int i = 0; i < 2; i++)
			direction_hurry(&l->lane[i].direction, clock_ns());
		return strdup("ok");
	}
	if (strcmp(command, "quit") == 0) {
		c->quit = true;
		return strdup("ok");
	}
	return fail("the commands are set, stats, clear, seed, hurry and quit");
}

/* ---- clients --------------------------------------------------------------------------------- */

static int listener_open(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	unlink(path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, CONTROL_CLIENTS)) {
		int code = errno;
		close(fd);
		return -code;
	}
	return fd;
}

int control_open(struct control *c, const char *path, bool with_input)
{
	*c = (struct control){.listener = -1, .path = path};
	for (int i = 0; i < CONTROL_CLIENTS; i++)
		c->client[i].in = -1;
	if (with_input)
		c->client[0] = (struct control_client){.in = STDIN_FILENO, .out = STDOUT_FILENO};
	if (path) {
		c->listener = listener_open(path);
		return c->listener < 0 ? c->listener : 0;
	}
	return 0;
}

static void client_close(struct control *c, struct control_client *one)
{
	if (one->in == STDIN_FILENO)
		c->quit = true;
	else
		close(one->in);
	one->in = -1;
}

void control_close(struct control *c)
{
	for (int i = 0; i < CONTROL_CLIENTS; i++)
		if (c->client[i].in >= 0)
			client_close(c, &c->client[i]);
	if (c->listener >= 0) {
		close(c->listener);
		unlink(c->path);
	}
}

/* Answers are short against a socket's buffer: a client that does not read them is left. */
static bool client_answer(const struct control_client *one, char *text)
{
	bool written = text && dprintf(one->out, "%s\n", text) > 0;
	free(text);
	return written;
}

static bool client_lines(struct control *c, struct link *l, struct control_client *one)
{
	char *end;
	while ((end = memchr(one->line, '\n', one->length)) != NULL) {
		unsigned used = (unsigned)(end - one->line) + 1;
		*end = '\0';
		if (!client_answer(one, control_execute(c, l, one->line)))
			return false;
		one->length -= used;
		memmove(one->line, end + 1, one->length);
	}
	return one->length < CONTROL_LINE;
}

static void client_serve(struct control *c, struct link *l, struct control_client *one)
{
	struct pollfd readable = {.fd = one->in, .events = POLLIN};
	if (poll(&readable, 1, 0) <= 0)
		return;
	ssize_t got = read(one->in, one->line + one->length, CONTROL_LINE - one->length);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	one->length += got > 0 ? (unsigned)got : 0;
	if (got <= 0 || !client_lines(c, l, one))
		client_close(c, one);
}

void control_serve(struct control *c, struct link *l)
{
	for (int i = 0; i < CONTROL_CLIENTS; i++) {
		struct control_client *one = &c->client[i];
		if (one->in < 0 && c->listener >= 0) {
			int fd = accept4(c->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
			if (fd >= 0)
				*one = (struct control_client){.in = fd, .out = fd};
			else
				one->in = -1;
		}
		if (one->in >= 0)
			client_serve(c, l, one);
	}
}

unsigned control_poll(const struct control *c, struct pollfd fds[static CONTROL_POLLED])
{
	unsigned count = 0;
	for (int i = 0; i < CONTROL_CLIENTS; i++)
		if (c->client[i].in >= 0)
			fds[count++] = (struct pollfd){.fd = c->client[i].in, .events = POLLIN};
	if (c->listener >= 0 && count < CONTROL_CLIENTS) /* others wait until one has left */
		fds[count++] = (struct pollfd){.fd = c->listener, .events = POLLIN};
	return count;
}
