// SPDX-License-Identifier: Apache-2.0
/* Clients, servers and routers that react to the frames that the balancer sends. */
#ifndef REACTION_H
#define REACTION_H

#include "fuzz_traffic.h"

/* Adds the reaction to a frame that was sent by this port to the pending frames. */
void react_to(struct fuzz_traffic *w, unsigned port, const uint8_t *frame, const struct sy_view *v);

#endif
