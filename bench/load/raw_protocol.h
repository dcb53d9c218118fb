// SPDX-License-Identifier: Apache-2.0
/*
 * The raw protocol: messages over TCP, each with a header, in network order:
 *
 *      0       1       2       3       4       5       6       7
 *    ┌───────────────┬───────┬───────┬───────┬───────┬───────────────┐
 *  0 │ magic "SY"    │version│ kind  │ class │   0   │ type          │
 *    ├───────────────┴───────┴───────┼───────┴───────┴───────────────┤
 *  8 │ length                        │ answer                        │
 *    ├───────────────────────────────┴───────────────────────────────┤
 * 16 │ service time, ns                                              │
 *    ├───────────────────────────────────────────────────────────────┤
 * 24 │ number                                                        │
 *    └───────────────────────────────────────────────────────────────┘
 *
 * length: of the whole message. A request says how long its answer shall be and for how long the
 * server shall be busy before; the answer repeats class, type and number, and says how long the
 * server was. Behind the header follows a pattern that the receiver can verify.
 */
#ifndef LOAD_RAW_H
#define LOAD_RAW_H

#include <sy_base.h>

#define RAW_HEADER      32u
#define RAW_MAGIC       0x5359
#define RAW_VERSION     1
#define RAW_LONGEST     (1u << 30) /* a message */
#define RAW_SERVICE_MAX UINT64_C(10000000000)

enum raw_kind { RAW_REQUEST = 1, RAW_ANSWER = 2 };

struct raw_header {
	uint8_t kind, class;
	uint16_t type;
	uint32_t length, answer; /* response: answer is 0 */
	uint64_t service_ns, number;
};

void raw_write(uint8_t out[static RAW_HEADER], const struct raw_header *h);
/* Fails with -EPROTO for an invalid header. */
int raw_read(const uint8_t in[static RAW_HEADER], struct raw_header *h);

/* ---- messages out of a stream ---------------------------------------------------------------- */

struct raw_reader {
	uint8_t header[RAW_HEADER];
	uint8_t have;  /* bytes of the header */
	uint32_t left; /* of the message body */
};

/*
 * Takes bytes up to the end of a header, or of a message. Returns how many, or -EPROTO. *got: what
 * they complete; `h` is the header, once it is complete, until the next message begins.
 */
enum raw_got { RAW_MORE, RAW_HEADER_DONE, RAW_MESSAGE_DONE };
int64_t raw_take(struct raw_reader *r, enum raw_kind kind, const uint8_t *bytes, size_t len,
                 struct raw_header *h, enum raw_got *got);

/* ---- what messages are filled with ----------------------------------------------------------- */

#define PATTERN_LEN    65536u
#define PATTERN_PERIOD 251u

/* Returns PATTERN_LEN bytes of the pattern at this offset of a message. */
const uint8_t *pattern_from(uint64_t at);
/* Returns true if these are the pattern's bytes at this offset. */
bool pattern_is(const uint8_t *bytes, size_t len, uint64_t at);

#endif
