// SPDX-License-Identifier: Apache-2.0
/* Session expiry. */
#ifndef SWEEP_H
#define SWEEP_H

#include "balance.h"

/* Sweeps in proportion to the sessions created: with many, rounds alone would be too slow. Called
 * at the end of a burst, when nothing refers to a record. */
void sweep_for_creations(struct sy_worker *w);

#endif
