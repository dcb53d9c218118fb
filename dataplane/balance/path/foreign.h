// SPDX-License-Identifier: Apache-2.0
/*
 * Packets of other workers' slots (docs/design/0017-foreign-sessions.md): plain ones of established
 * sessions are forwarded where they arrive, by the owner's record; all others are handed over.
 */
#ifndef FOREIGN_H
#define FOREIGN_H

#include "balance.h"

struct foreign;

/* A worker's own; NULL where all is handed over: there is no other, or records cannot be read
 * safely. Returns 0 or -ENOMEM. */
int foreign_create(struct foreign **out, unsigned workers);
/* f may be NULL. */
void foreign_destroy(struct foreign *f);

/* Takes, of the first n packets of a burst, those that are to be looked up and are of others'
 * slots: they are SY_NEXT_GONE, or SY_NEXT_READY. */
void foreign_take(struct sy_worker *w, struct sy_burst *burst, unsigned n);

#endif
