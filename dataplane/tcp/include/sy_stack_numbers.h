/* SPDX-License-Identifier: Apache-2.0 */
/* A stack's report to `steelyard stack`: gauges, counters and connections. */
#ifndef SY_STACK_NUMBERS_H
#define SY_STACK_NUMBERS_H

#include <arpa/inet.h>

#include <sy_hook_registry.h>

#include "sy_stack.h"

/* Gauges: fields of sy_stack_usage. */
#define SY_STACK_NOW(X)                                                                            \
	X(connections, "connections, in all states")                                               \
	X(half_open, "connections begun by a peer, not established yet")                           \
	X(time_wait, "connections in TIME-WAIT")                                                   \
	X(listeners, "listening sockets")                                                          \
	X(orphans, "connections that are closed, and whose peer has not taken all")                \
	X(send_bytes, "bytes of send buffers")                                                     \
	X(receive_bytes, "bytes of buffers with data that is not read")

static const struct sy_hook_number sy_stack_numbers[] = {
#define X(name, help) {#name, help, true},
        SY_STACK_NOW(X)
#undef X
#define X(name, help) {#name, help, false},
                SY_STACK_COUNTERS(X)
#undef X
};
static_assert(SY_ARRAY_LEN(sy_stack_numbers) <= SY_HOOK_COUNTS, "all find a place");

static const char *const sy_stack_states[] = {
#define X(id, name) name,
        SY_STACK_STATES(X)
#undef X
};

/* In the order of sy_stack_numbers. */
static inline void sy_stack_numbers_read(const struct sy_stack *s, uint64_t *out)
{
	const struct sy_stack_counters *c = sy_stack_counters(s);
	struct sy_stack_usage u;

	sy_stack_usage(s, &u);
#define X(name, help) *out++ = u.name;
	SY_STACK_NOW(X)
#undef X
#define X(name, help) *out++ = c->name;
	SY_STACK_COUNTERS(X)
#undef X
}

/* As sy_hook_agent_owner.connections(). */
static inline unsigned sy_stack_connections_read(struct sy_stack *s, uint32_t *at,
                                                 struct sy_hook_connection *out, unsigned max)
{
	struct sy_stack_info info[SY_HOOK_CONNECTIONS];
	unsigned count =
	        sy_stack_walk(s, at, info, max < SY_HOOK_CONNECTIONS ? max : SY_HOOK_CONNECTIONS);

	for (unsigned i = 0; i < count; i++)
		out[i] = (struct sy_hook_connection){
		        .local = info[i].local.addr,
		        .peer = info[i].peer.addr,
		        .local_port = ntohs(info[i].local.port),
		        .peer_port = ntohs(info[i].peer.port),
		        .state = (uint8_t)info[i].state,
		        .only_v6 = info[i].only_v6,
		        .unread = info[i].unread,
		        .unsent = info[i].unsent,
		        .rtt_us = info[i].rtt_us,
		        .window = info[i].window,
		        .retransmitted = info[i].retransmitted,
		        .sent = info[i].sent,
		        .received = info[i].received,
		};
	return count;
}

#endif
