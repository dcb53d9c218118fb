// SPDX-License-Identifier: Apache-2.0
/* The registry's socket: concurrent starts, stopped servers, idle clients, unread orders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "registry.h"

#define STARTS 8 /* at once */

static const struct sy_hook_registry_owner owner = {.program = "test", .interfaces = "eth0"};

static struct sy_hook_registry *registry_serve(const char *name)
{
	struct sy_hook_registry *d;
	struct sy_error err = {0};
	assert_int_equal(sy_hook_registry_open(&d, &err), 0);
	if (sy_hook_registry_serve(d, name, &owner, &err))
		fail_msg("%s: %s", name, err.text);
	return d;
}

static int user_open(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (void *)&to, sizeof(to)), 0);
	return fd;
}

/* A client that is idle, or has sent half a request, does not delay the exit. */
static void test_close_does_not_wait_for_clients(void **state)
{
	char path[64];
	snprintf(path, sizeof(path), "/tmp/sy-hooks-%d.sock", (int)getpid());
	for (unsigned sent = 0; sent < 4; sent += 2) {
		struct sy_hook_registry *d = registry_serve(path);
		int user = user_open(path);
		uint64_t began;
		assert_int_equal(send(user, "\0\0", sent, 0), sent);
		for (int served = -1; served < 0; usleep(1000)) {
			pthread_mutex_lock(&d->lock);
			served = d->client;
			pthread_mutex_unlock(&d->lock);
		}
		began = sy_clock_ns();
		sy_hook_registry_close(d);
		/* The timeout of a request is 5 s. */
		assert_true(sy_clock_ns() - began < UINT64_C(4000000000));
		close(user);
	}
}

/* A stopped process with a full backlog is not stale. */
static void test_stopped_server_keeps_its_path(void **state)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct sy_hook_registry *d;
	struct sy_error err = {0};
	snprintf(at.sun_path, sizeof(at.sun_path), "/tmp/sy-stopped-%d.sock", (int)getpid());
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (void *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 0), 0);
	int user = user_open(at.sun_path);
	assert_int_equal(sy_hook_registry_open(&d, &err), 0);
	alarm(20); /* fail instead of blocking */
	assert_int_equal(sy_hook_registry_serve(d, at.sun_path, &owner, &err), -EADDRINUSE);
	alarm(0);
	sy_hook_registry_close(d);
	close(user);
	close(listener);
	unlink(at.sun_path);
}

/* Several processes start at once in the shared directory. */
static void test_concurrent_start(void **state)
{
	int go[2];
	if (geteuid() != 0)
		skip();
	assert_int_equal(pipe(go), 0);
	for (unsigned i = 0; i < STARTS; i++)
		if (fork() == 0) {
			char name[32], byte;
			struct sy_hook_registry *d;
			close(go[1]);
			snprintf(name, sizeof(name), "test-%d", (int)getpid());
			int rc = sy_hook_registry_open(&d, NULL);
			rc = rc ? rc : (int)read(go[0], &byte, 1);
			for (unsigned n = 0; n < 50 && !rc; n++) {
				rc = sy_hook_registry_serve(d, name, &owner, NULL);
				registry_serve_end(d);
			}
			_exit(rc ? 1 : 0);
		}
	close(go[1]); /* go */
	close(go[0]);
	for (unsigned i = 0; i < STARTS; i++) {
		int status;
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
}

/* A registry, and a stack that is never polled, with a small socket buffer. */
struct deaf {
	struct sy_hook_registry *registry;
	struct registry_stack *stack;
	struct sy_hook_channel channel;
	char path[64];
};

static void deaf_open(struct deaf *f)
{
	const int few = 1;
	snprintf(f->path, sizeof(f->path), "/tmp/sy-missed-%d.sock", (int)getpid());
	f->registry = registry_serve(f->path);
	int number = sy_hook_registry_join(f->registry, getpid(), &f->channel);
	assert_true(number >= 0);
	f->stack = &f->registry->stack[number];
	setsockopt(f->stack->socket, SOL_SOCKET, SO_SNDBUF, &few, sizeof(few));
}

/* Reads one order. The size of its object is as the order says. */
static void order_expect(struct deaf *f, struct order *o, uint32_t type)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {o, sizeof(*o)};
	struct msghdr m = {.msg_iov = &iov,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};
	struct stat file = {0};
	int object;
	assert_int_equal(recvmsg(f->channel.socket, &m, 0), sizeof(*o));
	assert_int_equal(o->type, type);
	if (CMSG_FIRSTHDR(&m)) {
		memcpy(&object, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(object));
		assert_int_equal(fstat(object, &file), 0);
		close(object);
	}
	assert_int_equal(file.st_size, o->object_len);
}

static void deaf_close(struct deaf *f)
{
	struct order o;
	assert_int_equal(recv(f->channel.socket, &o, sizeof(o), MSG_DONTWAIT), -1);
	sy_hook_registry_close(f->registry);
	close(f->channel.socket);
	close(f->channel.doorbell);
}

/* A stack is not polled until its socket is full. As soon as it reads, it receives all orders, in
 * order; of queued parameters, only the newest. */
static void test_missed_orders(void **state)
{
	struct sy_hook_change set = {.name = "own", .params = 1};
	struct sy_hook_count count;
	struct sy_error err;
	struct deaf f;
	struct order o;
	unsigned sent = 0;
	deaf_open(&f);
	for (; !f.stack->missed; sent++) {
		assert_true(sent < 20);
		set.param[0] = sent;
		assert_int_equal(sy_hook_registry_load(f.registry, &set, &count, &err), 0);
		assert_int_equal(count.silent, 1);
	}
	set.params = 6;
	for (unsigned i = 0; i < 2 * MAX_MISSED; i++) { /* as a program would that adjusts a hook */
		set.param[1] = i;
		assert_int_equal(sy_hook_registry_load(f.registry, &set, &count, &err), 0);
	}
	assert_int_equal(sy_hook_registry_remove(f.registry, "own", &count, &err), 0);
	assert_int_equal(sy_hook_registry_load(f.registry, &set, &count, &err), 0);
	assert_int_equal(f.stack->misses, 3);
	struct sy_hook_report report;
	sy_hook_registry_report(f.registry, &report, 1, NULL, &count);
	assert_int_equal(count.silent, 1);
	close(user_open(f.path)); /* wakes the thread that serves clients */
	alarm(60);
	for (unsigned i = 0; i < sent; i++) {
		order_expect(&f, &o, ORDER_LOAD);
		assert_int_equal(o.param[0], i);
	}
	assert_int_equal(o.params, 7);
	assert_int_equal(o.param[1], 2 * MAX_MISSED - 1);
	order_expect(&f, &o, ORDER_REMOVE);
	order_expect(&f, &o, ORDER_LOAD);
	assert_int_equal(o.params, 6);
	alarm(0);
	deaf_close(&f);
}

/* Orders that cannot be merged are queued up to a limit. Beyond, changes fail, name the stack, and
 * change nothing. */
static void test_full_backlog_refuses_changes(void **state)
{
	const struct sy_hook_change set = {.name = "own", .params = 1};
	struct sy_hook_count count;
	struct sy_error err = {0};
	struct deaf f;
	struct order o;
	char who[32];
	unsigned sent = 0, read = 0;
	int rc;
	deaf_open(&f);
	while ((rc = sy_hook_registry_remove(f.registry, "own", &count, &err)) == 0) {
		assert_true(sent++ < MAX_MISSED + 20);
		assert_int_equal(count.silent, 1);
	}
	assert_int_equal(rc, -EBUSY);
	assert_int_equal(f.stack->misses, MAX_MISSED);
	snprintf(who, sizeof(who), "process %d", (int)getpid());
	assert_non_null(strstr(err.text, who));
	assert_non_null(strstr(err.text, "kill -CONT"));
	assert_int_equal(sy_hook_registry_load(f.registry, &set, &count, &err), -EBUSY);
	assert_int_equal(f.stack->misses, MAX_MISSED);
	while (recv(f.channel.socket, &o, sizeof(o), MSG_DONTWAIT) > 0) /* drain the socket */
		read++;
	assert_int_equal(read, sent - MAX_MISSED);
	assert_int_equal(sy_hook_registry_remove(f.registry, "own", &count, &err), 0);
	close(user_open(f.path));
	alarm(60);
	for (; read <= sent; read++)
		order_expect(&f, &o, ORDER_REMOVE);
	alarm(0);
	deaf_close(&f);
}

static void code_order(struct deaf *f, uint32_t must, uint32_t len, uint32_t params)
{
	struct order o = {.type = ORDER_LOAD,
	                  .name = "code",
	                  .must = must,
	                  .object_len = len,
	                  .params = params,
	                  .param = {len, len}};
	struct sy_hook_count count;
	int object = memfd_create("code", MFD_CLOEXEC);
	assert_int_equal(ftruncate(object, len), 0);
	registry_order(f->registry, &o, object, &count, NULL, NULL);
	assert_int_equal(count.silent, 1);
	close(object);
}

/* Of queued code, only the newest is sent, in the position of the first. */
static void test_missed_code(void **state)
{
	struct order o = {.type = ORDER_LOAD, .name = "own", .params = 1};
	struct sy_hook_count count;
	struct deaf f;
	unsigned sent = 0;
	deaf_open(&f);
	for (; !f.stack->missed; sent++) {
		assert_true(sent < 20);
		registry_order(f.registry, &o, -1, &count, NULL, NULL);
		f.registry->follows = true; /* do not wait for it again */
	}
	code_order(&f, ORDER_NEW, 1, 1);
	code_order(&f, ORDER_SWAP, 2, 2);
	code_order(&f, ORDER_SWAP, 3, 0);
	o.type = ORDER_REMOVE;
	memcpy(o.name, "code", sizeof("code"));
	registry_order(f.registry, &o, -1, &count, NULL, NULL);
	code_order(&f, ORDER_NEW, 4, 0);
	close(user_open(f.path));
	alarm(60);
	for (; sent > 0; sent--)
		order_expect(&f, &o, ORDER_LOAD);
	order_expect(&f, &o, ORDER_LOAD);
	assert_int_equal(o.must, ORDER_NEW);
	assert_int_equal(o.object_len, 3);
	assert_int_equal(o.params, 3);
	assert_int_equal(o.param[0], 1);
	assert_int_equal(o.param[1], 2);
	order_expect(&f, &o, ORDER_REMOVE);
	order_expect(&f, &o, ORDER_LOAD);
	assert_int_equal(o.object_len, 4);
	alarm(0);
	deaf_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_concurrent_start),
	        cmocka_unit_test(test_stopped_server_keeps_its_path),
	        cmocka_unit_test(test_close_does_not_wait_for_clients),
	        cmocka_unit_test(test_missed_orders),
	        cmocka_unit_test(test_missed_code),
	        cmocka_unit_test(test_full_backlog_refuses_changes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
