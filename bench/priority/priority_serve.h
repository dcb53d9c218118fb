// SPDX-License-Identifier: Apache-2.0
/*
 * A synthetic server: each request says for how long the server shall be busy with it
 * (bench/load/raw_protocol.h), and of which type it is. One context's: connections, requests, and
 * for each class how long its requests waited.
 *
 *     sent ──▶ received by TCP ──▶ read by the application ──▶ answered
 *       │ before TCP │ before the application │   service   │
 *
 * The time of sending is the request's number (steelyard-load --stamp); the time of TCP is the
 * segment hook's record in the connection's private area (struct note).
 */
#ifndef PRIORITY_SERVE_H
#define PRIORITY_SERVE_H

#include <stdio.h>

#include <sy_base.h>

#include <sy_tcp.h>

#include "histogram.h"
#include "raw_protocol.h"

#define SERVE_CLASSES 4u    /* the last one includes all above */
#define SERVE_ANSWER  4096u /* max., bytes */

struct serve_class {
	uint64_t requests, busy_ns;
	/* ns; the first two only if requests are stamped and TCP recorded the time */
	struct histogram before_tcp, before_application, service;
};

struct serve_counts {
	uint64_t accepted, closed;
	uint64_t bad; /* connections with invalid data */
	struct serve_class class[SERVE_CLASSES];
};

/* Returns the clock of hooks and server: CLOCK_MONOTONIC in ns. */
uint64_t serve_clock(void);
/* Is busy for ns; returns the actual time. Sleeps instead if ns is at least the time set by
 * serve_sleep(), which leaves the core to others. */
uint64_t serve_busy(uint64_t ns);
/* Call from any thread. ns 0 (default): never sleep. */
void serve_sleep(uint64_t ns);

/* Fields of a request, as hooks read them. */
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

/* A complete request, and its times. */
struct request {
	struct raw_header header;
	uint64_t tcp_ns, read_ns; /* tcp_ns 0: not recorded */
};

/* Serves and counts a request. Writes the response and returns its length; 0: an invalid length was
 * requested. */
size_t serve_request(struct serve_class class[static SERVE_CLASSES], const struct request *r,
                     uint8_t answer[static SERVE_ANSWER]);
/* Serves the first request of lent data and completes it. Incomplete data is lent again; invalid
 * data is consumed, and its client counts a time-out. */
void serve_lent(struct serve_counts *n, struct sy_tcp_request *t);
/* Writes a member of a JSON object: "classes": [ … ]. */
void serve_report(FILE *out, const struct serve_counts *n);

#endif
