// SPDX-License-Identifier: Apache-2.0
/*
 * Clients that have shown that they receive what is sent to their address, for services whose
 * servers answer past the forwarder (docs/design/0025-syn-defence.md): one table for all workers,
 * without locks. It ends with the process.
 *
 *     bucket    | client | client | … |    eight words of 64 bits, one cache line
 *     word      | tag 32 | second 16 | credit 8 | validated 1 | proofs 7 |    0: empty
 *
 * A client is an IPv4 address or an IPv6 network of /64; the tag is a keyed hash of it and of the
 * service. Words are written whole, by any worker. If two write one at once, a credit may be spent
 * twice, or a client is forgotten, and asked again.
 */
#ifndef VALIDATED_H
#define VALIDATED_H

#include <sy_base.h>

#define VALIDATED_CREDITS 255 /* sessions that a proof allows */
#define SEEN_CREDITS      15  /* that a session which began without a proof allows */
#define VALIDATED_SECONDS 600 /* since the last use */
#define VALIDATED_PROOFS  127 /* the number of a client's proofs is known modulo this + 1 */

struct validated;

struct validated *validated_create(void);
void validated_destroy(struct validated *p);
/* Before the functions below are called for this client. client: hash of address and service. */
void validated_prefetch(const struct validated *p, uint64_t client);
/* Has the client a credit? now, here and below: seconds. */
bool validated_has_credit(const struct validated *p, uint64_t client, uint32_t now);
/* Takes one of its credits; false: it has none. */
bool validated_consume(struct validated *p, uint64_t client, uint32_t now);
/* How often the client has validated itself, modulo VALIDATED_PROOFS + 1; 0 if it is not known. A
 * proof is good for one of these numbers, so none serves twice. */
unsigned validated_proofs(const struct validated *p, uint64_t client, uint32_t now);
/* The client has validated itself. */
void validated_add(struct validated *p, uint64_t client, uint32_t now);
/* A session of the client was established without a proof: it has so many credits,
 * VALIDATED_CREDITS at most. It gives way to clients with proofs. */
void validated_add_seen(struct validated *p, uint64_t client, unsigned credits, uint32_t now);
/* Removes some clients that were not used for long, so that no word gets older than its second can
 * express. Called by the control thread every RETIRE_PERIOD_MS. */
void validated_tick(struct validated *p, uint32_t now);

#endif
