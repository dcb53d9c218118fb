// SPDX-License-Identifier: Apache-2.0
/* What servers and clients say to steelyard-load: answers of HTTP, and messages of the raw protocol
 * in both directions. Whatever it is, it means the same in one piece and in pieces.
 *
 *     what: 0 HTTP, 1 raw request, 2 raw answer │ length of pieces │ the bytes */
#include "fuzz.h"

#include <http.h>
#include <raw.h>

struct seen {
	uint64_t taken, ended, sum;
	int failed;
};

static void note(struct seen *s, uint64_t value)
{
	s->sum = (s->sum ^ value) * 0x100000001b3;
}

static struct seen http_read(const uint8_t *data, size_t size, size_t piece)
{
	struct http_reader r = {0};
	struct seen s = {0};
	bool done;

	while (s.taken < size) {
		size_t len = size - s.taken < piece ? size - s.taken : piece;
		int64_t rc = http_take(&r, data + s.taken, len, &done);
		if (rc < 0) {
			s.failed = (int)rc;
			s.taken = 0; /* how far it came depends on the pieces */
			return s;
		}
		CHECK(rc > 0 && (size_t)rc <= len);
		s.taken += (uint64_t)rc;
		if (done) {
			CHECK(r.status >= 200 && r.status <= 999);
			s.ended++;
			note(&s, (uint64_t)r.status << 33 | s.taken << 1 | r.close);
		}
	}
	s.sum += http_end(&r);
	return s;
}

static struct seen raw_messages(const uint8_t *data, size_t size, size_t piece, enum raw_kind kind)
{
	struct raw_reader r = {0};
	struct raw_header h = {0};
	struct seen s = {0};
	enum raw_got got;

	while (s.taken < size) {
		size_t len = size - s.taken < piece ? size - s.taken : piece;
		int64_t rc = raw_take(&r, kind, data + s.taken, len, &h, &got);
		if (rc < 0) {
			s.failed = (int)rc;
			s.taken = 0;
			return s;
		}
		CHECK(rc > 0 && (size_t)rc <= len);
		s.taken += (uint64_t)rc;
		if (got != RAW_MORE)
			CHECK(h.kind == kind && h.length >= RAW_HEADER && h.length <= RAW_LONGEST &&
			      h.service_ns <= RAW_SERVICE_MAX);
		if (got == RAW_MESSAGE_DONE) {
			s.ended++;
			note(&s, h.number ^ s.taken << 32);
		}
	}
	return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole, pieces;

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
	CHECK(whole.failed == pieces.failed && whole.taken == pieces.taken &&
	      whole.ended == pieces.ended && whole.sum == pieces.sum);
	return 0;
}
