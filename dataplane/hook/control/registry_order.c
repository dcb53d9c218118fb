// SPDX-License-Identifier: Apache-2.0
/* Orders to stacks, and their answers, which are validated: stacks may be processes with fewer
 * rights. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sy_patience.h>

#include "registry.h"

#define ANSWERS_AT_ONCE (2 * SY_HOOKS) /* read per stack before the next stack */
#define ERRNO_MAX       4095
#define AGAIN_MS        10
#define WAIT_STEP_MS    20

static int order_send(const struct registry_stack *s, const struct order *o, int object)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {(void *)(uintptr_t)o, sizeof(*o)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	if (object >= 0) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
		                      .cmsg_level = SOL_SOCKET,
		                      .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(c), &object, sizeof(object));
	}
	return sendmsg(s->socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Notifies agents after the orders are in their sockets. */
static void doorbell_ring(struct sy_hook_registry *d)
{
	__atomic_add_fetch(d->rings, 1, __ATOMIC_RELEASE);
}

/* ---- orders that a stack has missed ---------------------------------------------------------- */

static void missed_drop_first(struct registry_stack *s)
{
	struct registry_missed *m = s->missed;
	s->missed = m->next;
	s->misses--;
	if (m->object >= 0)
		close(m->object);
	free(m);
}

/* The process has exited or closed the socket. */
static bool is_gone(int rc)
{
	return rc == -EPIPE || rc == -ECONNRESET;
}

/* Sends queued orders, oldest first. Returns 0 if all were sent. */
static int missed_send(struct registry_stack *s)
{
	while (s->missed) {
		int rc = order_send(s, &s->missed->order, s->missed->object);
		if (rc && !is_gone(rc))
			return rc;
		missed_drop_first(s);
	}
	return 0;
}

static bool is_code(const struct order *o)
{
	return o->type == ORDER_LOAD && o->object_len > 0;
}

/* Returns the last queued order with code for this hook that no later removal precludes. */
static struct registry_missed *missed_code(struct registry_stack *s, const char *name)
{
	struct registry_missed *found = NULL;
	for (struct registry_missed *m = s->missed; m; m = m->next)
		if (!strcmp(m->order.name, name))
			found = is_code(&m->order)              ? m
			        : m->order.type == ORDER_REMOVE ? NULL
			                                        : found;
	return found;
}

/* Moves new code into the queued order that has old code, which then need not be sent. So the queue
 * of an unresponsive stack stores one object per hook. */
static void code_replace(struct registry_missed *was, struct registry_missed *m)
{
	close(was->object);
	was->object = m->object;
	was->order.object_len = m->order.object_len;
	m->object = -1;
	m->order.object_len = 0;
	m->order.must = (m->order.must & ~(uint32_t)ORDER_NEW) | ORDER_SWAP;
}

/* Merges new parameters into the hook's queued order. Returns false if there is none. */
static bool params_replace(struct registry_stack *s, const struct order *o)
{
	struct order *last = NULL;
	if (o->type != ORDER_LOAD || o->object_len || o->places || o->must & ORDER_ONLY)
		return false;
	for (struct registry_missed *m = s->missed; m; m = m->next)
		if (!strcmp(m->order.name, o->name))
			last = &m->order;
	if (!last || last->type != ORDER_LOAD)
		return false;
	for (unsigned i = 0; i < SY_HOOK_PARAMS; i++)
		if (o->params >> i & 1)
			last->param[i] = o->param[i];
	last->params |= o->params;
	return true;
}

static void missed_add(struct registry_stack *s, const struct order *o, int object)
{
	struct registry_missed *m = malloc(sizeof(*m)), *was;
	if (!m)
		return;
	*m = (struct registry_missed){.order = *o, .object = object >= 0 ? dup(object) : -1};
	if (object >= 0 && m->object < 0) {
		free(m);
		return;
	}
	was = is_code(o) ? missed_code(s, o->name) : NULL;
	if (was)
		code_replace(was, m);
	if (params_replace(s, &m->order)) {
		free(m);
		return;
	}
	if (s->missed)
		s->missed_last->next = m;
	else
		s->missed = m;
	s->missed_last = m;
	s->misses++;
}

/* Sends an order or queues it, if it is a change. Reports and dry runs are not queued. */
static int stack_order(struct registry_stack *s, const struct order *o, int object)
{
	int rc = missed_send(s);
	if (!rc)
		rc = order_send(s, o, object);
	if (rc && !is_gone(rc) && o->type < ORDER_REPORT && !(o->must & ORDER_CHECK))
		missed_add(s, o, object);
	return rc;
}

int registry_backlog_check(struct sy_hook_registry *d, struct sy_error *err)
{
	int pid = 0;
	unsigned misses = 0;
	pthread_mutex_lock(&d->lock);
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++) {
		struct registry_stack *s = &d->stack[i];
		if (!stack_has_missed(s) || s->gone || s->misses < MAX_MISSED)
			continue;
		missed_send(s); /* it may have resumed reading */
		doorbell_ring(d);
		if (s->misses >= MAX_MISSED) {
			pid = s->pid;
			misses = s->misses;
		}
	}
	pthread_mutex_unlock(&d->lock);
	if (!misses)
		return 0;
	return sy_fail(
	        err, EBUSY,
	        "process %d has not read %u orders for its hooks: it is stopped, or does not "
	        "poll its stack; continue it (kill -CONT %d) or end it, then retry",
	        pid, misses, pid);
}

void registry_catch_up(struct sy_hook_registry *d)
{
	bool any = false, again = false;
	pthread_mutex_lock(&d->lock);
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++)
		if (stack_has_missed(&d->stack[i])) {
			int rc = missed_send(&d->stack[i]);
			again |= rc && rc != -EAGAIN;
			any = true;
		}
	if (any)
		doorbell_ring(d);
	pthread_mutex_unlock(&d->lock);
	if (again) /* out of kernel memory: POLLOUT is no indication */
		poll(NULL, 0, AGAIN_MS);
}

static void stack_free(struct registry_stack *s)
{
	while (s->missed)
		missed_drop_first(s);
	close(s->socket);
	*s = (struct registry_stack){.socket = -1};
}

/* ---- one order to all stacks ----------------------------------------------------------------- */

static void silent_add(struct sy_hook_count *count, const struct registry_stack *s)
{
	count->silent_pid[count->silent++] = (uint32_t)s->pid;
}

/* Returns the number of awaited answers; counts the other stacks as silent. */
static unsigned order_send_all(struct sy_hook_registry *d, struct order *o, int object, bool undo,
                               struct sy_hook_count *count)
{
	unsigned awaited = 0;
	pthread_mutex_lock(&d->lock);
	memcpy(d->hook, d->plan, sizeof(d->hook));
	o->sequence = ++d->sequence;
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++) {
		struct registry_stack *s = &d->stack[i];
		bool addressed = s->socket >= 0 && !s->gone && !(undo && s->rc < 0) &&
		                 !(o->type == ORDER_CONNECTIONS_MORE && s->walked);
		int rc = addressed ? stack_order(s, o, object) : 0;
		bool sent = addressed && rc == 0;
		s->late = sent && s->late && d->follows;
		s->awaited = sent && !s->late;
		s->rc = sent && !undo ? 0 : s->rc;
		awaited += s->awaited;
		if (s->late || (rc && !is_gone(rc))) /* its socket is full */
			silent_add(count, s);
		s->walked = true; /* cleared if its answer reports further connections */
	}
	d->waiting = true;
	doorbell_ring(d);
	pthread_mutex_unlock(&d->lock);
	return awaited;
}

static bool is_flag(const bool *b)
{
	uint8_t byte;
	memcpy(&byte, b, sizeof(byte));
	return byte <= 1;
}

/* Counters may be wrong; indices, sizes and texts for terminals must not. */
static bool hook_is_sound(const struct sy_hook_info *h)
{
	return (unsigned)h->kind < SY_HOOK_KINDS && sy_hook_name_valid(h->name) &&
	       is_flag(&h->native) && is_flag(&h->compiled);
}

static bool answer_is_sound(const struct answer *a, size_t len)
{
	if (len < ANSWER_HEAD || a->hooks > SY_HOOKS || a->places > SY_HOOK_PLACES ||
	    a->connections > SY_HOOK_CONNECTIONS || (a->hooks && a->connections) ||
	    len != answer_bytes(a) || a->rc < -ERRNO_MAX)
		return false;
	for (uint32_t i = 0; i < a->hooks; i++)
		if (!hook_is_sound(&a->hook[i].info))
			return false;
	return true;
}

/* Returns 1 for the answer to this order, 0 if it is pending, -ECONNRESET if none will come,
 * -EBADMSG if invalid. */
static int answer_receive(struct sy_hook_registry *d, struct registry_stack *s, uint32_t sequence)
{
	struct answer *a = &d->answer;
	for (unsigned i = 0; i < ANSWERS_AT_ONCE; i++) {
		ssize_t n = recv(s->socket, a, sizeof(*a), MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -ECONNRESET;
		if (n == 0)
			return -ECONNRESET;
		if (!answer_is_sound(a, (size_t)n))
			return -EBADMSG;
		if (a->sequence == sequence)
			return 1;
	}
	return 0;
}

void text_copy_printable(char *to, const char *from, size_t size)
{
	size_t i = 0;
	for (; i < size - 1 && from[i]; i++)
		to[i] = (char)(from[i] >= ' ' && from[i] <= '~' ? from[i] : '?');
	to[i] = '\0';
}

static void answer_read(struct sy_hook_registry *d, struct registry_stack *s)
{
	const struct answer *a = &d->answer;
	s->rc = a->rc;
	if (a->rc >= 0 || d->refused)
		return;
	d->refused = a->rc;
	text_copy_printable(d->text, a->text, sizeof(d->text));
}

/* Returns the poll timeout in ms; 0: the deadline has passed. Short, so that sy_patience.h notices
 * stalls of this process. */
static int wait_next(struct sy_patience *patience)
{
	uint64_t left_ms = (sy_patience_left(patience) + 999999) / 1000000;
	return left_ms < WAIT_STEP_MS ? (int)left_ms : WAIT_STEP_MS;
}

/* Returns true for a query without a valid answer. */
static bool is_unusable(const struct order *o, const struct registry_stack *s, int rc)
{
	return o->type >= ORDER_REPORT && (rc == -EBADMSG || (rc > 0 && s->rc < 0));
}

static void order_run(struct sy_hook_registry *d, struct order *o, int object, bool undo,
                      struct sy_hook_count *count, answer_take_fn *take, void *ctx)
{
	unsigned ms = o->type == ORDER_CONNECTIONS_MORE ? ANSWER_WALK_WAIT_MS : ANSWER_WAIT_MS;
	struct sy_patience patience =
	        sy_patience_begin(ms * UINT64_C(1000000), 2 * WAIT_STEP_MS * UINT64_C(1000000));
	struct pollfd p[SY_HOOK_REGISTRY_STACKS];
	unsigned left;
	int wait; /* checked in each round: a stack may flood the socket */
	*count = (struct sy_hook_count){0};
	left = order_send_all(d, o, object, undo, count);
	d->refused = 0;
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++)
		p[i] = (struct pollfd){.fd = d->stack[i].awaited ? d->stack[i].socket : -1,
		                       .events = POLLIN};
	while (left > 0 && (wait = wait_next(&patience)) > 0) {
		if (poll(p, SY_HOOK_REGISTRY_STACKS, wait) <= 0)
			continue;
		for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++) {
			struct registry_stack *s = &d->stack[i];
			int rc = p[i].revents ? answer_receive(d, s, o->sequence) : 0;
			if (rc == 0)
				continue;
			p[i].fd = -1;
			p[i].revents = 0;
			left--;
			s->awaited = false;
			if (rc > 0 && !undo)
				answer_read(d, s);
			if (is_unusable(o, s, rc))
				silent_add(count, s);
			if (rc < 0 || undo || s->rc < 0)
				continue;
			count->stacks++;
			if (take)
				take(ctx, i, &d->answer);
		}
	}
	pthread_mutex_lock(&d->lock);
	d->waiting = false;
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++) {
		if (d->stack[i].awaited)
			silent_add(count, &d->stack[i]);
		d->stack[i].late |= d->stack[i].awaited;
		if (d->stack[i].gone)
			stack_free(&d->stack[i]);
	}
	pthread_mutex_unlock(&d->lock);
}

void registry_order(struct sy_hook_registry *d, struct order *o, int object,
                    struct sy_hook_count *count, answer_take_fn *take, void *ctx)
{
	order_run(d, o, object, false, count, take, ctx);
}

void registry_undo(struct sy_hook_registry *d, struct order *o, int object)
{
	struct sy_hook_count ignored;
	order_run(d, o, object, true, &ignored, NULL, NULL);
}

/* ---- registration ---------------------------------------------------------------------------- */

void registry_hook_order(const struct registry_hook *h, unsigned i, struct order *o)
{
	*o = (struct order){.type = ORDER_LOAD,
	                    .number = SY_HOOKS - i,
	                    .kind = h->info.kind,
	                    .object_len = h->object_len,
	                    .params = h->params,
	                    .places = h->places};
	memcpy(o->name, h->name, sizeof(o->name));
	memcpy(o->param, h->info.param, sizeof(o->param));
	memcpy(o->place, h->place, sizeof(o->place));
}

/* Sends all stored hooks; the answers are ignored. */
static int stack_catch_up(struct sy_hook_registry *d, const struct registry_stack *s)
{
	struct order o;
	int rc = 0;
	for (unsigned i = 0; i < SY_HOOKS && !rc; i++) {
		if (!d->hook[i].name[0])
			continue;
		registry_hook_order(&d->hook[i], i, &o);
		rc = order_send(s, &o, d->hook[i].object);
	}
	doorbell_ring(d);
	return rc;
}

int sy_hook_registry_join(struct sy_hook_registry *d, int pid, struct sy_hook_channel *channel)
{
	int pair[2], rc, number = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	int doorbell = dup(d->doorbell);
	pthread_mutex_lock(&d->lock);
	while (number < SY_HOOK_REGISTRY_STACKS && d->stack[number].socket >= 0)
		number++;
	struct registry_stack *s = &d->stack[number];
	rc = doorbell < 0 ? -errno : number == SY_HOOK_REGISTRY_STACKS ? -ENOSPC : 0;
	if (!rc) {
		*s = (struct registry_stack){.socket = pair[0], .pid = pid};
		rc = stack_catch_up(d, s);
		if (rc)
			s->socket = -1;
	}
	pthread_mutex_unlock(&d->lock);
	if (rc) {
		close(pair[0]);
		close(pair[1]);
		close(doorbell);
		return rc;
	}
	*channel = (struct sy_hook_channel){pair[1], doorbell};
	return number;
}

void sy_hook_registry_leave(struct sy_hook_registry *d, int number)
{
	if (number < 0 || number >= SY_HOOK_REGISTRY_STACKS)
		return;
	pthread_mutex_lock(&d->lock);
	struct registry_stack *s = &d->stack[number];
	if (s->socket >= 0 && d->waiting)
		s->gone = true; /* order_run() frees it */
	else if (s->socket >= 0)
		stack_free(s);
	pthread_mutex_unlock(&d->lock);
}

/* ---- the doorbell ---------------------------------------------------------------------------- */

static int doorbell_create(struct sy_hook_registry *d)
{
	d->doorbell = memfd_create("hooks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (d->doorbell < 0 || ftruncate(d->doorbell, SY_PAGE))
		return -errno;
	void *page = mmap(NULL, SY_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, d->doorbell, 0);
	if (page == MAP_FAILED)
		return -errno;
	d->rings = page;
	/* Stacks can neither resize nor write the page. */
	return fcntl(d->doorbell, F_ADD_SEALS,
	             F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)
	               ? -errno
	               : 0;
}

int sy_hook_registry_open(struct sy_hook_registry **out, struct sy_error *err)
{
	struct sy_hook_registry *d = calloc(1, sizeof(*d));
	if (!d)
		return sy_fail(err, ENOMEM, "no memory for hooks");
	pthread_mutex_init(&d->change, NULL);
	pthread_mutex_init(&d->lock, NULL);
	d->doorbell = d->listener = d->stop = d->client = -1;
	d->walk_ms = ANSWER_WALK_MS;
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++)
		d->stack[i].socket = -1;
	int rc = doorbell_create(d);
	if (rc) {
		sy_hook_registry_close(d);
		return sy_fail(err, -rc, "a page for hooks: %s", strerror(-rc));
	}
	*out = d;
	return 0;
}

void sy_hook_registry_close(struct sy_hook_registry *d)
{
	if (!d)
		return;
	registry_serve_end(d);
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++)
		if (d->stack[i].socket >= 0)
			stack_free(&d->stack[i]);
	for (unsigned i = 0; i < SY_HOOKS; i++)
		if (d->hook[i].name[0])
			close(d->hook[i].object);
	if (d->rings)
		munmap(d->rings, SY_PAGE);
	if (d->doorbell >= 0)
		close(d->doorbell);
	free(d);
}
