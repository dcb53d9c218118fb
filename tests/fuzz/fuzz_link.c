// SPDX-License-Identifier: Apache-2.0
/* What steelyard-link reads: frames of programs under test, and parameters that people write. */
#include <string.h>

#include "frame.h"
#include "fuzz.h"
#include "params.h"

#define TAIL 3

static void text_check(const uint8_t *data, size_t size)
{
	struct params p, before;
	char error[PARAMS_ERROR] = "", *text = strndup((const char *)data, size);
	CHECK(text);
	params_default(&p);
	before = p;
	if (params_read(&p, text, error))
		CHECK(error[0] && memcmp(&p, &before, sizeof(p)) == 0);
	else
		CHECK(p.loss >= 0 && p.loss <= 1 && p.red_min <= p.red_max);
	free(text);
}

/* The parts have all data of the packet, once, and none is too large. */
static void fragments_check(const struct frame *f, uint32_t mtu)
{
	uint8_t *part = malloc(f->before + mtu);
	uint32_t offset = 0, data = f->length - (f->ip[0] & 15u) * 4, sum = 0;
	CHECK(part);
	do {
		uint32_t before = offset, length = frame_fragment(f, mtu, &offset, part);
		struct frame made = frame_look(part, length);
		CHECK(length <= f->before + mtu && made.version == 4);
		CHECK(made.length == length - f->before);
		CHECK(offset == 0 || offset > before);
		sum += made.length - (f->ip[0] & 15u) * 4;
	} while (offset);
	CHECK(sum == data);
	free(part);
}

static void frame_check(uint8_t *bytes, uint32_t size, uint32_t mtu, uint64_t draw)
{
	struct frame f = frame_look(bytes, size);
	struct in_addr router4 = {htonl(0xc0000008)};
	struct in6_addr router6 = {{{0xfd, [15] = 1}}};
	uint8_t *answer = malloc(FRAME_ANSWER);

	CHECK(answer && f.ip >= bytes && f.ip + f.length <= bytes + size);
	if (f.version && f.length > mtu) {
		uint32_t length = frame_too_big(&f, mtu, &router4, &router6, answer);
		CHECK(length <= FRAME_ANSWER);
		if (length) {
			struct frame made = frame_look(answer, length);
			CHECK(made.version == f.version && made.length + made.before == length);
		}
		if (frame_may_fragment(&f))
			fragments_check(&f, mtu);
	}
	frame_mark(&f);
	frame_flip(&f, draw);
	free(answer);
}

/* The last bytes say what to do with the frame, and are a part of it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < TAIL)
		return 0;
	text_check(data, size);
	const uint8_t *tail = data + size - TAIL;
	/* As long as the frame, so that what is read behind its end is found. */
	uint8_t *copy = malloc(size);
	CHECK(copy);
	memcpy(copy, data, size);
	frame_check(copy, (uint32_t)size, 68u + (tail[0] | (tail[1] & 7u) << 8),
	            (uint64_t)tail[2] << 56);
	free(copy);
	return 0;
}
