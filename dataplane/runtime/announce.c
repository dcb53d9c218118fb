// SPDX-License-Identifier: Apache-2.0
/*
 * Announces claimed addresses: gratuitous ARP (RFC 5227 3) as request and as reply, and unsolicited
 * neighbour advertisements (RFC 4861 7.2.6). Neighbours that have another node's MAC address learn
 * this node's at once. The kernel answers for these addresses but does not announce them:
 * arp_notify and ndisc_notify cover addresses of interfaces.
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "neighbour_frame.h"
#include "runtime.h"

#define TIMES    4  /* sent after 0, 1, 3 and 7 s: a neighbour may ignore an early one */
#define RATE     64 /* max announcements per tick: 640 a second */
#define TICK_NS  UINT64_C(100000000)
#define ND_LEN   32 /* an advertisement with its option */
#define FRAME_V6 ND_FRAME_LEN(ND_LEN)

struct announcement {
	struct sy_addr addr;
	uint64_t due_ns;
	uint8_t port; /* SY_PORT_NONE: the port that answers for the address */
	uint8_t sent;
};

struct announcements {
	int fd; /* −1: not opened yet */
	unsigned count, capacity;
	struct announcement *list;
	bool failed; /* failure was logged */
};

static struct announcements *announcements_get(struct sy_runtime *rt)
{
	if (!rt->announcements && (rt->announcements = calloc(1, sizeof(*rt->announcements))))
		rt->announcements->fd = -1;
	return rt->announcements;
}

static void announcement_add(struct sy_runtime *rt, const struct sy_addr *addr, unsigned port)
{
	struct announcements *a = announcements_get(rt);
	if (!a)
		return;
	if (a->count == a->capacity) {
		unsigned capacity = a->capacity ? 2 * a->capacity : 64;
		struct announcement *more = realloc(a->list, capacity * sizeof(*more));
		if (!more)
			return; /* neighbours learn the MAC address later, by ARP or ND */
		a->list = more;
		a->capacity = capacity;
	}
	a->list[a->count++] = (struct announcement){
	        .addr = *addr, .port = (uint8_t)port, .due_ns = sy_clock_ns()};
}

void announce_address(struct sy_runtime *rt, const struct sy_addr *addr)
{
	announcement_add(rt, addr, SY_PORT_NONE);
}

struct announce_on {
	struct sy_runtime *rt;
	unsigned port;
};

static void announce_claim(void *ctx, const struct sy_addr *addr)
{
	const struct announce_on *on = ctx;
	/* announcement_send() checks whether this port answers for the address */
	announcement_add(on->rt, addr, on->port);
}

void announce_port(struct sy_runtime *rt, unsigned port)
{
	struct announcements *a = rt->announcements;
	unsigned kept = 0;
	for (unsigned i = 0; a && i < a->count; i++)
		if (a->list[i].port != port)
			a->list[kept++] = a->list[i];
	if (a)
		a->count = kept;
	if (rt->claims)
		sy_claims_each(rt->claims, announce_claim, &(struct announce_on){rt, port});
}

void sy_addresses_announce(struct sy_runtime *rt)
{
	if (rt->claims)
		sy_claims_each(rt->claims, announce_claim, &(struct announce_on){rt, SY_PORT_NONE});
}

void announce_forget(struct sy_runtime *rt, const struct sy_addr *addr)
{
	struct announcements *a = rt->announcements;
	unsigned kept = 0;
	for (unsigned i = 0; a && i < a->count; i++)
		if (!sy_addr_equal(&a->list[i].addr, addr))
			a->list[kept++] = a->list[i];
	if (a)
		a->count = kept;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void advertisement_write(uint8_t frame[FRAME_V6], const struct sy_addr *addr,
                                const uint8_t mac[6])
{
	static const uint8_t all_nodes[16] = {0xff, 2, [15] = 1};
	uint8_t *icmp = nd_frame_begin(frame, ND_LEN, mac, addr, all_nodes);
	icmp[0] = ND_NEIGHBOR_ADVERT;
	icmp[4] = 0x20; /* override: replace the cached MAC */
	memcpy(icmp + 8, addr->b, 16);
	icmp[24] = ND_OPT_TARGET_LINKADDR;
	icmp[25] = 1; /* option length: 8 bytes */
	memcpy(icmp + 26, mac, 6);
	nd_frame_end(frame, ND_LEN);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void frame_send(struct announcements *a, const struct port *p, const uint8_t *frame,
                       size_t len)
{
	struct sockaddr_ll to = {
	        .sll_family = AF_PACKET, .sll_ifindex = p->ifindex, .sll_halen = 6};
	memcpy(to.sll_addr, frame, 6);
	if (a->fd < 0)
		a->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->fd >= 0 && sendto(a->fd, frame, len, 0, (void *)&to, sizeof(to)) >= 0)
		return;
	if (!a->failed)
		sy_log(SY_LOG_WARN, "runtime",
		       "port %s: addresses cannot be announced: %s; neighbours keep another node's "
		       "MAC address until they ask again",
		       p->name, strerror(errno));
	a->failed = true;
}

static void announcement_send(struct sy_runtime *rt, const struct announcement *one)
{
	uint8_t frame[FRAME_V6], mac[8];
	for (unsigned i = 0; i < rt->ports; i++) {
		const struct port *p = rt->port[i];
		if ((one->port != SY_PORT_NONE && one->port != i) || !p->ifindex || !p->up ||
		    !address_is_answered_on(rt, &one->addr, i))
			continue;
		memcpy(mac, &p->mac, sizeof(mac));
		if (sy_addr_is_v4(&one->addr)) {
			arp_frame_write(frame, &one->addr, &one->addr, mac, ARPOP_REQUEST);
			frame_send(rt->announcements, p, frame, ARP_FRAME_LEN);
			arp_frame_write(frame, &one->addr, &one->addr, mac, ARPOP_REPLY);
			frame_send(rt->announcements, p, frame, ARP_FRAME_LEN);
		} else {
			advertisement_write(frame, &one->addr, mac);
			frame_send(rt->announcements, p, frame, FRAME_V6);
		}
	}
}

/* Sends due announcements, at most RATE per tick, of which `sent` were used. again: repetitions, or
 * first announcements. Returns how many are used then. */
static unsigned announcements_send(struct sy_runtime *rt, uint64_t now, bool first, unsigned sent)
{
	struct announcements *a = rt->announcements;
	for (unsigned i = 0; i < a->count && sent < RATE; i++) {
		struct announcement *one = &a->list[i];
		if ((one->sent == 0) != first || one->due_ns > now)
			continue;
		announcement_send(rt, one);
		one->due_ns = now + (UINT64_C(1000000000) << one->sent) - TICK_NS / 2;
		one->sent++;
		sent++;
	}
	return sent;
}

void announcements_tick(struct sy_runtime *rt)
{
	struct announcements *a = rt->announcements;
	uint64_t now = sy_clock_ns();
	unsigned kept = 0;
	bool ready = rt->ports && !rt->quiesced;
	for (unsigned i = 0; i < rt->ports; i++) /* announce only once packets can be received */
		ready = ready && (rt->port[i]->bound || rt->port[i]->gone);
	if (!a || !ready)
		return;
	/* First announcements come before repetitions. */
	announcements_send(rt, now, false, announcements_send(rt, now, true, 0));
	for (unsigned i = 0; i < a->count; i++)
		if (a->list[i].sent < TIMES)
			a->list[kept++] = a->list[i];
	a->count = kept;
}

void announcements_close(struct sy_runtime *rt)
{
	struct announcements *a = rt->announcements;
	if (!a)
		return;
	if (a->fd >= 0)
		close(a->fd);
	free(a->list);
	free(a);
	rt->announcements = NULL;
}
