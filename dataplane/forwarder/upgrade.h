// SPDX-License-Identifier: Apache-2.0
/*
 * The old side of an upgrade: starts the successor as a child, releases everything once the child
 * is prepared, and ends when the child forwards. upgrade_message.h defines the messages; process.c
 * has the new side.
 *
 * Until PREPARED, a failure ends only the successor. After SEALED this process has released
 * everything: it executes its own binary again, an ordinary restart that finds its sessions.
 */
#ifndef UPGRADE_H
#define UPGRADE_H

#include <limits.h>
#include <sys/types.h>

#include <sy_balance.h>
#include <sy_patience.h>

#include "options.h"

enum upgrade_phase {
	UPGRADE_NONE,
	UPGRADE_PREPARING, /* the child prepares while this process forwards */
	UPGRADE_SEALED,    /* the child has the sessions */
	UPGRADE_DONE,      /* the child has everything: this process ends */
	UPGRADE_RESTART,   /* the child failed: execute the own binary again */
};

struct upgrade {
	const struct options *options;
	struct sy_runtime *rt;
	struct sy_balance *balance;
	int *note;             /* the lock of stale_state.h; closed and −1 once released */
	char *const *argv;     /* this process's own */
	char binary[PATH_MAX]; /* the path of this process's binary */

	enum upgrade_phase phase;
	bool restarts; /* this process ends, and executes its binary again, without a child */
	pid_t child;
	int fd, timer; /* socket to the child; timer of the current time limit */
	struct sy_patience patience;
	uint64_t prepared_ns; /* when the child was prepared; 0: not yet */
};

/* Stores how this process was started; refers to argv. */
void upgrade_init(struct upgrade *u, const struct options *o, char *const *argv);
/* Begins an upgrade: for sy_balance_options.upgrade with u as its ctx. */
int upgrade_begin(void *u, const struct sy_balance_upgrade *wanted, struct sy_error *err);
/* At the end of the loop: kills a successor that has not taken over. */
void upgrade_stop(struct upgrade *u);
/* Executes this process's own binary again; returns only if that fails. */
int upgrade_execute(const struct upgrade *u, struct sy_error *err);

#endif
