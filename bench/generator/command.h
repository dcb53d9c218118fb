// SPDX-License-Identifier: Apache-2.0
/* The generator's commands: one line in, one line of JSON out. */
#ifndef GENERATOR_COMMAND_H
#define GENERATOR_COMMAND_H

#include <stdio.h>

#include "generator_talk.h"
#include "trial.h"

#define LINKS_MAX 8

struct generator {
	struct link link[LINKS_MAX];
	unsigned links;
	struct flows flows[2]; /* for IPv4 and IPv6 */
	/* Values that commands set and that persist. */
	struct traffic traffic;
	struct link *chosen;
	double loss, ceiling, resolution, timeout, patience;
	unsigned tries, voids, core, window;
	uint64_t next_connection;
};

void generator_init(struct generator *g);
/* Runs one command and modifies its text. False: it was `quit`. */
bool command_run(struct generator *g, char *line, FILE *out);
void command_help(FILE *out);

#endif
