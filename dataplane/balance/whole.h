// SPDX-License-Identifier: Apache-2.0
/* What belongs to no room: the order of things at start, tick and end. */
#ifndef WHOLE_H
#define WHOLE_H

#include "balance.h"

/* Lets go of a store that was not sealed: as a crash would, so that its sessions can be adopted. */
void adopt_close(struct sy_balance *b);

/* What the control thread does every RETIRE_PERIOD_MS. */
void balance_tick(void *balance);

#endif
