// SPDX-License-Identifier: Apache-2.0
/*
 * Remote-owned sessions: packets of other workers' slots (docs/design/0017-remote-sessions.md).
 * Plain packets of established sessions are forwarded where they arrive, by the owner's record. All
 * others are steered to the owner.
 */
#ifndef REMOTE_H
#define REMOTE_H

#include "balance.h"

struct remote;

/* Creates a worker's state. Leaves *out NULL if all packets are steered: there is one worker only,
 * or records cannot be read safely. Returns 0 or -ENOMEM. */
int remote_create(struct remote **out, unsigned workers);
/* r may be NULL. */
void remote_destroy(struct remote *r);

/* Handles those of the first n packets that are for look up and belong to slots of other workers.
 * They become SY_NEXT_SENT, SY_NEXT_STEERED, SY_NEXT_DROPPED or SY_NEXT_READY. */
void remote_classify(struct sy_worker *w, struct sy_burst *burst, unsigned n);

#endif
