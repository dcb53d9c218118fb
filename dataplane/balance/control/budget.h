// SPDX-License-Identifier: Apache-2.0
/*
 * Bounds the memory of unpacked requests. A message of few bytes can need much memory: two bytes of
 * an empty change become a pointer and a struct. So unpacking allocates from a budget, which counts
 * the current request and all requests that wait for a commit.
 *
 * Control thread only.
 */
#ifndef BUDGET_H
#define BUDGET_H

#include <stdbool.h>
#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

/* A regular frame of SY_CONTROL_MAX bytes needs about 25 MiB: 350 bytes a change. */
#define BUDGET_REQUEST_MAX ((size_t)64 << 20)
/* All staged requests of all clients and the current one; 300 000 changes need about 100 MiB. */
#define BUDGET_TOTAL_MAX ((size_t)512 << 20)

struct budget {
	ProtobufCAllocator allocator; /* for protobuf-c */
	size_t request_max, total_max;
	size_t used;  /* bytes, with the budget's own headers */
	size_t limit; /* max of `used` until the next budget_begin() */
	bool refused; /* an allocation has not fitted since then */
};

/* The budget must stay at its address: the allocator points to it. */
void budget_init(struct budget *b, size_t request_max, size_t total_max);
/* Begins a request, which may allocate request_max bytes more than is in use now. */
void budget_begin(struct budget *b);
/* Was the request refused because of its own size, and not because of waiting ones? Valid if
 * `refused`. */
bool budget_is_request_too_large(const struct budget *b);

#endif
