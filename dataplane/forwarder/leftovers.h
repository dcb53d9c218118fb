// SPDX-License-Identifier: Apache-2.0
/*
 * Files that a forwarder leaves when it is killed: its control socket, its session tables, EAL's
 * directory. A note in /run/steelyard names them while it runs, locked, so that a later cleanup
 * finds them whatever they were called.
 */
#ifndef LEFTOVERS_H
#define LEFTOVERS_H

#include "options.h"

/* Writes the note. Returns its descriptor, to be kept open, or a negative errno. */
int leftovers_note(const struct options *o, struct sy_error *err);
/* After a clean stop: removes what is still there, and the note. */
void leftovers_clear(int note);
/* Removes what forwarders of this network namespace that no longer run have noted. */
void leftovers_cleanup(void (*told)(void *ctx, const char *text), void *ctx);

#endif
