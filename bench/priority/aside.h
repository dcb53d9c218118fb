// SPDX-License-Identifier: Apache-2.0
/* The synthetic server's second thread: processes requests of a work queue, without connections. */
#ifndef PRIORITY_ASIDE_H
#define PRIORITY_ASIDE_H

#include <sy_tcp.h>

#include "priority_serve.h"

struct aside;

struct aside *aside_new(struct sy_tcp_queue *queue);
/* Thread function: runs until aside_stop(). arg: the aside. */
void *aside_main(void *arg);
void aside_stop(struct aside *a);
/* Call from another thread, while no request is in progress: returns the counters since the last
 * call. */
void aside_counts(struct aside *a, struct serve_counts *out);

#endif
