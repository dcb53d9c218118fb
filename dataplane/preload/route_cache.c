// SPDX-License-Identifier: Apache-2.0
/*
 * Next hops, as the kernel has them: its route for a destination (fib.c, or a question), then its
 * neighbour. An answer is kept until the kernel tells of a change. ARP and ND stay the kernel's:
 * where there is no neighbour yet, a datagram to the destination makes it look.
 *
 * Netlink without libmnl. The library is loaded into other vendors' programs: it adds no shared
 * library to theirs, and libmnl would call the send() and recv() that this library replaces.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "fib.h"
#include "preload.h"
#include "real.h"

#define CACHE    4096
#define HOPS     1024
#define AGAIN_NS MS /* a neighbour that the kernel has not found yet is not asked for sooner */
#define WAKE_NS  (1000 * MS)
/* For all neighbours together: anybody on the link makes up as many as it likes. */
#define ASKS     64 /* in vain, in ASKS_NS */
#define ASKS_NS  (10 * MS)
#define READ_NS  (1000 * MS)
#define WAKES    64
#define WAKES_NS (100 * MS)
#define ANSWER   8192
#define PORT_ASK 9 /* discard */

struct entry {
	struct sy_addr dst;
	uint64_t epoch;
	uint8_t mac[6];
};

/* A neighbour. */
struct hop {
	struct sy_addr addr;
	uint64_t epoch; /* of the last time that it was found; 0: it was not */
	uint64_t asked_ns,
	        wake_ns; /* when it was looked for in vain; when the kernel was made to look */
	uint8_t mac[6];
};

/* So many of something in a time. */
struct budget {
	uint64_t since_ns;
	unsigned used;
};

static struct {
	int ask, news, ifindex;
	uint32_t sequence;
	uint64_t epoch;
	bool fresh; /* fib.c has the routes as they are */
	bool plain; /* when they were read last, at read_ns, they were few */
	uint64_t read_ns;
	struct budget asks, wakes;
	struct entry entry[CACHE];
	struct hop hop[HOPS];
} route = {.ask = -1, .news = -1};

struct request {
	struct nlmsghdr header;
	union {
		struct rtmsg route;
		struct ndmsg neigh;
	};
	char attribute[64];
};

static int netlink_open(uint32_t groups)
{
	struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_groups = groups};
	int fd = REAL(socket)(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0 || REAL(bind)(fd, (void *)&to, sizeof(to)))
		return -errno;
	return table_own(fd);
}

int route_open(int ifindex)
{
	route.ifindex = ifindex;
	route.epoch++; /* nothing of an earlier start counts */
	route.ask = netlink_open(0);
	route.fresh = false;
	route.news = netlink_open(RTMGRP_NEIGH | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE |
	                          RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR |
	                          RTMGRP_IPV4_RULE | 1u << (RTNLGRP_IPV6_RULE - 1));
	return route.ask < 0 ? route.ask : route.news < 0 ? route.news : 0;
}

void route_forget(void)
{
	table_disown(route.ask);
	table_disown(route.news);
	route.ask = route.news = -1;
}

/* Is it about neighbours alone? These change all the time. */
static bool news_of_neighbours(const char *bytes, ssize_t n)
{
	unsigned left = n > 0 ? (unsigned)n : 0;
	const struct nlmsghdr *h = (const void *)bytes;

	for (; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
		if (h->nlmsg_type != RTM_NEWNEIGH && h->nlmsg_type != RTM_DELNEIGH)
			return false;
	return n > 0;
}

void route_check(void)
{
	_Alignas(8) char bytes[ANSWER];
	ssize_t n;
	bool some = false;

	while ((n = REAL(recv)(route.news, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0 ||
	       (n < 0 && errno == ENOBUFS)) {
		some = true;
		route.fresh &= news_of_neighbours(bytes, n);
	}
	if (some)
		route.epoch++;
}

static void put(struct request *q, uint16_t type, const void *value, size_t len)
{
	struct rtattr *a = (void *)((char *)q + NLMSG_ALIGN(q->header.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (uint16_t)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), value, len);
	q->header.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->header.nlmsg_len) + RTA_ALIGN(a->rta_len));
}

/* Sends a request and waits for its one answer. */
static struct nlmsghdr *ask(struct request *q, char *answer)
{
	q->header.nlmsg_flags = NLM_F_REQUEST;
	q->header.nlmsg_seq = ++route.sequence;
	if (REAL(send)(route.ask, q, q->header.nlmsg_len, 0) < 0)
		return NULL;
	for (;;) {
		ssize_t n = REAL(recv)(route.ask, answer, ANSWER, 0);
		struct nlmsghdr *h = (void *)answer;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < (ssize_t)sizeof(*h))
			return NULL;
		if (h->nlmsg_seq == route.sequence)
			return h->nlmsg_type == NLMSG_ERROR ? NULL : h;
	}
}

static int family_of(const struct sy_addr *a)
{
	return sy_addr_is_v4(a) ? AF_INET : AF_INET6;
}

/* false: the kernel has no way, or one by another interface. */
static bool way_ask(const struct sy_addr *dst, struct sy_addr *hop, struct sy_addr *source)
{
	_Alignas(8) char answer[ANSWER];
	struct request q = {.header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
	                               .nlmsg_type = RTM_GETROUTE},
	                    .route = {.rtm_family = (uint8_t)family_of(dst)}};
	uint8_t bytes[16];
	size_t len = sy_addr_to_bytes(dst, bytes);
	int oif = 0;

	q.route.rtm_dst_len = (uint8_t)(len * 8);
	put(&q, RTA_DST, bytes, len);
	struct nlmsghdr *h = ask(&q, answer);
	if (!h || h->nlmsg_type != RTM_NEWROUTE)
		return false;
	struct rtmsg *r = NLMSG_DATA(h);
	int left = (int)RTM_PAYLOAD(h);
	*hop = *dst;
	*source = (struct sy_addr){0};
	for (struct rtattr *a = RTM_RTA(r); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == RTA_OIF)
			memcpy(&oif, RTA_DATA(a), sizeof(oif));
		else if (a->rta_type == RTA_GATEWAY)
			sy_addr_from_bytes(RTA_DATA(a), RTA_PAYLOAD(a), hop);
		else if (a->rta_type == RTA_VIA)
			sy_addr_from_bytes((uint8_t *)RTA_DATA(a) + 2, RTA_PAYLOAD(a) - 2, hop);
		else if (a->rta_type == RTA_PREFSRC)
			sy_addr_from_bytes(RTA_DATA(a), RTA_PAYLOAD(a), source);
	}
	return oif == route.ifindex && r->rtm_type == RTN_UNICAST;
}

static bool neighbour_ask(const struct sy_addr *hop, uint8_t mac[6])
{
	_Alignas(8) char answer[ANSWER];
	struct request q = {
	        .header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ndmsg)),
	                   .nlmsg_type = RTM_GETNEIGH},
	        .neigh = {.ndm_family = (uint8_t)family_of(hop), .ndm_ifindex = route.ifindex}};
	uint8_t bytes[16];
	size_t len = sy_addr_to_bytes(hop, bytes);

	put(&q, NDA_DST, bytes, len);
	struct nlmsghdr *h = ask(&q, answer);
	if (!h || h->nlmsg_type != RTM_NEWNEIGH)
		return false;
	struct ndmsg *n = NLMSG_DATA(h);
	int left = (int)(h->nlmsg_len - NLMSG_LENGTH(sizeof(*n)));
	if (!(n->ndm_state & (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT)))
		return false;
	for (struct rtattr *a = (void *)((char *)n + NLMSG_ALIGN(sizeof(*n))); RTA_OK(a, left);
	     a = RTA_NEXT(a, left)) {
		if (a->rta_type == NDA_LLADDR && RTA_PAYLOAD(a) == 6) {
			memcpy(mac, RTA_DATA(a), 6);
			return true;
		}
	}
	return false;
}

static void neighbour_wake(const struct sy_addr *dst)
{
	struct sy_stack_endpoint e = {*dst, htons(PORT_ASK)};
	struct sockaddr_storage to;
	socklen_t len = sizeof(to);
	int fd = REAL(socket)(family_of(dst), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	endpoint_to(&e, family_of(dst), (void *)&to, &len);
	REAL(sendto)(fd, NULL, 0, MSG_NOSIGNAL, (void *)&to, len);
	REAL(close)(fd);
}

static uint64_t addr_hash(const struct sy_addr *a)
{
	return sy_hash_mix(a->d[0] ^ UINT64_C(0x9e3779b97f4a7c15),
	                   a->d[1] ^ UINT64_C(0xd1b54a32d192ed03));
}

/* Are the routes copied as they are? Where they were too many, each of their changes would have all
 * of them read again: then the kernel is asked for a second. */
static bool way_copied(void)
{
	if (!route.fresh) {
		uint64_t now = sy_clock_ns();
		if (!route.plain && now - route.read_ns < READ_NS)
			return false;
		route.fresh = true;
		route.plain = fib_read(route.ask);
		route.read_ns = now;
	}
	return true;
}

static bool way_find(const struct sy_addr *dst, struct sy_addr *hop)
{
	struct sy_addr source;
	int ifindex;

	enum fib_answer answer = FIB_ASK;
	if (way_copied())
		answer = fib_find(dst, hop, &ifindex);
	if (answer == FIB_ASK)
		return way_ask(dst, hop, &source);
	return answer == FIB_WAY && ifindex == route.ifindex;
}

static bool budget_left(struct budget *b, uint64_t now_ns, unsigned most, uint64_t per_ns)
{
	if (now_ns - b->since_ns >= per_ns)
		*b = (struct budget){.since_ns = now_ns};
	return b->used < most;
}

/* The MAC address of a neighbour, by which `dst` is reached. A neighbour that was there keeps its
 * place, and is asked for without a bound, while others are looked for in vain. */
static const uint8_t *hop_mac(const struct sy_addr *addr, const struct sy_addr *dst)
{
	struct hop *h = &route.hop[addr_hash(addr) % HOPS];
	bool same = sy_addr_equal(&h->addr, addr), found = h->epoch != 0;
	uint8_t mac[6];

	if (same && h->epoch == route.epoch)
		return h->mac;
	uint64_t now = sy_clock_ns();
	if (!(same && found) && ((!found && now - h->asked_ns < AGAIN_NS) ||
	                         !budget_left(&route.asks, now, ASKS, ASKS_NS)))
		return NULL;
	if (neighbour_ask(addr, mac)) {
		*h = (struct hop){.addr = *addr, .epoch = route.epoch};
		memcpy(h->mac, mac, sizeof(mac));
		return h->mac;
	}
	route.asks.used++;
	if (same || !found) {
		uint64_t wake_ns = same ? h->wake_ns : 0;
		*h = (struct hop){.addr = *addr, .asked_ns = now, .wake_ns = wake_ns};
		if (now - wake_ns < WAKE_NS)
			return NULL;
	}
	if (budget_left(&route.wakes, now, WAKES, WAKES_NS)) {
		route.wakes.used++;
		if (sy_addr_equal(&h->addr, addr))
			h->wake_ns = now;
		neighbour_wake(dst);
	}
	return NULL;
}

const uint8_t *route_mac(const struct sy_addr *dst, bool *waits)
{
	struct entry *e = &route.entry[addr_hash(dst) % CACHE];
	struct sy_addr hop;

	if (e->epoch == route.epoch && sy_addr_equal(&e->dst, dst))
		return e->mac;
	*waits = way_find(dst, &hop);
	const uint8_t *mac = *waits ? hop_mac(&hop, dst) : NULL;
	if (!mac)
		return NULL;
	e->dst = *dst;
	e->epoch = route.epoch;
	memcpy(e->mac, mac, sizeof(e->mac));
	return e->mac;
}

bool route_source(const struct sy_addr *dst, struct sy_addr *out)
{
	struct sy_addr hop;

	return way_ask(dst, &hop, out);
}
