// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "order.h"

struct binding {
	struct sy_hook_place place;
	unsigned number;
};

struct sy_hook_agent {
	struct sy_hook_doorbell doorbell; /* must be first: sy_hook_agent_poll() */
	int socket;
	struct sy_hook_agent_owner owner;
	struct sy_hooks *hooks; /* NULL: not needed yet */
	struct binding binding[SY_HOOK_PLACES];
	unsigned bindings;
	bool overridden[SY_HOOK_KINDS][2]; /* [0]: the stack's hook; [1]: listeners' hooks */
	uint32_t connections_at;           /* cursor of the listing */
	struct answer answer;              /* too large for the thread's stack */
};

int sy_hook_agent_open(const struct sy_hook_agent_owner *owner,
                       const struct sy_hook_channel *channel, struct sy_hook_agent **out)
{
	struct sy_hook_agent *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	void *page = mmap(NULL, SY_PAGE, PROT_READ, MAP_SHARED, channel->doorbell, 0);
	if (page == MAP_FAILED) {
		free(s);
		return -errno;
	}
	s->doorbell.rings = page;
	s->socket = channel->socket;
	s->owner = *owner;
	*out = s;
	return 0;
}

void sy_hook_agent_close(struct sy_hook_agent *s)
{
	if (!s)
		return;
	munmap((void *)(uintptr_t)s->doorbell.rings, SY_PAGE);
	free(s);
}

/* ---- places of hooks ------------------------------------------------------------------------- */

static bool place_equal(const struct sy_hook_place *a, const struct sy_hook_place *b)
{
	return sy_addr_equal(&a->addr, &b->addr) && a->port == b->port;
}

static bool binding_has_kind(const struct sy_hook_agent *s, const struct binding *r,
                             enum sy_hook_kind kind)
{
	struct sy_hook_info info;
	return sy_hooks_info(s->hooks, r->number, &info) && info.kind == kind;
}

unsigned sy_hook_agent_find(const struct sy_hook_agent *s, enum sy_hook_kind kind,
                            const struct sy_addr *addr, uint16_t port)
{
	static const struct sy_addr any;
	unsigned wide = SY_HOOK_NONE;
	for (unsigned i = 0; s && i < s->bindings; i++) {
		const struct binding *r = &s->binding[i];
		if (!binding_has_kind(s, r, kind) || r->place.port != (addr ? port : 0))
			continue;
		if (!addr || sy_addr_equal(&r->place.addr, addr))
			return r->number;
		if (sy_addr_equal(&r->place.addr, &any))
			wide = r->number;
	}
	return wide;
}

bool sy_hook_agent_overrides(const struct sy_hook_agent *s, enum sy_hook_kind kind, bool listener)
{
	return s && s->overridden[kind][listener];
}

/* One hook per place and kind: the last one ordered. */
static int binding_set(struct sy_hook_agent *s, const struct sy_hook_place *place, unsigned number,
                       enum sy_hook_kind kind)
{
	for (unsigned i = 0; i < s->bindings; i++) {
		struct binding *r = &s->binding[i];
		if (!place_equal(&r->place, place) || !binding_has_kind(s, r, kind))
			continue;
		r->number = number;
		return 0;
	}
	if (s->bindings == SY_HOOK_PLACES)
		return -ENOSPC;
	s->binding[s->bindings++] = (struct binding){*place, number};
	return 0;
}

static void bindings_remove(struct sy_hook_agent *s, unsigned number)
{
	for (unsigned i = 0; i < s->bindings;)
		if (s->binding[i].number == number)
			s->binding[i] = s->binding[--s->bindings];
		else
			i++;
}

/* ---- reports --------------------------------------------------------------------------------- */

static bool place_is_idle(const struct sy_hook_agent *s, const struct sy_hook_place *p)
{
	return p->port && s->owner.listens && !s->owner.listens(s->owner.ctx, &p->addr, p->port);
}

static void report_places(struct sy_hook_agent *s)
{
	struct answer *a = &s->answer;
	for (unsigned i = 0; i < s->bindings; i++) {
		a->place[i] = s->binding[i].place;
		a->idle |= (uint32_t)place_is_idle(s, &a->place[i]) << i;
	}
	a->places = s->bindings;
}

static void report_hook(struct sy_hook_agent *s, unsigned number)
{
	struct answer_hook *h = &s->answer.hook[s->answer.hooks];
	if (!sy_hooks_info(s->hooks, number, &h->info))
		return;
	h->number = number;
	h->places = 0;
	for (unsigned i = 0; i < s->bindings; i++)
		h->places |= (uint32_t)(s->binding[i].number == number) << i;
	s->answer.hooks++;
}

/* ---- orders ---------------------------------------------------------------------------------- */

static int code_load(struct sy_hook_agent *s, const struct order *o, int object,
                     struct sy_error *err)
{
	struct sy_hook_source source = {.object_len = o->object_len, .number = o->number};
	void *bytes = mmap(NULL, o->object_len, PROT_READ, MAP_SHARED, object, 0);
	if (bytes == MAP_FAILED)
		return sy_fail(err, errno, "the object of %s: %s", o->name, strerror(errno));
	source.object = bytes;
	int rc = sy_hooks_load(s->hooks, o->name, &source, err);
	if (rc == -EEXIST && sy_hooks_find(s->hooks, o->name) == SY_HOOK_NONE) {
		source.number = SY_HOOK_NONE; /* the application uses the number */
		rc = sy_hooks_load(s->hooks, o->name, &source, err);
	}
	munmap(bytes, o->object_len);
	return rc;
}

static bool number_is_free(const struct sy_hook_agent *s)
{
	struct sy_hook_info info;
	for (unsigned number = 1; number <= SY_HOOKS; number++)
		if (!sy_hooks_info(s->hooks, number, &info))
			return true;
	return false;
}

/* Counts places of the order without a hook of this kind. */
static unsigned bindings_count_new(const struct sy_hook_agent *s, const struct order *o,
                                   enum sy_hook_kind kind)
{
	unsigned count = 0;
	for (unsigned i = 0; i < o->places; i++) {
		bool there = false;
		for (unsigned k = 0; k < s->bindings; k++)
			there = there || (place_equal(&s->binding[k].place, &o->place[i]) &&
			                  binding_has_kind(s, &s->binding[k], kind));
		for (unsigned k = 0; k < i; k++)
			there = there || place_equal(&o->place[k], &o->place[i]);
		count += !there;
	}
	return count;
}

/* All checks precede the first change. */
static int load_check(const struct sy_hook_agent *s, const struct order *o, unsigned number,
                      struct sy_error *err)
{
	struct sy_hook_info info = {.kind = o->kind};
	if (o->places > SY_HOOK_PLACES || o->kind >= SY_HOOK_KINDS)
		return sy_fail(err, EPROTO, "unknown order");
	if (number == SY_HOOK_NONE && (o->must & ORDER_SWAP || !o->object_len))
		return sy_fail(err, ENOENT, "there is no hook %s", o->name);
	if (number != SY_HOOK_NONE && o->must & ORDER_NEW)
		return sy_fail(err, EEXIST, "hook %s exists; swap it, or use another name",
		               o->name);
	if (number == SY_HOOK_NONE && !number_is_free(s))
		return sy_fail(err, ENOSPC, "all %d hook numbers are in use; remove a hook",
		               SY_HOOKS);
	if (number != SY_HOOK_NONE)
		sy_hooks_info(s->hooks, number, &info);
	if (o->object_len && (uint32_t)info.kind != o->kind)
		return sy_fail(err, EEXIST,
		               "%s is a %s hook and this is a %s hook; use another name", o->name,
		               sy_hook_kind_name(info.kind),
		               sy_hook_kind_name((enum sy_hook_kind)o->kind));
	if (!(o->must & ORDER_ONLY) &&
	    s->bindings + bindings_count_new(s, o, info.kind) > SY_HOOK_PLACES)
		return sy_fail(err, ENOSPC, "hooks have %d places, the maximum", SY_HOOK_PLACES);
	return 0;
}

static int places_load(struct sy_hook_agent *s, const struct order *o, unsigned number)
{
	struct sy_hook_info info;
	int rc = 0;
	if (o->must & ORDER_ONLY)
		bindings_remove(s, number);
	sy_hooks_info(s->hooks, number, &info);
	for (unsigned i = 0; i < o->places && !rc; i++) {
		rc = binding_set(s, &o->place[i], number, info.kind);
		s->overridden[info.kind][o->place[i].port != 0] |= !rc;
	}
	if (o->places || o->must & ORDER_ONLY)
		s->owner.placed(s->owner.ctx);
	report_places(s);
	report_hook(s, number);
	return rc;
}

static int order_load(struct sy_hook_agent *s, const struct order *o, int object,
                      struct sy_error *err)
{
	unsigned number = sy_hooks_find(s->hooks, o->name);
	int rc = load_check(s, o, number, err);
	if (rc || o->must & ORDER_CHECK)
		return rc;
	if (object >= 0) {
		rc = code_load(s, o, object, err);
		if (rc < 0)
			return rc;
		number = (unsigned)rc;
	}
	for (unsigned i = 0; i < SY_HOOK_PARAMS; i++)
		if (o->params >> i & 1)
			sy_hooks_param(s->hooks, number, i, o->param[i]);
	return places_load(s, o, number);
}

static int order_remove(struct sy_hook_agent *s, const struct order *o, struct sy_error *err)
{
	unsigned number = sy_hooks_find(s->hooks, o->name);
	if (number == SY_HOOK_NONE)
		return sy_fail(err, ENOENT, "there is no hook %s", o->name);
	bindings_remove(s, number);
	s->owner.placed(s->owner.ctx); /* before the number can be reused */
	return sy_hooks_remove(s->hooks, number);
}

static int order_report(struct sy_hook_agent *s)
{
	report_places(s);
	if (s->owner.tally)
		s->owner.tally(s->owner.ctx, &s->answer.tally);
	for (unsigned number = 1; number <= SY_HOOKS && s->hooks; number++)
		report_hook(s, number);
	return 0;
}

static int order_connections(struct sy_hook_agent *s, const struct order *o)
{
	struct answer *a = &s->answer;
	if (o->type == ORDER_CONNECTIONS)
		s->connections_at = 0;
	else if (!s->connections_at) /* complete */
		return 0;
	if (s->owner.connections)
		a->connections = s->owner.connections(s->owner.ctx, &s->connections_at,
		                                      a->connection, SY_HOOK_CONNECTIONS);
	a->more = s->connections_at > 0;
	return 0;
}

static void order_execute(struct sy_hook_agent *s, struct order *o, int object)
{
	struct answer *a = &s->answer;
	struct sy_error err = {0};
	*a = (struct answer){.sequence = o->sequence};
	o->name[SY_HOOK_NAME - 1] = '\0';
	s->hooks = s->hooks ? s->hooks : s->owner.hooks(s->owner.ctx);
	if (o->type == ORDER_REPORT)
		a->rc = order_report(s);
	else if (o->type == ORDER_CONNECTIONS || o->type == ORDER_CONNECTIONS_MORE)
		a->rc = order_connections(s, o);
	else if (!s->hooks)
		a->rc = sy_fail(&err, ENOMEM, "no memory for hooks");
	else if (o->type == ORDER_LOAD)
		a->rc = order_load(s, o, object, &err);
	else
		a->rc = order_remove(s, o, &err);
	snprintf(a->text, sizeof(a->text), "%s", err.text);
	/* Answers are dropped if the registry does not read them. */
	send(s->socket, a, answer_bytes(a), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Returns false if there is no order. *object is -1 without an object. */
static bool order_receive(const struct sy_hook_agent *s, struct order *o, int *object)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {o, sizeof(*o)};
	struct msghdr m = {.msg_iov = &iov,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(s->socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
	*object = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(object, CMSG_DATA(c), sizeof(*object));
	return n == sizeof(*o);
}

void sy_hook_agent_execute(struct sy_hook_agent *s)
{
	struct order o;
	int object;
	s->doorbell.seen = __atomic_load_n(s->doorbell.rings, __ATOMIC_ACQUIRE);
	while (order_receive(s, &o, &object)) {
		order_execute(s, &o, object);
		if (object >= 0)
			close(object);
	}
}
