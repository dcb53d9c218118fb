// SPDX-License-Identifier: Apache-2.0
/*
 * Packets to next hops whose MAC address is not known yet, in the order of arrival.
 *
 * The worker requests each next hop once from the control thread, which queries the kernel. Packets
 * are dropped a second after that request, but only once the control thread has read all kernel
 * reports of that second: on a busy host the answer may be unread in its socket.
 */
#include "runtime.h"

#define WAIT_NS UINT64_C(1000000000)

static void hop_request(struct sy_worker *w, struct unresolved_hop *hop)
{
	struct unresolved *u = &w->private->unresolved;
	struct neighbour_request neighbour_request = {.addr = hop->addr, .port = hop->port};
	hop->requested = !rte_ring_sp_enqueue_elem(w->private->neighbour_requests,
	                                           &neighbour_request, sizeof(neighbour_request));
	if (!hop->requested)
		return;
	hop->request = ++u->requests;
	loop_wake(w->rt->loop);
}

static struct unresolved_hop *hop_find_or_add(struct sy_worker *w, unsigned port,
                                              const struct sy_addr *addr)
{
	struct unresolved *u = &w->private->unresolved;
	struct unresolved_hop *unused = NULL;
	for (unsigned i = 0; i < UNRESOLVED_HOPS; i++) {
		struct unresolved_hop *hop = &u->hop[i];
		if (!hop->count)
			unused = hop;
		else if (hop->port == port && sy_addr_equal(&hop->addr, addr))
			return hop;
	}
	if (!unused)
		return NULL;
	*unused = (struct unresolved_hop){
	        .addr = *addr, .port = (uint8_t)port, .deadline_ns = w->now_ns + WAIT_NS};
	hop_request(w, unused);
	return unused;
}

void unresolved_add(struct sy_worker *w, struct rte_mbuf *m, const struct sy_addr *addr)
{
	struct unresolved *u = &w->private->unresolved;
	struct unresolved_hop *hop =
	        u->count < UNRESOLVED_MAX ? hop_find_or_add(w, m->port, addr) : NULL;
	if (!hop || hop->count == UNRESOLVED_HOP_MAX) {
		sy_packet_drop(w, m, SY_DROP_NEIGHBOUR_QUEUE);
		return;
	}
	hop->count++;
	u->packet[u->count++] =
	        (struct unresolved_packet){.mbuf = m, .hop = (uint8_t)(hop - u->hop)};
}

/* Has the kernel had its time to resolve the hop, and the control thread its time to read? */
static bool hop_is_overdue(const struct sy_worker *w, struct unresolved_hop *hop)
{
	uint32_t handled = SY_RCU_READ(w->private->neighbour_requests_handled);
	if (!hop->requested || (int32_t)(handled - hop->request) < 0) {
		hop->deadline_ns = w->now_ns + WAIT_NS;
		return false;
	}
	return SY_RCU_READ(w->rt->kernel_read_ns) > hop->deadline_ns;
}

static void hop_update(struct sy_worker *w, struct unresolved_hop *hop)
{
	const struct adjacencies *a = w->rt->adjacencies;
	uint32_t index = adjacency_find(a, hop->port, &hop->addr);
	hop->link = index ? SY_RCU_READ(a->record[index].link) : 0;
	hop->state = adjacency_link_state(hop->link);
	if (hop->state != ADJACENCY_PENDING)
		return;
	if (hop_is_overdue(w, hop))
		hop->state = ADJACENCY_FAILED;
	else if (!hop->requested)
		hop_request(w, hop);
}

/* Sends or drops the packets of all hops that are resolved or failed; keeps the others. */
static void packets_settle(struct sy_worker *w)
{
	struct unresolved *u = &w->private->unresolved;
	unsigned kept = 0;
	for (unsigned i = 0; i < u->count; i++) {
		struct unresolved_hop *hop = &u->hop[u->packet[i].hop];
		if (hop->state == ADJACENCY_PENDING) {
			u->packet[kept++] = u->packet[i];
			continue;
		}
		hop->count--;
		if (hop->state == ADJACENCY_VALID)
			transmit_to(w, u->packet[i].mbuf, hop->link);
		else
			sy_packet_drop(w, u->packet[i].mbuf, SY_DROP_NO_NEIGHBOUR);
	}
	u->count = kept;
}

void unresolved_update(struct sy_worker *w)
{
	struct unresolved *u = &w->private->unresolved;
	for (unsigned i = 0; u->count && i < UNRESOLVED_HOPS; i++)
		if (u->hop[i].count)
			hop_update(w, &u->hop[i]);
	packets_settle(w);
}

void unresolved_drop_all(struct sy_worker *w)
{
	for (unsigned i = 0; i < UNRESOLVED_HOPS; i++)
		w->private->unresolved.hop[i].state = ADJACENCY_FAILED;
	packets_settle(w);
}
