// SPDX-License-Identifier: Apache-2.0
/*
 * The lifecycle of a forwarder's process, from its options to its end.
 *
 *     ordinary   note, open, mirror, configuration                    ─► adopt, bind, start, serve
 *     successor  open, mirror, configuration ─► PREPARED … SEALED ─► note, acquire ─► the same,
 * READY the end    quiesce, seal, close: by a signal; or hand over to a successor, or execute again
 */
#ifndef PROCESS_H
#define PROCESS_H

#include "options.h"

/* Runs until it is stopped or replaced. argv: the whole command line, for executing the binary
 * again. Returns 0 or a negative errno. */
int process_run(struct options *o, char *const *argv, struct sy_error *err);

#endif
