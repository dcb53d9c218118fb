// SPDX-License-Identifier: Apache-2.0
/* Network namespaces of a test's own. They live as long as this process uses them, so that nothing
 * is left behind, however a test ends. */
#ifndef KERNEL_TESTS_SUPPORT_H
#define KERNEL_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sy_kernel.h>

/* No wait ends because of this unless something is broken. */
#define SUPPORT_PATIENCE_MS 30000

/* A new network namespace with lo up; the calling thread moves into it. Returns a descriptor. */
int netns_new(void);
void netns_enter(int ns);
/* Runs a shell command in the thread's namespace; the test fails if it does. */
void sh(const char *fmt, ...) SY_PRINTF(1, 2);
/* True if the command succeeds. */
bool sh_ok(const char *fmt, ...) SY_PRINTF(1, 2);
/* A veth pair: `near` here, `far` in the other namespace; both up, without IPv6 address detection.
 */
void veth_new(const char *near_name, const char *far_name, int far_ns);
struct sy_addr addr_of(const char *text);
/* A child process that runs `body` and is killed with its parent. */
int child_start(void (*body)(void *arg), void *arg);
void child_kill(int pid);

#endif
