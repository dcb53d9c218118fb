// SPDX-License-Identifier: Apache-2.0
#ifndef LOAD_OPTIONS_H
#define LOAD_OPTIONS_H

#include <sy_runtime.h>
#include <sy_stack.h>

#include "mix.h"

#define SOURCES_MAX 4096
#define LOCALS_MAX  16

enum load_action { LOAD_RUN, LOAD_SERVE, LOAD_HELP, LOAD_VERSION };

struct load_options {
	enum load_action action;
	struct sy_runtime_options runtime;
	struct sy_stack_options stack;

	struct sy_stack_endpoint target;
	struct sy_addr source[SOURCES_MAX];
	unsigned sources;
	struct mix mix;
	uint32_t connections, active, connecting, depth, each, turn;
	bool has_active;
	double rate;
	bool poisson;
	struct distribution burst, think;
	bool has_burst, has_think;
	uint64_t warm_ns, duration_ns, requests, timeout_ns, seed, at_ns;
	bool has_warm, reset;

	struct sy_stack_endpoint serve[LOCALS_MAX];
	unsigned serves;
	bool echo;

	const char *json; /* a file, or "-"; NULL: none */
	bool quiet;       /* no progress */
};

/* Error messages name the option and the remedy. */
int load_options_read(int argc, char **argv, struct load_options *o, struct sy_error *err);
void load_options_free(struct load_options *o);
void load_options_help(void);

/* ---- address_option.c ------------------------------------------------------------------------ */

/* ADDRESS:PORT, [ADDRESS]:PORT */
int endpoint_option(const char *what, const char *text, struct sy_stack_endpoint *out,
                    struct sy_error *err);
/* A, A-B or A/LENGTH, with commas. */
int sources_option(struct load_options *o, const char *text, struct sy_error *err);
/* A whole number. */
int count_option(const char *what, const char *text, double min, double max, uint64_t *out,
                 struct sy_error *err);

#endif
