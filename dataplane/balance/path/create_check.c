// SPDX-License-Identifier: Apache-2.0
/* Checks whether a packet may create a session; for create.c and snat_create.c. */
#include "create.h"

#include "address_set.h"

bool source_is_own(const struct sy_balance *b, const struct sy_view *v)
{
	const struct address_set *own = SY_RCU_READ(b->own_sources);
	return SY_LIKELY(v->v4) ? address_set_find_v4(own, v->tuple.src.w[3]) != ADDRESS_SET_NONE
	                        : address_set_find(own, &v->tuple.src) != ADDRESS_SET_NONE;
}

enum sy_drop create_check_origin(const struct sy_balance *b, struct sy_burst *burst, unsigned i)
{
	const struct sy_view *v = &burst->view[i];
	if (SY_UNLIKELY(source_is_own(b, v)))
		return SY_DROP_OWN_SOURCE;
	if (SY_UNLIKELY(sy_addr_is_link_local(&v->tuple.src)))
		return SY_DROP_LINK_LOCAL;
	switch (sy_packet_check_l4(sy_frame(burst->mbuf[i]), v)) {
	case SY_CSUM_OK:
	case SY_CSUM_UNKNOWN:
		return SY_DROP_NONE;
	case SY_CSUM_UNFINISHED:
		return SY_DROP_UNFINISHED_CHECKSUM;
	default:
		return SY_DROP_BAD_L4_CHECKSUM;
	}
}

enum sy_drop create_check(const struct sy_balance *b, struct sy_burst *burst, unsigned i)
{
	const struct sy_view *v = &burst->view[i];
	if (!sy_view_has_l4(v) ||
	    (v->proto == SY_PROTO_TCP && (v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK)) != SY_TCP_SYN))
		return SY_DROP_NO_SESSION;
	return create_check_origin(b, burst, i);
}
