// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* What the flow director's program drops before a worker sees it: packets that the forwarder would
 * drop without an answer (docs/design/0028-host-protection.md). Part of director.bpf.c. */

/* Reads protocol and destination port (host order) of a TCP or UDP packet that the forwarder would
 * answer in no other way than by a session. 0: it is not one. Fragments, IP options, extension
 * headers and a TTL of 1 (traceroute) are left to the forwarder. */
static __always_inline int port_read_plain(void *at, void *end, __u8 *proto, __u16 *port)
{
	struct ethhdr *eth = at;
	struct iphdr *ip4 = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);
	__u16 *ports;

	if ((void *)(ip4 + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (ip4->ihl != 5 || ip4->ttl <= 1 ||
		    ip4->frag_off & bpf_htons(IP_MORE | IP_OFFSET))
			return 0;
		*proto = ip4->protocol;
		ports = (void *)(ip4 + 1);
	} else {
		if ((void *)(ip6 + 1) > end || ip6->hop_limit <= 1)
			return 0;
		*proto = ip6->nexthdr;
		ports = (void *)(ip6 + 1);
	}
	if ((*proto != IPPROTO_TCP && *proto != IPPROTO_UDP) || (void *)(ports + 2) > end)
		return 0;
	*port = bpf_ntohs(ports[1]);
	return 1;
}

/* Has the VIP a service on the packet's port, or is that for the forwarder to say? */
static __always_inline int is_served(void *at, void *end, const struct director_address *vip)
{
	__u16 port;
	__u8 proto;

	if (!port_read_plain(at, end, &proto, &port))
		return 1;
#pragma unroll
	for (int i = 0; i < DIRECTOR_RANGES; i++) {
		const struct director_ports *p = &vip->ports[i];

		if (i >= vip->count)
			return 0;
		if (port >= p->first && port <= p->last && proto == p->proto)
			return 1;
	}
	return 0;
}
