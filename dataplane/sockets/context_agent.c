// SPDX-License-Identifier: Apache-2.0
/* Hooks of a context set by `steelyard hook` (docs/design/0046-hook-control.md); they replace the
 * application's. */
#include <arpa/inet.h>
#include <unistd.h>

#include <sy_stack_numbers.h>

#include "context.h"

static struct sy_hooks *table(void *ctx)
{
	return sy_stack_hooks(((struct sy_tcp_context *)ctx)->stack);
}

void context_listens(struct sy_tcp_context *c, const struct descriptor *d)
{
	if (sy_hook_agent_overrides(c->agent, SY_HOOK_SEGMENT, true))
		sy_stack_segment_hook(c->stack, d->id,
		                      sy_hook_agent_find(c->agent, SY_HOOK_SEGMENT, &d->local.addr,
		                                         ntohs(d->local.port)));
}

static void placed(void *ctx)
{
	struct sy_tcp_context *c = ctx;

	if (sy_hook_agent_overrides(c->agent, SY_HOOK_PACKET, false))
		sy_stack_packet_hook(c->stack,
		                     sy_hook_agent_find(c->agent, SY_HOOK_PACKET, NULL, 0));
	if (sy_hook_agent_overrides(c->agent, SY_HOOK_SEGMENT, false))
		sy_stack_segment_hook(c->stack, SY_STACK_NONE,
		                      sy_hook_agent_find(c->agent, SY_HOOK_SEGMENT, NULL, 0));
	for (uint32_t i = 0; i < c->fresh; i++) {
		const struct descriptor *d = &c->descriptor[i];
		if (d->kind == KIND_SOCKET && d->phase == PHASE_LISTENING)
			context_listens(c, d);
	}
}

static bool listens(void *ctx, const struct sy_addr *addr, uint16_t port)
{
	const struct sy_tcp_context *c = ctx;

	for (uint32_t i = 0; i < c->fresh; i++) {
		const struct descriptor *d = &c->descriptor[i];
		if (d->kind == KIND_SOCKET && d->phase == PHASE_LISTENING &&
		    ntohs(d->local.port) == port &&
		    (address_is_any(addr) || sy_addr_equal(&d->local.addr, addr)))
			return true;
	}
	return false;
}

static void tally(void *ctx, struct sy_hook_tally *out)
{
	const struct sy_tcp_context *c = ctx;
	struct sy_stack_levels levels;

	sy_stack_numbers_read(c->stack, out->count);
	sy_stack_levels(c->stack, &levels);
	memcpy(out->dropped, levels.dropped, sizeof(levels.dropped));
	if (c->driver->lost)
		c->driver->lost(c->ctx, out);
}

static unsigned connections(void *ctx, uint32_t *at, struct sy_hook_connection *out, unsigned max)
{
	return sy_stack_connections_read(((struct sy_tcp_context *)ctx)->stack, at, out, max);
}

int context_agent_open(struct sy_tcp_context *c, const struct sy_hook_channel *channel)
{
	const struct sy_hook_agent_owner owner = {table, placed, c, listens, tally, connections};
	int rc = sy_hook_agent_open(&owner, channel, &c->agent);

	close(channel->doorbell);
	if (rc) {
		close(channel->socket);
		return rc;
	}
	c->agent_socket = channel->socket;
	return 0;
}

void context_agent_close(struct sy_tcp_context *c)
{
	if (!c->agent)
		return;
	sy_hook_agent_close(c->agent);
	close(c->agent_socket);
	c->agent = NULL;
}
