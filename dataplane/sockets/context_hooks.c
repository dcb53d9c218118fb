// SPDX-License-Identifier: Apache-2.0
/* Hooks of a context. */
#include <errno.h>
#include <stdio.h>

#include "context.h"

/* ---- the table ------------------------------------------------------------------------------- */

static int hook_load(struct sy_tcp_context *c, const char *name,
                     const struct sy_hook_source *source, char *why, size_t size)
{
	struct sy_hooks *hooks = sy_stack_hooks(c->stack);
	struct sy_error err = {0};
	int rc = hooks ? sy_hooks_load(hooks, name, source, &err) : -ENOMEM;

	if (rc < 0 && why && size > 0)
		snprintf(why, size, "%s", err.text);
	return rc;
}

int sy_tcp_hook_load(struct sy_tcp_context *c, const char *name, const char *file, char *why,
                     size_t size)
{
	return hook_load(c, name, &(struct sy_hook_source){.file = file}, why, size);
}

int sy_tcp_hook_packet(struct sy_tcp_context *c, const char *name, sy_tcp_packet_hook hook)
{
	return hook_load(c, name, &(struct sy_hook_source){.packet = hook}, NULL, 0);
}

int sy_tcp_hook_segment(struct sy_tcp_context *c, const char *name, sy_tcp_segment_hook hook)
{
	return hook_load(c, name, &(struct sy_hook_source){.segment = hook}, NULL, 0);
}

int sy_tcp_hook_find(struct sy_tcp_context *c, const char *name)
{
	const struct sy_hooks *hooks = sy_stack_hooks(c->stack);
	return hooks ? (int)sy_hooks_find(hooks, name) : -ENOMEM;
}

int sy_tcp_hook_remove(struct sy_tcp_context *c, int hook)
{
	struct sy_hooks *hooks = sy_stack_hooks(c->stack);
	return hooks ? sy_hooks_remove(hooks, (unsigned)hook) : -ENOMEM;
}

int sy_tcp_hook_param(struct sy_tcp_context *c, int hook, unsigned i, uint64_t value)
{
	struct sy_hooks *hooks = sy_stack_hooks(c->stack);
	return hooks ? sy_hooks_param(hooks, (unsigned)hook, i, value) : -ENOMEM;
}

int sy_tcp_hook_calls(struct sy_tcp_context *c, int hook, uint64_t *calls, double *cycles)
{
	const struct sy_hooks *hooks = sy_stack_hooks(c->stack);
	struct sy_hook_info info;

	if (!hooks || !sy_hooks_info(hooks, (unsigned)hook, &info))
		return -ENOENT;
	*calls = info.calls;
	*cycles = info.timed ? (double)info.cycles / (double)info.timed : 0;
	return 0;
}

/* ---- assignment ------------------------------------------------------------------------------ */

int sy_tcp_hook_use(struct sy_tcp_context *c, int fd, int hook)
{
	int rc;
	const struct descriptor *d;

	if (hook < 0 || hook > SY_HOOKS)
		return -EINVAL;
	if (fd == SY_TCP_PACKETS)
		return sy_stack_packet_hook(c->stack, (unsigned)hook);
	if (fd == SY_TCP_SEGMENTS)
		return sy_stack_segment_hook(c->stack, SY_STACK_NONE, (unsigned)hook);
	d = socket_of(c, fd, &rc);
	if (!d)
		return rc;
	if (d->phase == PHASE_NEW)
		return -ENOTCONN;
	return sy_stack_segment_hook(c->stack, d->id, (unsigned)hook);
}

/* ---- levels ---------------------------------------------------------------------------------- */

void *sy_tcp_own(struct sy_tcp_context *c, int fd)
{
	int rc;
	const struct descriptor *d = socket_of(c, fd, &rc);

	return d && d->phase >= PHASE_CONNECTING ? sy_stack_private_area(c->stack, d->id) : NULL;
}

int sy_tcp_level(struct sy_tcp_context *c, int fd)
{
	int rc;
	const struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	return d->phase == PHASE_NEW ? SY_USUAL : (int)sy_stack_level(c->stack, d->id);
}

void sy_tcp_levels(const struct sy_tcp_context *c, struct sy_tcp_levels *out)
{
	struct sy_stack_levels levels;

	sy_stack_levels(c->stack, &levels);
	for (unsigned i = 0; i < SY_PRIORITIES; i++) {
		out->waiting[i] = levels.waiting[i];
		out->taken[i] = levels.taken[i];
		out->dropped[i] = levels.dropped[i];
		out->unread[i] = levels.unread[i];
	}
	out->risen = levels.risen;
}
