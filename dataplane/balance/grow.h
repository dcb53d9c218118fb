// SPDX-License-Identifier: Apache-2.0
#ifndef GROW_H
#define GROW_H

#include "balance.h"

/* Doubles tables of slots that are nearly full, within the limit of growth and a bounded time; not
 * while an upgrade is under way, as the successor has mapped the file. Control thread, every
 * GROW_PERIOD_MS; balance: struct sy_balance. */
void grow_tick(void *balance);
#define GROW_PERIOD_MS 20

#endif
