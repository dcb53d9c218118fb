// SPDX-License-Identifier: Apache-2.0
/* Whether another thread had its core all the time: packets lost while it waited for the core do
 * not count as its program's loss. */
#ifndef GENERATOR_WATCH_H
#define GENERATOR_WATCH_H

#include <stdint.h>

/* Nanoseconds that a thread has waited for a core since its start, from the scheduler; 0 for thread
 * 0, or if the kernel does not report it. */
uint64_t watch_waited(unsigned thread);

#endif
