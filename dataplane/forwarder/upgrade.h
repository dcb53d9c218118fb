// SPDX-License-Identifier: Apache-2.0
/*
 * The old side of an upgrade: starts the successor as a child, gives everything up once it is
 * prepared, and ends when it forwards. The messages are upgrade_message.h's; the new side is in
 * life.c.
 *
 * Until PREPARED a failure ends the successor only. After SEALED nothing is left to go on with:
 * this process then begins again from its own binary, an ordinary restart that finds its sessions.
 */
#ifndef UPGRADE_H
#define UPGRADE_H

#include <limits.h>
#include <sys/types.h>

#include <sy_balance.h>

#include "options.h"

enum upgrade_phase {
	UPGRADE_NONE,
	UPGRADE_PREPARING, /* the child prepares, we forward */
	UPGRADE_SEALED,    /* the child has our sessions */
	UPGRADE_DONE,      /* nothing is ours any more: to end */
	UPGRADE_AGAIN,     /* it failed: to execute our own binary again */
};

struct upgrade {
	const struct options *options;
	struct sy_runtime *rt;
	struct sy_balance *balance;
	int *note;             /* the lock of stale state.h, closed and −1 once let go of */
	char *const *argv;     /* ours */
	char binary[PATH_MAX]; /* where we were started from */

	enum upgrade_phase phase;
	pid_t child;
	int fd, timer;        /* to the child; when patience ends */
	uint64_t prepared_ns; /* when the child was; 0: not yet */
};

/* Notes how this process was started; argv must live on. */
void upgrade_init(struct upgrade *u, const struct options *o, char *const *argv);
/* Begins one: for sy_balance_options.upgrade with u as its ctx. */
int upgrade_begin(void *u, const struct sy_balance_upgrade *wanted, struct sy_error *err);
/* At the end of the loop: a successor that has not taken over is killed. */
void upgrade_stop(struct upgrade *u);
/* Executes this process's own binary again; returns only if that fails. */
int upgrade_execute(const struct upgrade *u, struct sy_error *err);

#endif
