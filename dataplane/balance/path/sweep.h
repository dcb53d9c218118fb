// SPDX-License-Identifier: Apache-2.0
/* Session expiry. */
#ifndef SWEEP_H
#define SWEEP_H

#include "balance.h"

/* Sweeps in proportion to the sessions created, since the periodic sweep alone is too slow for high
 * rates. Called at the end of a burst, when no packet refers to a record. */
void sweep_for_creations(struct sy_worker *w);

#endif
