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
#ifndef BATON_H
#define BATON_H

#include <sy_base.h>

#define BATON_VERSION 1

enum baton_kind {
	BATON_HELLO = 1, /* text: what must be equal, a line each; see options_identity() */
	BATON_PREPARED,
	BATON_SEALED, /* ticket, last_ns */
	BATON_READY,  /* gap_ns, sessions; text: build */
	BATON_FAILED, /* text: why */
};

struct baton {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;
	char text[512]; /* ends with a zero */
	uint64_t ticket;
	uint64_t last_ns; /* CLOCK_MONOTONIC: from then on no packet was taken */
	uint64_t gap_ns;
	uint64_t sessions;
};
_Static_assert(sizeof(struct baton) == 8 + 512 + 32, "a format between builds");

/* text may be NULL; the numbers are taken from *b, which may be NULL too. Returns 0 or a negative
 * errno, -EPIPE if the other side has gone. */
int baton_send(int fd, enum baton_kind kind, const char *text, const struct baton *b);
/* Receives what is there. Returns 1; 0 if nothing is; -ENOTCONN when the other side has gone;
 * -EPROTO if it speaks another version, or something else, with err. */
int baton_receive(int fd, struct baton *out, struct sy_error *err);

#endif
