// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * The flow director's program: see sy_kernel.h and docs/design/0003-flow-director.md. It is built
 * once for each DIRECTOR_LEVEL, which stands for kernel features:
 *   0  any kernel
 *   1  Linux 5.18: frames in several buffers
 *   2  Linux 6.8: also VLAN tags beside the frame; bound to its device, native mode only
 */
#include "director_map.h"

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Without preallocation an unused entry costs 8 bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, DIRECTOR_ADDRESSES);
	__type(key, struct director_key);
	__type(value, struct director_address);
} steered SEC(".maps");

/* New datagrams replace finished ones (LRU). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DIRECTOR_DATAGRAMS);
	__type(key, struct director_datagram);
	__type(value, __u8);
} datagrams SEC(".maps");

/* Networks of inside hosts: packets to destinations outside are steered. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, DIRECTOR_PREFIXES);
	__type(key, struct director_prefix);
	__type(value, __u8);
} inside SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, DIRECTOR_BLOCK_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} blocked4 SEC(".maps"), blocked6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, DIRECTOR_BLOCK_HOSTS);
	__type(key, __u32); /* host order */
	__type(value, __u8);
} blocked4_hosts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, DIRECTOR_BLOCK_LONG);
	__type(key, struct director_prefix);
	__type(value, __u8);
} blocked6_long SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, DIRECTOR_BLOCK_SHORT);
	__type(key, struct director_prefix);
	__type(value, __u8);
} blocked6_short SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, DIRECTOR_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct director_settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DIRECTOR_COUNTER_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* Router and neighbour discovery (RFC 4861) stay with the kernel. */
#define ND_FIRST  133
#define ND_LAST   137
#define IP_OFFSET 0x1fff
#define IP_MORE   0x2000

struct frag_hdr {
	__u8 nexthdr, reserved;
	__u16 place; /* offset in bytes, low bit: more */
	__u32 id;
};

/* Errors of ICMP (RFC 792) and ICMPv6 (RFC 4443). Both have a header of 8 bytes. */
#define ICMP_UNREACHABLE   3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PROBLEM       12
#define ICMPV6_FIRST       1
#define ICMPV6_LAST        4
#define ICMP_LEN           8
/* Number of extension headers to skip in the packet that an ICMPv6 error quotes. */
#define EXTENSIONS 4

static __always_inline int count(__u32 which, int action)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &which);

	if (n)
		++*n;
	return action;
}

/* TCP and UDP headers begin with the ports; a later fragment has none. */
static __always_inline void port_read(void *port, void *end, __u8 proto,
                                      struct director_key *server)
{
	if ((proto == IPPROTO_TCP || proto == IPPROTO_UDP) && port + sizeof(__u16) <= end) {
		server->port = *(__u16 *)port;
		server->proto = proto;
	}
}

/* The server that an ICMP error is about is the destination of the quoted packet. */
static __always_inline void quote_read4(void *icmp, void *end, struct director_key *server)
{
	struct iphdr *ip = icmp + ICMP_LEN;
	__u8 *type = icmp;

	if ((void *)(ip + 1) > end ||
	    (*type != ICMP_UNREACHABLE && *type != ICMP_TIME_EXCEEDED && *type != ICMP_PROBLEM) ||
	    ip->frag_off & bpf_htons(IP_OFFSET))
		return;
	server->w[3] = ip->daddr;
	port_read((void *)ip + ip->ihl * 4 + sizeof(__u16), end, ip->protocol, server);
}

static __always_inline void quote_read6(void *icmp, void *end, struct director_key *server)
{
	struct ipv6hdr *ip = icmp + ICMP_LEN;
	__u8 *type = icmp, next;
	void *at = ip + 1;

	if (at > end || *type < ICMPV6_FIRST || *type > ICMPV6_LAST)
		return;
	next = ip->nexthdr;
	for (int i = 0; i < EXTENSIONS; i++) {
		__u8 *extension = at;

		if ((next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING &&
		     next != IPPROTO_DSTOPTS && next != IPPROTO_FRAGMENT) ||
		    (void *)(extension + 4) > end)
			break;
		/* A later fragment has no ports. */
		if (next == IPPROTO_FRAGMENT && (extension[2] || extension[3] & 0xf8))
			return;
		next = extension[0];
		at += (extension[1] + 1) * 8;
	}
	__builtin_memcpy(server->w, &ip->daddr, sizeof(server->w));
	port_read(at + sizeof(__u16), end, next, server);
}

/* Fills the keys, which the caller has zeroed: the packet's destination; and the server that sent
 * it, or that an ICMP error is about. Returns false if nothing is to be steered. */
static __always_inline int packet_read(void *at, void *end, struct director_key *key,
                                       struct director_key *server)
{
	struct ethhdr *eth = at;

	if ((void *)(eth + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end)
			return 0;
		key->w[2] = server->w[2] = bpf_htonl(0xffff);
		key->w[3] = ip->daddr;
		server->w[3] = ip->saddr;
		if (ip->frag_off & bpf_htons(IP_OFFSET))
			return 1;
		if (ip->protocol == IPPROTO_ICMP)
			quote_read4((void *)ip + ip->ihl * 4, end, server);
		else
			port_read((void *)ip + ip->ihl * 4, end, ip->protocol, server);
		return 1;
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);
		__u8 *icmp_type = (void *)(ip + 1);

		if ((void *)(ip + 1) > end)
			return 0;
		if (ip->nexthdr == IPPROTO_ICMPV6 && (void *)(icmp_type + 1) <= end &&
		    *icmp_type >= ND_FIRST && *icmp_type <= ND_LAST)
			return 0;
		__builtin_memcpy(key->w, &ip->daddr, sizeof(key->w));
		__builtin_memcpy(server->w, &ip->saddr, sizeof(server->w));
		if (ip->nexthdr == IPPROTO_ICMPV6)
			quote_read6(ip + 1, end, server);
		else
			port_read(ip + 1, end, ip->nexthdr, server);
		return 1;
	}
	return 0;
}

/* Returns 0 if the packet is not a fragment, 1 for a first fragment, 2 for a later one. Fills the
 * datagram, which the caller has zeroed. Reads the ports of an IPv6 first fragment. */
static __always_inline int fragment_read(void *at, void *end, struct director_key *from,
                                         struct director_datagram *datagram)
{
	struct ethhdr *eth = at;
	struct iphdr *ip4 = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);
	struct frag_hdr *fragment = (void *)(ip6 + 1);

	if ((void *)(ip4 + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (!(ip4->frag_off & bpf_htons(IP_MORE | IP_OFFSET)))
			return 0;
		datagram->src[3] = ip4->saddr;
		datagram->dst[3] = ip4->daddr;
		datagram->id = ip4->id;
		return ip4->frag_off & bpf_htons(IP_OFFSET) ? 2 : 1;
	}
	if ((void *)(fragment + 1) > end || ip6->nexthdr != IPPROTO_FRAGMENT ||
	    !(fragment->place & bpf_htons(0xfff9)))
		return 0;
	__builtin_memcpy(datagram->src, &ip6->saddr, sizeof(datagram->src));
	__builtin_memcpy(datagram->dst, &ip6->daddr, sizeof(datagram->dst));
	datagram->id = fragment->id;
	if (fragment->place & bpf_htons(0xfff8))
		return 2;
	port_read(fragment + 1, end, fragment->nexthdr, from);
	return 1;
}

static __always_inline int is_source(struct director_key *server)
{
	if (bpf_map_lookup_elem(&steered, server))
		return 1;
	server->port = 0; /* any port */
	return bpf_map_lookup_elem(&steered, server) != 0;
}

/* Is the packet from or about a steered server? Later fragments follow their first one; those that
 * arrive before it are not steered. */
static __always_inline int is_source_steered(void *at, void *end, struct director_key *server)
{
	struct director_datagram datagram = {};
	int fragment = fragment_read(at, end, server, &datagram);
	__u8 steered_too = DIRECTOR_STEER;
	int steer;

	if (fragment == 2)
		return bpf_map_lookup_elem(&datagrams, &datagram) != 0;
	steer = server->proto && is_source(server);
	if (fragment && steer)
		bpf_map_update_elem(&datagrams, &datagram, &steered_too, BPF_ANY);
	else if (fragment) /* an earlier datagram had the same id */
		bpf_map_delete_elem(&datagrams, &datagram);
	return steer;
}

static __always_inline int is_inside(const struct director_key *who)
{
	struct director_prefix host = {.bits = 128};

	__builtin_memcpy(host.w, who->w, sizeof(host.w));
	return bpf_map_lookup_elem(&inside, &host) != NULL;
}

/* Multicast and link-local addresses: they belong to this network, so they are not outside. */
static __always_inline int is_of_link(const struct director_key *who)
{
	const __u8 *b = (const __u8 *)who->w;

	if (who->w[0] == 0 && who->w[1] == 0 && who->w[2] == bpf_htonl(0xffff))
		return b[12] >= 224 || (b[12] == 169 && b[13] == 254);
	return b[0] == 0xff || (b[0] == 0xfe && (b[1] & 0xc0) == 0x80);
}

/* Steered are packets to the forwarder's addresses, packets from or about its servers that are not
 * for this host, and packets of inside hosts to the outside. The kernel gets what inside hosts send
 * within their network or to each other. what: the destination's entry, or NULL. */
static __always_inline int is_steered(void *at, void *end, struct director_key *to,
                                      struct director_key *server,
                                      const struct director_address *what)
{
	if (what)
		return what->kind != DIRECTOR_HOST;
	if (is_source_steered(at, end, server))
		return 1;
	return is_inside(server) && !is_of_link(to) && !is_inside(to);
}

#include "director_early.bpf.h"

/* max VLAN tags; frames with more are dropped */
#define TAGS 4

struct tags {
	__u32 count;
	int outer_vlan; /* the outermost tag has a VLAN id, not only a priority (VID 0) */
	int vlan;       /* any tag has a VLAN id */
};

/* What tags_read() returns: the tags' bytes, and two of the above. */
#define TAGS_BYTES 0x1c
#define TAGS_OUTER 0x20
#define TAGS_VLAN  0x40

static __always_inline int is_tag(__u16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

static __always_inline void tag_note(struct tags *t, __u16 tci)
{
	int vlan = (tci & 0xfff) != 0;

	if (!t->count++)
		t->outer_vlan = vlan;
	t->vlan |= vlan;
}

/* Not inlined: the verifier then verifies the rest of the program once, and not for each number of
 * tags. */
__noinline __u32 tags_read(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end, *at = (void *)(long)ctx->data;
	struct tags tags = {};

#pragma unroll
	for (int i = 0; i < TAGS; i++) {
		struct ethhdr *eth = at;
		__u16 *tag = (void *)(eth + 1);

		if ((void *)(tag + 2) > end || !is_tag(eth->h_proto))
			break;
		tag_note(&tags, bpf_ntohs(*tag));
		at += 2 * sizeof(*tag);
	}
	return tags.count * 4 | (tags.outer_vlan ? TAGS_OUTER : 0) | (tags.vlan ? TAGS_VLAN : 0);
}

/* Skips the tags. Returns an Ethernet header of which only the type is valid. */
static __always_inline void *tags_skip(struct xdp_md *ctx, void *at, struct tags *t)
{
	__u32 found = tags_read(ctx);

	if (!t->count)
		t->outer_vlan = (found & TAGS_OUTER) != 0;
	t->count += (found & TAGS_BYTES) / 4;
	t->vlan |= (found & TAGS_VLAN) != 0;
	return at + (found & TAGS_BYTES);
}

#if DIRECTOR_LEVEL >= 2
/* Reads the tag that the device removed from the frame (VLAN offload). Negative: none. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *proto, __u16 *tci) __ksym;

static __always_inline void offloaded_tag_note(const struct xdp_md *ctx, struct tags *t)
{
	__be16 proto = 0;
	__u16 tci = 0;

	if (bpf_xdp_metadata_rx_vlan_tag(ctx, &proto, &tci) == 0)
		tag_note(t, tci);
}
#else
static __always_inline void offloaded_tag_note(const struct xdp_md *ctx, struct tags *t)
{
}
#endif

static __always_inline __u64 frame_len(struct xdp_md *ctx)
{
#if DIRECTOR_LEVEL >= 1
	return bpf_xdp_get_buff_len(ctx);
#else
	return ctx->data_end - ctx->data;
#endif
}

/* Does the frame end inside its IP header, so that its destination is unknown? */
static __always_inline int is_cut_short(void *at, void *end)
{
	struct ethhdr *eth = at;

	if ((void *)(eth + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return (void *)(eth + 1) + sizeof(struct iphdr) > end;
	return eth->h_proto == bpf_htons(ETH_P_IPV6) &&
	       (void *)(eth + 1) + sizeof(struct ipv6hdr) > end;
}

static __always_inline int has_more_tags(void *at, void *end)
{
	struct ethhdr *eth = at;

	return (void *)(eth + 1) <= end && is_tag(eth->h_proto);
}

/* Passes a frame of a VLAN to the kernel, which has an interface for it. Without VLAN interfaces,
 * drops a frame for a steered address: the kernel would treat it as untagged if the outer tags have
 * only a priority. */
static __always_inline int direct_tagged(const struct tags *tags, const struct director_key *to,
                                         const struct director_settings *s)
{
	const struct director_address *what = bpf_map_lookup_elem(&steered, to);

	if (!what || what->kind == DIRECTOR_HOST || (s && s->vlans && tags->outer_vlan))
		return count(DIRECTOR_PASSED, XDP_PASS);
	return count(DIRECTOR_VLAN, XDP_DROP);
}

#if DIRECTOR_LEVEL >= 1
SEC("xdp.frags")
#else
SEC("xdp")
#endif
int direct(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end, *at = (void *)(long)ctx->data;
	struct director_key to = {}, server = {};
	__u32 queue = ctx->rx_queue_index, first = 0;
	struct director_settings *s = bpf_map_lookup_elem(&settings, &first);
	const struct director_address *what;
	struct tags tags = {};

	offloaded_tag_note(ctx, &tags);
	at = tags_skip(ctx, at, &tags);
	if (has_more_tags(at, end))
		return count(DIRECTOR_VLAN, XDP_DROP);
	if (is_cut_short(at, end))
		return count(DIRECTOR_TRUNCATED, XDP_DROP);
	if (!packet_read(at, end, &to, &server))
		return count(DIRECTOR_PASSED, XDP_PASS);
	if (tags.vlan || tags.count > 1)
		return direct_tagged(&tags, &to, s);
	what = bpf_map_lookup_elem(&steered, &to);
	if (!is_steered(at, end, &to, &server, what))
		return count(DIRECTOR_PASSED, XDP_PASS);
	if (s && s->frame_max && frame_len(ctx) > s->frame_max)
		return count(DIRECTOR_TOO_BIG, XDP_DROP);
	if (what && what->kind == DIRECTOR_VIP) {
		if (!is_served(at, end, what))
			return count(DIRECTOR_NO_SERVICE, XDP_DROP);
		if (s && s->block && is_blocked(at, end, s))
			return count(DIRECTOR_BLOCKED, XDP_DROP);
	}
	if (!bpf_map_lookup_elem(&xsks, &queue))
		return count(DIRECTOR_NO_SOCKET, XDP_DROP);
	count(DIRECTOR_STEERED, 0);
	/* If the socket is removed between the two look-ups, the flags are the result. */
	return bpf_redirect_map(&xsks, queue, XDP_DROP);
}

/* Only programs under the GPL may call kfuncs; no helper used here requires the GPL. */
#if DIRECTOR_LEVEL >= 2
char program_license[] SEC("license") = "Dual BSD/GPL";
#else
char program_license[] SEC("license") = "Apache-2.0";
#endif
