/* SPDX-License-Identifier: Apache-2.0 */
/* A registry, and stacks that a thread polls. */
#ifndef HOOK_TESTS_WORLD_H
#define HOOK_TESTS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sy_hook_registry.h>

#include "order.h"

#define STACKS 3

struct stack {
	struct sy_hooks *hooks;
	struct sy_hook_agent *agent;
	int socket;
	int number;
	/* Hook numbers after the last placed(). */
	unsigned default_hook[SY_HOOK_KINDS];
	unsigned listener; /* of the listener at port 80 */
};

struct world {
	struct sy_hook_registry *registry;
	struct stack stack[STACKS];
	pthread_mutex_t lock;
	pthread_t thread;
	bool stop, enough, deaf;
};

static const struct sy_hook_place port_80 = {.port = 80};

static inline struct sy_hooks *hooks_of(void *ctx)
{
	return ((struct stack *)ctx)->hooks;
}

static inline void placed(void *ctx)
{
	struct stack *s = ctx;
	struct sy_addr addr = sy_addr_v4(0x0100000a);
	for (enum sy_hook_kind kind = 0; kind < SY_HOOK_KINDS; kind++)
		s->default_hook[kind] = sy_hook_agent_find(s->agent, kind, NULL, 0);
	s->listener = sy_hook_agent_find(s->agent, SY_HOOK_SEGMENT, &addr, 80);
}

/* There is one listener, at port 80. */
static inline bool listens(void *ctx, const struct sy_addr *addr, uint16_t port)
{
	return port == 80 && sy_addr_equal(addr, &port_80.addr);
}

static inline void tally(void *ctx, struct sy_hook_tally *out)
{
	const struct stack *s = ctx;
	out->dropped[6] = 10;
	out->dropped[7] = out->unsent = (uint64_t)s->number;
	out->unreachable = 100;
	out->count[SY_HOOK_COUNTS - 1] = 7;
}

/* 150 connections per stack, with local ports from 1000. */
static inline unsigned connections(void *ctx, uint32_t *at, struct sy_hook_connection *out,
                                   unsigned max)
{
	unsigned count = 0;
	for (; count < max && *at < 150; (*at)++)
		out[count++] = (struct sy_hook_connection){.local_port = (uint16_t)(1000 + *at)};
	*at = *at < 150 ? *at : 0;
	return count;
}

static inline void stack_join(struct world *w, struct stack *s)
{
	const struct sy_hook_agent_owner owner = {hooks_of, placed, s, listens, tally, connections};
	struct sy_hook_channel channel;
	s->hooks = sy_hooks_create();
	s->number = sy_hook_registry_join(w->registry, getpid(), &channel);
	assert_true(s->number >= 0);
	assert_int_equal(sy_hook_agent_open(&owner, &channel, &s->agent), 0);
	s->socket = channel.socket;
	close(channel.doorbell);
}

static inline void stack_leave(struct world *w, struct stack *s)
{
	sy_hook_registry_leave(w->registry, s->number);
	sy_hook_agent_close(s->agent);
	close(s->socket);
	sy_hooks_destroy(s->hooks);
	*s = (struct stack){0};
}

static inline void *stacks_poll(void *arg)
{
	struct world *w = arg;
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&w->lock);
		for (unsigned i = 0; i < STACKS; i++)
			if (w->stack[i].agent && !(w->deaf && i == 0))
				sy_hook_agent_poll(w->stack[i].agent);
		pthread_mutex_unlock(&w->lock);
		usleep(100);
	}
	return NULL;
}

static inline void world_open(struct world *w)
{
	*w = (struct world){.lock = PTHREAD_MUTEX_INITIALIZER};
	assert_int_equal(sy_hook_registry_open(&w->registry, NULL), 0);
	for (unsigned i = 0; i < STACKS - 1; i++) /* tests add the last one */
		stack_join(w, &w->stack[i]);
	pthread_create(&w->thread, NULL, stacks_poll, w);
}

static inline void world_close(struct world *w)
{
	__atomic_store_n(&w->stop, true, __ATOMIC_RELEASE);
	pthread_join(w->thread, NULL);
	for (unsigned i = 0; i < STACKS; i++)
		if (w->stack[i].agent)
			stack_leave(w, &w->stack[i]);
	sy_hook_registry_close(w->registry);
}

static inline struct sy_hook_change change_of(const char *name, const char *file)
{
	static uint8_t bytes[65536];
	struct sy_hook_change w = {.object = bytes};
	FILE *f = fopen(file, "r");
	assert_non_null(f);
	w.object_len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	snprintf(w.name, sizeof(w.name), "%s", name);
	return w;
}

static inline void load(struct world *w, const struct sy_hook_change *wanted, unsigned stacks)
{
	struct sy_hook_count count;
	struct sy_error err = {0};
	if (sy_hook_registry_load(w->registry, wanted, &count, &err))
		fail_msg("%s: %s", wanted->name, err.text);
	assert_int_equal(count.stacks, stacks);
	assert_int_equal(count.silent, 0);
}

static inline void refused(struct world *w, const struct sy_hook_change *wanted, int rc,
                           const char *why)
{
	struct sy_hook_count count;
	struct sy_error err = {0};
	assert_int_equal(sy_hook_registry_load(w->registry, wanted, &count, &err), rc);
	if (!strstr(err.text, why))
		fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static inline struct sy_hook_info info_of(struct world *w, unsigned stack, const char *name)
{
	struct sy_hook_info info = {0};
	pthread_mutex_lock(&w->lock);
	struct sy_hooks *hs = w->stack[stack].hooks;
	sy_hooks_info(hs, sy_hooks_find(hs, name), &info);
	pthread_mutex_unlock(&w->lock);
	return info;
}

#endif
