// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * The XDP program of `steelyard run`: TCP segments to a served address and port go to the AF_XDP
 * socket of their queue, and so do ICMP errors about them and fragments of segments
 * (docs/design/0061-fragments-at-the-stack.md). All other packets go to Linux.
 * docs/design/0040-preload.md.
 *
 * A SYN goes to Linux's listening socket if the queue's worker does not listen, and Linux keeps the
 * segments of its own connections (docs/design/0058-serving.md). A connection of Linux in TIME-WAIT
 * ends with the next SYN. A queue without a socket drops all other segments: the kernel would
 * answer them with a reset.
 */
#include "steer_map.h"

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STEER_SERVED);
	__type(key, struct steer_key);
	__type(value, struct steer_port);
} served SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STEER_LOCAL);
	__type(key, __u32[4]);
	__type(value, struct steer_ports);
} local SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, STEER_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Later fragments have no ports: they go where the first one of their datagram went. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STEER_FRAGMENTS);
	__type(key, struct steer_fragment);
	__type(value, __u8);
} fragments SEC(".maps");

/* Connections of the stack whose addresses and ports a connection of Linux in TIME-WAIT also has,
 * for at most 60 s. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STEER_REUSED);
	__type(key, struct bpf_sock_tuple);
	__type(value, __u8);
} reused SEC(".maps");

const volatile __u8 mac[6]; /* of the interface: frames to other addresses are not this host's */

#define FRAGMENT   0x3fff /* offset and "more" */
#define OFFSET     0x1fff
#define MORE_V6    0xfff9 /* likewise, of IPv6 */
#define OFFSET_V6  0xfff8
#define EXTENSIONS 4 /* headers before TCP */

/* The connection of a frame. */
struct subject {
	struct steer_key key;        /* this host's end of the connection */
	struct bpf_sock_tuple tuple; /* the connection, as its segments come in */
	int v6;
	int opens; /* a SYN that begins a connection */
};

/* Returns whether the stack reuses the addresses and ports of a connection that Linux has in
 * TIME-WAIT: from the new connection's SYN on. stack: SYNs go to the stack. */
static __always_inline int is_reused(const struct subject *s, int stack)
{
	__u8 one = 1;

	if (!s->opens)
		return bpf_map_lookup_elem(&reused, &s->tuple) != NULL;
	return stack && bpf_map_update_elem(&reused, &s->tuple, &one, BPF_ANY) == 0;
}

/* Returns whether the frame belongs to a connection of Linux. stack: SYNs go to the stack. */
static __always_inline int is_of_linux(struct xdp_md *ctx, struct subject *s, int stack)
{
	struct bpf_sock *found;
	int is, waits;

	if (s->v6)
		found = bpf_skc_lookup_tcp(ctx, &s->tuple, sizeof(s->tuple.ipv6),
		                           BPF_F_CURRENT_NETNS, 0);
	else
		found = bpf_skc_lookup_tcp(ctx, &s->tuple, sizeof(s->tuple.ipv4),
		                           BPF_F_CURRENT_NETNS, 0);
	if (!found)
		return 0;
	is = found->state != BPF_TCP_LISTEN;
	waits = found->state == BPF_TCP_TIME_WAIT;
	bpf_sk_release(found);
	return is && !(waits && is_reused(s, stack));
}

static __always_inline int verdict(struct xdp_md *ctx, struct subject *s)
{
	const struct steer_ports *ports = bpf_map_lookup_elem(&local, s->key.addr);
	__u16 port = bpf_ntohs(s->key.port);
	__u32 queue = ctx->rx_queue_index;
	const struct steer_port *steered;
	int stack;

	if (!ports)
		return XDP_PASS;
	if (port >= ports->first && port <= ports->last)
		return (int)bpf_redirect_map(&sockets, queue, XDP_DROP);
	steered = bpf_map_lookup_elem(&served, &s->key);
	if (!steered)
		return XDP_PASS;
	stack = queue < STEER_QUEUES && steered->stack & (__u64)1 << queue;
	if (steered->shared && is_of_linux(ctx, s, stack))
		return XDP_PASS;
	if (!s->opens)
		return (int)bpf_redirect_map(&sockets, queue, XDP_DROP);
	if (!stack)
		return XDP_PASS;
	return (int)bpf_redirect_map(&sockets, queue, XDP_PASS);
}

/* Returns whether the segment is a SYN that opens a connection. */
static __always_inline int tcp_opens(const __u8 *tcp, const void *end)
{
	return (const void *)(tcp + 14) <= end && (tcp[13] & 0x12) == 0x02;
}

/* Stores the address and port of this host, then the peer's. */
static __always_inline void subject_v4(struct subject *s, __be32 addr, __u16 port, __be32 peer,
                                       __u16 peer_port)
{
	s->key.addr[0] = s->key.addr[1] = 0;
	s->key.addr[2] = bpf_htonl(0xffff);
	s->key.addr[3] = s->tuple.ipv4.daddr = addr;
	s->key.port = s->tuple.ipv4.dport = port;
	s->tuple.ipv4.saddr = peer;
	s->tuple.ipv4.sport = peer_port;
}

static __always_inline void subject_v6(struct subject *s, const struct in6_addr *addr, __u16 port,
                                       const struct in6_addr *peer, __u16 peer_port)
{
	__builtin_memcpy(s->key.addr, addr, sizeof(s->key.addr));
	__builtin_memcpy(s->tuple.ipv6.daddr, addr, sizeof(s->tuple.ipv6.daddr));
	__builtin_memcpy(s->tuple.ipv6.saddr, peer, sizeof(s->tuple.ipv6.saddr));
	s->key.port = s->tuple.ipv6.dport = port;
	s->tuple.ipv6.sport = peer_port;
	s->v6 = 1;
}

/* An ICMP error quotes a packet of this host: the source is this host. */
static __always_inline int quote_v4(const struct iphdr *ip, const void *end, struct subject *s)
{
	const __u16 *ports;

	if ((const void *)(ip + 1) > end || ip->protocol != IPPROTO_TCP || ip->ihl != 5)
		return 0;
	ports = (const void *)(ip + 1);
	if ((const void *)(ports + 2) > end)
		return 0;
	subject_v4(s, ip->saddr, ports[0], ip->daddr, ports[1]);
	return 1;
}

static __always_inline int quote_v6(const struct ipv6hdr *ip, const void *end, struct subject *s)
{
	const __u16 *ports;

	if ((const void *)(ip + 1) > end || ip->nexthdr != IPPROTO_TCP)
		return 0;
	ports = (const void *)(ip + 1);
	if ((const void *)(ports + 2) > end)
		return 0;
	subject_v6(s, &ip->saddr, ports[0], &ip->daddr, ports[1]);
	return 1;
}

static __always_inline int read_v4(const struct iphdr *ip, const void *end, struct subject *s)
{
	const void *l4 = ip + 1;
	const __u16 *ports;
	const __u8 *type;

	if (l4 > end || (ip->frag_off & bpf_htons(FRAGMENT)) || ip->ihl < 5)
		return 0;
	l4 = (const void *)ip + ip->ihl * 4;
	if (l4 + 8 > end)
		return 0;
	if (ip->protocol == IPPROTO_TCP) {
		ports = l4;
		subject_v4(s, ip->daddr, ports[1], ip->saddr, ports[0]);
		s->opens = tcp_opens(l4, end);
		return 1;
	}
	type = l4;
	if (ip->protocol != IPPROTO_ICMP || (*type != 3 && *type != 11 && *type != 12))
		return 0;
	return quote_v4(l4 + 8, end, s);
}

static __always_inline int read_v6(const struct ipv6hdr *ip, const void *end, struct subject *s)
{
	const void *l4 = ip + 1;
	const __u16 *ports;
	const __u8 *type;

	if (l4 + 8 > end)
		return 0;
	if (ip->nexthdr == IPPROTO_TCP) {
		ports = l4;
		subject_v6(s, &ip->daddr, ports[1], &ip->saddr, ports[0]);
		s->opens = tcp_opens(l4, end);
		return 1;
	}
	type = l4;
	if (ip->nexthdr != IPPROTO_ICMPV6 || *type < 1 || *type > 4)
		return 0;
	return quote_v6(l4 + 8, end, s);
}

static __always_inline int is_to(const struct ethhdr *eth)
{
	for (int i = 0; i < ETH_ALEN; i++)
		if (eth->h_dest[i] != mac[i])
			return 0;
	return 1;
}

/* ---- fragments, and segments behind extension headers ---------------------------------------- */

/* A TCP segment, or a fragment of one. */
struct fragment {
	struct steer_fragment key;
	const void *tcp;
	int is_fragment, is_later;
};

static __always_inline int fragment_v4(const struct iphdr *ip, const void *end, struct fragment *p)
{
	if ((const void *)(ip + 1) > end || ip->protocol != IPPROTO_TCP || ip->ihl < 5 ||
	    !(ip->frag_off & bpf_htons(FRAGMENT)))
		return 0;
	p->key.src[2] = p->key.dst[2] = bpf_htonl(0xffff);
	p->key.src[3] = ip->saddr;
	p->key.dst[3] = ip->daddr;
	p->key.id = ip->id;
	p->is_fragment = 1;
	p->is_later = (ip->frag_off & bpf_htons(OFFSET)) != 0;
	p->tcp = (const void *)ip + ip->ihl * 4;
	return 1;
}

static __always_inline int fragment_v6(const struct ipv6hdr *ip, const void *end,
                                       struct fragment *p)
{
	const __u8 *at = (const void *)(ip + 1);
	__u8 next;

	if ((const void *)at > end)
		return 0;
	__builtin_memcpy(p->key.src, &ip->saddr, sizeof(p->key.src));
	__builtin_memcpy(p->key.dst, &ip->daddr, sizeof(p->key.dst));
	next = ip->nexthdr;
	for (int i = 0; i < EXTENSIONS && next != IPPROTO_TCP; i++) {
		if ((const void *)(at + 8) > end)
			return 0;
		if (next == IPPROTO_FRAGMENT) {
			__u16 offset = *(const __u16 *)(at + 2);
			p->key.id = *(const __u32 *)(at + 4);
			p->is_fragment = (offset & bpf_htons(MORE_V6)) != 0;
			p->is_later = (offset & bpf_htons(OFFSET_V6)) != 0;
			if (p->is_later)
				return 1;
			next = at[0];
			at += 8;
		} else if (next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING ||
		           next == IPPROTO_DSTOPTS) {
			next = at[0];
			at += (at[1] + 1) * 8;
		} else {
			return 0;
		}
	}
	p->tcp = at;
	return next == IPPROTO_TCP;
}

/* A separate function, so that plain segments cost nothing more. */
static __noinline int steer_fragmented(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *eth = (const void *)(long)ctx->data;
	const void *ip = eth + 1;
	struct subject s = {0};
	struct fragment p = {0};
	const __u16 *ports;
	const __u8 one = 1;
	int v6, rc;

	if (ip > end)
		return XDP_PASS;
	v6 = eth->h_proto == bpf_htons(ETH_P_IPV6);
	if (v6 ? !fragment_v6(ip, end, &p) : !fragment_v4(ip, end, &p))
		return XDP_PASS;
	if (p.is_later)
		return bpf_map_lookup_elem(&fragments, &p.key)
		               ? (int)bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP)
		               : XDP_PASS;
	ports = p.tcp;
	if ((const void *)(ports + 2) > end)
		return XDP_PASS;
	if (v6)
		subject_v6(&s, (const void *)p.key.dst, ports[1], (const void *)p.key.src,
		           ports[0]);
	else
		subject_v4(&s, p.key.dst[3], ports[1], p.key.src[3], ports[0]);
	s.opens = tcp_opens(p.tcp, end);
	rc = verdict(ctx, &s);
	if (p.is_fragment && rc == XDP_REDIRECT)
		bpf_map_update_elem(&fragments, &p.key, &one, BPF_ANY);
	return rc;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *eth = (const void *)(long)ctx->data;
	struct subject s = {0};
	int found = 0;

	if ((const void *)(eth + 1) > end || !is_to(eth))
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		found = read_v4((const void *)(eth + 1), end, &s);
	else if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		found = read_v6((const void *)(eth + 1), end, &s);
	else
		return XDP_PASS;
	return found ? verdict(ctx, &s) : steer_fragmented(ctx);
}

char program_license[] SEC("license") = "Apache-2.0";
