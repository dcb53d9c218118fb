// SPDX-License-Identifier: Apache-2.0
/*
 * Which new sessions begin while a worker cannot keep up (docs/design/0035-overload.md): those of
 * known clients, and those that are asked for again. Without this, the receive queue would
 * overflow, and lose packets of all sessions alike.
 */
#ifndef SHED_H
#define SHED_H

#include "balance.h"

/* Of the packets at[0] to at[count − 1], which would begin sessions of services that locate_burst()
 * has found, drops those for which nothing speaks. Does nothing unless they are a quarter of the
 * burst: otherwise others are why the worker is behind. Returns how many are left in at[]. Called
 * if burst->behind, or if it was lately: the worker's shed.share is not SHED_NONE. */
unsigned shed_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at, unsigned count);

#endif
