// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that pass the event device (docs/design/0034-event-stage.md): the session's owner
 * completes their frames; the consuming worker charges the limits and sends them.
 */
#ifndef QUEUED_H
#define QUEUED_H

#include "balance.h"

/* Enqueues those packets before packet `end` that are for the device. */
void queued_send(struct sy_worker *w, struct sy_burst *burst, unsigned end);

/* Called in each poll of a worker: what leaves the device. Returns whether it has packets. */
bool queued_poll(struct sy_worker *w);
/* Has the device no packets? */
bool queued_is_idle(const struct sy_worker *w);

#endif
