// SPDX-License-Identifier: Apache-2.0
/* Finds the service of each packet of a burst once, for access lists, the SYN defence and session
 * creation. Rewriting in the slow path does not change a packet's tuple, so its service stays. */
#ifndef LOCATE_H
#define LOCATE_H

#include "balance.h"

/* Finds the services of packets at[0] to at[count − 1], which have no session. Collects in begins[]
 * those that clients send to a service and that may begin a session. Returns their number. */
unsigned locate_burst(struct sy_worker *w, const struct sy_burst *burst, const uint8_t *at,
                      unsigned count, uint8_t *begins);

/* The service of packet i, from a client; NULL if there is none. Valid until the burst ends. */
static inline const struct service *locate_packet(struct sy_worker *w, const struct sy_burst *burst,
                                                  unsigned i)
{
	struct balance_worker *bw = balance_worker_of(w);
	if (!(bw->burst.located >> i & 1)) {
		bw->burst.service[i] = directory_find(w->app, &burst->view[i].tuple);
		bw->burst.located |= UINT64_C(1) << i;
	}
	return bw->burst.service[i];
}

#endif
