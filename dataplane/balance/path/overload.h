// SPDX-License-Identifier: Apache-2.0
/*
 * Overload: limits new sessions while a worker cannot keep up (docs/design/0035-overload.md).
 * Accepts those of known clients and repeated attempts. Otherwise the receive queue would overflow
 * and lose packets of all sessions.
 */
#ifndef OVERLOAD_H
#define OVERLOAD_H

#include "balance.h"

/* Drop new sessions only in bursts of which they are at least 1/OVERLOAD_PART: otherwise they are
 * not the cause of the overload. */
#define OVERLOAD_PART 4

/* Was the worker behind recently? */
static inline bool overload_was_on(const struct balance_worker *bw)
{
	return bw->overload.share[OVERLOAD_UNKNOWN] < OVERLOAD_WHOLE;
}

/* Is the worker behind, or was it recently? */
static inline bool overload_is_on(const struct balance_worker *bw, const struct sy_burst *burst)
{
	return burst->behind || overload_was_on(bw);
}

/* While overload_was_on(): notes that the client has completed a handshake. */
void overload_see_client(struct sy_worker *w, const struct session *s);

/* Drops new sessions among packets at[0] to at[count − 1], whose services locate_burst() has found.
 * Returns how many are left in at[]. */
unsigned overload_drop_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at,
                             unsigned count);

#endif
