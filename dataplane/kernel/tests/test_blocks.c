// SPDX-License-Identifier: Apache-2.0
/* Blocked sources: the program drops what the list says, whatever list was there before. */
#include "director_fixture.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <stdlib.h>
#include <unistd.h>

#define LIST   3000
#define PROBES 600
#define SYN    0x02
#define ACK    0x10

static uint32_t seed = 1;

static int block(const struct sy_blocked *list, size_t count, bool all)
{
	struct sy_blocked *copy = malloc((count + 1) * sizeof(*copy));

	assert_non_null(copy);
	memcpy(copy, list, count * sizeof(*copy));
	struct sy_blocked_list *l = sy_blocked_list_make(copy, count);
	assert_non_null(l);
	int rc = sy_director_block(director, l, all);
	sy_blocked_list_drop(l);
	return rc;
}

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)(seed >> 4) * below >> 28);
}

/* Whether the program drops a packet from this source to the VIP of its family. */
static bool is_dropped(const struct sy_addr *from, uint8_t proto, uint8_t flags)
{
	const bool v4 = sy_addr_is_v4(from);
	const struct sy_addr vip = addr_of(v4 ? VIP4 : VIP6);
	const unsigned l4 = v4 ? 34 : 54;
	uint8_t frame[80] = {[12] = v4 ? 0x08 : 0x86, v4 ? 0x00 : 0xdd};
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = sizeof(frame));
	const struct sy_director_stats before = stats();
	int prog = bpf_prog_get_fd_by_id(pinned_program_id());

	if (v4) {
		frame[14] = 0x45;
		frame[22] = 64;
		frame[23] = proto;
		memcpy(frame + 26, from->b + 12, 4);
		memcpy(frame + 30, vip.b + 12, 4);
	} else {
		frame[14] = 0x60;
		frame[20] = proto;
		frame[21] = 64;
		memcpy(frame + 22, from->b, 16);
		memcpy(frame + 38, vip.b, 16);
	}
	frame[l4 + 3] = 80;
	frame[l4 + 13] = flags;
	assert_true(prog >= 0);
	assert_int_equal(bpf_prog_test_run_opts(prog, &opts), 0);
	close(prog);
	assert_int_equal(opts.retval, XDP_DROP); /* there is no socket */
	bool dropped = stats().dropped_blocked > before.dropped_blocked;
	assert_int_equal(stats().dropped_no_socket > before.dropped_no_socket, !dropped);
	return dropped;
}

static void vips_serve(void)
{
	const struct sy_port_range served[] = {{80, 80, 6}, {80, 80, 17}};
	const char *const vip[] = {VIP4, VIP6};

	for (unsigned i = 0; i < 2; i++) {
		const struct sy_addr addr = addr_of(vip[i]);

		steer(vip[i], true);
		assert_int_equal(sy_director_serve(director, &addr, served, 2), 0);
	}
}

/* Few networks, so that lists share entries and a /24 has several. */
static struct sy_blocked network_draw(void)
{
	static const uint8_t bits4[] = {8, 16, 22, 23, 24, 24, 25, 28, 31, 32, 32, 32, 32};
	static const uint8_t bits6[] = {16, 32, 47, 48, 48, 56, 64, 127, 128, 128};
	struct sy_blocked p = {.addr = addr_of("10.0.0.0")};
	bool v4 = draw(2);

	if (v4) {
		p.bits = bits4[draw(SY_ARRAY_LEN(bits4))];
		p.addr.w[3] =
		        htonl((11 + draw(3)) << 24 | draw(4) << 16 | draw(8) << 8 | draw(256));
		p.addr.w[3] &= htonl(~(uint32_t)((UINT64_C(1) << (32 - p.bits)) - 1));
		return p;
	}
	p.bits = bits6[draw(SY_ARRAY_LEN(bits6))];
	p.addr = addr_of("2001::");
	p.addr.b[3] = (uint8_t)draw(4);
	p.addr.b[5] = (uint8_t)draw(4);
	p.addr.b[7] = (uint8_t)draw(4);
	p.addr.b[15] = (uint8_t)draw(16);
	for (unsigned bit = p.bits; bit < 128; bit++)
		p.addr.b[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
	return p;
}

static bool network_has(const struct sy_blocked *p, const struct sy_addr *a)
{
	unsigned bits = p->bits + (sy_addr_is_v4(&p->addr) ? 96u : 0u);

	if (sy_addr_is_v4(&p->addr) != sy_addr_is_v4(a))
		return false;
	for (unsigned bit = 0; bit < bits; bit++)
		if ((p->addr.b[bit / 8] ^ a->b[bit / 8]) & 0x80 >> bit % 8)
			return false;
	return true;
}

static int network_compare(const void *a, const void *b)
{
	const struct sy_blocked *x = a, *y = b;
	int order = memcmp(&x->addr, &y->addr, sizeof(x->addr));

	return order ? order : (int)x->bits - y->bits;
}

/* Sorted, and none within another. */
static size_t list_draw(struct sy_blocked *list, size_t count)
{
	size_t out = 0;

	for (size_t i = 0; i < count; i++)
		list[i] = network_draw();
	qsort(list, count, sizeof(*list), network_compare);
	for (size_t i = 0; i < count; i++)
		if (!out || !network_has(&list[out - 1], &list[i].addr))
			list[out++] = list[i];
	return out;
}

static bool list_has(const struct sy_blocked *list, size_t count, const struct sy_addr *a)
{
	for (size_t i = 0; i < count; i++)
		if (network_has(&list[i], a))
			return true;
	return false;
}

static void steps_all(void)
{
	int rc;

	while ((rc = sy_director_block_step(director)) > 0)
		;
	assert_int_equal(rc, 0);
}

static unsigned list_check(const struct sy_blocked *list, size_t count)
{
	unsigned blocked = 0;

	for (unsigned n = 0; n < PROBES; n++) {
		struct sy_addr a = network_draw().addr;

		a.b[15] = (uint8_t)(a.b[15] + draw(3));
		bool wanted = list_has(list, count, &a);
		assert_int_equal(is_dropped(&a, IPPROTO_TCP, SYN), wanted);
		blocked += wanted;
	}
	return blocked;
}

/* Lists in sequence, some of them set before the previous one was in place. */
static void test_lists_follow_one_another(void **state)
{
	static struct sy_blocked list[LIST];

	director_start(SY_DIRECTOR_GENERIC);
	vips_serve();
	for (unsigned round = 0; round < 30; round++) {
		size_t count =
		        list_draw(list, round % 5 == 4 ? 0 : 1 + draw(round % 2 ? LIST : 40));

		assert_int_equal(block(list, count, false), 0);
		if (round % 3 == 1) {
			sy_director_block_step(director);
			continue;
		}
		steps_all();
		unsigned blocked = list_check(list, count);
		if (count > 1000)
			assert_in_range(blocked, 1, PROBES);
		if (count == 0)
			assert_int_equal(blocked, 0);
	}
}

static void test_sessions_pass_unless_they_end(void **state)
{
	const struct sy_blocked one = {addr_of("11.1.2.0"), 24};
	const struct sy_addr source = addr_of("11.1.2.3");

	director_start(SY_DIRECTOR_GENERIC);
	vips_serve();
	for (unsigned all = 0; all < 2; all++) {
		assert_int_equal(block(&one, 1, all), 0);
		steps_all();
		assert_true(is_dropped(&source, IPPROTO_TCP, SYN));
		assert_int_equal(is_dropped(&source, IPPROTO_TCP, SYN | ACK), all);
		assert_int_equal(is_dropped(&source, IPPROTO_TCP, ACK), all);
		assert_int_equal(is_dropped(&source, IPPROTO_UDP, SYN), all);
		assert_int_equal(is_dropped(&source, IPPROTO_ICMP, 0), all);
	}
	const struct sy_addr vip = addr_of(VIP4);
	assert_int_equal(sy_director_serve(director, &vip, NULL, 0), 0); /* not only a VIP now */
	assert_false(is_dropped(&source, IPPROTO_TCP, SYN));
}

/* A list outlives its process, until the next one has settled or has another list. */
static void test_a_list_outlives_its_process(void **state)
{
	const struct sy_blocked before[] = {{addr_of("2001:7::"), 32},
	                                    {addr_of("2001:8:1::"), 64},
	                                    {addr_of("11.1.2.3"), 32},
	                                    {addr_of("12.0.0.0"), 8}};
	const struct sy_blocked now = {addr_of("13.0.0.0"), 24};
	const char *const text[] = {"2001:7::1", "2001:8:1::1", "11.1.2.3", "12.1.2.3"};
	const struct sy_addr other = addr_of("13.0.0.1");
	struct sy_blocked sorted[4];

	memcpy(sorted, before, sizeof(before));
	qsort(sorted, 4, sizeof(*sorted), network_compare);
	for (unsigned way = 0; way < 2; way++) {
		director_start(SY_DIRECTOR_GENERIC);
		vips_serve();
		assert_int_equal(block(sorted, 4, false), 0);
		steps_all();
		director_stop();
		director_start(SY_DIRECTOR_GENERIC);
		vips_serve();
		assert_int_equal(sy_director_set(director, 0, false), 0);
		for (unsigned i = 0; i < 4; i++) {
			const struct sy_addr a = addr_of(text[i]);

			assert_true(is_dropped(&a, IPPROTO_TCP, SYN));
		}
		if (way == 0) {
			assert_int_equal(sy_director_settle(director), 0);
			vips_serve();
		} else {
			assert_int_equal(block(&now, 1, false), 0);
			steps_all();
		}
		for (unsigned i = 0; i < 4; i++) {
			const struct sy_addr a = addr_of(text[i]);

			assert_false(is_dropped(&a, IPPROTO_TCP, SYN));
		}
		assert_int_equal(is_dropped(&other, IPPROTO_TCP, SYN), way);
		director_stop();
	}
}

static void test_lists_that_are_too_long(void **state)
{
	static struct sy_blocked list[8200];

	director_start(SY_DIRECTOR_GENERIC);
	for (unsigned i = 0; i < SY_ARRAY_LEN(list); i++) {
		list[i] = (struct sy_blocked){addr_of("10.0.0.0"), 25};
		list[i].addr.w[3] = htonl(0x0b000000 + i * 128);
	}
	assert_int_equal(block(list, 8193, false), -E2BIG);
	assert_int_equal(block(list, 100, false), 0);
	steps_all();
	for (unsigned i = 0; i < SY_ARRAY_LEN(list); i++) {
		list[i] = (struct sy_blocked){addr_of("2000::"), 47};
		list[i].addr.b[3] = (uint8_t)(i >> 7);
		list[i].addr.b[5] = (uint8_t)(i << 1);
	}
	assert_int_equal(block(list, 4097, false), -E2BIG);
}

#define FULL 4096 /* capacity for IPv6 networks shorter than 48 bits */

/* A network does not fit until those that it replaces have left, and it comes before them. They
 * leave nevertheless, and it is not counted as present. */
static void test_a_full_map(void **state)
{
	static struct sy_blocked list[FULL];
	const struct sy_blocked two[] = {{addr_of("2001:7::"), 32}, {addr_of("2001:8::"), 32}};
	const struct sy_addr first = addr_of("2001:7::1"), second = addr_of("2001:8::1");
	int rc;

	director_start(SY_DIRECTOR_GENERIC);
	vips_serve();
	for (unsigned i = 0; i < FULL; i++) {
		list[i] = (struct sy_blocked){addr_of("2002::"), 47};
		list[i].addr.b[3] = (uint8_t)(i >> 7);
		list[i].addr.b[5] = (uint8_t)(i << 1);
	}
	assert_int_equal(block(list, FULL, false), 0);
	steps_all();
	assert_true(is_dropped(&list[FULL - 1].addr, IPPROTO_TCP, SYN));
	assert_int_equal(block(&two[0], 1, false), 0);
	while ((rc = sy_director_block_step(director)) > 0)
		;
	assert_in_range(-rc, 1, 4095);
	assert_int_not_equal(rc, -EAGAIN);
	for (unsigned i = 0; i < FULL; i += 15)
		assert_false(is_dropped(&list[i].addr, IPPROTO_TCP, SYN));
	assert_false(is_dropped(&first, IPPROTO_TCP, SYN));
	assert_int_equal(block(two, 2, false), 0);
	steps_all();
	assert_true(is_dropped(&second, IPPROTO_TCP, SYN));
	assert_int_equal(block(&two[1], 1, false), 0);
	steps_all();
	assert_true(is_dropped(&second, IPPROTO_TCP, SYN));
	assert_int_equal(block(two, 2, false), 0);
	steps_all();
	assert_true(is_dropped(&first, IPPROTO_TCP, SYN));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, direct_setup, direct_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_lists_follow_one_another),
	        TEST(test_sessions_pass_unless_they_end),
	        TEST(test_a_list_outlives_its_process),
	        TEST(test_lists_that_are_too_long),
	        TEST(test_a_full_map),
	};

	return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
