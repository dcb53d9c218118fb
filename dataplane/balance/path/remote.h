// SPDX-License-Identifier: Apache-2.0
/*
 * Packets of other workers' slots (docs/design/0017-remote-sessions.md): plain ones of established
 * sessions are forwarded where they arrive, by the owner's record; all others are handed over.
 */
#ifndef REMOTE_H
#define REMOTE_H

#include "balance.h"

struct remote;

/* A worker's own; NULL where all is handed over: there is no other, or records cannot be read
 * safely. Returns 0 or -ENOMEM. */
int remote_create(struct remote **out, unsigned workers);
/* f may be NULL. */
void remote_destroy(struct remote *f);

/* Takes, of the first n packets of a burst, those that are to be looked up and are of others'
 * slots: they are SY_NEXT_GONE, or SY_NEXT_READY. */
void remote_take(struct sy_worker *w, struct sy_burst *burst, unsigned n);

#endif
