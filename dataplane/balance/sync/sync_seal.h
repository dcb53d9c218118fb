// SPDX-License-Identifier: Apache-2.0
/*
 * Sealed datagrams between nodes: AES-256-GCM by libcrypto (docs/design/0068-session-sync.md).
 *
 *     ┌──────────────────────┬────────────────────────────┬──────────┐
 *     │ header, readable     │ parts or a hello, sealed   │ tag      │
 *     └──────────────────────┴────────────────────────────┴──────────┘
 *
 * A key belongs to one node's incarnation, which is drawn at each start, and the nonce is worker
 * and counter, so no nonce repeats under a key. Each worker has its own ciphers; nothing is shared.
 */
#ifndef SYNC_SEAL_H
#define SYNC_SEAL_H

#include <sy_base.h>

#define SYNC_MAGIC   0x5359
#define SYNC_VERSION 1
#define SYNC_SECRET  32 /* bytes, at least */

enum sync_datagram_kind { SYNC_HELLO = 1, SYNC_PARTS, SYNC_RELAY };

/* Little endian. */
struct sync_header {
	uint16_t magic;
	uint8_t version;
	uint8_t secret; /* its id */
	uint8_t node, worker;
	uint8_t kind; /* enum sync_datagram_kind */
	uint8_t spare;
	uint64_t from, to; /* incarnations; to 0: unknown, in a hello alone */
	uint64_t counter;  /* of the sending worker, from 1 */
};
_Static_assert(sizeof(struct sync_header) == 32, "a wire format");

#define SYNC_TAG 16

/* A pre-shared secret. */
struct sync_secret {
	uint8_t id;
	uint16_t len;
	uint8_t bytes[256];
};

struct sync_cipher;

/* Derives a key of `len` bytes for another purpose than datagrams: all nodes with the secret have
 * the same one. Returns false if libcrypto fails. */
bool sync_secret_derive(const struct sync_secret *secret, const char *purpose, uint8_t *key,
                        size_t len);

/* For datagrams that an incarnation of the node sends under the secret. Returns NULL if libcrypto
 * fails. */
struct sync_cipher *sync_cipher_create(const struct sync_secret *secret, uint8_t node,
                                       uint64_t incarnation);
void sync_cipher_destroy(struct sync_cipher *c); /* may be NULL */

/* Writes header, sealed bytes and tag to `to`. Returns their length; 0 if libcrypto fails. */
size_t sync_seal(struct sync_cipher *c, const struct sync_header *header, const uint8_t *plain,
                 size_t len, uint8_t *to);

/* Writes the plain bytes of a datagram of `len` bytes to `to`. Returns their number; -EBADMSG if it
 * is shorter than header and tag, or another key has sealed it, or a bit has changed. */
int64_t sync_open(struct sync_cipher *c, const uint8_t *datagram, size_t len, uint8_t *to);

/* ---- replays --------------------------------------------------------------------------------- */

#define SYNC_REPLAY 1024 /* counters that may come late */

struct sync_replay {
	uint64_t last;
	uint64_t seen[SYNC_REPLAY / 64]; /* by counter modulo SYNC_REPLAY */
};

/* Returns whether a datagram with this counter, whose tag was right, comes for the first time
 * (RFC 6479's window). */
bool sync_replay_accept(struct sync_replay *r, uint64_t counter);

#endif
