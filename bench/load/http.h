// SPDX-License-Identifier: Apache-2.0
/* HTTP/1.1 as a client needs it (RFC 9112): the end of an answer, and whether it is one. */
#ifndef LOAD_HTTP_H
#define LOAD_HTTP_H

#include <sy_base.h>

#define HTTP_LINE 128 /* of an answer's lines, so many bytes are looked at */

struct http_reader {
	uint64_t left;                        /* of the body, or of its chunk */
	uint16_t status;                      /* of the answer that is read, or was read last */
	uint16_t have;                        /* bytes of a line */
	uint8_t at;                           /* enum: what is read */
	bool chunked, has_length, close, old; /* old: HTTP/1.0 */
	char line[HTTP_LINE];
};

/*
 * Takes bytes up to the end of an answer. Returns how many, or -EPROTO. *done: the answer is
 * complete; status and close (the server will close) are its. Answers 1xx are passed over.
 */
int64_t http_take(struct http_reader *r, const uint8_t *bytes, size_t len, bool *done);
/* The stream has ended. True: this was the end of an answer's body. */
bool http_end(struct http_reader *r);

#endif
