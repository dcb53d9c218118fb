// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that go through the event device (docs/design/0034-event-stage.md): the session's owner
 * has finished their frames, and whoever receives them asks the limits and sends.
 */
#ifndef QUEUED_H
#define QUEUED_H

#include "balance.h"

/* Gives the device those of the packets before packet `end` that are for it. */
void queued_send(struct sy_worker *w, struct sy_burst *burst, unsigned end);

#endif
