// SPDX-License-Identifier: Apache-2.0
/* Admission: access lists are asked once for each new session, before anything is spent on it. */
#ifndef ADMIT_H
#define ADMIT_H

#include "access.h"
#include "address_ranges_table.h"

/* Packet i has no session: begins the look-up of its client in a large table for admit_burst(), so
 * that its cache miss overlaps with what comes until then. balance_worker.looked is 0 when a burst
 * begins. */
static inline void admit_look(struct sy_worker *w, const struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	const struct access *a = SY_RCU_READ(b->access);
	if (SY_LIKELY(!a) || !a->ranges || !a->ranges->large)
		return;
	if (SY_UNLIKELY(bw->looked_in != a->ranges)) { /* another table since the packet before */
		bw->looked_in = a->ranges;
		bw->looked = 0;
	}
	bw->look[i] = address_look_begin(a->ranges, &burst->view[i].tuple.src);
	bw->looked |= UINT64_C(1) << i;
}

/* Asks the lists about those of the packets at[0] to at[count − 1], which have no session, that
 * would begin one. Drops the refused ones, and returns how many are left in at[]. The admitted ones
 * have their bit in balance_worker.admitted, and their service in .service[]. */
unsigned admit_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at, unsigned count);

/* Asks about packet i, unless admit_burst() has admitted it. NONE, or why it is to be dropped; its
 * sender has then been told, if the list says so. */
enum sy_drop admit_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          const struct service *service);
/* The same for a client whose SYN was asked about before and that has shown its address: counted
 * only if it is refused now. */
enum sy_drop admit_again(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                         const struct service *service);

#endif
