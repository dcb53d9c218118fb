// SPDX-License-Identifier: Apache-2.0
/*
 * The synthetic server's hooks, in C, and the rule that they follow. Requests of type 1 are urgent.
 *
 *     rule      urgent  others  a packet in which no request begins
 *     type      0       6       as it was
 *     label     0       6       6: unmarked (LNS without its clients)
 *     swapped   6       0       as it was
 *     equal     4       4       4
 *     nothing   as it was
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

/* NULL: there is none of this name. */
const struct rule *rule_named(const char *name);
/* What both hooks follow from now on; any thread. stack_ns: what TCP takes longer for each segment
 * with bytes, of which the segment hooks are asked: a slower stack. */
void rule_use(const struct rule *r, uint64_t stack_ns);

/* Of a packet: by its own first bytes. */
uint8_t rule_packet(struct sy_hook_packet *p, const uint8_t *payload);

/* What the segment hooks keep in the private area of a connection. */
struct note {
	uint64_t next;   /* offset at which the next request begins */
	uint64_t tcp_ns; /* when the last byte of the request before it was with TCP */
	uint8_t level;   /* of that request */
};

/* Of a segment: that of its request, which may have begun in an earlier one. Notes the time. */
uint8_t rule_segment(struct sy_hook_segment *s, const uint8_t *payload);
/* Only notes the time: SY_KEEP. */
uint8_t rule_note(struct sy_hook_segment *s, const uint8_t *payload);

#endif
