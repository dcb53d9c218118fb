// SPDX-License-Identifier: Apache-2.0
/* Access lists: evaluated once per new session, before any other cost. */
#ifndef ACCESS_CHECK_H
#define ACCESS_CHECK_H

#include "access.h"
#include "address_ranges_table.h"

/* Begins to look up the clients of packets at[0] to at[count − 1] that have no session, for
 * access_check_burst(). Only for a large table: the cache misses overlap with each other and with
 * other work. Requires burst_state.lookup_begun == 0. */
void access_lookup_begin(struct sy_worker *w, const struct sy_burst *burst, const uint8_t *at,
                         unsigned count);

/* Continues the look-ups of access_lookup_begin(): prefetches the next cache line for those that
 * pass the filter. Requires parsed packets. */
void access_lookup_continue(struct sy_worker *w, const struct sy_burst *burst);

/* Evaluates the lists for packets at[0] to at[count − 1] that would begin a session. Drops the
 * refused ones and returns how many are left in at[]. Sets burst_state.accepted and .service[]. */
unsigned access_check_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at,
                            unsigned count);

/* Evaluates the lists for packet i, unless access_check_burst() has accepted it. Returns NONE or
 * the drop reason; the sender was notified if the list says so. */
enum sy_drop access_check_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                 const struct service *service);
/* The same for a client whose SYN was checked before and whose address is now validated: counted
 * only if it is refused now. */
enum sy_drop access_recheck_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                   const struct service *service);

#endif
