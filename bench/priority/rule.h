// SPDX-License-Identifier: Apache-2.0
/*
 * The synthetic server's hooks, in C, and their rule. Requests of type 1 are urgent.
 *
 *     rule      urgent  others  a packet in which no request begins
 *     type      0       6       keep
 *     label     0       6       6: not marked (LNS without its clients)
 *     swapped   6       0       keep
 *     equal     4       4       4
 *     nothing   keep
 */
#ifndef PRIORITY_RULE_H
#define PRIORITY_RULE_H

#include <stddef.h>
#include <stdint.h>

#include <sy_hook_program.h>

#define RULE_URGENT_TYPE 1u

struct rule {
	const char *name;
	uint8_t urgent, other, rest;
};

/* Returns NULL if there is none of this name. */
const struct rule *rule_named(const char *name);
/* Sets the rule of both hooks; any thread. stack_ns: additional cost in TCP per segment with
 * payload, spent in segment hooks: simulates a slower stack. */
void rule_use(const struct rule *r, uint64_t stack_ns);

/* A packet hook, by the packet's first bytes. */
uint8_t rule_packet(struct sy_hook_packet *p, const uint8_t *payload);

/* State of the segment hooks in the private area. */
struct note {
	uint64_t next;   /* stream offset of the next request */
	uint64_t tcp_ns; /* when TCP had the last byte of the previous request */
	uint8_t level;   /* of that request */
};

/* A segment hook, by its request, which may have begun in an earlier one. Records the time. */
uint8_t rule_segment(struct sy_hook_segment *s, const uint8_t *payload);
/* Only records the time; returns SY_KEEP. */
uint8_t rule_note(struct sy_hook_segment *s, const uint8_t *payload);

#endif
