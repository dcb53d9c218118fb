// SPDX-License-Identifier: Apache-2.0
/* Input: a frame of a program under test, and a line of parameters, for steelyard-link. */
#include <string.h>

#include "fuzz.h"
#include "link_frame.h"
#include "params.h"

#define TAIL 3

/* A parameter line is accepted with valid values, or refused with an error and without effect. */
static bool parameters_are_valid_or_unchanged(const uint8_t *data, size_t size)
{
	struct params p, before;
	char error[PARAMS_ERROR] = "", *text = strndup((const char *)data, size);
	CHECK(text);
	params_default(&p);
	before = p;
	if (params_read(&p, text, error))
		HOLDS(error[0] && memcmp(&p, &before, sizeof(p)) == 0);
	else
		HOLDS(p.loss >= 0 && p.loss <= 1 && p.red_min <= p.red_max);
	free(text);
	return true;
}

/* The fragments have all bytes of the packet once, and none exceeds the MTU. */
static bool fragments_have_all_bytes(const struct frame *f, uint32_t mtu)
{
	uint8_t *part = malloc(f->before + mtu);
	uint32_t offset = 0, data = f->length - (f->ip[0] & 15u) * 4, sum = 0;
	CHECK(part);
	do {
		uint32_t before = offset, length = frame_fragment(f, mtu, &offset, part);
		struct frame made = frame_look(part, length);
		HOLDS(length <= f->before + mtu && made.version == 4);
		HOLDS(made.length == length - f->before);
		HOLDS(offset == 0 || offset > before);
		sum += made.length - (f->ip[0] & 15u) * 4;
	} while (offset);
	HOLDS(sum == data);
	free(part);
	return true;
}

static bool frame_operations_stay_inside(uint8_t *bytes, uint32_t size, uint32_t mtu, uint64_t draw)
{
	struct frame f = frame_look(bytes, size);
	struct in_addr router4 = {htonl(0xc0000008)};
	struct in6_addr router6 = {{{0xfd, [15] = 1}}};
	uint8_t *answer = malloc(FRAME_ANSWER);

	CHECK(answer);
	HOLDS(f.ip >= bytes && f.ip + f.length <= bytes + size);
	if (f.version && f.length > mtu) {
		uint32_t length = frame_too_big(&f, mtu, &router4, &router6, answer);
		HOLDS(length <= FRAME_ANSWER);
		if (length) {
			struct frame made = frame_look(answer, length);
			HOLDS(made.version == f.version && made.length + made.before == length);
		}
		if (frame_may_fragment(&f))
			HOLDS(fragments_have_all_bytes(&f, mtu));
	}
	frame_mark(&f);
	frame_flip(&f, draw);
	free(answer);
	return true;
}

/* The last bytes are parameters of the frame, and a part of it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < TAIL)
		return 0;
	CHECK(parameters_are_valid_or_unchanged(data, size));
	const uint8_t *tail = data + size - TAIL;
	uint8_t *copy = copy_make(data, size);
	uint32_t mtu = 68u + (tail[0] | (tail[1] & 7u) << 8);
	CHECK(frame_operations_stay_inside(copy, (uint32_t)size, mtu, (uint64_t)tail[2] << 56));
	free(copy);
	return 0;
}
