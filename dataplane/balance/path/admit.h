// SPDX-License-Identifier: Apache-2.0
/* Admission: access lists are asked once for each new session, before anything is spent on it. */
#ifndef ADMIT_H
#define ADMIT_H

#include "balance.h"

/* Asks the lists about those of the packets at[0] to at[count − 1], which have no session, that
 * would begin one. Drops the refused ones, and returns how many are left in at[]. The admitted ones
 * have their bit in balance_worker.admitted, and their service in .service[]. */
unsigned admit_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at, unsigned count);

/* Asks about packet i, unless admit_burst() has admitted it. NONE, or why it is to be dropped; its
 * sender has then been told, if the list says so. */
enum sy_drop admit_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          const struct service *service);
/* The same for a client whose SYN was asked about before and that has shown its address: counted
 * only if it is refused now. */
enum sy_drop admit_again(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                         const struct service *service);

#endif
