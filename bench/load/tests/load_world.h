// SPDX-License-Identifier: Apache-2.0
/* Clients and server on two stacks, with nothing between them, in virtual time. */
#ifndef LOAD_TESTS_WORLD_H
#define LOAD_TESTS_WORLD_H

#include "../client_state.h"
#include "load_server.h"
#include "script.h"

#define US    UINT64_C(1000)
#define MS    UINT64_C(1000000)
#define SEC   UINT64_C(1000000000)
#define START SEC
#define STEP  (50 * US)

struct world {
	struct sy_stack *s[2]; /* clients, server */
	struct mix mix;
	struct sy_addr source[4];
	struct client_options o;
	struct client *client;
	struct server *server;
	uint64_t now;
	uint64_t stalled_from, stalled_until; /* the server does nothing */
	uint64_t resets_at;                   /* it forgets all connections */
};

/* With ephemeral ports of its own; 0, 0: the usual ones. */
struct sy_stack *stack_of_ports(uint16_t first, uint16_t last);
struct sy_stack_endpoint server_at(void);

/* Eight clients of a closed loop; the caller changes `o` and the mix before it runs. */
void world_open(struct world *w, enum protocol p);
void world_close(struct world *w);
void server_start(struct world *w);
/* All that one side sends. */
void packets_move(struct world *w, unsigned from);
/* Until the clients are done. */
void world_run(struct world *w, bool with_server);

/* Nothing went wrong. */
const struct client_counts *no_errors(const struct world *w);
/* Requests in the histograms. */
uint64_t measured(const struct world *w);

#endif
