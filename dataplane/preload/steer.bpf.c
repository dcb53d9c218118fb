// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * `steelyard run`: segments of TCP to a served address and port go to the AF_XDP socket of their
 * queue, and so do ICMP errors about them. All else is Linux's. docs/design/0040-preload.md.
 *
 * A queue without a socket drops: the kernel would answer with a reset. So do SYNs for a worker
 * that takes no more of them, while its successor waits for the queue.
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
	__type(value, __u64);
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

const volatile __u8 mac[6]; /* of the interface: other frames are not this host's */

#define FRAGMENT 0x3fff /* offset and "more" */

static __always_inline int verdict(const struct steer_key *key, int opens, __u32 queue)
{
	const struct steer_ports *ports = bpf_map_lookup_elem(&local, key->addr);
	__u16 port = bpf_ntohs(key->port);
	const __u64 *closed;

	if (!ports)
		return XDP_PASS;
	if (port < ports->first || port > ports->last) {
		closed = bpf_map_lookup_elem(&served, key);
		if (!closed)
			return XDP_PASS;
		if (opens && queue < STEER_QUEUES && *closed & (__u64)1 << queue)
			return XDP_DROP;
	}
	return (int)bpf_redirect_map(&sockets, queue, XDP_DROP);
}

/* A SYN that begins a connection. */
static __always_inline int tcp_opens(const __u8 *tcp, const void *end)
{
	return (const void *)(tcp + 14) <= end && (tcp[13] & 0x12) == 0x02;
}

static __always_inline void key_v4(struct steer_key *key, __be32 addr)
{
	key->addr[0] = key->addr[1] = 0;
	key->addr[2] = bpf_htonl(0xffff);
	key->addr[3] = addr;
}

/* An ICMP error quotes what this host has sent: the source is ours. */
static __always_inline int quote_v4(const struct iphdr *ip, const void *end, struct steer_key *key)
{
	const __u16 *ports;

	if ((const void *)(ip + 1) > end || ip->protocol != IPPROTO_TCP || ip->ihl != 5)
		return 0;
	ports = (const void *)(ip + 1);
	if ((const void *)(ports + 2) > end)
		return 0;
	key_v4(key, ip->saddr);
	key->port = ports[0];
	return 1;
}

static __always_inline int quote_v6(const struct ipv6hdr *ip, const void *end,
                                    struct steer_key *key)
{
	const __u16 *ports;

	if ((const void *)(ip + 1) > end || ip->nexthdr != IPPROTO_TCP)
		return 0;
	ports = (const void *)(ip + 1);
	if ((const void *)(ports + 2) > end)
		return 0;
	__builtin_memcpy(key->addr, &ip->saddr, sizeof(key->addr));
	key->port = ports[0];
	return 1;
}

static __always_inline int read_v4(const struct iphdr *ip, const void *end, struct steer_key *key,
                                   int *opens)
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
		key_v4(key, ip->daddr);
		key->port = ports[1];
		*opens = tcp_opens(l4, end);
		return 1;
	}
	type = l4;
	if (ip->protocol != IPPROTO_ICMP || (*type != 3 && *type != 11 && *type != 12))
		return 0;
	return quote_v4(l4 + 8, end, key);
}

static __always_inline int read_v6(const struct ipv6hdr *ip, const void *end, struct steer_key *key,
                                   int *opens)
{
	const void *l4 = ip + 1;
	const __u16 *ports;
	const __u8 *type;

	if (l4 + 8 > end)
		return 0;
	if (ip->nexthdr == IPPROTO_TCP) {
		ports = l4;
		__builtin_memcpy(key->addr, &ip->daddr, sizeof(key->addr));
		key->port = ports[1];
		*opens = tcp_opens(l4, end);
		return 1;
	}
	type = l4;
	if (ip->nexthdr != IPPROTO_ICMPV6 || *type < 1 || *type > 4)
		return 0;
	return quote_v6(l4 + 8, end, key);
}

static __always_inline int is_to(const struct ethhdr *eth)
{
	for (int i = 0; i < ETH_ALEN; i++)
		if (eth->h_dest[i] != mac[i])
			return 0;
	return 1;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *eth = (const void *)(long)ctx->data;
	struct steer_key key = {0};
	int found = 0, opens = 0;

	if ((const void *)(eth + 1) > end || !is_to(eth))
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		found = read_v4((const void *)(eth + 1), end, &key, &opens);
	else if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		found = read_v6((const void *)(eth + 1), end, &key, &opens);
	return found ? verdict(&key, opens, ctx->rx_queue_index) : XDP_PASS;
}

char program_license[] SEC("license") = "Apache-2.0";
