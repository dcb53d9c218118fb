// SPDX-License-Identifier: Apache-2.0
/* The synthetic server's second thread: it answers what lies on a desk, and has no connections. */
#ifndef PRIORITY_ASIDE_H
#define PRIORITY_ASIDE_H

#include <sy_tcp.h>

#include "priority_serve.h"

struct aside;

struct aside *aside_new(struct sy_tcp_desk *desk);
/* The thread: until aside_stop(). arg: the aside. */
void *aside_main(void *arg);
void aside_stop(struct aside *a);
/* From another thread, while nothing is under way: takes the counts since the last time. */
void aside_counts(struct aside *a, struct serve_counts *out);

#endif
