// SPDX-License-Identifier: Apache-2.0
/* Samples of packets for clients: see FetchSamplesRequest in forwarder.proto. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <sy_sample.h>

#include "balance.h"

#define SAMPLES_KEPT    16384u               /* a power of 2 */
#define SAMPLES_WANT_NS UINT64_C(2000000000) /* validity of a request */

struct samples {
	/* Samples are numbered from 1. Those after `before` up to `last` are stored, at most
	 * SAMPLES_KEPT, each at its number modulo SAMPLES_KEPT. */
	uint64_t before, last;
	uint64_t until_ns[SY_SAMPLE_KINDS]; /* workers sample until then */
	uint32_t one_in[SY_SAMPLE_KINDS];
	struct sy_sample kept[SAMPLES_KEPT];
};

void samples_destroy(struct sy_balance *b);

#endif
