// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes that a connection carries, named by a seed: either end makes them, and compares each
 * byte that arrives (tests/lab/peer.py has the same). 64 KiB blocks are cut out of a table of
 * random words, each at another place, so that bytes in a wrong place are wrong ones.
 */
#ifndef PEER_STREAM_H
#define PEER_STREAM_H

#include <stddef.h>
#include <stdint.h>

struct stream;

/* NULL: no memory. */
struct stream *stream_new(uint64_t seed);
void stream_free(struct stream *s);
/* Points to the bytes from `at` on; returns how many there are at once. */
size_t stream_at(const struct stream *s, uint64_t at, const uint8_t **bytes);
/* The first of these bytes that is not the stream's; len: none. */
size_t stream_compare(const struct stream *s, uint64_t at, const uint8_t *bytes, size_t len);

#endif
