// SPDX-License-Identifier: Apache-2.0
/*
 * Next hops as the kernel has them: its route for a destination (fib.c, or a query), then its
 * neighbour. A result is cached until the kernel notifies of a change. ARP and ND stay the
 * kernel's: if there is no neighbour yet, a datagram to the destination makes the kernel resolve
 * it.
 *
 * Netlink without libmnl: the library is loaded into other vendors' programs and must not add a
 * shared library to theirs, and libmnl would call the send() and recv() that this library replaces.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "fib.h"
#include "packets.h"
#include "real.h"

#define CACHE      4096
#define HOPS       1024
#define RETRY_NS   MS /* between two queries for an unresolved neighbour */
#define RESOLVE_NS (1000 * MS)
/* Bounds for all neighbours together: a host on the link can cause queries for any number of
 * addresses. */
#define QUERIES      64 /* failed queries per QUERIES_NS */
#define QUERIES_NS   (10 * MS)
#define READ_NS      (1000 * MS)
#define RESOLVES     64
#define RESOLVES_NS  (100 * MS)
#define ANSWER       8192
#define PORT_DISCARD 9 /* the discard service */

struct entry {
	struct sy_addr dst;
	uint64_t epoch;
	uint8_t mac[6];
};

/* A neighbour. */
struct hop {
	struct sy_addr addr;
	uint64_t epoch;                   /* when it was last found; 0: never */
	uint64_t queried_ns, resolved_ns; /* of the last failed query; of the last resolution */
	uint8_t mac[6];
};

/* A rate limit: the operations since `since_ns`. */
struct budget {
	uint64_t since_ns;
	unsigned used;
};

static struct {
	int query, events, ifindex;
	uint32_t sequence;
	uint64_t epoch;
	bool fresh; /* fib.c has the current routes */
	bool plain; /* fib_read() returned true at read_ns */
	uint64_t read_ns;
	struct budget queries, resolves;
	struct entry entry[CACHE];
	struct hop hop[HOPS];
} route = {.query = -1, .events = -1};

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
	route.epoch++; /* invalidates results of an earlier start */
	route.query = netlink_open(0);
	route.fresh = false;
	route.events = netlink_open(RTMGRP_NEIGH | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE |
	                            RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR |
	                            RTMGRP_IPV4_RULE | 1u << (RTNLGRP_IPV6_RULE - 1));
	return route.query < 0 ? route.query : route.events < 0 ? route.events : 0;
}

void route_forget(void)
{
	table_disown(route.query);
	table_disown(route.events);
	route.query = route.events = -1;
}

/* Returns whether notifications are about neighbours only, which change all the time. */
static bool events_are_of_neighbours(const char *bytes, ssize_t n)
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

	while ((n = REAL(recv)(route.events, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0 ||
	       (n < 0 && errno == ENOBUFS)) {
		some = true;
		route.fresh &= events_are_of_neighbours(bytes, n);
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

/* Sends a request and waits for its one answer. Returns NULL on an error. */
static struct nlmsghdr *query(struct request *q, char *answer)
{
	q->header.nlmsg_flags = NLM_F_REQUEST;
	q->header.nlmsg_seq = ++route.sequence;
	if (REAL(send)(route.query, q, q->header.nlmsg_len, 0) < 0)
		return NULL;
	for (;;) {
		ssize_t n = REAL(recv)(route.query, answer, ANSWER, 0);
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

/* Queries the kernel for a route. Returns false if there is none by the served interface. */
static bool route_query(const struct sy_addr *dst, struct sy_addr *hop, struct sy_addr *source)
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
	struct nlmsghdr *h = query(&q, answer);
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

static bool neighbour_query(const struct sy_addr *hop, uint8_t mac[6])
{
	_Alignas(8) char answer[ANSWER];
	struct request q = {
	        .header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ndmsg)),
	                   .nlmsg_type = RTM_GETNEIGH},
	        .neigh = {.ndm_family = (uint8_t)family_of(hop), .ndm_ifindex = route.ifindex}};
	uint8_t bytes[16];
	size_t len = sy_addr_to_bytes(hop, bytes);

	put(&q, NDA_DST, bytes, len);
	struct nlmsghdr *h = query(&q, answer);
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

static void neighbour_resolve(const struct sy_addr *dst)
{
	struct sy_stack_endpoint e = {*dst, htons(PORT_DISCARD)};
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

/* Returns whether fib.c has the current routes. If fib_read() has failed, does not read them again
 * for READ_NS: each change of many routes would read them all. */
static bool routes_are_copied(void)
{
	if (!route.fresh) {
		uint64_t now = sy_clock_ns();
		if (!route.plain && now - route.read_ns < READ_NS)
			return false;
		route.fresh = true;
		route.plain = fib_read(route.query);
		route.read_ns = now;
	}
	return true;
}

static bool hop_find(const struct sy_addr *dst, struct sy_addr *hop)
{
	struct sy_addr source;
	int ifindex;

	enum fib_answer answer = FIB_UNKNOWN;
	if (routes_are_copied())
		answer = fib_find(dst, hop, &ifindex);
	if (answer == FIB_UNKNOWN)
		return route_query(dst, hop, &source);
	return answer == FIB_ROUTE && ifindex == route.ifindex;
}

static bool budget_left(struct budget *b, uint64_t now_ns, unsigned max, uint64_t per_ns)
{
	if (now_ns - b->since_ns >= per_ns)
		*b = (struct budget){.since_ns = now_ns};
	return b->used < max;
}

/* Returns the MAC address of a neighbour by which `dst` is reached. A neighbour that was found
 * keeps its slot, and its queries are not limited, while queries for other neighbours fail. */
static const uint8_t *hop_mac(const struct sy_addr *addr, const struct sy_addr *dst)
{
	struct hop *h = &route.hop[addr_hash(addr) % HOPS];
	bool same = sy_addr_equal(&h->addr, addr), found = h->epoch != 0;
	uint8_t mac[6];

	if (same && h->epoch == route.epoch)
		return h->mac;
	uint64_t now = sy_clock_ns();
	if (!(same && found) && ((!found && now - h->queried_ns < RETRY_NS) ||
	                         !budget_left(&route.queries, now, QUERIES, QUERIES_NS)))
		return NULL;
	if (neighbour_query(addr, mac)) {
		*h = (struct hop){.addr = *addr, .epoch = route.epoch};
		memcpy(h->mac, mac, sizeof(mac));
		return h->mac;
	}
	route.queries.used++;
	if (same || !found) {
		uint64_t resolved_ns = same ? h->resolved_ns : 0;
		*h = (struct hop){.addr = *addr, .queried_ns = now, .resolved_ns = resolved_ns};
		if (now - resolved_ns < RESOLVE_NS)
			return NULL;
	}
	if (budget_left(&route.resolves, now, RESOLVES, RESOLVES_NS)) {
		route.resolves.used++;
		if (sy_addr_equal(&h->addr, addr))
			h->resolved_ns = now;
		neighbour_resolve(dst);
	}
	return NULL;
}

const uint8_t *route_mac(const struct sy_addr *dst, bool *waits)
{
	struct entry *e = &route.entry[addr_hash(dst) % CACHE];
	struct sy_addr hop;

	if (e->epoch == route.epoch && sy_addr_equal(&e->dst, dst))
		return e->mac;
	*waits = hop_find(dst, &hop);
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

	return route_query(dst, &hop, out);
}
