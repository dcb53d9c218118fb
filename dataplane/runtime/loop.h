// SPDX-License-Identifier: Apache-2.0
/* The control thread's event loop. */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>

struct loop;

int loop_open(struct loop **out);
void loop_close(struct loop *l);
/* Calls fn(ctx) when fd is ready. Returns 0 or a negative errno; so does loop_every(). */
int loop_watch(struct loop *l, int fd, void (*fn)(void *ctx), void *ctx);
/* Sets the events (EPOLL…) of a watched descriptor, initially EPOLLIN. Hang-ups are always
 * reported. */
void loop_set_events(struct loop *l, int fd, unsigned events);
void loop_unwatch(struct loop *l, int fd);
/* Calls fn(ctx) once, in the next iteration. */
void loop_defer(struct loop *l, void (*fn)(void *ctx), void *ctx);
/* Calls fn(ctx) every period_ms. */
int loop_every(struct loop *l, unsigned period_ms, void (*fn)(void *ctx), void *ctx);
/* One iteration: runs deferred work, then handlers of ready descriptors. Waits at most timeout_ms
 * (−1: no limit). */
int loop_poll(struct loop *l, int timeout_ms);
/* Any thread and signal handlers. */
void loop_stop(struct loop *l);
bool loop_is_stopped(const struct loop *l);
/* Any thread: wakes the loop. */
void loop_wake(struct loop *l);

#endif
