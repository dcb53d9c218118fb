// SPDX-License-Identifier: Apache-2.0
/* Sessions that began before a change of access lists, of lists with `existing: end`
 * (docs/design/0027-access-lists.md). */
#ifndef EXISTING_H
#define EXISTING_H

#include "balance.h"

/* Which lists a sweep that is about to visit records of this table must ask about its sessions;
 * NULL: none. A change is asked about in the next whole pass over the table. */
const struct access *existing_begin(struct sy_worker *w, const struct session_table *t);
/* The table's pass is over. */
void existing_end(struct sy_worker *w, const struct session_table *t);
/* Does a list no longer accept this session? Counts it for the list. */
bool existing_is_refused(struct sy_worker *w, const struct access *a, const struct session_table *t,
                         uint32_t record);

#endif
