// SPDX-License-Identifier: Apache-2.0
/* A flow director that is prepared while its predecessor runs and then replaces it. */
#include "director_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sy_director *successor;
static struct receiver receiver[2];

static void receivers_start(void)
{
	for (unsigned queue = 0; queue < 2; queue++) {
		receiver_open(&receiver[queue], queue);
		assert_int_equal(sy_director_set_socket(director, queue,
		                                        xsk_socket__fd(receiver[queue].xsk)),
		                 0);
	}
}

static void receivers_stop(void)
{
	for (unsigned queue = 0; queue < 2; queue++) {
		assert_int_equal(sy_director_set_socket(director, queue, -1), 0);
		receiver_close(&receiver[queue]);
	}
}

static void successor_prepare(enum sy_director_mode mode)
{
	struct sy_error err = {0};

	if (sy_director_prepare("near0", mode, &successor, &err))
		fail_msg("%s", err.text);
	assert_int_equal(sy_director_queues(successor), 2);
}

/* Makes the successor the director that the other functions use. */
static void successor_acquire(void)
{
	struct sy_error err = {0};

	if (sy_director_acquire(successor, SUPPORT_PATIENCE_MS, &err))
		fail_msg("%s", err.text);
	director = successor;
	successor = NULL;
}

static int teardown(void **state)
{
	sy_director_close(successor);
	successor = NULL;
	return direct_teardown(state);
}

/* Number of IPv4 packets that this namespace's kernel has received. */
static unsigned long kernel_saw(void)
{
	FILE *in = fopen("/proc/thread-self/net/snmp", "r");
	unsigned long packets = 0;
	char line[1024];
	bool found = false;

	assert_non_null(in);
	while (!found && fgets(line, sizeof(line), in))
		found = sscanf(line, "Ip: %*u %*u %lu", &packets) == 1;
	fclose(in);
	assert_true(found);
	return packets;
}

struct soak {
	bool stop;
	unsigned sent;
};

static void *soak_main(void *arg)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct soak *s = arg;
	int fd;

	netns_enter(far_ns);
	inet_pton(AF_INET, VIP4, &to.sin_addr);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		if (sendto(fd, "steelyard", 9, 0, (void *)&to, sizeof(to)) == 9)
			__atomic_fetch_add(&s->sent, 1, __ATOMIC_RELAXED);
		usleep(100);
	}
	close(fd);
	return NULL;
}

static void soak_await(const struct soak *s, unsigned more)
{
	unsigned until = __atomic_load_n(&s->sent, __ATOMIC_RELAXED) + more;
	uint64_t end = sy_clock_ns() + SUPPORT_PATIENCE_MS * 1000000ull;

	while ((int)(__atomic_load_n(&s->sent, __ATOMIC_RELAXED) - until) < 0) {
		assert_true(sy_clock_ns() < end);
		poll(NULL, 0, 1);
	}
}

static void test_prepare_changes_nothing(void **state)
{
	struct sy_director *third;
	struct sy_error err = {0};
	char name[32];
	uint32_t id;

	director_start(SY_DIRECTOR_NATIVE);
	steer(VIP4, true);
	receivers_start();
	id = pinned_link_id();
	successor_prepare(SY_DIRECTOR_AUTO);
	far_send(VIP4);
	receivers_expect(receiver, 0x0800);
	assert_int_equal(stats().dropped_no_socket, 0);
	assert_int_equal(pinned_link_id(), id);

	snprintf(name, sizeof(name), "process %d", (int)getpid());
	assert_int_equal(sy_director_open("near0", SY_DIRECTOR_AUTO, &third, &err), -EBUSY);
	assert_int_equal(sy_director_acquire(successor, 20, &err), -EBUSY);
	assert_non_null(strstr(err.text, name));
	sy_director_close(successor);

	/* A successor that must attach again changes nothing either. */
	successor_prepare(SY_DIRECTOR_GENERIC);
	far_send(VIP4);
	receivers_expect(receiver, 0x0800);
	assert_int_equal(pinned_link_id(), id);
	receivers_stop();
	director_stop();
	successor_acquire();
	assert_false(sy_director_is_native(director));
	assert_int_not_equal(pinned_link_id(), id);
}

static void test_take_hides_every_packet(void **state)
{
	struct sy_director_stats before;
	static struct soak soak; /* its thread outlives a failed assertion */
	unsigned long seen;
	pthread_t thread;
	struct sy_error err = {0};
	uint32_t id, program;

	director_start(SY_DIRECTOR_AUTO);
	steer(VIP4, true);
	steer(VIP6, true);
	receivers_start();
	id = pinned_link_id();
	program = pinned_program_id();
	far_send(VIP4); /* resolves the neighbours */
	receivers_expect(receiver, 0x0800);
	seen = kernel_saw();
	assert_int_equal(pthread_create(&thread, NULL, soak_main, &soak), 0);
	soak_await(&soak, 50);
	successor_prepare(SY_DIRECTOR_AUTO);
	soak_await(&soak, 50);
	receivers_stop();
	director_stop();
	soak_await(&soak, 50);
	successor_acquire();
	soak_await(&soak, 50);
	receivers_start();
	before = stats();
	await_more(steered, before);
	assert_int_equal(pinned_program_id(),
	                 program); /* still the predecessor's: it has the same maps */
	assert_int_equal(sy_director_update(director, &err), 0);
	assert_int_not_equal(pinned_program_id(), program);
	before = stats();
	await_more(steered, before);
	__atomic_store_n(&soak.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	receivers_stop();
	assert_int_equal(kernel_saw(), seen);
	assert_int_equal(pinned_link_id(), id);

	/* Entries of the predecessor can still be settled. */
	director_settle();
}

static void test_prepare_without_predecessor(void **state)
{
	struct sy_director_stats before;

	successor_prepare(SY_DIRECTOR_AUTO);
	assert_int_equal(pinned_link_id(), 0);
	successor_acquire();
	assert_int_not_equal(pinned_link_id(), 0);
	steer(VIP4, true);
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_socket, before);
}

static void test_maps_changed_since_prepare(void **state)
{
	struct sy_director_stats before;
	struct sy_error err;

	director_start(SY_DIRECTOR_AUTO);
	steer(VIP6, true);
	successor_prepare(SY_DIRECTOR_AUTO);
	director_stop();
	assert_int_equal(sy_kernel_cleanup(NULL, NULL, &err), 0);
	director_start(SY_DIRECTOR_AUTO); /* with its own maps */
	steer(VIP4, true);
	director_stop();
	successor_acquire();
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_socket, before);
	before = stats();
	far_send(VIP6);
	await_more(passed, before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, direct_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_prepare_changes_nothing),
	        TEST(test_take_hides_every_packet),
	        TEST(test_prepare_without_predecessor),
	        TEST(test_maps_changed_since_prepare),
	};

	return cmocka_run_group_tests_name("succession", tests, NULL, NULL);
}
