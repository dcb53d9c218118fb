// SPDX-License-Identifier: Apache-2.0
/*
 * Coalesces ACKs of a stream of full segments: one per eight. On a fast link segments arrive one by
 * one at a polling core, and an ACK for each second one costs more than all other processing. Other
 * receivers acknowledge what GRO has merged, up to 64 KB.
 *
 *     streak ≥ COALESCE_AFTER   it is a stream
 *     eight segments            acknowledge at once
 *     COALESCE_NS have passed   acknowledge; if fewer than four had arrived, acknowledge every
 *                               second of the next COALESCE_AFTER
 *
 * Eight segments are what a sender counts per ACK in slow start (RFC 9406 4.2).
 */
#ifndef ACK_COALESCE_H
#define ACK_COALESCE_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_COALESCED     16 /* concurrent connections */
#define COALESCE_AFTER    64 /* segments */
#define COALESCE_SEGMENTS 8
#define COALESCE_FEW      4
#define COALESCE_NS       30000
#define COALESCE_PAID     0x80 /* flag in `streak`: eight arrived in time */

struct sy_stack;
struct connection;

/* Call for each in-order segment of len bytes. Returns true if its ACK is deferred. */
bool ack_coalesce(struct sy_stack *s, struct connection *c, uint32_t len);
/* The deadline passed: acknowledges all deferred segments. */
void ack_coalesce_flush(struct sy_stack *s);

#endif
