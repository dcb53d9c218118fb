// SPDX-License-Identifier: Apache-2.0
/*
 * Files that outlive a forwarder: its session tables, on purpose; its control socket and EAL's
 * directory, when it is killed. A note in /run/steelyard names them, locked while it runs, so that
 * a later cleanup finds them whatever they were called.
 */
#ifndef STALE_STATE_H
#define STALE_STATE_H

#include "options.h"

/* Writes the note. Returns its descriptor, to be kept open, or a negative errno: -EBUSY if a
 * forwarder of this instance runs. close() leaves the files to a successor. */
int stale_state_note(const struct options *o, struct sy_error *err);
/* At the end of a forwarder without successor: what the next start does not need is removed, and
 * the note too if nothing is left that it names. Closes the note. */
void stale_state_keep(int note, const struct options *o);
/* Removes what forwarders of this network namespace that no longer run have noted. */
void stale_state_cleanup(void (*told)(void *ctx, const char *text), void *ctx);

#endif
