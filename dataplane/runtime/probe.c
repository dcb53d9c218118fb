// SPDX-License-Identifier: Apache-2.0
/*
 * Probes for addresses that another host may use (design record 0052). A new VIP or local address
 * on a port's network is probed before it is claimed: ARP probes (RFC 5227 2.1.1), or neighbour
 * solicitations as for duplicate address detection (RFC 4862 5.4). If a host answers, the address
 * stays unclaimed, and is probed again each second until no host answers, or sy_addresses_force()
 * claims it. ARP and neighbour advertisements of other hosts for claimed addresses are reported.
 *
 * RFC 5227 waits for up to 7 s, since a host may sleep. A balancer's neighbours are awake: three
 * probes within 200 ms, and 100 ms for the last answer.
 */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "neighbour_frame.h"
#include "reconcile.h"
#include "runtime.h"

#define TIMES       3
#define RATE        640 /* max probes per tick of 100 ms */
#define AGAIN_NS    UINT64_C(1000000000)
#define FRAMES      512 /* max frames received per tick: a flood of ARP hides some conflicts */
#define CONFLICTS   16  /* addresses that another host uses too: the last ones */
#define CONFLICT_NS (600 * UINT64_C(1000000000))
#define ND_LEN      24 /* a solicitation without options */
#define FRAME_V6    ND_FRAME_LEN(ND_LEN)

struct probe {
	struct sy_addr addr;
	uint64_t due_ns; /* time of the next round if another host has it */
	uint8_t sent;    /* probes sent in this round */
	bool contested;  /* another host answered in the last round */
	bool refused;    /* no host has it, but this host cannot claim it */
	bool answered;   /* a host answered in this round */
	uint8_t mac[6];  /* MAC address of that host */
};

struct conflict {
	struct sy_addr addr;
	uint64_t seen_ns; /* 0: unused */
	uint8_t mac[6];
	bool probed; /* the other host probed for the address, and does not announce it */
};

struct probes {
	int fd[2]; /* ARP and ICMPv6; −1: not open */
	bool failed;
	unsigned count, capacity;
	struct probe *list;
	struct conflict conflict[CONFLICTS];
	void (*waiting)(void *ctx); /* called when every address has finished its first round */
	void *waiting_ctx;
};

/* ---- sockets --------------------------------------------------------------------------------- */

/* Neighbour solicitations and advertisements. */
static int filter_attach(int fd)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 6),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_ICMPV6, 0, 4),
	        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 40),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ND_NEIGHBOR_ADVERT, 1, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ND_NEIGHBOR_SOLICIT, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, 128),
	        BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = {SY_ARRAY_LEN(code), code};
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

static int socket_open(unsigned protocol)
{
	struct sockaddr_ll any = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol)};
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if ((protocol == ETH_P_IPV6 && filter_attach(fd) < 0) ||
	    bind(fd, (void *)&any, sizeof(any)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static struct probes *probes_get(struct sy_runtime *rt)
{
	struct probes *p = rt->probes;
	if (p || !(p = calloc(1, sizeof(*p))))
		return p;
	rt->probes = p;
	p->fd[0] = socket_open(ETH_P_ARP);
	p->fd[1] = socket_open(ETH_P_IPV6);
	p->failed = p->fd[0] < 0 || p->fd[1] < 0;
	if (p->failed)
		sy_log(SY_LOG_WARN, "runtime",
		       "addresses cannot be probed before they are claimed: %s; CAP_NET_RAW is "
		       "needed",
		       strerror(errno));
	return p;
}

void probes_close(struct sy_runtime *rt)
{
	struct probes *p = rt->probes;
	if (!p)
		return;
	for (unsigned i = 0; i < 2; i++)
		if (p->fd[i] >= 0)
			close(p->fd[i]);
	free(p->list);
	free(p);
	rt->probes = NULL;
}

/* ---- the list -------------------------------------------------------------------------------- */

static struct probe *probe_find(const struct probes *p, const struct sy_addr *addr)
{
	for (unsigned i = 0; p && i < p->count; i++)
		if (sy_addr_equal(&p->list[i].addr, addr))
			return &p->list[i];
	return NULL;
}

/* Are neighbours on this port's network resolving the address? Then two hosts cannot share it. VIPs
 * on no network are routed, and several hosts may have them. */
static bool is_shared_on(const struct sy_runtime *rt, const struct sy_addr *addr, unsigned port)
{
	return rt->port[port]->ifindex && rt->port[port]->up && !rt->port[port]->gone &&
	       address_is_connected(rt, addr, rt->port[port]->ifindex);
}

static bool is_shared(const struct sy_runtime *rt, const struct sy_addr *addr)
{
	for (unsigned i = 0; i < rt->ports; i++)
		if (is_shared_on(rt, addr, i))
			return true;
	return false;
}

bool probe_begin(struct sy_runtime *rt, const struct sy_addr *addr)
{
	struct probes *p;
	if (!rt->options.probe || !rt->claims || sy_claims_has(rt->claims, addr) ||
	    !is_shared(rt, addr) || sy_claims_check(rt->claims, addr, NULL))
		return false;
	p = probes_get(rt);
	if (!p || p->failed)
		return false;
	if (p->count == p->capacity) { /* addresses are unique: it is not in the list yet */
		unsigned capacity = p->capacity ? 2 * p->capacity : 64;
		struct probe *more = realloc(p->list, capacity * sizeof(*more));
		if (!more)
			return false;
		p->list = more;
		p->capacity = capacity;
	}
	p->list[p->count++] = (struct probe){.addr = *addr};
	return true;
}

void probe_forget(struct sy_runtime *rt, const struct sy_addr *addr)
{
	struct probe *one = probe_find(rt->probes, addr);
	if (one)
		*one = rt->probes->list[--rt->probes->count];
	for (unsigned i = 0; rt->probes && i < CONFLICTS; i++)
		if (sy_addr_equal(&rt->probes->conflict[i].addr, addr))
			rt->probes->conflict[i].seen_ns = 0;
}

bool probe_has(const struct sy_runtime *rt, const struct sy_addr *addr)
{
	return probe_find(rt->probes, addr);
}

static bool any_is_new(const struct probes *p)
{
	for (unsigned i = 0; p && i < p->count; i++)
		if (!p->list[i].contested && !p->list[i].refused)
			return true;
	return false;
}

bool sy_addresses_wait(struct sy_runtime *rt, void (*fn)(void *ctx), void *ctx)
{
	if (!any_is_new(rt->probes))
		return false;
	rt->probes->waiting = fn;
	rt->probes->waiting_ctx = ctx;
	return true;
}

/* The entry of the address, otherwise the oldest one. */
static struct conflict *conflict_slot(struct probes *p, const struct sy_addr *addr)
{
	struct conflict *oldest = &p->conflict[0];
	for (unsigned i = 0; i < CONFLICTS; i++) {
		if (sy_addr_equal(&p->conflict[i].addr, addr))
			return &p->conflict[i];
		if (p->conflict[i].seen_ns < oldest->seen_ns)
			oldest = &p->conflict[i];
	}
	return oldest;
}

static void conflict_note(struct probes *p, const struct sy_addr *addr, const uint8_t mac[6],
                          bool probed)
{
	struct conflict *c = conflict_slot(p, addr);
	if (c->seen_ns && sy_addr_equal(&c->addr, addr) && !c->probed && probed)
		return; /* the entry reports something worse */
	*c = (struct conflict){.addr = *addr, .seen_ns = sy_clock_ns(), .probed = probed};
	memcpy(c->mac, mac, sizeof(c->mac));
}

/* Claims an address that was probed, and removes it from the list. If the claim fails, the address
 * stays in the list, and the next round tries again. Returns whether it is claimed. */
static bool probed_claim(struct sy_runtime *rt, struct probe *one)
{
	struct probes *p = rt->probes;
	struct probe back = *one;
	struct sy_error err = {0};
	*one = p->list[--p->count]; /* first: a failing claim releases the address */
	if (!address_claim(rt, &back.addr, &err))
		return true;
	if (!back.refused)
		sy_log(SY_LOG_ERROR, "runtime", "%s; it is tried again each second", err.text);
	back.refused = true;
	back.contested = back.answered = false;
	back.sent = 0;
	back.due_ns = sy_clock_ns() + AGAIN_NS;
	p->list[p->count++] = back;
	return false;
}

static bool is_among(const struct sy_addr *addr, const struct sy_addr *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (sy_addr_equal(addr, &list[i]))
			return true;
	return false;
}

unsigned sy_addresses_force(struct sy_runtime *rt, const struct sy_addr *some, unsigned count)
{
	struct probes *p = rt->probes;
	unsigned n = 0;
	for (unsigned i = 0; p && i < p->count;) {
		if (!p->list[i].contested ||
		    (count > 0 && !is_among(&p->list[i].addr, some, count))) {
			i++;
			continue;
		}
		conflict_note(p, &p->list[i].addr, p->list[i].mac, false);
		n += probed_claim(rt, &p->list[i]);
	}
	if (p)
		reconcile_others(rt); /* for the warnings in the caller's reply */
	return n;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Writes a neighbour solicitation from the unspecified address to the solicited-node group. */
static void solicitation_write(uint8_t frame[FRAME_V6], const struct sy_addr *addr,
                               const uint8_t mac[6])
{
	uint8_t group[16] = {0xff, 2, [11] = 1, [12] = 0xff};
	memcpy(group + 13, addr->b + 13, 3);
	uint8_t *icmp = nd_frame_begin(frame, ND_LEN, mac, NULL, group);
	icmp[0] = ND_NEIGHBOR_SOLICIT;
	memcpy(icmp + 8, addr->b, 16);
	nd_frame_end(frame, ND_LEN);
}

/* Sends a probe. Returns whether a port could send it. */
static bool probe_send(const struct sy_runtime *rt, const struct sy_addr *addr)
{
	const struct probes *p = rt->probes;
	bool v4 = sy_addr_is_v4(addr), sent = false;
	uint8_t frame[FRAME_V6], mac[8];
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sockaddr_ll to = {.sll_family = AF_PACKET,
		                         .sll_ifindex = rt->port[i]->ifindex,
		                         .sll_halen = 6,
		                         .sll_protocol = htons(v4 ? ETH_P_ARP : ETH_P_IPV6)};
		if (!is_shared_on(rt, addr, i))
			continue;
		memcpy(mac, &rt->port[i]->mac, sizeof(mac));
		if (v4)
			arp_frame_write(frame, NULL, addr, mac, ARPOP_REQUEST);
		else
			solicitation_write(frame, addr, mac);
		memcpy(to.sll_addr, frame, 6);
		sent |= sendto(p->fd[!v4], frame + SY_ETH_LEN,
		               (v4 ? ARP_FRAME_LEN : FRAME_V6) - SY_ETH_LEN, 0, (void *)&to,
		               sizeof(to)) >= 0;
	}
	return sent;
}

/* ---- what other hosts send ------------------------------------------------------------------- */

static bool mac_is_own(const struct sy_runtime *rt, const uint8_t mac[6])
{
	for (unsigned i = 0; i < rt->ports; i++)
		if (!memcmp(&rt->port[i]->mac, mac, 6))
			return true;
	return false;
}

/* Another host on this port uses the address, or (probed) probes for it. */
static void other_seen(struct sy_runtime *rt, unsigned port, const struct sy_addr *addr,
                       const uint8_t mac[6], bool probed)
{
	struct probe *one = probe_find(rt->probes, addr);
	uint8_t own[8];
	if ((!one && !sy_claims_has(rt->claims, addr)) || !is_shared_on(rt, addr, port))
		return;
	memcpy(own, &rt->port[port]->mac, sizeof(own));
	if (!one)
		conflict_note(rt->probes, addr, mac, probed);
	/* If two probe at once, the lower MAC address wins (RFC 5227 lets both lose). */
	else if (one && !(probed && memcmp(mac, own, 6) > 0)) {
		one->answered = true;
		memcpy(one->mac, mac, sizeof(one->mac));
	}
}

static void arp_seen(struct sy_runtime *rt, unsigned port, const uint8_t *arp, size_t len)
{
	static const uint8_t none[4];
	struct sy_addr addr;
	bool probe;
	if (len < 28 || arp[2] != ETH_P_IP >> 8 || arp[3] != 0 || arp[4] != 6 || arp[5] != 4 ||
	    mac_is_own(rt, arp + 8))
		return;
	probe = !memcmp(arp + 14, none, sizeof(none));
	sy_addr_from_bytes(arp + (probe ? 24 : 14), 4, &addr);
	other_seen(rt, port, &addr, arp + 8, probe);
}

static void icmp6_seen(struct sy_runtime *rt, unsigned port, const uint8_t *ip, size_t len,
                       const uint8_t mac[6])
{
	static const uint8_t none[16];
	struct sy_addr addr;
	if (len < 64 || ip[7] != 255 || mac_is_own(rt, mac))
		return;
	sy_addr_from_bytes(ip + 48, 16, &addr);
	if (ip[40] == ND_NEIGHBOR_ADVERT)
		other_seen(rt, port, &addr, mac, false);
	else if (!memcmp(ip + 8, none, sizeof(none)))
		other_seen(rt, port, &addr, mac, true);
}

static void frames_read(struct sy_runtime *rt, int fd, bool v4)
{
	uint8_t packet[128];
	for (unsigned i = 0; i < FRAMES; i++) {
		struct sockaddr_ll from = {0};
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(fd, packet, sizeof(packet), 0, (void *)&from, &size);
		if (n < 0)
			return;
		unsigned port = port_by_ifindex(rt, from.sll_ifindex);
		/* The kernel marks frames of a VLAN without an interface as another host's. */
		if (from.sll_pkttype == PACKET_OUTGOING || from.sll_pkttype == PACKET_OTHERHOST ||
		    port == SY_PORT_NONE)
			continue;
		if (v4)
			arp_seen(rt, port, packet, (size_t)n);
		else
			icmp6_seen(rt, port, packet, (size_t)n, from.sll_addr);
	}
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Ends a round. Returns true if the address leaves the list. */
static bool round_end(struct probe *one, uint64_t now)
{
	char text[SY_ADDR_TEXT];
	if (one->answered) {
		one->contested = true;
		one->answered = one->refused = false;
		one->sent = 0;
		one->due_ns = now + AGAIN_NS;
		return false;
	}
	if (one->contested)
		sy_log(SY_LOG_WARN, "runtime",
		       "%s: no host answers for it any more, it is claimed now",
		       sy_addr_format(&one->addr, text));
	return true;
}

/* Returns true if the address can be claimed. */
static bool probe_step(struct sy_runtime *rt, struct probe *one, uint64_t now, unsigned *budget)
{
	if (now < one->due_ns)
		return false;
	if (one->answered || one->sent == TIMES)
		return round_end(one, now);
	if (!*budget)
		return false;
	--*budget;
	/* A contested address on a port that is down stays contested; a new one needs no answer
	 * then. */
	if (probe_send(rt, &one->addr))
		one->sent++;
	else
		return !one->contested;
	return false;
}

void probes_tick(struct sy_runtime *rt)
{
	struct probes *p = rt->options.probe && rt->claims && !rt->quiesced ? probes_get(rt) : NULL;
	uint64_t now = sy_clock_ns();
	unsigned budget = RATE;
	if (!p || p->failed)
		return;
	frames_read(rt, p->fd[0], true);
	frames_read(rt, p->fd[1], false);
	for (unsigned i = 0; i < p->count;)
		if (probe_step(rt, &p->list[i], now, &budget))
			probed_claim(rt, &p->list[i]);
		else
			i++;
	if (p->waiting && !any_is_new(p)) {
		void (*fn)(void *ctx) = p->waiting;
		reconcile_others(rt); /* the reply includes the result */
		p->waiting = NULL;
		sy_runtime_defer(rt, fn, p->waiting_ctx);
	}
}

/* ---- reports --------------------------------------------------------------------------------- */

void probes_verify(struct sy_runtime *rt, const struct sy_verify *v)
{
	const struct probes *p = rt->probes;
	uint64_t now = sy_clock_ns();
	char text[400], addr[SY_ADDR_TEXT];
	unsigned shown = 0;
	for (unsigned i = 0; p && i < p->count && shown < CONFLICTS; i++) {
		const struct probe *one = &p->list[i];
		if (!one->contested && !one->refused)
			continue;
		sy_addr_format(&one->addr, addr);
		if (one->refused)
			snprintf(
			        text, sizeof(text),
			        "%s is not claimed: this host has it, or the kernel refuses it, as "
			        "the log says; the forwarder tries again each second",
			        addr);
		else
			snprintf(text, sizeof(text),
			         "%s is in use by another host (%02x:%02x:%02x:%02x:%02x:%02x), so "
			         "it is not claimed here until that host no longer answers for it; "
			         "remove it there, or claim it now: steelyard apply --force",
			         addr, one->mac[0], one->mac[1], one->mac[2], one->mac[3],
			         one->mac[4], one->mac[5]);
		v->problem(v->ctx, text);
		shown++;
	}
	for (unsigned i = 0; p && i < CONFLICTS; i++) {
		const struct conflict *c = &p->conflict[i];
		if (!c->seen_ns || now - c->seen_ns > CONFLICT_NS)
			continue;
		snprintf(text, sizeof(text),
		         c->probed ? "%s: another host (%02x:%02x:%02x:%02x:%02x:%02x) checked "
		                     "whether it is in use, and may take it; it stays claimed here"
		                   : "%s: another host (%02x:%02x:%02x:%02x:%02x:%02x) announces "
		                     "it, too: clients reach one or the other; remove it there, or "
		                     "from the services here",
		         sy_addr_format(&c->addr, addr), c->mac[0], c->mac[1], c->mac[2], c->mac[3],
		         c->mac[4], c->mac[5]);
		v->problem(v->ctx, text);
	}
}
