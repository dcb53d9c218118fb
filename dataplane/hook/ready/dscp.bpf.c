/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By DSCP: class selectors in their order (RFC 2474 4.2.2), EF first (RFC 3246). A forwarder writes
 * the class of its service there. param 0  priority of packets without a mark; 0: 4
 */
#include <sy_hook_program.h>

#define EF 46

SY_PACKET_HOOK uint64_t dscp(struct sy_hook_packet *p)
{
	if (p->dscp == 0)
		return sy_param[0] ? sy_param[0] : SY_USUAL;
	return p->dscp == EF ? 0 : 7 - p->dscp / 8;
}
