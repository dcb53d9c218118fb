// SPDX-License-Identifier: Apache-2.0
/*
 * What a forwarder and its successor say to each other during an upgrade, over a SOCK_SEQPACKET
 * socket pair:
 *
 *     old                        new
 *     HELLO text      ────────►            it is there before the new one starts
 *                     ◄────────  PREPARED
 *     SEALED          ────────►
 *                     ◄────────  READY text
 *                     ◄────────  FAILED text, at any time
 *
 * The two are of different builds: magic, version, kind and text are where they are in every
 * version.
 */
#ifndef UPGRADE_MESSAGE_H
#define UPGRADE_MESSAGE_H

#include <sy_base.h>

#define UPGRADE_MESSAGE_VERSION 1

enum upgrade_message_kind {
	UPGRADE_MESSAGE_HELLO =
	        1, /* text: what must be equal, a line each; see options_identity() */
	UPGRADE_MESSAGE_PREPARED,
	UPGRADE_MESSAGE_SEALED, /* ticket, last_ns */
	UPGRADE_MESSAGE_READY,  /* gap_ns, sessions; text: build */
	UPGRADE_MESSAGE_FAILED, /* text: why */
};

struct upgrade_message {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;
	char text[512]; /* ends with a zero */
	uint64_t ticket;
	uint64_t last_ns; /* CLOCK_MONOTONIC: from then on no packet was taken */
	uint64_t gap_ns;
	uint64_t sessions;
};
_Static_assert(sizeof(struct upgrade_message) == 8 + 512 + 32, "a format between builds");

/* text may be NULL; the numbers are taken from *b, which may be NULL too. Returns 0 or a negative
 * errno, -EPIPE if the other side has gone. */
int upgrade_message_send(int fd, enum upgrade_message_kind kind, const char *text,
                         const struct upgrade_message *b);
/* Receives what is there. Returns 1; 0 if nothing is; -ENOTCONN when the other side has gone;
 * -EPROTO if it speaks another version, or something else, with err. */
int upgrade_message_receive(int fd, struct upgrade_message *out, struct sy_error *err);

#endif
