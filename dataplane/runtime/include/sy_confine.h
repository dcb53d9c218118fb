// SPDX-License-Identifier: Apache-2.0
/*
 * What a process that someone has taken over may still ask the kernel for: system call filters
 * (seccomp), and workers without capabilities. docs/design/0029-control-plane-rights.md has the
 * reasons for two filters: whatever a process executes inherits its filter, for ever.
 */
#ifndef SY_CONFINE_H
#define SY_CONFINE_H

#include <sy_base.h>

enum sy_confine {
	SY_CONFINE_ON,   /* a call that is not allowed fails with EPERM, and the kernel logs it */
	SY_CONFINE_TRAP, /* it ends the process and names the call: for tests */
	SY_CONFINE_OFF,  /* no filters; workers still give up their capabilities */
};

/* Installs the process's filter, unless a predecessor has: filters add up. Before other threads
 * begin. If this kernel has no filters, this is logged and the process goes on without.
 * filter_workers: workers get theirs too. Returns 0, or -ENOMEM with err. */
int sy_confine_process(enum sy_confine how, bool filter_workers, struct sy_error *err);
/* In a worker's thread, before its first packet: gives up all capabilities, and installs the
 * workers' filter if sy_confine_process() said so. */
void sy_confine_worker(void);

#endif
