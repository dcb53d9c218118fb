// SPDX-License-Identifier: Apache-2.0
/* Functions of the whole balancer: start, periodic tick and stop. */
#ifndef WHOLE_H
#define WHOLE_H

#include "balance.h"

/* Releases a store without sealing it, as a crash would; its sessions can still be adopted. */
void adopt_close(struct sy_balance *b);

/* The control thread calls it every RETIRE_PERIOD_MS. */
void balance_tick(void *balance);

#endif
