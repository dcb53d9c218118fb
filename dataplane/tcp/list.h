// SPDX-License-Identifier: Apache-2.0
/* Doubly linked lists of connections by index, so that a connection can be removed from anywhere. A
 * connection has links for each kind of list and is in at most one list per kind. */
#ifndef LIST_H
#define LIST_H

#include <stdbool.h>
#include <stdint.h>

#define INDEX_NONE UINT32_MAX

enum list_kind {
	LIST_SEND,  /* has something to send */
	LIST_EVENT, /* has an event */
	LIST_ROLE,  /* a listener's half-open or accept queue; waiting for send space; TIME-WAIT */
	LIST_KINDS
};

struct list {
	uint32_t first, last, count;
};

struct list_place {
	uint32_t before, after; /* after == own index: in no list */
};

static inline void list_init(struct list *l)
{
	*l = (struct list){.first = INDEX_NONE, .last = INDEX_NONE};
}

#endif
