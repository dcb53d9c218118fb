// SPDX-License-Identifier: Apache-2.0
/* Which descriptors are the stack's: close(), dup() and fork(). */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "preload.h"
#include "real.h"

#define X(name) __typeof__(&name) real_##name;
REALS(X)
#undef X

static struct object **table;
struct sock *all_socks;
static int own_first = -1;

static struct object **table_make(void)
{
	void *memory = mmap(NULL, TABLE_SIZE * sizeof(*table), PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory != MAP_FAILED)
		table = memory;
	return table;
}

struct object *table_get(int fd)
{
	if (!table || fd < 0 || fd >= TABLE_SIZE)
		return NULL;
	return __atomic_load_n(&table[fd], __ATOMIC_ACQUIRE);
}

struct sock *table_sock(int fd)
{
	struct object *o = table_get(fd);
	return o && o->kind <= OBJECT_CONNECTION ? (struct sock *)o : NULL;
}

struct sock *table_connection(int fd)
{
	struct object *o = table_get(fd);
	return o && o->kind == OBJECT_CONNECTION ? (struct sock *)o : NULL;
}

struct sock *table_plain(int fd)
{
	struct object *o = table_get(fd);
	return o && o->kind == OBJECT_PLAIN ? (struct sock *)o : NULL;
}

struct set *table_set(int fd)
{
	struct object *o = table_get(fd);
	return o && o->kind == OBJECT_EPOLL ? (struct set *)o : NULL;
}

/* Returns whether this process has another listening socket at the same address (SO_REUSEPORT). */
static bool has_other_listener(const struct sock *s)
{
	for (const struct sock *o = all_socks; o; o = o->next)
		if (o != s && o->o.kind == OBJECT_LISTENER && o->o.refs > 0 && !o->ended &&
		    o->local.port == s->local.port && o->v6_only == s->v6_only &&
		    sy_addr_equal(&o->local.addr, &s->local.addr))
			return true;
	return false;
}

/* Ends the stack's side of it. */
static void sock_end(struct sock *s)
{
	if (s->o.kind == OBJECT_LISTENER && !s->ended && !has_other_listener(s))
		port_close(s);
	serve_end(s);
	if (s->o.kind == OBJECT_LISTENER) {
		listener_retire(s);
		s->used = false;
		return;
	}
	if (runner.stack && s->id != SY_STACK_NONE) {
		sy_stack_set_cookie(runner.stack, s->id, 0);
		if (s->options.linger && s->options.linger_s == 0)
			sy_stack_abort(runner.stack, s->id, sy_clock_ns());
		else
			sy_stack_close(runner.stack, s->id, sy_clock_ns());
	}
	s->id = SY_STACK_NONE;
	s->used = false;
}

/* The last descriptor is closed. */
static void sock_close(struct sock *s)
{
	watches_end(s);
	sock_end(s);
}

void listener_end(struct sock *s)
{
	sock_end(s);
	s->ended = true;
}

static void object_free(struct object *o)
{
	if (o->kind == OBJECT_EPOLL)
		set_end((struct set *)o);
	else
		sock_free((struct sock *)o);
}

/* Wakes the threads that still wait for it. */
void object_end(struct object *o)
{
	if (--o->refs > 0 || o->kind == OBJECT_OWN || o->kind == OBJECT_RELAYED)
		return;
	object_closed(o);
	if (o->kind != OBJECT_EPOLL)
		sock_close((struct sock *)o);
	object_free(o);
}

void table_put(int fd, struct object *o)
{
	struct object *old = table_get(fd);

	if (fd < 0 || fd >= TABLE_SIZE || (!table && !table_make()))
		return;
	if (o)
		o->refs++;
	__atomic_store_n(&table[fd], o, __ATOMIC_RELEASE);
	if (old)
		object_end(old);
}

void table_forget(int fd)
{
	struct object *o = table_get(fd);

	if (!o || o->kind == OBJECT_OWN || !runner_lock())
		return;
	table_put(fd, NULL);
	runner_flush();
	runner_unlock();
}

int table_own_as(int fd)
{
	static struct object own = {.kind = OBJECT_OWN, .refs = 1};

	table_put(fd, &own);
	return fd;
}

int table_own(int fd)
{
	struct rlimit limit;
	int high;

	if (fd < 0)
		return fd;
	if (own_first < 0) {
		getrlimit(RLIMIT_NOFILE, &limit);
		own_first =
		        limit.rlim_cur > TABLE_SIZE ? TABLE_SIZE - 64 : (int)limit.rlim_cur - 64;
		own_first = own_first < 0 ? 0 : own_first;
	}
	high = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, own_first);
	if (high >= 0) {
		REAL(close)(fd);
		fd = high;
	}
	return table_own_as(fd);
}

void table_disown(int fd)
{
	if (fd < 0)
		return;
	table_put(fd, NULL);
	REAL(close)(fd);
}

struct sock *sock_new(enum object_kind kind, int family)
{
	struct sock *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->o.kind = kind;
	s->family = family;
	sy_socket_options_init(&s->options);
	s->next = all_socks;
	if (all_socks)
		all_socks->previous = s;
	all_socks = s;
	return s;
}

void sock_free(struct sock *s)
{
	if (s->o.kind == OBJECT_LISTENER)
		serve_forget(s);
	if (s->previous)
		s->previous->next = s->next;
	else
		all_socks = s->next;
	if (s->next)
		s->next->previous = s->previous;
	free(s);
}

/* ---- close ----------------------------------------------------------------------------------- */

PRELOAD_EXPORT int close(int fd)
{
	struct object *o = table_get(fd);
	int cancel, rc;

	if (!o)
		return REAL(close)(fd);
	if (o->kind == OBJECT_OWN)
		return (int)result(-EBADF);
	pthread_testcancel();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
	                       &cancel); /* a cancelled thread would close only one side */
	if (runner_lock()) {
		table_put(fd, NULL);
		runner_flush();
		runner_unlock();
		rc = REAL(close)(fd);
	} else {
		rc = (int)result(-EAGAIN);
	}
	pthread_setcancelstate(cancel, NULL);
	return rc;
}

PRELOAD_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	static int (*real)(unsigned, unsigned, int);
	unsigned from = first;
	int rc = 0;

	if (!real)
		real = (int (*)(unsigned, unsigned, int))dlsym(RTLD_NEXT, "close_range");
	for (unsigned fd = first; table && fd <= last && fd < TABLE_SIZE; fd++) {
		struct object *o = table_get((int)fd);
		if (!o)
			continue;
		if (o->kind == OBJECT_OWN) {
			if (fd > from)
				rc |= real(from, fd - 1, flags);
			from = fd + 1;
		} else if (!(flags & 4)) { /* CLOSE_RANGE_CLOEXEC */
			close((int)fd);
		}
	}
	return from > last ? rc : rc | real(from, last, flags);
}

PRELOAD_EXPORT void closefrom(int first)
{
	close_range(first < 0 ? 0 : (unsigned)first, UINT32_MAX, 0);
}

/* The C library closes a stream's descriptor without close(). */
PRELOAD_EXPORT int fclose(FILE *f)
{
	table_forget(fileno(f));
	return REAL(fclose)(f);
}

PRELOAD_EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict f)
{
	table_forget(fileno(f));
	return REAL(freopen)(path, mode, f);
}

PRELOAD_EXPORT FILE *freopen64(const char *restrict path, const char *restrict mode,
                               FILE *restrict f)
{
	table_forget(fileno(f));
	return REAL(freopen64)(path, mode, f);
}

/* ---- dup ------------------------------------------------------------------------------------- */

static int table_copy(int from, int to)
{
	struct object *o = table_get(from);

	if (to < 0 || to == from || (!o && !table_get(to)))
		return to;
	if (!runner_lock())
		return to;
	table_put(to, o);
	runner_unlock();
	return to;
}

static bool is_own(int fd)
{
	struct object *o = table_get(fd);
	return o && o->kind == OBJECT_OWN;
}

PRELOAD_EXPORT int dup(int fd)
{
	if (is_own(fd))
		return (int)result(-EBADF);
	return table_copy(fd, REAL(dup)(fd));
}

PRELOAD_EXPORT int dup2(int from, int to)
{
	if (is_own(from) || is_own(to))
		return (int)result(is_own(from) ? -EBADF : -EBUSY);
	return table_copy(from, REAL(dup2)(from, to));
}

PRELOAD_EXPORT int dup3(int from, int to, int flags)
{
	if (is_own(from) || is_own(to))
		return (int)result(is_own(from) ? -EBADF : -EBUSY);
	return table_copy(from, REAL(dup3)(from, to, flags));
}

static int fcntl_any(int fd, int command, void *arg)
{
	struct sock *s = table_sock(fd);
	int rc;

	if (is_own(fd))
		return (int)result(-EBADF);
	rc = REAL(fcntl)(fd, command, arg);
	if (rc < 0)
		return rc;
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		return table_copy(fd, rc);
	/* Keeps the flag here: connections share a placeholder socket in the kernel, and a
	 * listener's kernel socket never blocks. */
	if (s && command == F_GETFL)
		return (rc & ~O_NONBLOCK) | (s->nonblock ? O_NONBLOCK : 0);
	if (s && command == F_SETFL) {
		s->nonblock = ((long)arg & O_NONBLOCK) != 0;
		REAL(fcntl)(fd, F_SETFL, (long)arg | O_NONBLOCK);
		if (s->o.kind == OBJECT_LISTENER)
			listener_store_blocking(s, fd);
	}
	return rc;
}

PRELOAD_EXPORT int fcntl(int fd, int command, ...)
{
	va_list list;
	void *arg;

	va_start(list, command);
	arg = va_arg(list, void *);
	va_end(list);
	return fcntl_any(fd, command, arg);
}

PRELOAD_EXPORT int fcntl64(int fd, int command, ...)
{
	va_list list;
	void *arg;

	va_start(list, command);
	arg = va_arg(list, void *);
	va_end(list);
	return fcntl_any(fd, command, arg);
}
