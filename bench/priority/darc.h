// SPDX-License-Identifier: Apache-2.0
/*
 * A dispatcher behind TCP, as Persephone has it (DARC): requests wait in queues by type, and those
 * of the type that has taken the shortest are served first. As the paper has it, types may have a
 * priority as well, which goes before: else types of one service time would not be told apart.
 * (Cores that are reserved for short types need several: the experiments give it one.)
 */
#ifndef PRIORITY_DARC_H
#define PRIORITY_DARC_H

#include "serve.h"

#define DARC_TYPES 16u /* the last one has all that are above */

struct darc_task {
	int fd;
	uint32_t serial; /* of the connection that had this descriptor */
	struct request request;
};

struct darc;

/* Room for so many requests of each type; NULL: no memory. */
struct darc *darc_new(uint32_t most);
void darc_free(struct darc *d);
/* A request waits. False: there is no room. level: the type's priority, 0 first. */
bool darc_add(struct darc *d, const struct darc_task *t, unsigned level);
/* The one that is served next, until the next call; NULL: none waits. */
const struct darc_task *darc_next(struct darc *d);
/* What a request of this type took: counts for the mean with an eighth. */
void darc_took(struct darc *d, unsigned type, uint64_t ns);

#endif
