// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "program.h"

/* One in this many calls is timed. */
#define TIMED 64u

struct hook {
	struct program program; /* of an object; otherwise one of the next two */
	sy_hook_packet_fn packet;
	sy_hook_segment_fn segment;
	struct sy_hook_info info; /* name[0] == 0: slot unused */
};

struct sy_hooks {
	struct hook hook[SY_HOOKS]; /* index: number - 1 */
};

const char *sy_hook_kind_name(enum sy_hook_kind kind)
{
	static const char *const name[SY_HOOK_KINDS] = {"packet", "segment"};
	return name[kind];
}

struct sy_hooks *sy_hooks_create(void)
{
	return calloc(1, sizeof(struct sy_hooks));
}

static bool hook_is_used(const struct hook *h)
{
	return h->info.name[0] != '\0';
}

static void hook_clear(struct hook *h)
{
	program_unload(&h->program);
	*h = (struct hook){0};
}

void sy_hooks_destroy(struct sy_hooks *hs)
{
	for (unsigned i = 0; hs && i < SY_HOOKS; i++)
		hook_clear(&hs->hook[i]);
	free(hs);
}

static struct hook *hook_at(const struct sy_hooks *hs, unsigned number)
{
	if (number == SY_HOOK_NONE || number > SY_HOOKS)
		return NULL;
	struct hook *h = (struct hook *)&hs->hook[number - 1];
	return hook_is_used(h) ? h : NULL;
}

unsigned sy_hooks_find(const struct sy_hooks *hs, const char *name)
{
	for (unsigned number = 1; number <= SY_HOOKS; number++) {
		const struct hook *h = hook_at(hs, number);
		if (h && !strcmp(h->info.name, name))
			return number;
	}
	return SY_HOOK_NONE;
}

static unsigned number_free(const struct sy_hooks *hs)
{
	for (unsigned number = 1; number <= SY_HOOKS; number++)
		if (!hook_at(hs, number))
			return number;
	return SY_HOOK_NONE;
}

/* ---- changes --------------------------------------------------------------------------------- */

static int name_check(const char *name, struct sy_error *err)
{
	if (sy_hook_name_valid(name))
		return 0;
	return sy_fail(err, EINVAL,
	               "a hook's name has 1 to %d letters a-z, digits, '-', '_' and '.': %.*s",
	               SY_HOOK_NAME - 1, SY_HOOK_NAME, name);
}

/* Fills a hook outside the table. param: its final address in the table. */
static int hook_make(struct hook *h, const struct sy_hook_source *source, uint64_t *param,
                     struct sy_error *err)
{
	*h = (struct hook){.packet = source->packet, .segment = source->segment};
	h->info.native = source->packet || source->segment;
	h->info.kind = source->segment ? SY_HOOK_SEGMENT : SY_HOOK_PACKET;
	if (h->info.native)
		return 0;
	int rc = program_load(&h->program, source, param, err);
	h->info.kind = h->program.kind;
	h->info.compiled = h->program.compiled;
	h->info.instructions = h->program.shape.instructions;
	h->info.longest = h->program.shape.longest;
	return rc;
}

int sy_hooks_load(struct sy_hooks *hs, const char *name, const struct sy_hook_source *source,
                  struct sy_error *err)
{
	int rc = name_check(name, err);
	if (rc < 0)
		return rc;
	unsigned number = sy_hooks_find(hs, name);
	bool there = number != SY_HOOK_NONE;
	if (!there)
		number = source->number ? source->number : number_free(hs);
	if (!there && (number > SY_HOOKS || hook_at(hs, number)))
		return sy_fail(err, EEXIST, "number %u is in use, or is none", number);
	if (number == SY_HOOK_NONE)
		return sy_fail(err, ENOSPC, "all %d hook numbers are in use; remove a hook",
		               SY_HOOKS);
	struct hook *old = &hs->hook[number - 1], new;
	rc = hook_make(&new, source, old->info.param, err);
	if (rc < 0)
		return rc;
	if (there && new.info.kind != old->info.kind) {
		program_unload(&new.program);
		return sy_fail(err, EEXIST,
		               "%s is a %s hook and this is a %s hook; use another name", name,
		               sy_hook_kind_name(old->info.kind), sy_hook_kind_name(new.info.kind));
	}
	struct sy_hook_info info = old->info; /* parameters and counts stay */
	snprintf(info.name, sizeof(info.name), "%s", name);
	info.kind = new.info.kind;
	info.native = new.info.native;
	info.compiled = new.info.compiled;
	info.instructions = new.info.instructions;
	info.longest = new.info.longest;
	info.loads++;
	program_unload(&old->program);
	*old = new;
	old->info = info;
	return (int)number;
}

int sy_hooks_remove(struct sy_hooks *hs, unsigned number)
{
	struct hook *h = hook_at(hs, number);
	if (!h)
		return -ENOENT;
	hook_clear(h);
	return 0;
}

int sy_hooks_param(struct sy_hooks *hs, unsigned number, unsigned i, uint64_t value)
{
	struct hook *h = hook_at(hs, number);
	if (!h)
		return -ENOENT;
	if (i >= SY_HOOK_PARAMS)
		return -EINVAL;
	h->info.param[i] = value;
	return 0;
}

bool sy_hooks_info(const struct sy_hooks *hs, unsigned number, struct sy_hook_info *info)
{
	const struct hook *h = hook_at(hs, number);
	if (h)
		*info = h->info;
	return h;
}

/* ---- running hooks --------------------------------------------------------------------------- */

static void head_fill(struct sy_hook_packet *view, const uint8_t *payload)
{
	if (SY_LIKELY(view->payload_len >= SY_HOOK_HEAD)) {
		memcpy(view->head, payload, SY_HOOK_HEAD);
		return;
	}
	memset(view->head, 0, SY_HOOK_HEAD);
	if (view->payload_len > 0)
		memcpy(view->head, payload, view->payload_len);
}

static uint64_t hook_call(const struct hook *h, void *view, const uint8_t *payload)
{
	if (h->packet)
		return h->packet(view, payload);
	if (h->segment)
		return h->segment(view, payload);
	return program_run(&h->program, view);
}

static uint8_t hook_run(struct sy_hooks *hs, unsigned number, enum sy_hook_kind kind, void *view,
                        struct sy_hook_packet *packet, const uint8_t *payload)
{
	struct hook *h = hook_at(hs, number);
	uint64_t answer;
	if (!h || h->info.kind != kind)
		return SY_KEEP;
	struct sy_hook_info *info = &h->info;
	head_fill(packet, payload);
	program_payload(payload, packet->payload_len);
	if (SY_UNLIKELY(info->calls++ % TIMED == 0)) {
		uint64_t began = rte_rdtsc();
		answer = hook_call(h, view, payload);
		info->cycles += rte_rdtsc() - began;
		info->timed++;
	} else {
		answer = hook_call(h, view, payload);
	}
	if (answer < SY_PRIORITIES) {
		info->level[answer]++;
		return (uint8_t)answer;
	}
	info->wrong += answer != SY_KEEP;
	return SY_KEEP;
}

uint8_t sy_hook_run_packet(struct sy_hooks *hs, unsigned number, struct sy_hook_packet *view,
                           const uint8_t *payload)
{
	return hook_run(hs, number, SY_HOOK_PACKET, view, view, payload);
}

uint8_t sy_hook_run_segment(struct sy_hooks *hs, unsigned number, struct sy_hook_segment *view,
                            const uint8_t *payload)
{
	return hook_run(hs, number, SY_HOOK_SEGMENT, view, &view->packet, payload);
}
