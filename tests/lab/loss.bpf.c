// SPDX-License-Identifier: Apache-2.0
/* A classifier that drops LOSS of a thousand TCP segments, at random. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define IPV4_PROTOCOL 9 /* offsets in the headers */
#define IPV6_NEXT     6

SEC("tc")
int lose(struct __sk_buff *skb)
{
	__u32 at = ETH_HLEN;
	__u8 protocol;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		at += IPV4_PROTOCOL;
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		at += IPV6_NEXT;
	else
		return TC_ACT_OK;
	if (bpf_skb_load_bytes(skb, at, &protocol, 1) || protocol != IPPROTO_TCP)
		return TC_ACT_OK;
	return bpf_get_prandom_u32() % 1000 < LOSS ? TC_ACT_SHOT : TC_ACT_OK;
}

char terms[] SEC("license") = "Dual BSD/GPL";
