// SPDX-License-Identifier: Apache-2.0
/* The services of a burst's packets: each is found once, for access lists, the SYN defence and
 * session creation. A packet that is rewritten in the slow stage keeps its tuple, and so its
 * service. */
#ifndef LOCATE_H
#define LOCATE_H

#include "balance.h"

/* Of the packets at[0] to at[count − 1], which have no session, finds those that a client sends to
 * a service and that are of a kind that may begin a session: begins[]. Returns how many. */
unsigned locate_burst(struct sy_worker *w, const struct sy_burst *burst, const uint8_t *at,
                      unsigned count, uint8_t *begins);

/* The service of packet i, from a client; NULL: none. Valid until the burst ends. */
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
