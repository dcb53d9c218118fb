// SPDX-License-Identifier: Apache-2.0
#include "upgrade_message.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#define UPGRADE_MESSAGE_MAGIC 0x53594241u /* "SYBA" */

int upgrade_message_send(int fd, enum upgrade_message_kind kind, const char *text,
                         const struct upgrade_message *b)
{
	struct upgrade_message out = {0};
	if (b)
		out = *b;
	out.magic = UPGRADE_MESSAGE_MAGIC;
	out.version = UPGRADE_MESSAGE_VERSION;
	out.kind = kind;
	snprintf(out.text, sizeof(out.text), "%s", text ? text : "");
	return send(fd, &out, sizeof(out), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int upgrade_message_receive(int fd, struct upgrade_message *out, struct sy_error *err)
{
	memset(out, 0, sizeof(*out));
	ssize_t n;
	do { /* ECONNRESET is reported once if the peer left messages unread; its last messages
		follow */
		n = recv(fd, out, sizeof(*out), MSG_DONTWAIT);
	} while (n < 0 && (errno == ECONNRESET || errno == EINTR));
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n == 0)
		return sy_fail(err, ENOTCONN, "the other forwarder has closed the connection");
	if (n < 0)
		return sy_fail(err, EPROTO, "the hand-over socket: %s", strerror(errno));
	if ((size_t)n < offsetof(struct upgrade_message, text) ||
	    out->magic != UPGRADE_MESSAGE_MAGIC)
		return sy_fail(err, EPROTO, "%zd bytes are not a hand-over message", n);
	if (out->version != UPGRADE_MESSAGE_VERSION)
		return sy_fail(
		        err, EPROTO,
		        "it speaks hand-over version %u, this forwarder %u: restart it instead, "
		        "its sessions are found again",
		        out->version, UPGRADE_MESSAGE_VERSION);
	if (n != sizeof(*out))
		return sy_fail(err, EPROTO, "a hand-over message of %zd bytes, not %zu", n,
		               sizeof(*out));
	out->text[sizeof(out->text) - 1] = '\0';
	return 1;
}
