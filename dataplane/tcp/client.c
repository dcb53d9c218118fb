// SPDX-License-Identifier: Apache-2.0
/* Client address behind a load balancer: TOA option. */
#include <errno.h>

#include "client.h"
#include "stack.h"

/* Parses the option as sy_tcp_insert_toa() writes it; both kinds may carry IPv6 addresses. */
static bool option_read(const uint8_t *at, struct sy_stack_endpoint *out)
{
	bool v4 = at[0] == SY_TOA && at[1] == 8, v6 = at[1] == 20;

	if (!v4 && !v6)
		return false;
	memcpy(&out->port, at + 2, sizeof(out->port));
	if (v4) {
		uint32_t addr;
		memcpy(&addr, at + 4, sizeof(addr));
		out->addr = sy_addr_v4(addr);
	} else {
		memcpy(out->addr.b, at + 4, sizeof(out->addr.b));
	}
	return true;
}

void client_arrive(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	struct sy_stack_endpoint *client = &s->client[connection_index(s, c)];
	const uint8_t *tcp = rte_pktmbuf_mtod_offset(seg->packet, const uint8_t *, seg->view->l4);
	const uint8_t *at = tcp + 20, *end = tcp + (tcp[12] >> 4) * 4;

	if (client->port || !(c->flags & C_PASSIVE) || c->bytes_received > 0 ||
	    seg->flags & SY_TCP_SYN)
		return;
	for (; at < end && *at != 0;
	     at += *at == 1 ? 1 : at[1]) { /* 0: end of options; 1: no-operation */
		if (*at == 1)
			continue;
		if (end - at < 2 || at[1] < 2 || at[1] > end - at)
			return;
		if ((*at == SY_TOA || *at == SY_TOA_IPV6) && option_read(at, client))
			return;
	}
}

int sy_stack_client(struct sy_stack *s, sy_stack_id id, struct sy_stack_endpoint *out)
{
	struct connection *c = connection_of(s, id);

	if (!c)
		return -EBADF;
	if (!s->client || !s->client[connection_index(s, c)].port)
		return -ENOENT;
	*out = s->client[connection_index(s, c)];
	return 0;
}
