// SPDX-License-Identifier: Apache-2.0
/* Expiry. */
#ifndef SWEEP_H
#define SWEEP_H

#include "balance.h"

/* Sweeps on in proportion to the sessions that began, as rounds alone could not keep up with many:
 * behind a burst, when nothing refers to a record. */
void sweep_for_creations(struct sy_worker *w);

#endif
