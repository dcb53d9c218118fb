// SPDX-License-Identifier: Apache-2.0
/* Clients' TCP options that a server would accept as the balancer's TOA
 * (docs/design/0014-client-address.md). */
#ifndef CLIENT_OPTIONS_H
#define CLIENT_OPTIONS_H

#include "forward.h"

/* Blanks such options of packet i, from a client to a server of *e, unless the service keeps them.
 * Call it before the balancer inserts its own. */
void client_options_blank(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          const struct endpoint *e);

/* The same for a plain packet: parses only options that may be TOA. */
static inline __attribute__((always_inline)) void
client_options_blank_plain(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                           const uint8_t *frame, const struct endpoint *e, bool v4)
{
	if (SY_UNLIKELY(sy_plain_has_rare_options(frame, burst->plain[i], v4)))
		client_options_blank(w, burst, i, e);
}

#endif
