// SPDX-License-Identifier: Apache-2.0
/* What an application asks of the library: checked and completed, before anything is opened. */
#ifndef SETUP_H
#define SETUP_H

#include <sy_runtime.h>
#include <sy_stack.h>

#include "sy_tcp.h"

#define SETUP_ADDRESSES 64 /* at most */

/* What the application has set, perhaps in another version of struct sy_tcp_setup, with what is
 * usual for all else. address: as options.address has them, ports are 0. Returns 0, -EINVAL, or
 * -E2BIG: it sets what this version does not have. */
int setup_read(const struct sy_tcp_setup *from, struct sy_tcp_setup *o,
               struct sy_stack_endpoint address[SETUP_ADDRESSES], struct sy_error *err);

/* The ports, routes and neighbours that it names; sy_port_options_free() frees what they take, also
 * after an error. */
int setup_ports(const struct sy_tcp_setup *o, struct sy_runtime_options *r, struct sy_error *err);

/* For packets and rings: what the application says, or what suffices for its ports. */
unsigned setup_memory_mb(const struct sy_tcp_setup *o, const struct sy_runtime_options *r);

#endif
