// SPDX-License-Identifier: Apache-2.0
/*
 * A connection's path MTU, by its own segments (RFC 4821 7, RFC 8899 4): black holes are noticed,
 * and probes search for what passes, after a fall and again after ten minutes.
 *
 *     │ under way │ probe: one segment that is larger │ segments as ever, so that its loss shows │
 *
 * A probe's loss is no congestion if nothing else was lost: its bytes go again, in segments as
 * ever.
 */
#ifndef PATH_PROBE_H
#define PATH_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct sy_stack;
struct connection;

/* The payload of a probe that may be sent now; 0: none. */
uint32_t path_probe_room(const struct sy_stack *s, struct connection *c);
/* It was sent with this room, and bytes from this number on: fewer where SACK blocks are. */
void path_probe_sent(struct connection *c, uint32_t from, uint32_t room, uint32_t len);
/* Bytes were acknowledged, of the probe or of others. */
void path_probe_acked(struct sy_stack *s, struct connection *c, uint32_t bytes);
/* Something is newly lost. True: nothing but a probe. */
bool path_probe_lost(struct sy_stack *s, struct connection *c);
/* What becomes of it says nothing: its bytes may be sent again as others, or all is lost. */
void path_probe_forget(struct connection *c);

/* A time-out: the path may swallow them (RFC 4821 7.7). */
void path_black_hole(struct sy_stack *s, struct connection *c);
/* It was in vain. */
void path_late(struct sy_stack *s, struct connection *c);

#endif
