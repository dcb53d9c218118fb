// SPDX-License-Identifier: Apache-2.0
/* Lists of connections, linked by index in both directions: a connection can leave from anywhere.
 * A connection has a place for each kind of list, and is in one list of a kind at most. */
#ifndef LIST_H
#define LIST_H

#include <stdbool.h>
#include <stdint.h>

#define INDEX_NONE UINT32_MAX

enum list_kind {
	LIST_SEND,  /* has something to send */
	LIST_EVENT, /* has an event for the application */
	LIST_ROLE,  /* half-open or ready, of a listener; its application waits for space in send
	               buffers; in TIME-WAIT */
	LIST_KINDS
};

struct list {
	uint32_t first, last, count;
};

struct list_place {
	uint32_t before, after; /* after: itself's index if it is in no list */
};

static inline void list_init(struct list *l)
{
	*l = (struct list){.first = INDEX_NONE, .last = INDEX_NONE};
}

#endif
