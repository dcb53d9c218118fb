// SPDX-License-Identifier: Apache-2.0
/* Reads the options of a TCP segment, and builds segments without data. */
#include <sy_tcp_segment.h>

#include "icmp.h"
#include "tcp_option.h"

/* ---- options --------------------------------------------------------------------------------- */

static uint32_t number_at(const uint8_t *at)
{
	uint32_t number;
	memcpy(&number, at, sizeof(number));
	return ntohl(number);
}

static void option_read(const uint8_t *at, unsigned len, struct sy_tcp_options *out)
{
	if (at[0] == OPTION_MSS && len == 4) {
		out->mss = (uint16_t)(at[2] << 8 | at[3]);
	} else if (at[0] == OPTION_WINDOW_SCALE && len == 3) { /* RFC 7323 2.3 */
		out->scale = at[2] < SY_TCP_SCALE_MAX ? at[2] : SY_TCP_SCALE_MAX;
	} else if (at[0] == OPTION_SACK_PERMITTED && len == 2) {
		out->sack = true;
	} else if (at[0] == OPTION_TIMESTAMPS && len == 10) {
		out->timestamps = true;
		out->time = number_at(at + 2);
		out->echo = number_at(at + 6);
	}
}

void sy_tcp_options_read(const uint8_t *frame, const struct sy_view *v, struct sy_tcp_options *out)
{
	const struct sy_tcp *tcp = (const struct sy_tcp *)(frame + v->l4);
	const uint8_t *header = frame + v->l4;

	*out = (struct sy_tcp_options){.scale = SY_TCP_NO_SCALE};
	for (unsigned at = sizeof(*tcp), len = 0; option_next(tcp, &at, &len);)
		option_read(header + at, len, out);
}

unsigned sy_tcp_blocks_read(const uint8_t *frame, const struct sy_view *v,
                            struct sy_tcp_block out[static SY_TCP_BLOCKS_MAX])
{
	const struct sy_tcp *tcp = (const struct sy_tcp *)(frame + v->l4);
	const uint8_t *header = frame + v->l4;
	unsigned count = 0;

	for (unsigned at = sizeof(*tcp), len = 0; option_next(tcp, &at, &len);) {
		if (header[at] != OPTION_SACK || len % sizeof(*out) != 2)
			continue;
		for (unsigned edge = at + 2; edge < at + len && count < SY_TCP_BLOCKS_MAX;
		     edge += sizeof(*out), count++)
			out[count] = (struct sy_tcp_block){number_at(header + edge),
			                                   number_at(header + edge + 4)};
	}
	return count;
}

static uint8_t *number_put(uint8_t *at, uint32_t number)
{
	number = htonl(number);
	memcpy(at, &number, sizeof(number));
	return at + sizeof(number);
}

/* Four bytes of options. */
static uint8_t *word_put(uint8_t *at, uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	const uint8_t word[4] = {a, b, c, d};
	memcpy(at, word, sizeof(word));
	return at + sizeof(word);
}

unsigned sy_tcp_options_put(uint8_t *at, const struct sy_tcp_options *o, bool syn)
{
	const uint8_t *begin = at;
	bool sack = syn && o->sack;

	if (syn && o->mss)
		at = word_put(at, OPTION_MSS, 4, (uint8_t)(o->mss >> 8), (uint8_t)o->mss);
	if (o->timestamps) {
		at = word_put(at, sack ? OPTION_SACK_PERMITTED : OPTION_NOP, sack ? 2 : OPTION_NOP,
		              OPTION_TIMESTAMPS, 10);
		at = number_put(number_put(at, o->time), o->echo);
	} else if (sack) {
		at = word_put(at, OPTION_NOP, OPTION_NOP, OPTION_SACK_PERMITTED, 2);
	}
	if (syn && o->scale != SY_TCP_NO_SCALE)
		at = word_put(at, OPTION_NOP, OPTION_WINDOW_SCALE, 3, o->scale);
	return (unsigned)(at - begin);
}

/* ---- segments -------------------------------------------------------------------------------- */

/* Writes the IP header of a packet of this tuple with l4_len bytes after it. */
static void ip_put(uint8_t *l3, const struct sy_tuple *t, uint16_t l4_len)
{
	if (sy_addr_is_v4(&t->dst)) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
		*ip = (struct sy_ipv4){
		        .version_ihl = 0x45,
		        .total_length = htons((uint16_t)(sizeof(*ip) + l4_len)),
		        .fragment = htons(IPV4_DF),
		        .ttl = ICMP_TTL,
		        .proto = SY_PROTO_TCP,
		        .src = t->src.w[3],
		        .dst = t->dst.w[3],
		};
		ipv4_checksum_set(ip);
		return;
	}
	struct sy_ipv6 *ip = (struct sy_ipv6 *)l3;
	*ip = (struct sy_ipv6){
	        .version_class_flow = htonl(IPV6_VERSION),
	        .payload_length = htons(l4_len),
	        .next_header = SY_PROTO_TCP,
	        .hop_limit = ICMP_TTL,
	};
	memcpy(ip->src, t->src.b, sizeof(ip->src));
	memcpy(ip->dst, t->dst.b, sizeof(ip->dst));
}

uint32_t sy_tcp_segment_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t,
                             const struct sy_tcp_segment *s)
{
	bool v4 = sy_addr_is_v4(&t->dst);
	unsigned l4 = SY_ETH_LEN + (unsigned)(v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6));
	struct sy_tcp *tcp = (struct sy_tcp *)(out + l4);

	bool optional = s->flags & SY_TCP_SYN || s->options.timestamps;
	if (cap < l4 + sizeof(*tcp) + (optional ? SY_TCP_OPTIONS_MAX : 0))
		return 0;
	unsigned options =
	        sy_tcp_options_put((uint8_t *)(tcp + 1), &s->options, s->flags & SY_TCP_SYN);
	uint16_t len = (uint16_t)(sizeof(*tcp) + options);
	((struct sy_eth *)out)->type = htons(v4 ? SY_ETH_IPV4 : SY_ETH_IPV6);
	ip_put(out + SY_ETH_LEN, t, len);
	*tcp = (struct sy_tcp){
	        .sport = t->sport,
	        .dport = t->dport,
	        .seq = htonl(s->seq),
	        .ack = htonl(s->flags & SY_TCP_ACK ? s->ack : 0),
	        .offset = (uint8_t)(len / 4 << 4),
	        .flags = s->flags,
	        .window = htons(s->window),
	};
	tcp->checksum = (uint16_t)~sy_csum_fold(sy_pseudo_sum(&t->src, &t->dst, SY_PROTO_TCP, len) +
	                                        sy_csum_sum(tcp, len));
	return l4 + len;
}

uint32_t sy_tcp_segment_answer(uint8_t *frame, uint32_t cap, const struct sy_view *v,
                               const struct sy_tcp_segment *s)
{
	const struct sy_tuple back = {v->tuple.dst, v->tuple.src, v->tuple.dport, v->tuple.sport,
	                              SY_PROTO_TCP};
	struct sy_eth *eth = (struct sy_eth *)frame;
	uint8_t mac[sizeof(eth->dst)];

	memcpy(mac, eth->dst, sizeof(mac));
	memcpy(eth->dst, eth->src, sizeof(mac));
	memcpy(eth->src, mac, sizeof(mac));
	return sy_tcp_segment_make(frame, cap, &back, s);
}
