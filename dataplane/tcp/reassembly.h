// SPDX-License-Identifier: Apache-2.0
/* Reassembly of IP fragments (docs/design/0061-fragments-at-the-stack.md). */
#ifndef REASSEMBLY_H
#define REASSEMBLY_H

#include "stack.h"

/* Consumes the fragment. Returns the whole packet after the last missing fragment, else NULL. */
struct rte_mbuf *reassembly_add(struct sy_stack *s, struct rte_mbuf *m, const struct sy_view *v);

#endif
