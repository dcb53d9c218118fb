// SPDX-License-Identifier: Apache-2.0
/* A signal that comes while a call works between two of its sleeps ends it, as Linux does. The
 * stack is simulated: the tests define its poll iterations. The kernel is the real one. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#include <cmocka.h>

#include "packets.h"
#include "real.h"

#define LONG_MS     20000 /* longer than any call of these tests */
#define SHORT_MS    20    /* calls that reach their deadline */
#define SECOND_POLL 2     /* the poll iteration after the first sleep */
#define OBJECTS     1024

struct runner runner;
struct sock *all_socks;
#define X(name) __typeof__(&name) real_##name;
REALS(X)
#undef X

static struct {
	struct object *object[OBJECTS];
	struct sock connection;
	int fd, epoll;
	bool busy;
	unsigned polls, starts, masks, waits;
	void (*in_second_poll)(void); /* runs in the second iteration */
	void (*on_start)(void);       /* runs when the stack is to start */
	void (*on_block)(void);       /* runs when signals are being blocked */
	uint32_t ready;               /* SY_STACK_* */
} world;

static volatile sig_atomic_t handled, handled_inside;

/* ---- a simulated stack ----------------------------------------------------------------------- */

bool device_kick_wanted(void)
{
	return false;
}

void device_kick(void)
{
}

struct object *table_get(int fd)
{
	return fd >= 0 && fd < OBJECTS ? world.object[fd] : NULL;
}

static struct object *table_kind(int fd, enum object_kind kind)
{
	struct object *o = table_get(fd);
	return o && o->kind == kind ? o : NULL;
}

struct sock *table_sock(int fd)
{
	return (struct sock *)table_kind(fd, OBJECT_CONNECTION);
}

struct sock *table_connection(int fd)
{
	return table_sock(fd);
}

struct sock *table_plain(int fd)
{
	return NULL;
}

struct set *table_set(int fd)
{
	return (struct set *)table_kind(fd, OBJECT_EPOLL);
}

void table_forget(int fd)
{
}

void table_put(int fd, struct object *o)
{
	assert_in_range(fd, 0, OBJECTS - 1);
	world.object[fd] = o;
	o->refs++;
}

int table_own(int fd)
{
	return fd;
}

void table_disown(int fd)
{
	if (fd >= 0)
		close(fd);
}

const struct message_answer *supervisor_config(void)
{
	return NULL;
}

void runner_events(void)
{
}

void listener_adopt(int fd)
{
}

void serve_passed(int fd)
{
}

/* No relays: these are for programs that fork. */
bool relay_has(int fd)
{
	return false;
}

int relay_error(int fd)
{
	return 0;
}

void relay_mark(int fd)
{
}

void relay_pass(int fd)
{
}

bool connect_is_due(int fd, const struct sockaddr *addr, socklen_t len)
{
	return false;
}

void relay_queue(struct relay *r)
{
}

/* Handlers run at once. */
bool signals_deferred(sigset_t *program)
{
	return false;
}

void signals_unblock(void)
{
}

void signals_sleep(void)
{
}

void runner_flush(void)
{
}

/* An event comes at once. */
int runner_await(struct sock *s, uint32_t events, int extra_fd, uint64_t deadline_ns,
                 struct signals *signals)
{
	bool again = signals->blocked;

	world.waits++;
	signals_block(signals);
	runner_unlock();
	int rc = again && signals_deliver_pending(signals) ? -errno : 0;
	runner_lock();
	return rc;
}

int runner_await_handoff(struct sock *s, uint32_t events, struct handoff *handoff,
                         uint64_t deadline_ns, struct signals *signals)
{
	return runner_await(s, events, -1, deadline_ns, signals);
}

int runner_listen(struct sock *s)
{
	return 0;
}

/* The first sleep ends at once: a packet comes that has nothing for the program. No time has to
 * pass. */
void runner_poll(void)
{
	uint64_t count = 1;

	runner.now_ns = sy_clock_ns();
	if (++world.polls < SECOND_POLL)
		assert_int_equal(write(runner.fd[0], &count, sizeof(count)), sizeof(count));
	else if (!world.busy)
		read(runner.fd[0], &count, sizeof(count));
	if (world.polls == SECOND_POLL && world.in_second_poll)
		world.in_second_poll();
}

bool runner_starts(void)
{
	return !runner.stack;
}

int runner_start(void)
{
	if (runner.stack)
		return 0;
	if (world.starts++ == 0)
		world.on_start();
	return -EBUSY;
}

uint64_t runner_patience_ns(void)
{
	return MS;
}

uint32_t sy_stack_ready(struct sy_stack *s, sy_stack_id id)
{
	return world.ready;
}

unsigned sy_stack_level(struct sy_stack *s, sy_stack_id id)
{
	return SY_USUAL;
}

/* Nothing before a wait, then byte by byte, and a signal with each byte. */
static int64_t one_byte(void)
{
	if (!world.waits)
		return -EAGAIN;
	raise(SIGUSR1);
	return 1;
}

int64_t sy_stack_send(struct sy_stack *s, sy_stack_id id, const void *bytes, size_t len, int flags,
                      uint64_t now_ns)
{
	return one_byte();
}

int64_t sy_stack_receive_bytes(struct sy_stack *s, sy_stack_id id, void *bytes, size_t len,
                               uint64_t now_ns)
{
	return one_byte();
}

uint32_t sy_stack_unread(struct sy_stack *s, sy_stack_id id)
{
	return 0;
}

int64_t sy_stack_peek_vectors(struct sy_stack *s, sy_stack_id id, struct iovec *v, int count)
{
	return -EAGAIN;
}

struct sy_stack_info info_of(const struct sock *s)
{
	return (struct sy_stack_info){0};
}

int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	int rc = __real_pthread_sigmask(how, set, old);

	world.masks++;
	if (how == SIG_BLOCK && world.on_block)
		world.on_block();
	return rc;
}

/* ---- the three calls ------------------------------------------------------------------------- */

static int by_epoll(int ms, const sigset_t *mask)
{
	struct epoll_event e;
	return epoll_pwait(world.epoll, &e, 1, ms, mask);
}

static int by_poll(int ms, const sigset_t *mask)
{
	struct pollfd p = {.fd = world.fd, .events = POLLIN};
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	return ppoll(&p, 1, &t, mask);
}

static int by_select(int ms, const sigset_t *mask)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	fd_set in;

	FD_ZERO(&in);
	FD_SET(world.fd, &in);
	return pselect(world.fd + 1, &in, NULL, NULL, &t, mask);
}

static int (*const calls[])(int ms, const sigset_t *mask) = {by_epoll, by_poll, by_select};
#define CALLS (sizeof(calls) / sizeof(*calls))

/* ---- tests ----------------------------------------------------------------------------------- */

static void handler(int number)
{
	handled++;
	handled_inside += runner_is_inside();
}

static void raise_usr1(void)
{
	raise(SIGUSR1);
}

static void raise_child(void)
{
	raise(SIGCHLD);
}

static void be_ready(void)
{
	world.ready = SY_STACK_READABLE;
	sock_event(&world.connection);
}

static void raise_and_be_ready(void)
{
	raise(SIGUSR1);
	be_ready();
}

/* busy: such packets come without end. */
static void begin(bool busy)
{
	struct epoll_event e = {.events = EPOLLIN};

	memset(&world, 0, sizeof(world));
	world.fd = eventfd(0, 0);
	world.connection = (struct sock){
	        .o = {.kind = OBJECT_CONNECTION}, .id = SY_STACK_NONE + 1, .family = AF_INET};
	table_put(world.fd, &world.connection.o);
	all_socks = &world.connection;
	world.busy = busy;
	runner = (struct runner){.stack = (struct sy_stack *)&world,
	                         .due_ns = NEVER,
	                         .wanted = true,
	                         .rx = 1,
	                         .fd = {eventfd(0, EFD_NONBLOCK)}};
	assert_int_equal(wakeup_open(runner.fd, runner.rx), 0);
	world.epoll = epoll_create1(0);
	assert_int_equal(epoll_ctl(world.epoll, EPOLL_CTL_ADD, world.fd, &e), 0);
	handled = handled_inside = 0;
}

static void end(void)
{
	sigset_t now;

	__real_pthread_sigmask(SIG_BLOCK, NULL, &now);
	assert_int_equal(sigismember(&now, SIGUSR1), 0);
	assert_int_equal(sigismember(&now, SIGTERM), 0);
	watches_end(&world.connection);
	set_end((struct set *)world.object[world.epoll]);
	wakeup_close();
	close(runner.fd[0]);
	close(world.epoll);
	close(world.fd);
}

static void assert_interrupted(int rc)
{
	assert_int_equal(rc, -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(handled, 1);
}

static void test_a_signal_between_two_sleeps_ends_the_call(void **state)
{
	for (unsigned busy = 0; busy < 2; busy++) {
		for (unsigned i = 0; i < CALLS; i++) {
			begin(busy);
			world.in_second_poll = raise_usr1;
			assert_interrupted(calls[i](LONG_MS, NULL));
			assert_true(world.polls >= SECOND_POLL);
			end();
		}
	}
}

/* As in Linux: the program gets what there is, and the handler has run. */
static void test_ready_events_are_returned_first(void **state)
{
	for (unsigned i = 0; i < CALLS; i++) {
		begin(false);
		world.in_second_poll = raise_and_be_ready;
		assert_int_equal(calls[i](LONG_MS, NULL), 1);
		assert_int_equal(handled, 1);
		end();
	}
}

static void test_ignored_signals_do_not_end_it(void **state)
{
	for (unsigned busy = 0; busy < 2; busy++) {
		for (unsigned i = 0; i < CALLS; i++) {
			begin(busy);
			world.in_second_poll = world.on_block = raise_child;
			assert_int_equal(calls[i](SHORT_MS, NULL), 0);
			end();
		}
	}
}

/* The program's mask for the call unblocks a signal that is blocked otherwise. */
static void test_the_mask_of_a_call_unblocks(void **state)
{
	sigset_t usr1, none, before;

	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	for (unsigned i = 0; i < CALLS; i++) {
		begin(true);
		world.in_second_poll = raise_usr1;
		__real_pthread_sigmask(SIG_BLOCK, &usr1, NULL);
		assert_interrupted(calls[i](LONG_MS, &none));
		__real_pthread_sigmask(SIG_UNBLOCK, &usr1, &before);
		assert_int_equal(sigismember(&before, SIGUSR1), 1);
		assert_int_equal(handled, 1);
		end();
	}
}

/* A signal that the mask blocks comes after the call. */
static void test_the_mask_of_a_call_blocks(void **state)
{
	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	for (unsigned i = 0; i < CALLS; i++) {
		begin(false);
		world.in_second_poll = raise_usr1;
		assert_int_equal(calls[i](SHORT_MS, &usr1), 0);
		assert_int_equal(handled, 1);
		end();
	}
}

/* A worker without a queue requests one again and again. */
static void test_signals_end_a_wait_without_a_queue(void **state)
{
	for (unsigned i = 0; i < CALLS; i++) {
		begin(false);
		runner.stack = NULL;
		world.on_start = raise_usr1;
		assert_interrupted(calls[i](LONG_MS, NULL));
		assert_true(world.starts > 0);
		end();
	}
}

static void test_ignored_signals_do_not_end_a_wait_without_a_queue(void **state)
{
	for (unsigned i = 0; i < CALLS; i++) {
		begin(false);
		runner.stack = NULL;
		world.on_start = world.on_block = raise_child;
		assert_int_equal(calls[i](SHORT_MS, NULL), 0);
		assert_true(world.starts > 0);
		end();
	}
}

/* What was done by then counts. The handler may use sockets, and may leave by longjmp(). */
static void test_a_signal_between_two_waits_ends_the_call(void **state)
{
	char bytes[3] = {0};

	for (unsigned i = 0; i < 2; i++) {
		begin(false);
		assert_int_equal(i ? recv(world.fd, bytes, sizeof(bytes), MSG_WAITALL)
		                   : send(world.fd, bytes, sizeof(bytes), 0),
		                 1);
		assert_int_equal(world.waits, 2);
		assert_int_equal(handled, 1);
		assert_int_equal(handled_inside, 0);
		end();
	}
}

/* A call that need not sleep changes no mask. */
static void test_a_call_without_sleep_blocks_nothing(void **state)
{
	for (unsigned i = 0; i < CALLS; i++) {
		begin(false);
		assert_int_equal(calls[i](0, NULL), 0);
		be_ready();
		assert_int_equal(calls[i](LONG_MS, NULL), 1);
		assert_int_equal(world.masks, 0);
		world.ready = world.polls = 0;
		world.in_second_poll = be_ready; /* it sleeps before that */
		assert_int_equal(calls[i](LONG_MS, NULL), 1);
		assert_int_equal(world.masks, 2);
		end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_a_signal_between_two_sleeps_ends_the_call),
	        cmocka_unit_test(test_ready_events_are_returned_first),
	        cmocka_unit_test(test_ignored_signals_do_not_end_it),
	        cmocka_unit_test(test_the_mask_of_a_call_unblocks),
	        cmocka_unit_test(test_the_mask_of_a_call_blocks),
	        cmocka_unit_test(test_signals_end_a_wait_without_a_queue),
	        cmocka_unit_test(test_ignored_signals_do_not_end_a_wait_without_a_queue),
	        cmocka_unit_test(test_a_signal_between_two_waits_ends_the_call),
	        cmocka_unit_test(test_a_call_without_sleep_blocks_nothing),
	};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

	sigaction(SIGUSR1, &action, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
