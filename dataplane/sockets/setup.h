// SPDX-License-Identifier: Apache-2.0
/* The application's settings: validated and completed before anything is opened. */
#ifndef SETUP_H
#define SETUP_H

#include <sy_runtime.h>
#include <sy_stack.h>

#include "sy_tcp.h"

#define SETUP_ADDRESSES 64 /* max. */

/* Reads settings, possibly of another version of struct sy_tcp_setup, and fills in defaults.
 * address: those of options.address, with port 0. Fails with -EINVAL, or -E2BIG if it sets a field
 * that this version lacks. */
int setup_read(const struct sy_tcp_setup *from, struct sy_tcp_setup *o,
               struct sy_stack_endpoint address[SETUP_ADDRESSES], struct sy_error *err);

/* Parses ports, routes and neighbours. Call sy_port_options_free() afterwards, even on failure. */
int setup_ports(const struct sy_tcp_setup *o, struct sy_runtime_options *r, struct sy_error *err);

/* Returns the memory for packets and rings: as set, or sufficient for the ports. */
unsigned setup_memory_mb(const struct sy_tcp_setup *o, const struct sy_runtime_options *r);

#endif
