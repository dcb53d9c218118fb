// SPDX-License-Identifier: Apache-2.0
/* The users of the exact-rate-limiting paper: 16384 at half their limit of 1 Mbit/s, 4096 at 1.5
 * times, and the observed one at twice. Packets of 64 to 1500 bytes. */
#ifndef BENCH_LIMITS_USERS_H
#define BENCH_LIMITS_USERS_H

#include <stdint.h>

#include "measure.h"

#define SECOND     UINT64_C(1000000000)
#define LIMIT_BITS UINT64_C(1000000)
#define WITHIN     16384u /* users by group */
#define ABOVE      4096u
#define USERS      (WITHIN + ABOVE + 1) /* the last one is observed */
#define SHORTEST   64u
#define LONGEST    1500u

/* All users' bits per second: the time of a packet follows from its length. */
#define ALL_BITS (WITHIN * 500000.0 + ABOVE * 1500000.0 + 2000000.0)

struct user_packet {
	uint16_t user, length;
};

/* Makes packets. Set random to the seed. */
struct user_source {
	uint64_t random;
	double all, observed; /* bytes so far; of the observed user */
};

/* The observed user sends at even distances, as the paper's tester does; the others at random, by
 * the bandwidth of their groups. `chance`: what is left of the random numbers, for the caller. */
static inline struct user_packet user_packet(struct user_source *s, uint64_t *chance)
{
	*chance = measure_random(&s->random);
	uint64_t r = measure_random(&s->random) % (WITHIN + 3 * ABOVE);
	uint16_t length = (uint16_t)(SHORTEST + (uint32_t)*chance % (LONGEST - SHORTEST + 1));
	s->all += length;
	if (s->observed < s->all * (2e6 / ALL_BITS)) {
		s->observed += length;
		return (struct user_packet){USERS - 1, length};
	}
	return (struct user_packet){(uint16_t)(r < WITHIN ? r : WITHIN + (r - WITHIN) / 3), length};
}

#endif
