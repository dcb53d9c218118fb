// SPDX-License-Identifier: Apache-2.0
#include "frames.h"

#include <errno.h>

#define ETH  14
#define IPV4 20
#define IPV6 40
#define UDP  8
#define OURS 14 /* flow, stamp, mark */

const char *const frame_clients[2] = {"100.64.0.0", "2001:db8:c::"};
const char *const frame_vip[2] = {"10.0.0.80", "2001:db8::80"};
const char *const frame_locals[2] = {"10.2.0.1", "fd00:2::1"};
const char *const frame_servers[2] = {"10.1.0.1", "fd00:1::1"};
const uint8_t frame_mac[6] = {2, 0, 0, 0, 0, 0x01};
const uint8_t frame_server_mac[6] = {2, 0, 0, 0, 0, 0x02};
const uint8_t frame_forwarder_mac[6] = {2, 0, 0, 0, 0, 0xf0};

static uint32_t address_put(uint8_t *at, bool six, const char *text)
{
	struct sy_addr a = {0};
	uint8_t bytes[16];
	uint32_t low;

	sy_addr_parse(text, &a);
	size_t length = sy_addr_to_bytes(&a, bytes);
	memcpy(at, bytes, length);
	memcpy(&low, at + length - 4, sizeof(low));
	memset(at + length - 4, 0, sizeof(low)); /* a field, not part of the template's sums */
	return __builtin_bswap32(low);
}

static uint32_t sum_of(const uint8_t *bytes, size_t length)
{
	/* sy_csum_sum() adds words as they are in memory, frame_write() adds their values. */
	return __builtin_bswap16(sy_csum_fold(sy_csum_sum(bytes, length)));
}

static void ipv4_make(struct frame_template *t, unsigned length)
{
	uint8_t *ip = t->bytes + ETH;
	ip[0] = 0x45;
	frame_put16(ip + 2, (uint16_t)length);
	frame_put16(ip + 6, 0x4000); /* do not fragment */
	ip[8] = 64;
	ip[9] = 17;
	t->src = ETH + 12;
	t->dst = ETH + 16;
	t->udp = ETH + IPV4;
	t->ip_sum = sum_of(ip, IPV4);
}

static void ipv6_make(struct frame_template *t, unsigned length)
{
	uint8_t *ip = t->bytes + ETH;
	ip[0] = 0x60;
	frame_put16(ip + 4, (uint16_t)(length - IPV6));
	ip[6] = 17;
	ip[7] = 64;
	t->src = ETH + 8 + 12;
	t->dst = ETH + 24 + 12;
	t->udp = ETH + IPV6;
}

int frame_template_make(struct frame_template *t, unsigned family, enum frame_way way,
                        unsigned size, bool fresh)
{
	bool six = family == 6;
	const char *src = way == FRAME_IN ? frame_clients[six] : frame_servers[six];
	const char *dst = way == FRAME_IN ? frame_vip[six] : frame_locals[six];
	unsigned width = six ? 16 : 4;

	if ((family != 4 && !six) || size < FRAME_MIN(six) || size > FRAME_MAX)
		return -EINVAL;
	memset(t, 0, sizeof(*t));
	t->six = six;
	t->length = size - FRAME_FCS;
	memcpy(t->bytes, frame_forwarder_mac, 6);
	memcpy(t->bytes + 6, frame_mac, 6);
	frame_put16(t->bytes + 12, six ? 0x86dd : 0x0800);
	(six ? ipv6_make : ipv4_make)(t, t->length - ETH);
	t->base_src = address_put(t->bytes + t->src + 4 - width, six, src);
	t->base_dst = address_put(t->bytes + t->dst + 4 - width, six, dst);
	uint8_t *udp = t->bytes + t->udp;
	uint16_t length = (uint16_t)(t->length - t->udp);
	frame_put16(udp + 4, length);
	frame_put16(udp + UDP + OURS - 2, FRAME_MARK);
	/* The pseudo-header: addresses, protocol, length. */
	t->udp_sum = sum_of(udp, length) + sum_of(t->bytes + t->src + 4 - width, 2 * width) + 17 +
	             length;
	t->port = way == FRAME_OUT ? PORT_SERVER : fresh ? PORT_FRESH : PORT_KNOWN;
	return 0;
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;
	memcpy(&value, at, sizeof(value));
	return __builtin_bswap32(value);
}

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

bool frame_read(const uint8_t *frame, unsigned length, struct frame_fields *f)
{
	bool six = length > ETH && frame[12] == 0x86;
	unsigned udp = ETH + (six ? IPV6 : IPV4);
	if (length < udp + UDP + OURS || get16(frame + udp + UDP + OURS - 2) != FRAME_MARK)
		return false;
	f->src = get32(frame + (six ? ETH + 20 : ETH + 12));
	f->dst = get32(frame + (six ? ETH + 36 : ETH + 16));
	f->sport = get16(frame + udp);
	f->dport = get16(frame + udp + 2);
	f->flow = get32(frame + udp + 8);
	f->stamp = (uint64_t)get32(frame + udp + 12) << 32 | get32(frame + udp + 16);
	return true;
}
