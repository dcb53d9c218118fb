// SPDX-License-Identifier: Apache-2.0
#ifndef GROW_H
#define GROW_H

#include "balance.h"

/* Doubles the tables of slots that are nearly full, within the growth limit and a bounded time per
 * call. Does nothing during an upgrade: the successor has mapped the file. Called by the control
 * thread every GROW_PERIOD_MS; balance: struct sy_balance. */
void grow_tick(void *balance);
#define GROW_PERIOD_MS 20

#endif
