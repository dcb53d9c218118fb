// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that pass the event device (docs/design/0034-event-stage.md): the session's owner
 * completes their frames; the consuming worker charges the limits and sends them.
 */
#ifndef QUEUED_H
#define QUEUED_H

#include "balance.h"

/* Enqueues to the device those of the packets 0 to end − 1 that must pass it. */
void queued_send(struct sy_worker *w, struct sy_burst *burst, unsigned end);

/* Dequeues packets from the device and processes them; called in each poll iteration of a worker.
 * Returns true if the device has packets. */
bool queued_poll(struct sy_worker *w);
/* Has the device no packets? */
bool queued_is_idle(const struct sy_worker *w);

#endif
