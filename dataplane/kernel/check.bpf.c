// SPDX-License-Identifier: Apache-2.0
/* Health checks of servers on the VIP: see sy_kernel.h and docs/design/0015-health-by-mode.md. */
#include "check_map.h"

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CHECK_TARGETS);
	__type(key, __u32);
	__type(value, struct check_target);
} check_targets SEC(".maps");

/* VIPs that were checked, and the mark of each one's last check. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CHECK_VIPS);
	__type(key, __u32[4]);
	__type(value, __u32);
} check_vips SEC(".maps");

#define MARK_KIND(mark) ((mark) >> 24)
#define TUNNEL_TTL      64
#define AF_INET         2
#define AF_INET6        10
#define STATE_LISTEN    10 /* TCP_LISTEN */
#define V4_MAPPED       bpf_htonl(0xffff)

static __always_inline int is_v4(const __u32 addr[4])
{
	return !addr[0] && !addr[1] && addr[2] == V4_MAPPED;
}

static __always_inline __u16 header_sum(const struct iphdr *ip)
{
	const __u16 *word = (const void *)ip;
	__u32 sum = 0;

#pragma unroll
	for (unsigned i = 0; i < sizeof(*ip) / 2; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16) ~(sum + (sum >> 16));
}

/* Reads the tunnel protocol number for the packet, its TOS and its length. */
static __always_inline int inner_read(struct __sk_buff *skb, __u8 *proto, __u8 *tos, __u16 *len)
{
	*len = (__u16)(skb->len - ETH_HLEN);
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		*proto = IPPROTO_IPIP;
		return bpf_skb_load_bytes(skb, ETH_HLEN + 1, tos, 1);
	}
	*proto = IPPROTO_IPV6;
	*tos = 0;
	return 0;
}

static __always_inline int tunnel4(struct __sk_buff *skb, const struct check_target *t)
{
	struct iphdr ip = {
	        .version = 4, .ihl = 5, .ttl = TUNNEL_TTL, .frag_off = bpf_htons(0x4000)};
	__u16 len;

	if (inner_read(skb, &ip.protocol, &ip.tos, &len))
		return -1;
	ip.tot_len = bpf_htons(len + sizeof(ip));
	ip.saddr = t->source[3];
	ip.daddr = t->server[3];
	ip.check = header_sum(&ip);
	if (bpf_skb_adjust_room(skb, sizeof(ip), BPF_ADJ_ROOM_MAC,
	                        BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0);
}

static __always_inline int tunnel6(struct __sk_buff *skb, const struct check_target *t)
{
	struct ipv6hdr ip = {.version = 6, .hop_limit = TUNNEL_TTL};
	__u16 len;
	__u8 tos;

	if (inner_read(skb, &ip.nexthdr, &tos, &len))
		return -1;
	ip.payload_len = bpf_htons(len);
	__builtin_memcpy(&ip.saddr, t->source, sizeof(ip.saddr));
	__builtin_memcpy(&ip.daddr, t->server, sizeof(ip.daddr));
	if (bpf_skb_adjust_room(skb, sizeof(ip), BPF_ADJ_ROOM_MAC,
	                        BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0);
}

static __always_inline int send_direct(const struct check_target *t)
{
	struct bpf_redir_neigh next = {.nh_family = AF_INET6};

	if (is_v4(t->server)) {
		next.nh_family = AF_INET;
		next.ipv4_nh = t->server[3];
	} else {
		__builtin_memcpy(next.ipv6_nh, t->server, sizeof(next.ipv6_nh));
	}
	return bpf_redirect_neigh(t->ifindex, &next, sizeof(next), 0);
}

/* Egress of lo, to which the claim on the VIP routes the packet. */
SEC("tc")
int check_out(struct __sk_buff *skb)
{
	__u32 mark = skb->mark;
	struct check_target *t;
	int rc;

	if (MARK_KIND(mark) != CHECK_MARK_KIND)
		return TC_ACT_UNSPEC;
	t = bpf_map_lookup_elem(&check_targets, &mark);
	/* this host must not answer for the server */
	if (!t || !t->ifindex)
		return TC_ACT_SHOT;
	bpf_map_update_elem(&check_vips, t->vip, &mark, BPF_ANY);
	if (!t->source[0] && !t->source[1] && !t->source[2] && !t->source[3])
		return send_direct(t);
	rc = is_v4(t->server) ? tunnel4(skb, t) : tunnel6(skb, t);
	return rc ? TC_ACT_SHOT : bpf_redirect_neigh(t->ifindex, NULL, 0, 0);
}

/* Does a socket of this host have the packet's addresses and ports? */
static __always_inline int is_awaited(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
                                      __u32 len)
{
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, tuple, len, BPF_F_CURRENT_NETNS, 0);
	int found;

	if (!sk)
		return 0;
	found = sk->state != STATE_LISTEN;
	bpf_sk_release(sk);
	return found;
}

static __always_inline int vip_is_checked(const __u32 vip[4])
{
	__u32 *mark = bpf_map_lookup_elem(&check_vips, vip);

	return mark && bpf_map_lookup_elem(&check_targets, mark);
}

static __always_inline int answer4(struct __sk_buff *skb)
{
	struct bpf_sock_tuple tuple = {};
	__u32 vip[4] = {0, 0, V4_MAPPED};
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.protocol != IPPROTO_TCP)
		return 0;
	vip[3] = ip.saddr;
	if (!vip_is_checked(vip))
		return 0;
	tuple.ipv4.saddr = ip.saddr;
	tuple.ipv4.daddr = ip.daddr;
	/* Source and destination port, in this order. */
	if (bpf_skb_load_bytes(skb, ETH_HLEN + ip.ihl * 4, &tuple.ipv4.sport, 4))
		return 0;
	return is_awaited(skb, &tuple, sizeof(tuple.ipv4));
}

static __always_inline int answer6(struct __sk_buff *skb)
{
	struct bpf_sock_tuple tuple = {};
	__u32 vip[4];
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.nexthdr != IPPROTO_TCP)
		return 0;
	__builtin_memcpy(vip, &ip.saddr, sizeof(vip));
	if (!vip_is_checked(vip))
		return 0;
	__builtin_memcpy(tuple.ipv6.saddr, &ip.saddr, sizeof(tuple.ipv6.saddr));
	__builtin_memcpy(tuple.ipv6.daddr, &ip.daddr, sizeof(tuple.ipv6.daddr));
	if (bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &tuple.ipv6.sport, 4))
		return 0;
	return is_awaited(skb, &tuple, sizeof(tuple.ipv6));
}

/* Ingress of a port. The VIP is an address of this host: the kernel accepts such a source on lo. */
SEC("tc")
int check_in(struct __sk_buff *skb)
{
	const __u8 lo_mac[ETH_ALEN] = {0};
	int answer = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		answer = answer4(skb);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		answer = answer6(skb);
	if (!answer)
		return TC_ACT_UNSPEC;
	if (bpf_skb_store_bytes(skb, 0, lo_mac, sizeof(lo_mac), 0))
		return TC_ACT_SHOT;
	return bpf_redirect(CHECK_LO, BPF_F_INGRESS);
}

/* No helper used here requires the GPL. */
char program_license[] SEC("license") = "Apache-2.0";
