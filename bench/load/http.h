// SPDX-License-Identifier: Apache-2.0
/* HTTP/1.1 client parser (RFC 9112): finds and validates the end of a response. */
#ifndef LOAD_HTTP_H
#define LOAD_HTTP_H

#include <sy_base.h>

#define HTTP_LINE 128 /* parsed bytes per line */

struct http_reader {
	uint64_t left;                        /* bytes of the body, or its chunk */
	uint16_t status;                      /* of the present or last response */
	uint16_t have;                        /* bytes of a line */
	uint8_t at;                           /* enum: parser state */
	bool chunked, has_length, close, old; /* old: HTTP/1.0 */
	char line[HTTP_LINE];
};

/*
 * Consumes bytes up to the end of a response. Returns their number, or -EPROTO. *done: the response
 * is complete; then status and close (the server will close) are valid. Skips 1xx responses.
 */
int64_t http_take(struct http_reader *r, const uint8_t *bytes, size_t len, bool *done);
/* EOF. Returns true if it ends the body of a response. */
bool http_end(struct http_reader *r);

#endif
