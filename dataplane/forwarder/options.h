// SPDX-License-Identifier: Apache-2.0
#ifndef OPTIONS_H
#define OPTIONS_H

#include <sy_balance.h>
#include <sy_runtime.h>

struct options {
	struct sy_runtime_options runtime;
	struct sy_balance_options balance;
	char socket[108];
	char state[256];
	char store_directory[256];
	char instance[48];
	char store_name[64]; /* steelyard-<instance> */
	enum sy_log_level log;
	enum { ACTION_RUN, ACTION_CLEANUP, ACTION_VERSION, ACTION_HELP } action;
};

/* Reads the command line. Errors name the option and the remedy. */
int options_read(int argc, char **argv, struct options *out, struct sy_error *err);
void options_free(struct options *o);
void options_help(void);

#endif
