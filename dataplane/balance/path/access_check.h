// SPDX-License-Identifier: Apache-2.0
/* Admission: access lists are asked once for each new session, before anything is spent on it. */
#ifndef ACCESS_CHECK_H
#define ACCESS_CHECK_H

#include "access.h"
#include "address_ranges_table.h"

/* Begins the look-ups of those packets' clients, of at[0] to at[count − 1], that have no session,
 * in a large table for access_check_burst(). Their cache misses overlap with each other and with
 * what comes until then. balance_worker.looked is 0 when a burst begins. */
void access_look_begin(struct sy_worker *w, const struct sy_burst *burst, const uint8_t *at,
                       unsigned count);

/* Goes on with the look-ups that access_look_begin() has begun: those that will pass the filter
 * fetch what they need next. Their packets have views. */
void access_look_continue(struct sy_worker *w, const struct sy_burst *burst);

/* Asks the lists about those of the packets at[0] to at[count − 1], which have no session, that
 * would begin one. Drops the refused ones, and returns how many are left in at[]. The accepted ones
 * have their bit in balance_worker.accepted, and their service in .service[]. */
unsigned access_check_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at,
                            unsigned count);

/* Asks about packet i, unless access_check_burst() has accepted it. NONE, or why it is to be
 * dropped; its sender has then been told, if the list says so. */
enum sy_drop access_check_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                 const struct service *service);
/* The same for a client whose SYN was asked about before and that has shown its address: counted
 * only if it is refused now. */
enum sy_drop access_recheck_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                   const struct service *service);

#endif
