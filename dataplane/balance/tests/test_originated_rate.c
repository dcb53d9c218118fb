// SPDX-License-Identifier: Apache-2.0
/* Rates of the packets that the forwarder originates: by class, by receiver's network, by worker.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../../tests/soak/soak_frame.h"
#include "routed.h"
#include "stalled.h"

#define MS_NS UINT64_C(1000000)

struct fixture {
	struct harness harness;
	struct rng rng;
	struct service_key key;
};

static int open_with(void **state, unsigned workers)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct sy_addr local = harness_addr("10.0.1.1"), server = harness_addr("10.0.0.1");
	struct changes c = {0};
	routed_open(&f->harness, (struct harness_options){.workers = workers});
	f->rng.state = 1;
	/* Not a key drawn at random: with some, two networks of a test share a bucket. */
	struct sy_balance *b = sy_worker_at(f->harness.rt, 0)->app;
	rng_fill(&f->rng, &b->key, sizeof(b->key));
	f->key = harness_key("192.0.2.10", 80, SY_PROTO_UDP);
	put_local(&c, &local);
	put_service(&c, &f->key, "own", STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR, NULL);
	put_server(&c, &f->key, &server, 8080, 1,
	           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP);
	routed_commit(&f->harness, &c);
	harness_advance(&f->harness, 1000 * MS_NS);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return open_with(state, 1);
}

static int setup_two(void **state)
{
	return open_with(state, 2);
}

static struct sy_addr v4_of(uint32_t host)
{
	struct sy_addr addr = harness_addr("198.18.0.0");
	addr.w[3] = htonl(host);
	return addr;
}

/* How many of `tries` are allowed at once towards addresses of one network. */
static unsigned charge_many(struct fixture *f, unsigned worker, enum originated_class class,
                            const struct sy_addr *to, unsigned tries)
{
	unsigned taken = 0;
	for (unsigned i = 0; i < tries; i++)
		taken += originated_charge(sy_worker_at(f->harness.rt, worker), class, to);
	return taken;
}

static void test_one_network_leaves_the_others_theirs(void **state)
{
	static const char *const text[][2] = {{"198.18.7.9", "198.18.8.9"},
	                                      {"2001:db8:c:1::1", "2001:db8:d:1::1"}};
	struct fixture *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		const struct sy_addr loud = harness_addr(text[v6][0]);
		const struct sy_addr other = harness_addr(text[v6][1]);
		for (enum originated_class class = 0; class < ORIGINATED_BY_NETWORK; class ++) {
			unsigned loud_got = 0;
			harness_advance(&f->harness, 1000 * MS_NS);
			for (unsigned ms = 0; ms < 1000; ms++) {
				loud_got += charge_many(f, 0, class, &loud, 1000);
				if (ms % 100 == 50)
					assert_int_equal(charge_many(f, 0, class, &other, 1), 1);
				harness_advance(&f->harness, MS_NS);
			}
			assert_in_range(loud_got, originated_rate(class) / 10,
			                originated_rate(class) / 10 + originated_rate(class) / 40 +
			                        1);
		}
	}
}

static void test_no_network_is_asked_of_the_others(void **state)
{
	struct fixture *f = *state;
	for (enum originated_class class = ORIGINATED_BY_NETWORK; class < ORIGINATED_CLASSES;
	     class ++)
		assert_in_range(charge_many(f, 0, class, NULL, 100000),
		                originated_rate(class) / 10 - 3, originated_rate(class) / 10);
}

/* Errors to a hundred thousand spoofed sources do not keep "too big" from an honest client. */
static void test_classes_are_apart(void **state)
{
	struct fixture *f = *state;
	const struct sy_addr honest = harness_addr("203.0.113.77");
	unsigned errors = 0;
	for (uint32_t n = 0; n < 100000; n++) {
		const struct sy_addr spoofed = v4_of(0x0b000000 + n * 257);
		errors += charge_many(f, 0, ORIGINATED_ERROR, &spoofed, 1);
	}
	assert_in_range(errors, originated_rate(ORIGINATED_ERROR) / 10 - 3,
	                originated_rate(ORIGINATED_ERROR) / 10);
	assert_int_equal(charge_many(f, 0, ORIGINATED_TOO_BIG, &honest, 1), 1);
	assert_int_equal(charge_many(f, 0, ORIGINATED_ERROR, &honest, 1), 0);
}

/* A class's rate is that of all workers together. */
static void test_workers_share_the_rate(void **state)
{
	struct fixture *f = *state;
	unsigned got = 0;
	for (unsigned ms = 0; ms < 2000; ms++) {
		for (uint32_t n = 0; n < 40; n++) {
			const struct sy_addr to = v4_of(0x0b000000 + rng_below(&f->rng, 1u << 24));
			got += charge_many(f, n % 2, ORIGINATED_ECHO, &to, 1);
		}
		harness_advance(&f->harness, MS_NS);
	}
	assert_in_range(got, 2 * originated_rate(ORIGINATED_ECHO) * 95 / 100,
	                2 * originated_rate(ORIGINATED_ECHO) +
	                        originated_rate(ORIGINATED_ECHO) / 10);
}

/* A host that counts its answers cannot infer how many others got (CVE-2020-25705). */
static void test_full_buckets_differ(void **state)
{
	struct fixture *f = *state;
	unsigned seen[4] = {0};
	for (unsigned n = 0; n < 64; n++) {
		unsigned got = 0;
		harness_advance(&f->harness, 1000 * MS_NS + rng_below(&f->rng, 1000));
		for (uint32_t i = 0; i < 1000; i++) {
			const struct sy_addr to = v4_of(0x0b000000 + i * 257);
			got += charge_many(f, 0, ORIGINATED_ERROR, &to, 1);
		}
		assert_in_range(got, 97, 100);
		seen[100 - got]++;
	}
	for (unsigned missing = 0; missing < 4; missing++)
		assert_true(seen[missing] > 0);
}

/* Sends echo requests from one address; returns how many are answered. */
static unsigned echoes(struct fixture *f, const char *from, unsigned count)
{
	unsigned answers = 0;
	for (unsigned n = 0; n < count; n++) {
		struct frame in = {.port = HARNESS_WAN};
		const struct sy_tuple t = {harness_addr(from), f->key.vip, 0, 0, SY_PROTO_ICMP};
		frame_icmp(&in, &f->rng, &t, 8, 0, 20);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		harness_poll(&f->harness);
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_WAN));
		     rte_pktmbuf_free(m))
			answers++;
	}
	return answers;
}

static void test_echo_is_limited(void **state)
{
	struct fixture *f = *state;
	const unsigned burst = originated_rate(ORIGINATED_ECHO) / 40;
	assert_int_equal(echoes(f, "198.18.1.1", 1000), burst);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_ECHO_RATE), 1000 - burst);
	assert_int_equal(echoes(f, "198.18.1.77", 1), 0);
	assert_int_equal(echoes(f, "198.18.2.1", 1), 1);
	harness_advance(&f->harness, 1000 * MS_NS);
	assert_int_equal(echoes(f, "198.18.1.1", 1), 1);
}

/* Requests that came while a worker did not run are answered as if it had. */
static void test_echo_after_a_stall(void **state)
{
	struct fixture *f = *state;
	const unsigned burst = originated_rate(ORIGINATED_ECHO) / 40,
	               per_second = originated_rate(ORIGINATED_ECHO) / 10;
	assert_int_equal(echoes(f, "198.18.1.1", 1000), burst);
	harness_stall(&f->harness, 1000 * MS_NS);
	assert_int_equal(echoes(f, "198.18.1.1", 2000), per_second);
	harness_advance(&f->harness, 1000 * MS_NS);
	assert_int_equal(echoes(f, "198.18.1.1", 1000), burst);
}

/* Each class of error has its own budget: expired TTLs, and packets that are too big. */
static void test_errors_and_too_big(void **state)
{
	struct fixture *f = *state;
	unsigned answers = 0;
	for (unsigned n = 0; n < 400; n++) {
		struct frame in = {.port = HARNESS_WAN};
		const bool big = n >= 200;
		const struct sy_tuple t = {v4_of(0xc6120000 + 256 * (n % 200) + 1), f->key.vip,
		                           htons(1000), f->key.vport, SY_PROTO_UDP};
		frame_udp(&in, &f->rng, &t, big ? HARNESS_LAN_MTU + 40 : 20);
		if (!big)
			frame_set_ttl(&in, 1);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		harness_poll(&f->harness);
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_WAN));
		     rte_pktmbuf_free(m))
			answers++;
	}
	assert_in_range(harness_drops(&f->harness, SY_DROP_ICMP_RATE), 100, 103);
	assert_int_equal(answers + harness_drops(&f->harness, SY_DROP_ICMP_RATE), 400);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, routed_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(one_network_leaves_the_others_theirs),
	        TEST(no_network_is_asked_of_the_others),
	        TEST(classes_are_apart),
	        cmocka_unit_test_setup_teardown(test_workers_share_the_rate, setup_two,
	                                        routed_teardown),
	        TEST(full_buckets_differ),
	        TEST(echo_is_limited),
	        TEST(echo_after_a_stall),
	        TEST(errors_and_too_big),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
