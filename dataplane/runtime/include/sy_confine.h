// SPDX-License-Identifier: Apache-2.0
/*
 * Confinement: limits what an attacker who controls the process may request from the kernel. System
 * call filters (seccomp), and workers without capabilities.
 * docs/design/0029-control-plane-rights.md has the reasons for two filters: executed programs
 * inherit the process's filter permanently.
 */
#ifndef SY_CONFINE_H
#define SY_CONFINE_H

#include <sy_base.h>

enum sy_confine {
	SY_CONFINE_ON,   /* a refused call fails with EPERM, and the kernel logs it */
	SY_CONFINE_TRAP, /* a refused call ends the process and is named: for tests */
	SY_CONFINE_OFF,  /* no filters; workers still drop their capabilities */
};

/* Installs the process's filter unless a predecessor has: filters accumulate. Call before other
 * threads start. Without kernel support, logs that and continues. filter_workers: workers get a
 * filter too. Returns 0, or -ENOMEM with err. */
int sy_confine_process(enum sy_confine how, bool filter_workers, struct sy_error *err);
/* Call in a worker's thread before its first packet: drops all capabilities, and installs the
 * workers' filter if sy_confine_process() was called with filter_workers. */
void sy_confine_worker(void);

#endif
