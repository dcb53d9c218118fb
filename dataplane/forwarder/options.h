// SPDX-License-Identifier: Apache-2.0
#ifndef OPTIONS_H
#define OPTIONS_H

#include <sy_balance.h>
#include <sy_confine.h>
#include <sy_runtime.h>

struct options {
	struct sy_runtime_options runtime;
	struct sy_balance_options balance;
	struct sy_slot_key slot_key; /* from --slot-key */
	char socket[108];
	char state[256];
	char store_directory[256];
	char instance[48];
	int inherit;         /* a successor's end of the hand-over socket, −1: ordinary start */
	char store_name[64]; /* steelyard-<instance> */
	enum sy_log_level log;
	enum sy_confine confine;
	enum { ACTION_RUN, ACTION_RELEASE, ACTION_CLEANUP, ACTION_VERSION, ACTION_HELP } action;
};

/* Reads the command line. Errors name the option and the remedy. */
int options_read(int argc, char **argv, struct options *out, struct sy_error *err);
/* The settings that a successor must share with its predecessor, as text, one per line. */
void options_identity(const struct options *o, char *out, size_t cap);
/* Returns 0, or -EINVAL with the first difference in err. */
int options_check_identity(const struct options *o, const char *identity, struct sy_error *err);
void options_free(struct options *o);
void options_help(void);

#endif
