// SPDX-License-Identifier: Apache-2.0
/* Derives the transmit mode and overhead from a server's mode and address families. */
#include "balance.h"

#define HEADERS_DIFFER ((int8_t)(sizeof(struct sy_ipv6) - sizeof(struct sy_ipv4)))

void endpoint_set_transmit_mode(struct endpoint *e)
{
	bool v4 = sy_addr_is_v4(&e->addr), vip_v4 = sy_addr_is_v4(&e->vip);

	if (e->mode == MODE_DR) {
		e->transmit_mode = vip_v4 ? TRANSMIT_DIRECT_V4 : TRANSMIT_DIRECT_V6;
	} else if (e->mode == MODE_IPIP) {
		e->transmit_mode = vip_v4 ? TRANSMIT_TUNNEL_V4 : TRANSMIT_TUNNEL_V6;
		e->overhead[SESSION_CLIENT] = (int8_t)sy_tunnel_overhead(&e->addr);
	} else if (v4 != vip_v4) {
		e->transmit_mode = TRANSMIT_TRANSLATE;
		e->overhead[SESSION_CLIENT] = v4 ? -HEADERS_DIFFER : HEADERS_DIFFER;
		e->overhead[SESSION_SERVER] = v4 ? HEADERS_DIFFER : -HEADERS_DIFFER;
	} else {
		e->transmit_mode = v4 ? TRANSMIT_V4 : TRANSMIT_V6;
	}
}
