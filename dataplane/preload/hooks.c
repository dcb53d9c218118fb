// SPDX-License-Identifier: Apache-2.0
/* Hooks that the supervisor orders for `steelyard hook` (docs/design/0046-hook-control.md). */
#include <errno.h>

#include <sy_stack_numbers.h>

#include "packets.h"
#include "real.h"

static struct sy_hook_agent *agent;
static bool orphaned; /* the supervisor has gone */

static struct sy_hooks *table(void *ctx)
{
	return sy_stack_hooks(runner.stack);
}

static void listener_set_hook(sy_stack_id id, const struct sy_addr *addr, uint16_t port)
{
	unsigned hook = sy_hook_agent_find(agent, SY_HOOK_SEGMENT, addr, ntohs(port));

	if (id != SY_STACK_NONE)
		sy_stack_segment_hook(runner.stack, id, hook);
}

void hooks_listen(const struct sock *s)
{
	if (!agent || !sy_hook_agent_overrides(agent, SY_HOOK_SEGMENT, true))
		return;
	listener_set_hook(s->id, &s->local.addr, s->local.port);
	listener_set_hook(s->id_v4, &s->local.addr, s->local.port);
}

static void on_change(void *ctx)
{
	unsigned packets = sy_hook_agent_find(agent, SY_HOOK_PACKET, NULL, 0);
	unsigned segments = sy_hook_agent_find(agent, SY_HOOK_SEGMENT, NULL, 0);

	sy_stack_packet_hook(runner.stack, packets);
	sy_stack_segment_hook(runner.stack, SY_STACK_NONE, segments);
	for (const struct sock *s = all_socks; s; s = s->next)
		if (s->o.kind == OBJECT_LISTENER)
			hooks_listen(s);
	runner.sorted = true;
}

static bool listens(void *ctx, const struct sy_addr *addr, uint16_t port)
{
	static const struct sy_addr any;

	for (const struct sock *s = all_socks; s; s = s->next)
		if (s->o.kind == OBJECT_LISTENER && ntohs(s->local.port) == port &&
		    (sy_addr_equal(addr, &any) || sy_addr_equal(&s->local.addr, addr)))
			return true;
	return false;
}

static void tally(void *ctx, struct sy_hook_tally *out)
{
	struct sy_stack_levels levels;

	sy_stack_numbers_read(runner.stack, out->count);
	sy_stack_levels(runner.stack, &levels);
	memcpy(out->dropped, levels.dropped, sizeof(levels.dropped));
	out->unsent = device_unsent();
	out->missed = device_missed();
	out->unreachable = outgoing_unreachable();
}

static unsigned connections(void *ctx, uint32_t *at, struct sy_hook_connection *out, unsigned max)
{
	return sy_stack_connections_read(runner.stack, at, out, max);
}

int hooks_open(int socket, int page)
{
	const struct sy_hook_agent_owner owner = {table,   on_change, NULL,
	                                          listens, tally,     connections};
	const struct sy_hook_channel channel = {socket, page};
	int rc = sy_hook_agent_open(&owner, &channel, &agent);

	table_disown(page);
	return rc;
}

void hooks_poll(void)
{
	if (agent && !orphaned)
		sy_hook_agent_poll(agent);
}

void hooks_check(void)
{
	struct timespec none = {0};

	if (!agent || orphaned)
		return;
	struct pollfd p = {.fd = runner.fd[runner.rx - 1]};
	if (REAL(ppoll)(&p, 1, &none, NULL) <= 0 || !(p.revents & (POLLHUP | POLLERR)))
		return;
	orphaned = true; /* the agent stays: later listeners get their hook as before */
	runner.rx--;
	wakeup_remove(p.fd);
	table_disown(p.fd);
}

void hooks_forget(void)
{
	sy_hook_agent_close(agent);
	agent = NULL;
	orphaned = false;
}
