// SPDX-License-Identifier: Apache-2.0
/*
 * Packetization layer path MTU discovery (RFC 4821 7, RFC 8899 4): detects black holes and probes
 * for larger sizes, after a reduction and again after ten minutes.
 *
 *     │ in flight │ probe: one larger segment │ usual segments, so that its loss is noticed │
 *
 * The loss of a probe alone is no sign of congestion: its bytes are retransmitted in segments of
 * the usual size.
 */
#ifndef PATH_PROBE_H
#define PATH_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct sy_stack;
struct connection;

/* Returns the payload of a probe that may be sent now; 0: none. */
uint32_t path_probe_payload(const struct sy_stack *s, struct connection *c);
/* A probe was sent with this payload size; SACK blocks reduce the bytes that it carries to len. */
void path_probe_sent(struct connection *c, uint32_t from, uint32_t payload, uint32_t len);
/* Bytes were acknowledged, of the probe or of others. */
void path_probe_acked(struct sy_stack *s, struct connection *c, uint32_t bytes);
/* Call for new losses. Returns true if only the probe was lost. */
bool path_probe_lost(struct sy_stack *s, struct connection *c);
/* Cancels the probe: its bytes may be retransmitted in other segments, so its fate is no evidence.
 */
void path_probe_forget(struct connection *c);

/* An RTO: the path may be a black hole (RFC 4821 7.7). */
void path_black_hole(struct sy_stack *s, struct connection *c);
/* The RTO was spurious. */
void path_late(struct sy_stack *s, struct connection *c);

#endif
