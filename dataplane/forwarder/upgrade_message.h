// SPDX-License-Identifier: Apache-2.0
/*
 * Messages between a forwarder and its successor during an upgrade, over a SOCK_SEQPACKET socket
 * pair:
 *
 *     old                        new
 *     HELLO text      ────────►            sent before the new one starts
 *                     ◄────────  PREPARED
 *     SEALED          ────────►
 *                     ◄────────  READY text
 *                     ◄────────  FAILED text, at any time
 *
 * The two may be of different builds: magic, version, kind and text have the same position in every
 * version.
 */
#ifndef UPGRADE_MESSAGE_H
#define UPGRADE_MESSAGE_H

#include <sy_base.h>

#define UPGRADE_MESSAGE_VERSION 1

enum upgrade_message_kind {
	UPGRADE_MESSAGE_HELLO =
	        1, /* text: settings that must match, one per line; see options_identity() */
	UPGRADE_MESSAGE_PREPARED,
	UPGRADE_MESSAGE_SEALED, /* ticket, last_ns */
	UPGRADE_MESSAGE_READY,  /* gap_ns, sessions; text: build */
	UPGRADE_MESSAGE_FAILED, /* text: the reason */
};

struct upgrade_message {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;
	char text[512]; /* ends with a zero */
	uint64_t ticket;
	uint64_t last_ns; /* CLOCK_MONOTONIC: no packet was received from then on */
	uint64_t gap_ns;
	uint64_t sessions;
};
_Static_assert(sizeof(struct upgrade_message) == 8 + 512 + 32, "a format between builds");

/* text may be NULL. The numbers come from *b, which may be NULL, too. Returns 0 or a negative
 * errno, -EPIPE if the other side is gone. */
int upgrade_message_send(int fd, enum upgrade_message_kind kind, const char *text,
                         const struct upgrade_message *b);
/* Receives a message if there is one. Returns 1, or 0 without one; -ENOTCONN if the other side is
 * gone; -EPROTO with err if it speaks another version, or for anything else. */
int upgrade_message_receive(int fd, struct upgrade_message *out, struct sy_error *err);

#endif
