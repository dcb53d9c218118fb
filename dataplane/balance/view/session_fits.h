// SPDX-License-Identifier: Apache-2.0
#ifndef SESSION_FITS_H
#define SESSION_FITS_H

#include "balance.h"

/*
 * Can a record that an earlier process or a peer has written be a session of its endpoint? Checks
 * form, families and state; its ids are valid. s[1] is its pair record, or a record whose state is
 * not SESSION_PAIR_RECORD. Corrects states that older builds, or a crash between two stores, have
 * left. Threads may call it at once, for different records.
 */
bool session_fits(const struct sy_balance *b, struct session *s, const struct session_cold *cold);

#endif
