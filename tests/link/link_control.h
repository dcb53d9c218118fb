// SPDX-License-Identifier: Apache-2.0
/* Commands for a running link, a line each, over a Unix socket or standard input:
 *
 *     set ab|ba|both NAME VALUE …   changes parameters, at once or not at all
 *     stats                         parameters and counts, as JSON
 *     clear                         begins to count anew
 *     seed N                        begins the draws anew
 *     hurry                         what is on its way is due now
 *     quit
 *
 * Each has one line as its answer: "ok", JSON, or "error: …". */
#ifndef LINK_CONTROL_H
#define LINK_CONTROL_H

#include <poll.h>

#include "lane.h"

#define CONTROL_CLIENTS 8
#define CONTROL_LINE    1024

struct control_client {
	int in, out; /* in -1: there is none */
	unsigned length;
	char line[CONTROL_LINE];
};

struct control {
	int listener; /* -1: no socket */
	const char *path;
	bool quit;
	struct control_client client[CONTROL_CLIENTS];
};

/* path may be NULL. with_input: standard input is a client, and its end ends the program. */
int control_open(struct control *c, const char *path, bool with_input);
void control_close(struct control *c);

#define CONTROL_POLLED (CONTROL_CLIENTS + 1)
/* Fills in the descriptors to poll; returns their number. */
unsigned control_poll(const struct control *c, struct pollfd fds[static CONTROL_POLLED]);
/* Executes commands that clients have sent. */
void control_serve(struct control *c, struct link *l);

/* One command: its answer is allocated, without a newline. */
char *control_execute(struct control *c, struct link *l, char *line);

#endif
