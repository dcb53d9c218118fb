// SPDX-License-Identifier: Apache-2.0
/* Re-evaluates existing sessions after a change of access lists with `existing: end`
 * (docs/design/0027-access-lists.md). */
#ifndef EXISTING_H
#define EXISTING_H

#include "balance.h"

/* The lists that a sweep of this table must evaluate for each session; NULL: none. A change takes
 * effect with the next whole pass over the table. */
const struct access *existing_begin(struct sy_worker *w, const struct session_table *t);
/* The sweep has passed the whole table. */
void existing_end(struct sy_worker *w, const struct session_table *t);
/* Does a list refuse this session now? Counts it for the list. */
bool existing_is_refused(struct sy_worker *w, const struct access *a, const struct session_table *t,
                         uint32_t record);

#endif
