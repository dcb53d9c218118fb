// SPDX-License-Identifier: Apache-2.0
/* The control socket's framing. The input is a byte stream; its first byte selects the pieces in
 * which it arrives. */
#include <stdlib.h>
#include <string.h>

#include "../control_frame.h"

#define MAX 70000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_reader r = {0};
	size_t piece = size ? 1 + data[0] : 1;
	for (size_t at = 1; at < size;) {
		uint8_t *where;
		size_t want = frame_want(&r, &where), n = size - at < piece ? size - at : piece;
		n = n < want ? n : want;
		if (!n)
			abort(); /* the reader would wait for ever */
		memcpy(where, data + at, n);
		at += n;
		enum frame_state s = frame_add(&r, n, MAX);
		if (s == FRAME_WHOLE) {
			if (r.have != r.len || r.len > MAX)
				abort();
			/* The frame's bytes are the latest ones, in order. */
			if (r.len && memcmp(r.body, data + at - r.len, r.len))
				abort();
			frame_next(&r);
		} else if (s != FRAME_MORE) {
			break;
		}
	}
	frame_free(&r);
	return 0;
}
