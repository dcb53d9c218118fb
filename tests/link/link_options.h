// SPDX-License-Identifier: Apache-2.0
#ifndef LINK_OPTIONS_H
#define LINK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_SETS 16

struct options {
	const char *interface[2]; /* a, b */
	const char *socket;
	bool input;                   /* read commands from standard input */
	bool realtime;                /* run before all programs that are not */
	uint64_t packets, ring, spin; /* spin: ns */
	uint64_t seed, predict;       /* predict 0: be a link */
	char *set[OPTIONS_SETS];      /* "both delay 10ms" */
	unsigned sets;
};

/* Returns 0; 1 if nothing remains to be done; or a negative errno. Prints errors. */
int options_read(struct options *o, int argc, char **argv);

#endif
