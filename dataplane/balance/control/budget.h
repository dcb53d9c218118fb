// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that requests may take once unpacked. A message of few bytes can need much memory:
 * two bytes of an empty change become a pointer and a struct. So unpacking allocates from a budget.
 * It counts what is held by the request at hand and by all requests that wait for a commit.
 *
 * Control thread only.
 */
#ifndef BUDGET_H
#define BUDGET_H

#include <stdbool.h>
#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

/* An honest frame of SY_CONTROL_MAX bytes takes about 25 MiB: 350 bytes a change. */
#define BUDGET_REQUEST_MAX ((size_t)64 << 20)
/* All staged requests of all clients and the one at hand; 300 000 changes take about 100 MiB. */
#define BUDGET_TOTAL_MAX ((size_t)512 << 20)

struct budget {
	ProtobufCAllocator allocator; /* given to protobuf-c */
	size_t request_max, total_max;
	size_t used;  /* bytes, with the budget's own headers */
	size_t limit; /* of `used` until the next budget_begin() */
	bool refused; /* since then an allocation did not fit */
};

/* The budget must stay at its address: the allocator points to it. */
void budget_init(struct budget *b, size_t request_max, size_t total_max);
/* Starts a request, which may take request_max bytes more than what is in use now. */
void budget_begin(struct budget *b);
/* Whether the request at hand was refused memory because of its own size; otherwise because of what
 * waits already. Meaningful if `refused`. */
bool budget_is_request_too_large(const struct budget *b);

#endif
