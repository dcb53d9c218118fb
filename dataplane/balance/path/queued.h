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

#endif
