// SPDX-License-Identifier: Apache-2.0
/* The generator's commands: a line in, a line of JSON out. */
#ifndef GENERATOR_COMMAND_H
#define GENERATOR_COMMAND_H

#include <stdio.h>

#include "talk.h"
#include "trial.h"

#define LINKS_MAX 8

struct generator {
	struct link link[LINKS_MAX];
	unsigned links;
	struct flows flows[2]; /* of IPv4 and IPv6 */
	/* Values that commands have set, and that stay. */
	struct traffic traffic;
	struct link *chosen;
	double loss, ceiling, resolution, timeout, patience;
	unsigned tries, voids, core, window;
	uint64_t next_connection;
};

void generator_init(struct generator *g);
/* Carries out one command; the text is cut up. False: it was `quit`. */
bool command_run(struct generator *g, char *line, FILE *out);
void command_help(FILE *out);

#endif
