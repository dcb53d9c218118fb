// SPDX-License-Identifier: Apache-2.0
/* Puts what a host sends into a VLAN, by a tag that is left to offload: it lies beside the frame.
 * For tests/lab/vlan.py. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int tag(struct __sk_buff *skb)
{
	if (skb->protocol == bpf_htons(ETH_P_IP) || skb->protocol == bpf_htons(ETH_P_IPV6))
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), VLAN);
	return TC_ACT_OK;
}

char terms[] SEC("license") = "Dual BSD/GPL";
