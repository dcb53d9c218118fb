// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

#include "attack_packet.h"

#define MSS      1460
#define UDP_DATA 18  /* also of TCP */
#define LATER    185 /* offset of a later fragment, in 8 bytes */
#define HOPS     64

static const struct kind {
	const char *name;
	uint8_t protocol, flags; /* of TCP; with PSH there is data */
	bool more, later;        /* of a fragment */
} kinds[] = {
        {"syn", IPPROTO_TCP, TH_SYN, false, false},
        {"syn-ack", IPPROTO_TCP, TH_SYN | TH_ACK, false, false},
        {"ack", IPPROTO_TCP, TH_ACK, false, false},
        {"data", IPPROTO_TCP, TH_ACK | TH_PUSH, false, false},
        {"rst", IPPROTO_TCP, TH_RST, false, false},
        {"fin", IPPROTO_TCP, TH_FIN | TH_ACK, false, false},
        {"udp", IPPROTO_UDP, 0, false, false},
        {"icmp", IPPROTO_ICMP, 0, false, false},
        {"first-fragment", IPPROTO_UDP, 0, true, false},
        {"fragment", IPPROTO_UDP, 0, true, true},
};

static uint32_t words_sum(const uint8_t *data, unsigned bytes)
{
	uint32_t sum = 0;
	for (unsigned i = 0; i < bytes; i += 2) {
		uint16_t word;
		memcpy(&word, data + i, 2);
		sum += word;
	}
	return sum;
}

/* What a client's kernel offers: MSS, SACK, timestamps, window scale (RFC 9293, 7323, 2018). */
static unsigned tcp_make(uint8_t *l4, uint8_t flags)
{
	static const uint8_t options[20] = {2, 4, MSS >> 8, MSS & 255, 4, 2, 8, 10, 0, 1,
	                                    0, 0, 0,        0,         0, 0, 1, 3,  3, 7};
	unsigned size = sizeof(struct tcphdr) + (flags == TH_SYN ? sizeof(options) : 0);
	struct tcphdr tcp = {.th_off = (size / 4) & 15, .th_flags = flags, .th_win = htons(64240)};

	memcpy(l4, &tcp, sizeof(tcp));
	if (flags == TH_SYN)
		memcpy(l4 + sizeof(tcp), options, sizeof(options));
	return size + (flags & TH_PUSH ? UDP_DATA : 0);
}

/* Returns its bytes. The data of a fragment that is not the first one is without meaning. */
static unsigned layer4_make(uint8_t *l4, const struct kind *k, bool ipv6)
{
	struct udphdr udp = {.len = htons(sizeof(udp) + UDP_DATA)};

	if (k->protocol == IPPROTO_TCP)
		return tcp_make(l4, k->flags);
	if (k->protocol == IPPROTO_ICMP) {
		l4[0] = ipv6 ? ICMP6_ECHO_REQUEST : ICMP_ECHO;
		return sizeof(struct icmphdr) + UDP_DATA - 2;
	}
	if (!k->later)
		memcpy(l4, &udp, sizeof(udp));
	return k->more ? 24 : sizeof(udp) + UDP_DATA; /* a multiple of 8 where more follow */
}

static unsigned ip4_make(uint8_t *at, const struct kind *k)
{
	unsigned size = layer4_make(at + sizeof(struct iphdr), k, false);
	struct iphdr ip = {
	        .ihl = 5,
	        .version = 4,
	        .tot_len = htons((uint16_t)(sizeof(ip) + size)),
	        .frag_off = htons((uint16_t)((k->more ? IP_MF : IP_DF) | (k->later ? LATER : 0))),
	        .ttl = HOPS,
	        .protocol = k->protocol,
	};
	memcpy(at, &ip, sizeof(ip));
	return (unsigned)sizeof(ip) + size;
}

static unsigned ip6_make(uint8_t *at, const struct kind *k)
{
	uint8_t protocol = k->protocol == IPPROTO_ICMP ? IPPROTO_ICMPV6 : k->protocol;
	struct ip6_frag fragment = {
	        .ip6f_nxt = protocol,
	        .ip6f_offlg = htons((uint16_t)((k->later ? LATER << 3 : 0) | 1)),
	};
	struct ip6_hdr ip = {.ip6_hops = HOPS, .ip6_nxt = k->more ? IPPROTO_FRAGMENT : protocol};
	uint8_t *l4 = at + sizeof(ip) + (k->more ? sizeof(fragment) : 0);
	unsigned size = layer4_make(l4, k, true) + (k->more ? (unsigned)sizeof(fragment) : 0);

	ip.ip6_vfc = 6 << 4;
	ip.ip6_plen = htons((uint16_t)size);
	if (k->more)
		memcpy(at + sizeof(ip), &fragment, sizeof(fragment));
	memcpy(at, &ip, sizeof(ip));
	return (unsigned)sizeof(ip) + size;
}

bool attack_template_make(struct attack_template *t, const char *name, bool ipv6,
                          const uint8_t mac[6])
{
	static const uint8_t sender[6] = {2, 0, 0, 0, 0, 0xa7};
	const struct kind *k = NULL;
	uint8_t frame[4 * ATTACK_WORDS] = {0};
	unsigned ip_size = ipv6 ? sizeof(struct ip6_hdr) : sizeof(struct iphdr);

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, name) == 0)
			k = &kinds[i];
	if (k == NULL)
		return false;
	memcpy(frame, mac, 6);
	memcpy(frame + 6, sender, 6);
	uint16_t type = htons(ipv6 ? ETHERTYPE_IPV6 : ETHERTYPE_IP);
	memcpy(frame + 12, &type, 2);
	uint8_t *ip = frame + sizeof(struct ether_header);
	unsigned length = ipv6 ? ip6_make(ip, k) : ip4_make(ip, k);
	t->protocol = k->more                               ? 0
	              : k->protocol == IPPROTO_ICMP && ipv6 ? IPPROTO_ICMPV6
	                                                    : k->protocol;
	t->first = k->more && !k->later;
	t->ip_sum = ipv6 ? 0 : words_sum(ip, ip_size);
	t->sum = words_sum(ip + ip_size, length - ip_size);
	if (t->protocol != IPPROTO_ICMP)
		t->sum += (uint32_t)htons((uint16_t)(length - ip_size)) +
		          htons((uint16_t)t->protocol);
	t->length = (uint32_t)sizeof(struct ether_header) + length;
	if (t->length < ETHER_MIN_LEN - ETHER_CRC_LEN)
		t->length = ETHER_MIN_LEN - ETHER_CRC_LEN;
	memcpy(t->words, frame, sizeof(t->words));
	return true;
}

bool attack_address_parse(struct attack_address *a, const char *text, bool *ipv6)
{
	memset(a, 0, sizeof(*a));
	*ipv6 = strchr(text, ':') != NULL;
	return inet_pton(*ipv6 ? AF_INET6 : AF_INET, text, a->word) == 1;
}

void attack_mask(struct attack_address *mask, unsigned prefix)
{
	for (unsigned i = 0; i < 4; i++) {
		unsigned fixed = prefix > 32 * i ? prefix - 32 * i : 0;
		mask->word[i] = fixed >= 32 ? 0 : htonl(UINT32_MAX >> fixed);
	}
}
