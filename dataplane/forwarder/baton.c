// SPDX-License-Identifier: Apache-2.0
#include "baton.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#define BATON_MAGIC 0x53594241u /* "SYBA" */

int baton_send(int fd, enum baton_kind kind, const char *text, const struct baton *b)
{
	struct baton out = {0};
	if (b)
		out = *b;
	out.magic = BATON_MAGIC;
	out.version = BATON_VERSION;
	out.kind = kind;
	snprintf(out.text, sizeof(out.text), "%s", text ? text : "");
	return send(fd, &out, sizeof(out), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int baton_receive(int fd, struct baton *out, struct sy_error *err)
{
	memset(out, 0, sizeof(*out));
	ssize_t n;
	do { /* told once, if it closed without reading all of ours; its last words come after */
		n = recv(fd, out, sizeof(*out), MSG_DONTWAIT);
	} while (n < 0 && (errno == ECONNRESET || errno == EINTR));
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n == 0)
		return sy_fail(err, ENOTCONN, "the other side has gone");
	if (n < 0)
		return sy_fail(err, EPROTO, "the hand-over socket: %s", strerror(errno));
	if ((size_t)n < offsetof(struct baton, text) || out->magic != BATON_MAGIC)
		return sy_fail(err, EPROTO, "%zd bytes that are no hand-over message", n);
	if (out->version != BATON_VERSION)
		return sy_fail(
		        err, EPROTO,
		        "it speaks hand-over version %u, this forwarder %u: restart it instead, "
		        "its sessions are found again",
		        out->version, BATON_VERSION);
	if (n != sizeof(*out))
		return sy_fail(err, EPROTO, "a hand-over message of %zd bytes, not %zu", n,
		               sizeof(*out));
	out->text[sizeof(out->text) - 1] = '\0';
	return 1;
}
