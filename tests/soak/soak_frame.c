// SPDX-License-Identifier: Apache-2.0
#include "soak_frame.h"

#include <arpa/inet.h>

uint32_t rng_below(struct rng *d, uint32_t below)
{
	uint64_t x = d->state;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	d->state = x;
	return (uint32_t)(((x * 0x2545f4914f6cdd1du >> 32) * below) >> 32);
}

void rng_fill(struct rng *d, void *out, size_t len)
{
	uint8_t *p = out;
	for (size_t i = 0; i < len; i += 4) {
		uint32_t x = rng_below(d, UINT32_MAX);
		memcpy(p + i, &x, len - i < 4 ? len - i : 4);
	}
}

static bool is_v4(const struct frame *f)
{
	return f->bytes[12] == 8;
}

static unsigned ip_len(bool v4)
{
	return v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
}

/* Where the transport header should start; NULL: the frame is too short. */
static uint8_t *l4_of(struct frame *f, unsigned need)
{
	unsigned at = SY_ETH_LEN + ip_len(is_v4(f));
	return f->len >= at + need ? f->bytes + at : NULL;
}

static uint8_t proto_of(const struct frame *f)
{
	return f->bytes[SY_ETH_LEN + (is_v4(f) ? 9 : 6)];
}

void frame_fix_ip(struct frame *f)
{
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(f->bytes + SY_ETH_LEN);
	if (!is_v4(f) || f->len < SY_ETH_LEN + sizeof(*ip))
		return;
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
}

/* Sum of the pseudo header over all bytes present. */
static uint64_t pseudo_sum(const struct frame *f)
{
	bool v4 = is_v4(f);
	const uint8_t *ip = f->bytes + SY_ETH_LEN;
	unsigned len = f->len - SY_ETH_LEN - ip_len(v4);
	uint64_t sum = v4 ? sy_csum_sum(ip + 12, 8) : sy_csum_sum(ip + 8, 32);
	return sum + htons((uint16_t)len) + htons(proto_of(f));
}

static uint8_t *csum_of(struct frame *f)
{
	uint8_t *l4 = l4_of(f, 20);
	switch (l4 ? proto_of(f) : 0) {
	case SY_PROTO_TCP:
		return l4 + 16;
	case SY_PROTO_UDP:
		return l4 + 6;
	case SY_PROTO_ICMP:
	case SY_PROTO_ICMPV6:
		return l4 + 2;
	default:
		return NULL;
	}
}

void frame_fix_l4(struct frame *f)
{
	uint8_t *csum = csum_of(f);
	uint16_t value = 0;
	if (!csum)
		return;
	const uint8_t *l4 = l4_of(f, 20);
	memcpy(csum, &value, 2);
	uint64_t sum = proto_of(f) == SY_PROTO_ICMP ? 0 : pseudo_sum(f);
	value = (uint16_t)~sy_csum_fold(sum + sy_csum_sum(l4, (size_t)(f->bytes + f->len - l4)));
	if (value == 0 && proto_of(f) == SY_PROTO_UDP)
		value = 0xffff;
	memcpy(csum, &value, 2);
}

void frame_let_fragment(struct frame *f)
{
	if (!is_v4(f))
		return;
	f->bytes[SY_ETH_LEN + offsetof(struct sy_ipv4, fragment)] &= 0xbf;
	frame_fix_ip(f);
}

void frame_unfinish(struct frame *f)
{
	uint8_t *csum = csum_of(f);
	uint16_t value = sy_csum_fold(pseudo_sum(f));
	if (csum)
		memcpy(csum, &value, 2);
}

void frame_set_ttl(struct frame *f, uint8_t ttl)
{
	f->bytes[SY_ETH_LEN + (is_v4(f) ? 8 : 7)] = ttl;
	frame_fix_ip(f);
}

/* ---- building -------------------------------------------------------------------------------- */

static uint8_t *frame_begin(struct frame *f, const struct sy_tuple *t, uint8_t proto, unsigned l4)
{
	bool v4 = sy_addr_is_v4(&t->src);
	static const struct sy_eth eth = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 99}, 0};
	memcpy(f->bytes, &eth, sizeof(eth));
	uint8_t *l3 = f->bytes + SY_ETH_LEN;
	if (v4) {
		f->bytes[12] = 0x08;
		f->bytes[13] = 0x00;
		*(struct sy_ipv4 *)l3 = (struct sy_ipv4){
		        .version_ihl = 0x45,
		        .total_length = htons((uint16_t)(sizeof(struct sy_ipv4) + l4)),
		        .fragment = htons(0x4000),
		        .ttl = 64,
		        .proto = proto,
		        .src = t->src.w[3],
		        .dst = t->dst.w[3],
		};
	} else {
		f->bytes[12] = 0x86;
		f->bytes[13] = 0xdd;
		struct sy_ipv6 *ip = (struct sy_ipv6 *)l3;
		*ip = (struct sy_ipv6){.version_class_flow = htonl(6u << 28),
		                       .payload_length = htons((uint16_t)l4),
		                       .next_header = proto,
		                       .hop_limit = 64};
		memcpy(ip->src, t->src.b, sizeof(ip->src));
		memcpy(ip->dst, t->dst.b, sizeof(ip->dst));
	}
	f->len = (uint16_t)(SY_ETH_LEN + ip_len(v4) + l4);
	return l3 + ip_len(v4);
}

static void frame_end(struct frame *f)
{
	frame_fix_ip(f);
	frame_fix_l4(f);
}

void frame_tcp(struct frame *f, struct rng *d, const struct sy_tuple *t, const struct segment *s,
               unsigned payload)
{
	unsigned header = sizeof(struct sy_tcp) + (s->mss ? 4 : 0);
	uint8_t *l4 = frame_begin(f, t, SY_PROTO_TCP, header + payload);
	*(struct sy_tcp *)l4 = (struct sy_tcp){
	        .sport = t->sport,
	        .dport = t->dport,
	        .seq = htonl(s->seq),
	        .ack = htonl(s->ack),
	        .offset = (uint8_t)(header << 2),
	        .flags = s->flags,
	        .window = htons(8192),
	};
	if (s->mss) {
		const uint8_t option[4] = {2, 4, (uint8_t)(s->mss >> 8), (uint8_t)s->mss};
		memcpy(l4 + sizeof(struct sy_tcp), option, sizeof(option));
	}
	rng_fill(d, l4 + header, payload);
	frame_end(f);
}

void frame_udp(struct frame *f, struct rng *d, const struct sy_tuple *t, unsigned payload)
{
	unsigned len = sizeof(struct sy_udp) + payload;
	uint8_t *l4 = frame_begin(f, t, SY_PROTO_UDP, len);
	*(struct sy_udp *)l4 = (struct sy_udp){t->sport, t->dport, htons((uint16_t)len), 0};
	rng_fill(d, l4 + sizeof(struct sy_udp), payload);
	frame_end(f);
}

void frame_icmp(struct frame *f, struct rng *d, const struct sy_tuple *t, uint8_t type,
                uint8_t code, unsigned payload)
{
	bool v4 = sy_addr_is_v4(&t->src);
	uint8_t *l4 = frame_begin(f, t, v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6,
	                          (unsigned)sizeof(struct sy_icmp) + payload);
	*(struct sy_icmp *)l4 = (struct sy_icmp){type, code, 0, rng_below(d, UINT32_MAX)};
	rng_fill(d, l4 + sizeof(struct sy_icmp), payload);
	frame_end(f);
}

static void cut_ipv4(struct frame *out, uint32_t id, unsigned offset, unsigned len, bool more)
{
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(out->bytes + SY_ETH_LEN);
	ip->id = htons((uint16_t)id);
	ip->fragment = htons((uint16_t)(offset / 8 | (more ? 0x2000 : 0)));
	ip->total_length = htons((uint16_t)(sizeof(*ip) + len));
	frame_fix_ip(out);
}

static void cut_ipv6(struct frame *out, uint32_t id, unsigned offset, unsigned len, bool more)
{
	struct sy_ipv6 *ip = (struct sy_ipv6 *)(out->bytes + SY_ETH_LEN);
	uint8_t *ext = (uint8_t *)(ip + 1);
	const uint16_t place = htons((uint16_t)(offset | more));
	id = htonl(id);
	memmove(ext + 8, ext, len);
	ext[0] = ip->next_header;
	ext[1] = 0;
	memcpy(ext + 2, &place, sizeof(place));
	memcpy(ext + 4, &id, sizeof(id));
	ip->next_header = 44;
	ip->payload_length = htons((uint16_t)(8 + len));
	out->len = (uint16_t)(out->len + 8);
}

unsigned frame_cut(const struct frame *f, uint32_t id, unsigned piece, struct frame *out,
                   unsigned capacity)
{
	unsigned headers = SY_ETH_LEN + ip_len(is_v4(f)), all = f->len - headers, n = 0;
	for (unsigned at = 0; at < all && n < capacity; at += piece, n++) {
		unsigned len = all - at < piece ? all - at : piece;
		out[n].port = f->port;
		out[n].len = (uint16_t)(headers + len);
		memcpy(out[n].bytes, f->bytes, headers);
		memcpy(out[n].bytes + headers, f->bytes + headers + at, len);
		(is_v4(f) ? cut_ipv4 : cut_ipv6)(&out[n], id, at, len, at + len < all);
	}
	return n;
}

void frame_error(struct frame *f, struct rng *d, const struct sy_addr *src, const uint8_t type[2],
                 uint32_t rest, const uint8_t *about, unsigned quoted)
{
	bool v4 = sy_addr_is_v4(src);
	struct sy_tuple t = {.src = *src};
	uint8_t *icmp = f->bytes + SY_ETH_LEN + ip_len(v4);
	sy_addr_from_bytes(about + SY_ETH_LEN + (v4 ? 12 : 8), v4 ? 4 : 16, &t.dst);
	frame_icmp(f, d, &t, type[0], type[1], quoted);
	rest = htonl(rest);
	memcpy(icmp + offsetof(struct sy_icmp, rest), &rest, sizeof(rest));
	memcpy(icmp + sizeof(struct sy_icmp), about + SY_ETH_LEN, quoted);
	frame_fix_l4(f);
}

/* ---- damaging -------------------------------------------------------------------------------- */

static void mutate_bits(struct frame *f, struct rng *d)
{
	for (unsigned n = 1 + rng_below(d, 4); n && f->len; n--)
		f->bytes[rng_below(d, f->len)] ^= (uint8_t)(1u << rng_below(d, 8));
}

static void mutate_length(struct frame *f, struct rng *d)
{
	uint8_t *l3 = f->bytes + SY_ETH_LEN;
	uint16_t value = htons((uint16_t)rng_below(d, rng_percent(d, 50) ? 65536 : 64));
	switch (rng_below(d, 4)) {
	case 0:
		f->len = (uint16_t)rng_below(d, f->len + 1u);
		break;
	case 1: { /* padding, which Ethernet adds too */
		unsigned more = rng_below(d, 60);
		rng_fill(d, f->bytes + f->len, more);
		f->len = (uint16_t)(f->len + more);
		break;
	}
	case 2:
		memcpy(l3 + (is_v4(f) ? 2 : 4), &value, 2);
		break;
	default: /* UDP's own length */
		if (proto_of(f) == SY_PROTO_UDP && l4_of(f, 8))
			memcpy(l4_of(f, 8) + 4, &value, 2);
	}
	frame_fix_ip(f);
}

/* Space for more bytes after the IP header, with its lengths set; NULL: there is no space. */
static uint8_t *headers_insert(struct frame *f, unsigned more)
{
	unsigned at = SY_ETH_LEN + ip_len(is_v4(f));
	if (f->len < at || f->len + more > FRAME_MAX)
		return NULL;
	memmove(f->bytes + at + more, f->bytes + at, f->len - at);
	memset(f->bytes + at, 1, more);
	f->len = (uint16_t)(f->len + more);
	uint16_t len = htons((uint16_t)(f->len - (is_v4(f) ? SY_ETH_LEN : at)));
	memcpy(f->bytes + SY_ETH_LEN + (is_v4(f) ? 2 : 4), &len, 2);
	return f->bytes + at;
}

static void mutate_options(struct frame *f, struct rng *d)
{
	static const uint8_t kind[] = {7, 68, 131, 137, 148};
	uint8_t *l3 = f->bytes + SY_ETH_LEN;
	unsigned more = 4 + 4 * rng_below(d, 10);
	if (l3[0] != 0x45 || rng_percent(d, 10)) {
		l3[0] = (uint8_t)rng_below(d, 256);
		frame_fix_ip(f);
		return;
	}
	uint8_t *option = headers_insert(f, more);
	if (!option)
		return;
	if (rng_percent(d, 60)) {
		option[0] = kind[rng_below(d, sizeof(kind))];
		option[1] = (uint8_t)(rng_percent(d, 70) ? more : rng_below(d, 256));
	}
	l3[0] = (uint8_t)(0x45 + more / 4);
	struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, 20 + more));
}

/* One to nine extension headers, mostly valid ones. */
static void mutate_extensions(struct frame *f, struct rng *d)
{
	static const uint8_t extension[] = {0, 60, 60, 60, 43, 44, 50, 51, 135, 139, 140, 59};
	for (unsigned n = rng_percent(d, 80) ? 1 : 1 + rng_below(d, 9); n; n--) {
		uint8_t *next = f->bytes + SY_ETH_LEN + 6;
		uint8_t *ext = headers_insert(f, 8);
		if (!ext)
			return;
		memset(ext, 0, 8);
		ext[0] = *next;
		*next = extension[rng_below(d, sizeof(extension))];
		if (*next == 43)
			ext[2] = (uint8_t)rng_below(d, 5), ext[3] = (uint8_t)rng_below(d, 2);
		else if (rng_percent(d, 10))
			ext[1] = (uint8_t)rng_below(d, 256);
	}
}

/* Options or extension headers between IP header and transport. */
static void mutate_headers(struct frame *f, struct rng *d)
{
	if (is_v4(f))
		mutate_options(f, d);
	else
		mutate_extensions(f, d);
}

static void mutate_fragment(struct frame *f, struct rng *d)
{
	uint8_t *l3 = f->bytes + SY_ETH_LEN;
	uint16_t place = htons((uint16_t)(rng_percent(d, 50) ? 8 * rng_below(d, 4) + rng_below(d, 2)
	                                                     : rng_below(d, 65536)));
	if (is_v4(f)) {
		if (rng_percent(d, 50)) /* short: flags and a low offset */
			place = htons((uint16_t)(rng_below(d, 2) << 13 | rng_below(d, 4)));
		memcpy(l3 + 6, &place, 2);
		frame_fix_ip(f);
		return;
	}
	uint8_t *ext = headers_insert(f, 8);
	if (!ext)
		return;
	ext[0] = l3[6];
	ext[1] = 0;
	memcpy(ext + 2, &place, 2);
	l3[6] = 44;
}

static void mutate_tag(struct frame *f, struct rng *d)
{
	for (unsigned n = 1 + rng_below(d, 3); n && f->len + 4 <= FRAME_MAX && f->len >= 12; n--) {
		static const uint8_t type[2][2] = {{0x81, 0x00}, {0x88, 0xa8}};
		memmove(f->bytes + 16, f->bytes + 12, f->len - 12u);
		memcpy(f->bytes + 12, type[rng_below(d, 2)], 2);
		f->bytes[14] = 0;
		f->bytes[15] = (uint8_t)rng_below(d, 256);
		f->len = (uint16_t)(f->len + 4);
	}
}

static void mutate_address(struct frame *f, struct rng *d)
{
	static const uint8_t bogus[][4] = {
	        {127, 0, 0, 1}, {224, 0, 0, 1}, {0, 0, 0, 0}, {255, 255, 255, 255}};
	uint8_t *l3 = f->bytes + SY_ETH_LEN;
	unsigned size = is_v4(f) ? 4 : 16;
	uint8_t *src = l3 + (is_v4(f) ? 12 : 8), *dst = src + size;
	switch (rng_below(d, 4)) {
	case 0:
		memset(src, 0, size);
		memcpy(src + size - 4, bogus[rng_below(d, 4)], 4);
		break;
	case 1:
		memcpy(src, dst, size);
		break;
	case 2:
		rng_fill(d, dst, size);
		break;
	default:
		src[size - 1] ^= (uint8_t)rng_below(d, 256);
	}
	frame_fix_ip(f);
	frame_fix_l4(f);
}

static void mutate_transport(struct frame *f, struct rng *d)
{
	uint8_t *l4 = l4_of(f, 20);
	if (!l4)
		return;
	switch (rng_below(d, 6)) {
	case 0: /* flags */
	case 1:
		l4[13] = (uint8_t)rng_below(d, 256);
		break;
	case 2: /* data offset */
		l4[12] = (uint8_t)rng_below(d, 256);
		break;
	case 3: /* ports */
		rng_fill(d, l4 + 2 * rng_below(d, 2), 2);
		break;
	case 4: /* numbers */
		rng_fill(d, l4 + 4 + 4 * rng_below(d, 2), 4);
		break;
	default: /* options, possibly cut off */
		l4[12] = (uint8_t)((5 + rng_below(d, 11)) << 4);
		rng_fill(d, l4 + 20, (size_t)(f->bytes + f->len - l4 - 20));
	}
	if (rng_percent(d, 80))
		frame_fix_l4(f);
}

static void mutate_checksum(struct frame *f, struct rng *d)
{
	uint8_t *csum = csum_of(f);
	switch (rng_below(d, 3)) {
	case 0:
		if (csum)
			rng_fill(d, csum, 2);
		break;
	case 1:
		frame_unfinish(f);
		break;
	default:
		rng_fill(d, f->bytes + SY_ETH_LEN + 10, 2);
	}
}

static void mutate_protocol(struct frame *f, struct rng *d)
{
	if (rng_percent(d, 40)) {
		rng_fill(d, f->bytes + 12, 2);
		return;
	}
	f->bytes[SY_ETH_LEN + (is_v4(f) ? 9 : 6)] = (uint8_t)rng_below(d, 256);
	frame_fix_ip(f);
}

static void mutate_ttl(struct frame *f, struct rng *d)
{
	frame_set_ttl(f, (uint8_t)rng_below(d, 3));
}

static void mutate_mac(struct frame *f, struct rng *d)
{
	if (rng_percent(d, 50))
		memset(f->bytes, 0xff, 6);
	else
		rng_fill(d, f->bytes, 6);
}

void frame_mutate(struct frame *f, struct rng *d)
{
	static void (*const way[])(struct frame *, struct rng *) = {
	        mutate_bits,      mutate_length,    mutate_headers,  mutate_fragment,
	        mutate_address,   mutate_transport, mutate_checksum, mutate_protocol,
	        mutate_transport, mutate_ttl,       mutate_mac,      mutate_tag};
	for (unsigned n = rng_percent(d, 70) ? 1 : 1 + rng_below(d, 3); n; n--)
		way[rng_below(d, SY_ARRAY_LEN(way))](f, d);
}
