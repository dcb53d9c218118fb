// SPDX-License-Identifier: Apache-2.0
/*
 * Files that outlive a forwarder: its session tables, by design; its control socket and EAL's
 * directory, if it is killed. A note in /run/steelyard lists them, locked while the forwarder runs.
 * Cleanup finds the files by the note, whatever their names.
 */
#ifndef STALE_STATE_H
#define STALE_STATE_H

#include "options.h"

/* Writes the note. Returns its descriptor, which must stay open, or a negative errno: -EBUSY if a
 * forwarder of this instance runs. close() leaves the files to a successor. */
int stale_state_note(const struct options *o, struct sy_error *err);
/* When a forwarder ends without a successor: removes files that the next start does not need, and
 * the note if none of its files is left. Closes the note. */
void stale_state_keep(int note, const struct options *o);
/* Removes the noted files of forwarders of this network namespace that no longer run. */
void stale_state_cleanup(void (*report)(void *ctx, const char *text), void *ctx);

#endif
