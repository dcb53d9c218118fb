// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Early drops in the flow director's program: packets that the forwarder would drop without an
 * answer (docs/design/0028-host-protection.md). Part of director.bpf.c. */

/* Reads protocol and destination port (host order) of a whole TCP or UDP packet. Returns 0 for
 * packets that are left to the forwarder: fragments, IP options, extension headers, and a TTL of 1
 * (traceroute). */
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

static __always_inline int is_blocked4(__u32 source)
{
	__u32 host = bpf_ntohl(source), word = host >> 13, state;
	__u64 *states = bpf_map_lookup_elem(&blocked4, &word);

	if (!states)
		return 0;
	state = *states >> (host >> 8) % 32 * 2 & 3;
	if (state != DIRECTOR_BLOCK_SOME)
		return state == DIRECTOR_BLOCK_ALL;
	return bpf_map_lookup_elem(&blocked4_hosts, &host) != NULL;
}

static __always_inline int is_blocked6(const struct ipv6hdr *ip, const struct director_settings *s)
{
	struct director_prefix source = {.bits = 128};
	__u32 bit = director_block_bit((const __u8 *)&ip->saddr), word = bit / 64;
	__u64 *bits = bpf_map_lookup_elem(&blocked6, &word);

	__builtin_memcpy(source.w, &ip->saddr, sizeof(source.w));
	if (bits && *bits >> bit % 64 & 1 && bpf_map_lookup_elem(&blocked6_long, &source))
		return 1;
	return s->short6 && bpf_map_lookup_elem(&blocked6_short, &source);
}

/* Flags of TCP, in the 14th byte of its header. */
#define TCP_FLAGS   13
#define TCP_SYN_ACK 0x12
#define TCP_SYN     0x02

/* Is it a whole TCP segment that begins a connection? */
static __always_inline int is_syn(void *at, void *end)
{
	struct ethhdr *eth = at;
	__u8 proto, *tcp;
	__u16 port;

	if (!port_read_plain(at, end, &proto, &port) || proto != IPPROTO_TCP)
		return 0;
	tcp = (void *)(eth + 1) +
	      (eth->h_proto == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	return (void *)(tcp + TCP_FLAGS + 1) <= end && (tcp[TCP_FLAGS] & TCP_SYN_ACK) == TCP_SYN;
}

/* Is the packet from a blocked source, and of a kind that is dropped? */
static __always_inline int is_blocked(void *at, void *end, const struct director_settings *s)
{
	struct ethhdr *eth = at;
	struct iphdr *ip4 = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);

	if ((void *)(ip4 + 1) > end || (s->block == DIRECTOR_BLOCK_SYNS && !is_syn(at, end)))
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return is_blocked4(ip4->saddr);
	return (void *)(ip6 + 1) <= end && is_blocked6(ip6, s);
}
