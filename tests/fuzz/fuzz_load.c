// SPDX-License-Identifier: Apache-2.0
/* Input: HTTP answers, or raw messages in either direction, for steelyard-load. They are parsed in
 * the same way whole and in pieces.
 *
 *     kind: 0 HTTP, 1 raw request, 2 raw answer │ length of pieces │ the bytes */
#include "fuzz.h"

#include <http.h>
#include <raw_protocol.h>

struct parsed {
	uint64_t bytes, messages, sum;
	int failed;
	bool valid; /* each message is within its limits */
};

static void note(struct parsed *s, uint64_t value)
{
	s->sum = (s->sum ^ value) * 0x100000001b3;
}

static struct parsed http_read(const uint8_t *data, size_t size, size_t piece)
{
	struct http_reader r = {0};
	struct parsed s = {.valid = true};
	bool done;

	while (s.bytes < size) {
		size_t len = size - s.bytes < piece ? size - s.bytes : piece;
		int64_t rc = http_take(&r, data + s.bytes, len, &done);
		if (rc < 0) {
			s.failed = (int)rc;
			s.bytes = 0; /* depends on the pieces */
			return s;
		}
		if (rc == 0 || (size_t)rc > len) {
			s.valid = false;
			return s;
		}
		s.bytes += (uint64_t)rc;
		if (done) {
			s.valid &= r.status >= 200 && r.status <= 999;
			s.messages++;
			note(&s, (uint64_t)r.status << 33 | s.bytes << 1 | r.close);
		}
	}
	s.sum += http_end(&r);
	return s;
}

static struct parsed raw_messages(const uint8_t *data, size_t size, size_t piece,
                                  enum raw_kind kind)
{
	struct raw_reader r = {0};
	struct raw_header h = {0};
	struct parsed s = {.valid = true};
	enum raw_got got;

	while (s.bytes < size) {
		size_t len = size - s.bytes < piece ? size - s.bytes : piece;
		int64_t rc = raw_take(&r, kind, data + s.bytes, len, &h, &got);
		if (rc < 0) {
			s.failed = (int)rc;
			s.bytes = 0;
			return s;
		}
		if (rc == 0 || (size_t)rc > len) {
			s.valid = false;
			return s;
		}
		s.bytes += (uint64_t)rc;
		if (got != RAW_MORE)
			s.valid &= h.kind == kind && h.length >= RAW_HEADER &&
			           h.length <= RAW_LONGEST && h.service_ns <= RAW_SERVICE_MAX;
		if (got == RAW_MESSAGE_DONE) {
			s.messages++;
			note(&s, h.number ^ s.bytes << 32);
		}
	}
	return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct parsed whole, pieces;

	if (size < 3)
		return 0;
	unsigned what = data[0] % 3;
	size_t piece = data[1] % 64 + 1u;
	data += 2;
	size -= 2;
	if (what == 0) {
		whole = http_read(data, size, size);
		pieces = http_read(data, size, piece);
	} else {
		enum raw_kind kind = what == 1 ? RAW_REQUEST : RAW_ANSWER;
		whole = raw_messages(data, size, size, kind);
		pieces = raw_messages(data, size, piece, kind);
	}
	CHECK(whole.valid && pieces.valid);
	CHECK(whole.failed == pieces.failed);
	CHECK(whole.bytes == pieces.bytes && whole.messages == pieces.messages);
	CHECK(whole.sum == pieces.sum);
	return 0;
}
