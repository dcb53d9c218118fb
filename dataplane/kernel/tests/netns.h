// SPDX-License-Identifier: Apache-2.0
/* Private network namespaces for a test. They exist only while this process uses them, so a test
 * leaves nothing behind, even if it fails. */
#ifndef NETNS_H
#define NETNS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sy_kernel.h>

/* A wait reaches this limit only if something is broken. */
#define SUPPORT_PATIENCE_MS 30000

/* Creates a network namespace with lo up and moves the calling thread into it. Returns a
 * descriptor.
 */
int netns_new(void);
void netns_enter(int ns);
/* Removes what the test has left in the kernel of `here`, and closes both. Returns 0 or an error.
 */
int netns_cleanup(int here, int there);
/* Runs a shell command in the thread's namespace; if it fails, the test fails. */
void sh(const char *fmt, ...) SY_PRINTF(1, 2);
/* True if the command succeeds. */
bool sh_ok(const char *fmt, ...) SY_PRINTF(1, 2);
/* Creates a veth pair: near_name here, far_name in the other namespace. Both are up and without
 * IPv6 duplicate address detection. */
void veth_new(const char *near_name, const char *far_name, int far_ns);
struct sy_addr addr_of(const char *text);
/* Starts a child process that runs `body` and is killed when its parent ends. */
int child_start(void (*body)(void *arg), void *arg);
void child_kill(int pid);

#endif
