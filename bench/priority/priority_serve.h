// SPDX-License-Identifier: Apache-2.0
/*
 * A synthetic server: each request says for how long the server shall be busy with it
 * (bench/load/raw_protocol.h), and of which type it is. One context's: connections, requests, and
 * for each class how long its requests waited.
 *
 *     sent ──▶ TCP has it ──▶ the application reads it ──▶ answered
 *       │ before TCP │ before the application │   service   │
 *
 * When it was sent is the request's number (steelyard-load --stamp), when TCP had it the segment
 * hook's note in the connection's private area (struct note).
 */
#ifndef PRIORITY_SERVE_H
#define PRIORITY_SERVE_H

#include <stdio.h>

#include <sy_base.h>

#include <sy_tcp.h>

#include "histogram.h"
#include "raw_protocol.h"

#define SERVE_CLASSES 4u    /* the last one has all that are above */
#define SERVE_ANSWER  4096u /* bytes at most */

struct serve_class {
	uint64_t requests, busy_ns;
	/* ns; the first two only where requests are stamped, and TCP has noted them */
	struct histogram before_tcp, before_application, service;
};

struct serve_counts {
	uint64_t accepted, closed;
	uint64_t bad; /* connections that brought something else */
	struct serve_class class[SERVE_CLASSES];
};

/* Time that passes for a hook and for the server: nanoseconds of CLOCK_MONOTONIC. */
uint64_t serve_clock(void);
/* Is busy for so long; returns for how long it was. It sleeps where that is at least what
 * serve_sleep() was told last: the thread does nothing else, but the machine's core is free. */
uint64_t serve_busy(uint64_t ns);
/* Any thread. ns 0: never, as at first. */
void serve_sleep(uint64_t ns);

/* What a request says of itself, as a hook sees it. */
#define REQUEST_TYPE_AT 6u
static inline bool request_begins(const uint8_t *payload, size_t len)
{
	return len >= RAW_HEADER && payload[0] == RAW_MAGIC >> 8 &&
	       payload[1] == (RAW_MAGIC & 0xff) && payload[2] == RAW_VERSION &&
	       payload[3] == RAW_REQUEST;
}

static inline unsigned request_type(const uint8_t *payload)
{
	return payload[REQUEST_TYPE_AT] * 256u + payload[REQUEST_TYPE_AT + 1];
}

/* A request that is whole, and how it is counted. */
struct request {
	struct raw_header header;
	uint64_t tcp_ns, read_ns; /* tcp_ns 0: not recorded */
};

/* Serves it and counts. Writes the answer, of the returned length; 0: it wants none that is
 * possible. */
size_t serve_request(struct serve_class class[static SERVE_CLASSES], const struct request *r,
                     uint8_t answer[static SERVE_ANSWER]);
/* Serves the first request of what was lent, and gives it back. What is not whole yet is lent
 * again; what is no request is taken away: its client waits in vain, and counts that. */
void serve_lent(struct serve_counts *n, struct sy_tcp_request *t);
/* Of a JSON object: "classes": [ … ]. */
void serve_report(FILE *out, const struct serve_counts *n);

#endif
