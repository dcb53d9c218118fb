// SPDX-License-Identifier: Apache-2.0
/*
 * Which new sessions begin while a worker cannot keep up (docs/design/0035-overload.md): those of
 * known clients, and those that are asked for again. Without this, the receive queue would
 * overflow, and lose packets of all sessions alike.
 */
#ifndef OVERLOAD_H
#define OVERLOAD_H

#include "balance.h"

/* Packets that would begin sessions are at least this part of a burst, or others are why the worker
 * is behind. */
#define OVERLOAD_PART 4

/* Was the worker behind lately? */
static inline bool overload_was_on(const struct balance_worker *bw)
{
	return bw->overload.share[OVERLOAD_UNKNOWN] < OVERLOAD_WHOLE;
}

/* Is the worker behind, or was it lately? */
static inline bool overload_is_on(const struct balance_worker *bw, const struct sy_burst *burst)
{
	return burst->behind || overload_was_on(bw);
}

/* While overload_was_on(): the client of a TCP session has completed its handshake, and is known.
 */
void overload_see_client(struct sy_worker *w, const struct session *s);

/* Of the packets at[0] to at[count − 1], which would begin sessions of services that locate_burst()
 * has found, drops those that must wait. Returns how many are left in at[]. */
unsigned overload_drop_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at,
                             unsigned count);

#endif
