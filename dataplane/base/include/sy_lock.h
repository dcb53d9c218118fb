// SPDX-License-Identifier: Apache-2.0
/* Locks of files, for starts; never on the packet path. */
#ifndef SY_LOCK_H
#define SY_LOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Acquires flock() on fd for this process. Waits wait_ns for a live holder, and up to 30 s longer
 * while the holder is dying: a process that was killed releases its files only after its memory.
 * Returns false if the lock is still held then. */
bool sy_lock(int fd, uint64_t wait_ns);
/* Returns whether a process was killed or exits, but has not released everything yet. */
bool sy_process_is_dying(int pid);

#endif
