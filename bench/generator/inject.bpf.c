// SPDX-License-Identifier: Apache-2.0
/* Turns each frame into one of a flow's: the kernel's test run passes the same buffers again, as
 * the last forwarding left them. */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define WORDS 15 /* in a frame of 60 bytes */
#define SRC   26 /* offsets of the fields */
#define SUM   24
#define SPORT 34

/* Set before the program is loaded. */
const volatile __u32 frame[WORDS]; /* with the fields zero */
const volatile __u32 base_src, ip_sum, flows, port_bits, port_min;
const volatile _Bool in_turn; /* each flow once, instead of at random */

__u32 next_flow;

SEC("xdp")
int inject(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 flow = (in_turn ? next_flow++ : bpf_get_prandom_u32()) % flows;
	__u32 src = base_src + (flow >> port_bits);
	__u32 sum = ip_sum + (src >> 16) + (src & 0xffff);

	if (data + 4 * WORDS > end)
		return XDP_ABORTED;
	for (int i = 0; i < WORDS; i++)
		((__u32 *)data)[i] = frame[i];
	*(__u16 *)(data + SRC) = bpf_htons(src >> 16);
	*(__u16 *)(data + SRC + 2) = bpf_htons((__u16)src);
	*(__u16 *)(data + SPORT) = bpf_htons(port_min + (flow & ((1u << port_bits) - 1)));
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*(__u16 *)(data + SUM) = bpf_htons((__u16)~sum);
	return XDP_PASS;
}

char terms[] SEC("license") = "Dual BSD/GPL";
