// SPDX-License-Identifier: Apache-2.0
/* Whether another thread could run all the time: what it lost while it waited for its core is not
 * what its program loses. */
#ifndef GENERATOR_WATCH_H
#define GENERATOR_WATCH_H

#include <stdint.h>

/* Nanoseconds that a thread has waited for a core since it began, as the scheduler counts them; 0
 * of thread 0, or where the kernel does not tell. */
uint64_t watch_waited(unsigned thread);

#endif
