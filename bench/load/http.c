// SPDX-License-Identifier: Apache-2.0
#include "http.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <strings.h>

enum {
	AT_STATUS,
	AT_FIELD,
	AT_BODY,
	AT_UNTIL_END,
	AT_CHUNK,
	AT_CHUNK_BODY,
	AT_CHUNK_END,
	AT_TRAILER
};

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads up to the end of a line into r->line, without its end. A line beyond HTTP_LINE bytes is
 * truncated. */
static size_t line_take(struct http_reader *r, const uint8_t *bytes, size_t len, bool *whole)
{
	const uint8_t *end = memchr(bytes, '\n', len);
	size_t taken = end ? (size_t)(end - bytes) + 1 : len, room = HTTP_LINE - 1u - r->have;
	size_t kept = taken < room ? taken : room;

	memcpy(r->line + r->have, bytes, kept);
	r->have = (uint16_t)(r->have + kept);
	*whole = end != NULL;
	if (end) {
		while (r->have && (r->line[r->have - 1] == '\n' || r->line[r->have - 1] == '\r'))
			r->have--;
		r->line[r->have] = '\0';
	}
	return taken;
}

/* Digits and nothing else; base 10 or 16. */
static int digits_read(const char *text, size_t len, int base, uint64_t *out)
{
	uint64_t value = 0;

	if (len == 0 || len > 15)
		return -EPROTO;
	for (size_t i = 0; i < len; i++) {
		int c = tolower((unsigned char)text[i]);
		int digit = isdigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
		if (digit >= base)
			return -EPROTO;
		value = value * (unsigned)base + (unsigned)digit;
	}
	*out = value;
	return 0;
}

/* "HTTP/1.1 200 OK" */
static int status_read(struct http_reader *r)
{
	const char *line = r->line;
	uint64_t status;

	if (strncmp(line, "HTTP/1.", 7) || !isdigit((unsigned char)line[7]) || line[8] != ' ' ||
	    r->have < 12 || digits_read(line + 9, 3, 10, &status) || status < 100 ||
	    (line[12] && line[12] != ' '))
		return -EPROTO;
	r->status = (uint16_t)status;
	r->old = line[7] == '0';
	r->close = r->old;
	r->chunked = r->has_length = false;
	r->left = 0;
	return 0;
}

static bool list_has(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = list; *at; at += strcspn(at, ",")) {
		at += strspn(at, ", \t");
		if (!strncasecmp(at, word, len) && strchr(", \t", at[len]))
			return true;
	}
	return false;
}

static int field_read(struct http_reader *r)
{
	char *colon = strchr(r->line, ':'), *value;
	uint64_t length;

	if (!colon || colon == r->line)
		return -EPROTO;
	*colon = '\0';
	value = colon + 1 + strspn(colon + 1, " \t");
	if (!strcasecmp(r->line, "content-length")) {
		size_t digits = strcspn(value, " \t");
		if (digits_read(value, digits, 10, &length) ||
		    value[digits + strspn(value + digits, " \t")] ||
		    (r->has_length && length != r->left))
			return -EPROTO;
		r->left = length;
		r->has_length = true;
	} else if (!strcasecmp(r->line, "transfer-encoding")) {
		r->chunked |= list_has(value, "chunked");
	} else if (!strcasecmp(r->line, "connection")) {
		if (list_has(value, "close"))
			r->close = true;
		else if (list_has(value, "keep-alive"))
			r->close = false;
	}
	return 0;
}

/* ---- an answer ------------------------------------------------------------------------------- */

/* All fields are parsed: determines the body (RFC 9112 6.3). Returns true if there is none. */
static bool fields_end(struct http_reader *r)
{
	if (r->status < 200) {
		r->at = AT_STATUS;
		return false;
	}
	if (r->status == 204 || r->status == 304) {
		r->at = AT_STATUS;
		return true;
	}
	if (r->chunked) {
		r->at = AT_CHUNK;
	} else if (!r->has_length) {
		r->at = AT_UNTIL_END;
		r->close = true;
	} else {
		r->at = r->left ? AT_BODY : AT_STATUS;
	}
	return r->at == AT_STATUS;
}

/* "1a;extension" */
static int chunk_read(struct http_reader *r)
{
	size_t digits = strspn(r->line, "0123456789abcdefABCDEF");

	if (digits_read(r->line, digits, 16, &r->left) ||
	    (r->line[digits] && !strchr("; \t", r->line[digits])))
		return -EPROTO;
	r->at = r->left ? AT_CHUNK_BODY : AT_TRAILER;
	return 0;
}

/* Processes a complete line. *done: the response is complete. */
static int line_read(struct http_reader *r, bool *done)
{
	int rc = 0;

	switch (r->at) {
	case AT_STATUS:
		rc = status_read(r);
		r->at = AT_FIELD;
		break;
	case AT_FIELD:
		if (r->have)
			rc = field_read(r);
		else
			*done = fields_end(r);
		break;
	case AT_CHUNK:
		rc = chunk_read(r);
		break;
	case AT_CHUNK_END:
		rc = r->have ? -EPROTO : 0;
		r->at = AT_CHUNK;
		break;
	default: /* AT_TRAILER */
		if (!r->have) {
			r->at = AT_STATUS;
			*done = true;
		}
		break;
	}
	r->have = 0;
	return rc;
}

int64_t http_take(struct http_reader *r, const uint8_t *bytes, size_t len, bool *done)
{
	size_t taken = 0;
	bool whole;

	*done = false;
	while (taken < len && !*done) {
		if (r->at == AT_UNTIL_END)
			return (int64_t)len;
		if (r->at == AT_BODY || r->at == AT_CHUNK_BODY) {
			size_t part = r->left < len - taken ? (size_t)r->left : len - taken;
			taken += part;
			r->left -= part;
			if (r->left == 0 && r->at == AT_BODY)
				r->at = AT_STATUS, *done = true;
			else if (r->left == 0)
				r->at = AT_CHUNK_END;
			continue;
		}
		taken += line_take(r, bytes + taken, len - taken, &whole);
		if (whole && line_read(r, done))
			return -EPROTO;
	}
	return (int64_t)taken;
}

bool http_end(struct http_reader *r)
{
	bool ended = r->at == AT_UNTIL_END;

	if (ended)
		r->at = AT_STATUS;
	return ended;
}
