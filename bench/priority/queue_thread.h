// SPDX-License-Identifier: Apache-2.0
/* The synthetic server's second thread: has no connections, processes requests of a work queue. */
#ifndef PRIORITY_QUEUE_THREAD_H
#define PRIORITY_QUEUE_THREAD_H

#include <sy_tcp.h>

#include "priority_serve.h"

struct queue_thread;

struct queue_thread *queue_thread_new(struct sy_tcp_queue *queue);
/* Thread function: runs until queue_thread_stop(). arg: the struct queue_thread. */
void *queue_thread_main(void *arg);
void queue_thread_stop(struct queue_thread *q);
/* Call from another thread, while no request is in progress: returns the counters since the last
 * call. */
void queue_thread_counts(struct queue_thread *q, struct serve_counts *out);

#endif
