// SPDX-License-Identifier: Apache-2.0
/*
 * Outgoing packets. Those to an unresolved neighbour wait for it, as they do in Linux: otherwise
 * the first client of a network would get its answer a second later.
 */
#include "packets.h"

#define BURST       64
#define POLL_PIECES 256 /* pieces that an iteration sends before it receives again */
#define PENDING_MAX 256
#define LIFE_NS     (3000 * MS) /* how long the kernel tries to resolve a neighbour */
/* Between checks; and if many packets wait, perhaps for hosts that do not exist, how many are
 * checked at a time. */
#define RETRY_NS      MS
#define MANY          32
#define RETRY_MANY_NS (10 * MS)

static struct {
	struct rte_mbuf *m[PENDING_MAX];
	uint64_t since_ns[PENDING_MAX];
	unsigned count, next; /* next: the next to be checked, if there are many */
	uint64_t checked_ns;
} pending;

static bool more; /* the stack has more to send */
static uint64_t unreachable;

static void drop(struct rte_mbuf *m)
{
	unreachable++;
	rte_pktmbuf_free(m);
}

/* Drops a packet without a route to its peer, and reports that: connect() fails with EHOSTUNREACH,
 * as on Linux. */
static void drop_reported(struct rte_mbuf *m, uint64_t now_ns)
{
	sy_stack_unreachable(runner.stack, m, now_ns);
	drop(m);
}

/* Writes the MAC addresses. Returns false if there is none; `waits`: it may be resolved later. */
static bool frame_address(struct rte_mbuf *m, bool *waits)
{
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	const uint8_t *l3 = frame + SY_ETH_LEN, *mac;
	struct sy_addr dst;

	if (l3[0] >> 4 == 4)
		dst = sy_addr_v4(((const struct sy_ipv4 *)l3)->dst);
	else
		memcpy(dst.b, ((const struct sy_ipv6 *)l3)->dst, sizeof(dst.b));
	mac = route_mac(&dst, waits);
	if (!mac)
		return false;
	memcpy(frame, mac, 6);
	memcpy(frame + 6, supervisor_config()->mac, 6);
	return true;
}

static void pending_add(struct rte_mbuf *m, uint64_t now_ns)
{
	if (pending.count == PENDING_MAX) {
		drop(m); /* is retransmitted */
		return;
	}
	pending.since_ns[pending.count] = now_ns;
	pending.m[pending.count++] = m;
}

static uint64_t check_ns(void)
{
	return pending.checked_ns + (pending.count > MANY ? RETRY_MANY_NS : RETRY_NS);
}

/* Returns whether the packet is no longer queued: it is moved to `good`, or freed. */
static bool pending_settle(unsigned i, bool is_checked, uint64_t now_ns, struct rte_mbuf **ready,
                           unsigned *sent)
{
	bool waits = true;

	if (is_checked && frame_address(pending.m[i], &waits)) {
		ready[(*sent)++] = pending.m[i];
		return true;
	}
	if (waits && now_ns - pending.since_ns[i] < LIFE_NS)
		return false;
	drop_reported(pending.m[i], now_ns);
	return true;
}

static void pending_check(uint64_t now_ns)
{
	struct rte_mbuf *ready[PENDING_MAX];
	unsigned sent = 0, kept = 0, count = pending.count, first = pending.next;

	if (!count || now_ns < check_ns())
		return;
	pending.checked_ns = now_ns;
	route_check();
	first = count > MANY && first < count ? first : 0;
	for (unsigned i = 0; i < count; i++) {
		bool is_checked = i >= first && i < first + MANY;
		if (i == first + MANY)
			pending.next = kept;
		if (pending_settle(i, is_checked, now_ns, ready, &sent))
			continue;
		pending.since_ns[kept] = pending.since_ns[i];
		pending.m[kept++] = pending.m[i];
	}
	if (first + MANY >= count)
		pending.next = 0;
	pending.count = kept;
	for (unsigned i = 0; i < sent; i += BURST)
		device_send(ready + i, sent - i < BURST ? sent - i : BURST);
}

void outgoing_send(uint64_t now_ns)
{
	struct rte_mbuf *m[BURST];
	uint32_t pieces = POLL_PIECES;
	uint64_t before = unreachable;
	unsigned count = BURST;

	pending_check(now_ns);
	while (count > 0 && pieces > 0) {
		unsigned ready = 0;
		count = sy_stack_transmit_pieces(runner.stack, m, BURST, &pieces, now_ns);
		for (unsigned i = 0; i < count; i++) {
			bool waits;
			if (frame_address(m[i], &waits))
				m[ready++] = m[i];
			else if (waits)
				pending_add(m[i], now_ns);
			else
				drop_reported(m[i], now_ns);
		}
		if (ready)
			device_send(m, ready);
	}
	more = pieces == 0;
	if (unreachable != before)
		runner_events();
}

uint64_t outgoing_due(uint64_t otherwise_ns)
{
	if (more)
		return 0;
	return pending.count && check_ns() < otherwise_ns ? check_ns() : otherwise_ns;
}

uint64_t outgoing_unreachable(void)
{
	return unreachable;
}

void outgoing_forget(void)
{
	pending.count = 0;
	more = false;
	unreachable = 0;
}
