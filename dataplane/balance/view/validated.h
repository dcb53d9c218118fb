// SPDX-License-Identifier: Apache-2.0
/*
 * Validated clients: clients that received what was sent to their address, for services whose
 * servers' answers bypass the forwarder (docs/design/0025-syn-defence.md). One table for all
 * workers, without locks. It ends with the process.
 *
 *     bucket    | client | client | … |    eight words of 64 bits, one cache line
 *     word      | tag 32 | second 16 | credit 8 | validated 1 | proofs 7 |    0: empty
 *
 * A client is an IPv4 address or an IPv6 /64; the tag is a keyed hash of it and of the service. Any
 * worker stores whole words. If two store one at once, a credit may be spent twice, or a client is
 * lost and challenged again.
 */
#ifndef VALIDATED_H
#define VALIDATED_H

#include <sy_base.h>

#define VALIDATED_CREDITS 255 /* sessions allowed by an answer to a challenge */
#define SEEN_CREDITS      15  /* sessions allowed by a session established without a challenge */
#define VALIDATED_SECONDS 600 /* lifetime since the last use */
#define VALIDATED_PROOFS  127 /* a client's proofs are counted modulo this + 1 */

struct validated;

struct validated *validated_create(void);
void validated_destroy(struct validated *p);
/* Call before the functions below for this client. client: hash of address and service. */
void validated_prefetch(const struct validated *p, uint64_t client);
/* Has the client a credit? now, here and below: seconds. */
bool validated_has_credit(const struct validated *p, uint64_t client, uint32_t now);
/* Consumes one of its credits. Returns false without one. */
bool validated_consume(struct validated *p, uint64_t client, uint32_t now);
/* How many challenges the client has answered, modulo VALIDATED_PROOFS + 1; 0: unknown. A challenge
 * includes the number, so that no answer counts twice. */
unsigned validated_proofs(const struct validated *p, uint64_t client, uint32_t now);
/* The client has answered a challenge. */
void validated_add(struct validated *p, uint64_t client, uint32_t now);
/* A session of the client was established without a challenge: raises its credits to `credits`, at
 * most VALIDATED_CREDITS. Clients that answered a challenge replace it. */
void validated_add_seen(struct validated *p, uint64_t client, unsigned credits, uint32_t now);
/* Clears some expired words, so that their seconds do not wrap. Called by the control thread every
 * RETIRE_PERIOD_MS. */
void validated_tick(struct validated *p, uint32_t now);

#endif
