// SPDX-License-Identifier: Apache-2.0
/* The transport checksum: verified before a packet creates a session, on a server's first answer,
 * and before the forwarder answers. */
#include <sy_pseudo.h>

static enum sy_csum_state sum_state(uint64_t sum)
{
	return sy_csum_fold(sum) == 0xffff ? SY_CSUM_OK : SY_CSUM_BAD;
}

enum sy_csum_state sy_packet_check_l4(const uint8_t *frame, const struct sy_view *v)
{
	const uint8_t *l4 = frame + v->l4;
	uint16_t len = v->l4_len, checksum;
	uint64_t pseudo;

	if (SY_UNLIKELY(v->fragment != SY_FRAGMENT_NONE))
		return SY_CSUM_UNKNOWN;
	if (v->proto == SY_PROTO_ICMP)
		return sum_state(sy_csum_sum(l4, len));
	if (v->proto == SY_PROTO_TCP) {
		checksum = ((const struct sy_tcp *)l4)->checksum;
	} else if (v->proto == SY_PROTO_UDP) {
		const struct sy_udp *udp = (const struct sy_udp *)l4;
		checksum = udp->checksum;
		if (checksum == 0) /* no checksum; IPv6 requires one (RFC 8200 8.1) */
			return v->v4 ? SY_CSUM_OK : SY_CSUM_BAD;
		len = ntohs(udp->length);
	} else {
		checksum = ((const struct sy_icmp *)l4)->checksum;
	}
	pseudo = sy_pseudo_sum(&v->tuple.src, &v->tuple.dst, v->proto, len);
	if (SY_LIKELY(sum_state(sy_csum_sum(l4, len) + pseudo) == SY_CSUM_OK))
		return SY_CSUM_OK;
	return checksum == sy_csum_fold(pseudo) ? SY_CSUM_UNFINISHED : SY_CSUM_BAD;
}

bool sy_packet_is_unfinished(const uint8_t *frame, const struct sy_view *v)
{
	const struct sy_tcp *tcp = (const struct sy_tcp *)(frame + v->l4);

	/* One in 65536 finished checksums has the same value, hence the full check. */
	if (v->proto == SY_PROTO_TCP && v->fragment == SY_FRAGMENT_NONE &&
	    SY_LIKELY(tcp->checksum != sy_csum_fold(sy_pseudo_sum(&v->tuple.src, &v->tuple.dst,
	                                                          v->proto, v->l4_len))))
		return false;
	return sy_packet_check_l4(frame, v) == SY_CSUM_UNFINISHED;
}
