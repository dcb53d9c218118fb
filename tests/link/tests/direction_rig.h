// SPDX-License-Identifier: Apache-2.0
/* Drives one direction of a link in virtual time, and records what leaves it. */
#ifndef DIRECTION_RIG_H
#define DIRECTION_RIG_H

#include "direction.h"

#define MS       1000000ull
#define NS       1000000000ull
#define CAPACITY 20000u
#define DF       0x4000u

/* Both directions, and the packets that left the first one: each carries its number. */
struct rig {
	struct pool pool;
	struct direction d, back;
	uint64_t now, count;
	uint32_t number[CAPACITY];
	uint64_t time[CAPACITY];
};

/* Opens both directions with these parameters, in the form of steelyard-link's commands. */
struct rig *rig_open(const char *text);
/* Checks that each packet that entered has left, or is counted as dropped. */
void rig_close(struct rig *r);
/* Dequeues packets that are due up to a time, each when it is due; UINT64_MAX: all. */
void rig_run(struct rig *r, uint64_t until);
void rig_send_as(struct rig *r, uint32_t number, unsigned length, unsigned flags);
void rig_send(struct rig *r, uint32_t number);
/* Sends packets, one every `gap` ns; then dequeues all. */
void rig_send_many(struct rig *r, unsigned count, uint64_t gap);

#endif
