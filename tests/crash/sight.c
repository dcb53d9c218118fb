// SPDX-License-Identifier: Apache-2.0
#include "sight.h"

#include "../../dataplane/balance/tests/harness.h"

static uint16_t ones_sum(const uint8_t *p, unsigned len, uint32_t sum)
{
	for (unsigned i = 0; i < len; i++)
		sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* Returns whether the frame goes from this port to the right neighbour. */
static bool mac_is_right(const uint8_t *frame, unsigned port, const struct sy_addr *dst)
{
	const uint8_t next[6] = {2, 0, 0, 1, (uint8_t)port, port == HARNESS_WAN ? 1 : dst->b[15]};
	return !memcmp(frame, next, 6) && !memcmp(frame + 6, harness_mac[port], 6);
}

const char *sight_read(const struct rte_mbuf *m, struct sight *s)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *), *ip = frame + 14;
	bool v4 = frame[12] == 0x08 && frame[13] == 0x00;
	unsigned size = v4 ? 4 : 16, header = v4 ? 20 : 40;
	const uint8_t *address = ip + (v4 ? 12 : 8), *l4 = ip + header;
	unsigned len = m->data_len - 14 - header;
	uint8_t proto = ip[v4 ? 9 : 6];
	if (m->nb_segs != 1 || m->data_len < 14 + header + 8 + sizeof(s->mark))
		return "is cut off";
	if (!v4 && (frame[12] != 0x86 || frame[13] != 0xdd))
		return "is no IP";
	if (v4 && ones_sum(ip, 20, 0) != 0xffff)
		return "has a wrong IP checksum";
	if (ones_sum(l4, len, ones_sum(address, 2 * size, len + proto)) != 0xffff)
		return "has a wrong checksum";
	sy_addr_from_bytes(address, size, &s->tuple.src);
	sy_addr_from_bytes(address + size, size, &s->tuple.dst);
	memcpy(&s->tuple.sport, l4, 2);
	memcpy(&s->tuple.dport, l4 + 2, 2);
	s->tuple.proto = proto;
	if (proto == SY_PROTO_TCP) {
		const struct sy_tcp *tcp = (const struct sy_tcp *)l4;
		s->flags = tcp->flags;
		s->seq = ntohl(tcp->seq);
		s->ack = ntohl(tcp->ack);
		s->payload = len - tcp->offset / 16 * 4u;
	}
	memcpy(&s->mark, frame + m->data_len - sizeof(s->mark), sizeof(s->mark));
	return mac_is_right(frame, s->port, &s->tuple.dst) ? NULL : "goes to the wrong neighbour";
}

bool frame_is_originated(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	bool v4 = frame[12] == 0x08;
	unsigned header = v4 ? 20 : 40;
	uint8_t proto = frame[14 + (v4 ? 9 : 6)];

	if (proto == SY_PROTO_TCP)
		return m->data_len == 14 + header + 20;
	return proto == (v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6);
}
