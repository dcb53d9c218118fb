// SPDX-License-Identifier: Apache-2.0
/*
 * Clients that have shown that they receive what is sent to their address, for services whose
 * servers answer past the forwarder (docs/design/0025-syn-defence.md): one table for all workers,
 * without locks. It ends with the process.
 *
 *     bucket    | client | client | … |    eight words of 64 bits, one cache line
 *     word      | tag 32 | second 16 | credit 8 | proven 1 | proofs 7 |    0: empty
 *
 * A client is an IPv4 address or an IPv6 network of /64; the tag is a keyed hash of it and of the
 * service. Words are written whole, by any worker. If two write one at once, a credit may be spent
 * twice, or a client is forgotten, and asked again.
 */
#ifndef PROVEN_H
#define PROVEN_H

#include <sy_base.h>

#define PROVEN_CREDITS 255 /* sessions that a proof allows */
#define SEEN_CREDITS   15  /* that a session which began without a proof allows */
#define PROVEN_SECONDS 600 /* since the last use */
#define PROVEN_PROOFS  127 /* the number of a client's proofs is known modulo this + 1 */

struct proven;

struct proven *proven_create(void);
void proven_destroy(struct proven *p);
/* Before the functions below are called for this client. client: hash of address and service. */
void proven_prefetch(const struct proven *p, uint64_t client);
/* Has the client a credit? now, here and below: seconds. */
bool proven_has_credit(const struct proven *p, uint64_t client, uint32_t now);
/* Takes one of its credits; false: it has none. */
bool proven_take(struct proven *p, uint64_t client, uint32_t now);
/* How often the client has proven itself, modulo PROVEN_PROOFS + 1; 0 if it is not known. A proof
 * is good for one of these numbers, so none serves twice. */
unsigned proven_proofs(const struct proven *p, uint64_t client, uint32_t now);
/* The client has proven itself. */
void proven_add(struct proven *p, uint64_t client, uint32_t now);
/* A session of the client was established without a proof: it has so many credits, PROVEN_CREDITS
 * at most. It gives way to clients with proofs. */
void proven_see(struct proven *p, uint64_t client, unsigned credits, uint32_t now);
/* Removes some clients that were not used for long, so that no word gets older than its second can
 * express. Called by the control thread every RETIRE_PERIOD_MS. */
void proven_tick(struct proven *p, uint32_t now);

#endif
