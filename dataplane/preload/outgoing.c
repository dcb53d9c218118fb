// SPDX-License-Identifier: Apache-2.0
/*
 * Packets on their way out. Those to a neighbour that the kernel has not found yet wait for it, as
 * they do in Linux: else the first client of a network would get its answer a second later.
 */
#include "preload.h"

#define BURST    64
#define WAITING  256
#define AGAIN_NS MS
#define LIFE_NS  (3000 * MS) /* for so long the kernel looks for a neighbour */

static struct {
	struct rte_mbuf *m[WAITING];
	uint64_t since_ns[WAITING];
	unsigned count;
	uint64_t looked_ns;
} waiting;

static bool frame_address(struct rte_mbuf *m)
{
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	const uint8_t *l3 = frame + SY_ETH_LEN, *mac;
	struct sy_addr dst;

	if (l3[0] >> 4 == 4)
		dst = sy_addr_v4(((const struct sy_ipv4 *)l3)->dst);
	else
		memcpy(dst.b, ((const struct sy_ipv6 *)l3)->dst, sizeof(dst.b));
	mac = route_mac(&dst);
	if (!mac)
		return false;
	memcpy(frame, mac, 6);
	memcpy(frame + 6, keeper_config()->mac, 6);
	return true;
}

static void wait_begin(struct rte_mbuf *m, uint64_t now_ns)
{
	if (waiting.count == WAITING) {
		rte_pktmbuf_free(m); /* comes again */
		return;
	}
	waiting.since_ns[waiting.count] = now_ns;
	waiting.m[waiting.count++] = m;
}

static void wait_look(uint64_t now_ns)
{
	struct rte_mbuf *good[WAITING];
	unsigned sent = 0, kept = 0;

	if (!waiting.count || now_ns - waiting.looked_ns < AGAIN_NS)
		return;
	waiting.looked_ns = now_ns;
	route_check();
	for (unsigned i = 0; i < waiting.count; i++) {
		struct rte_mbuf *m = waiting.m[i];
		if (frame_address(m)) {
			good[sent++] = m;
		} else if (now_ns - waiting.since_ns[i] >= LIFE_NS) {
			rte_pktmbuf_free(m);
		} else {
			waiting.since_ns[kept] = waiting.since_ns[i];
			waiting.m[kept++] = m;
		}
	}
	waiting.count = kept;
	for (unsigned i = 0; i < sent; i += BURST)
		device_send(good + i, sent - i < BURST ? sent - i : BURST);
}

void outgoing_send(uint64_t now_ns)
{
	struct rte_mbuf *m[BURST];
	unsigned count;

	wait_look(now_ns);
	while ((count = sy_stack_transmit(runner.stack, m, BURST, now_ns)) > 0) {
		unsigned good = 0;
		for (unsigned i = 0; i < count; i++) {
			if (frame_address(m[i]))
				m[good++] = m[i];
			else
				wait_begin(m[i], now_ns);
		}
		if (good)
			device_send(m, good);
	}
}

uint64_t outgoing_due(uint64_t otherwise_ns)
{
	uint64_t look_ns = waiting.looked_ns + AGAIN_NS;

	return waiting.count && look_ns < otherwise_ns ? look_ns : otherwise_ns;
}

void outgoing_forget(void)
{
	waiting.count = 0;
}
