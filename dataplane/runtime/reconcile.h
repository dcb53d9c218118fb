// SPDX-License-Identifier: Apache-2.0
/* Verifies and restores the kernel state that the forwarder depends on, for the control thread. */
#ifndef RECONCILE_H
#define RECONCILE_H

#include "sy_runtime.h"

/* Parts, in the order of verification. */
enum {
	RECONCILE_GUARD = 1,     /* the nftables table */
	RECONCILE_CLAIMS = 2,    /* local routes and IPv6 addresses */
	RECONCILE_CHECKS = 4,    /* tc programs and accept_local */
	RECONCILE_DIRECTORS = 8, /* XDP links and their pins */
	RECONCILE_SETTINGS = 16, /* sysctls of the host */
	RECONCILE_OTHERS = 32,   /* other hosts that use a claimed address */
	RECONCILE_ROUTING = 64,  /* policy routing */
	RECONCILE_PARTS = 7,
	RECONCILE_ALL = 127,
	/* Parts whose changes the kernel does not report. */
	RECONCILE_SILENT =
	        RECONCILE_CHECKS | RECONCILE_DIRECTORS | RECONCILE_SETTINGS | RECONCILE_OTHERS,
};

/* Verifies these parts at the next tick. */
void reconcile_disturb(struct sy_runtime *rt, unsigned parts);
/* Call every 100 ms, and every second. */
void reconcile_tick(struct sy_runtime *rt);
void reconcile_second(struct sy_runtime *rt);
/* Verifies RECONCILE_OTHERS at once. */
void reconcile_others(struct sy_runtime *rt);
/* Call after the claims were opened, and before they are closed. Returns 0 or a negative errno. */
int reconcile_watch(struct sy_runtime *rt);
void reconcile_unwatch(struct sy_runtime *rt);
void reconcile_close(struct sy_runtime *rt);

#endif
