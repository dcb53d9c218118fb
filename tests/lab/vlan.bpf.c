// SPDX-License-Identifier: Apache-2.0
/* Tags a host's outgoing packets with a VLAN. The tag is left to offload: it is beside the frame.
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
