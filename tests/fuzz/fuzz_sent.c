// SPDX-License-Identifier: Apache-2.0
/* Input: a peer's ACKs, SACK blocks and timestamps. The sent ranges agree with a plain model.
 *
 *     operation │ time, 2 ms │ for an ACK: number, blocks, and for each 2 bytes: from, length */
#include "fuzz.h"

#include "sent_model.h"

/* Returns how many bytes of the input are used up. */
static size_t ack(struct model *m, const uint8_t *data, size_t size)
{
	struct sent_ack in = {.now_ns = m->now, .mss = MODEL_MSS};
	size_t used = 2;
	if (size < used)
		return size;
	in.ack = m->una + data[0] - 16;
	if ((int32_t)(in.ack - m->nxt) > 0)
		in.ack = m->nxt;
	in.count = data[1] % 5;
	in.pure = data[1] & 8;
	in.echo_ns = data[1] & 16 ? m->now - (data[1] >> 5) * UINT64_C(10000000) : 0;
	for (unsigned n = 0; n < in.count && used + 2 <= size; n++, used += 2) {
		in.blocks[n].from = m->una + 2u * data[used] - 32;
		in.blocks[n].to = in.blocks[n].from + data[used + 1] % 100;
	}
	model_ack(m, &in);
	return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct model m;
	model_init(&m, UINT32_MAX - 1000);
	while (size >= 2) {
		uint8_t what = data[0], more = data[1];
		data += 2;
		size -= 2;
		m.now += more % 64 * UINT64_C(2000000);
		size_t used = 0;
		switch (what % 16) {
		case 0:
			model_time_out(&m, what & 16);
			break;
		case 1:
			if (what & 16)
				model_found(&m);
			model_recovered(&m);
			break;
		case 2:
			model_probe(&m, what & 16);
			break;
		case 3:
		case 4:
			model_detect(&m, what & 16);
			break;
		case 5:
		case 6:
			model_again_lost(&m);
			break;
		case 7:
		case 8:
		case 9:
			model_add(&m, 1 + (what >> 4) + more / 64 * MODEL_MSS);
			break;
		default:
			used = ack(&m, data, size);
		}
		data += used;
		size -= used;
		CHECK(model_agrees(&m));
	}
	return 0;
}
