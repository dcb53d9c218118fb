// SPDX-License-Identifier: Apache-2.0
/* Seals, replays, and hellos of two nodes: restarts, losses, recordings of earlier incarnations. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../tcp/tests/random.h"
#include "sync_peer.h"
#include "sync_seal.h"

/* ---- seals ----------------------------------------------------------------------------------- */

static const struct sync_secret secret = {1, SYNC_SECRET, "a secret of thirty-two bytes ..."};

static struct sync_header header_of(uint64_t counter)
{
	return (struct sync_header){.magic = SYNC_MAGIC,
	                            .version = SYNC_VERSION,
	                            .secret = secret.id,
	                            .node = 3,
	                            .worker = 2,
	                            .kind = SYNC_PARTS,
	                            .from = 77,
	                            .to = 88,
	                            .counter = counter};
}

static void test_sealed_bytes_come_back(void **state)
{
	struct sync_cipher *a = sync_cipher_create(&secret, 3, 77),
	                   *b = sync_cipher_create(&secret, 3, 77);
	uint8_t plain[1344], sealed[1500], opened[1500];

	for (unsigned i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)(i * 7);
	for (size_t len = 0; len <= sizeof(plain); len += 97) {
		const struct sync_header h = header_of(len + 1);
		size_t n = sync_seal(a, &h, plain, len, sealed);
		assert_int_equal(n, sizeof(h) + len + SYNC_TAG);
		assert_int_equal(sync_open(b, sealed, n, opened), len);
		assert_memory_equal(opened, plain, len);
	}
	sync_cipher_destroy(a);
	sync_cipher_destroy(b);
}

static void test_a_changed_bit_is_refused(void **state)
{
	struct sync_cipher *c = sync_cipher_create(&secret, 3, 77);
	const struct sync_header h = header_of(9);
	uint8_t plain[40] = {1, 2, 3}, sealed[128], opened[128];
	size_t n = sync_seal(c, &h, plain, sizeof(plain), sealed);

	for (size_t bit = 0; bit < n * 8; bit++) {
		sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(sync_open(c, sealed, n, opened), -EBADMSG);
		sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t len = 0; len < n; len++)
		assert_int_equal(sync_open(c, sealed, len, opened), -EBADMSG);
	assert_int_equal(sync_open(c, sealed, n, opened), sizeof(plain));
	sync_cipher_destroy(c);
}

static void test_another_key_opens_nothing(void **state)
{
	struct sync_secret other = secret;
	uint8_t plain[40] = {0}, sealed[128], opened[128];
	const struct sync_header h = header_of(9);

	other.bytes[0] ^= 1;
	struct sync_cipher *c = sync_cipher_create(&secret, 3, 77);
	struct sync_cipher *wrong[] = {
	        sync_cipher_create(&other, 3, 77),
	        sync_cipher_create(&secret, 4, 77),
	        sync_cipher_create(&secret, 3, 78),
	};
	size_t n = sync_seal(c, &h, plain, sizeof(plain), sealed);
	for (unsigned i = 0; i < SY_ARRAY_LEN(wrong); i++) {
		assert_int_equal(sync_open(wrong[i], sealed, n, opened), -EBADMSG);
		sync_cipher_destroy(wrong[i]);
	}
	sync_cipher_destroy(c);
}

/* ---- replays --------------------------------------------------------------------------------- */

/* Against a list of all counters that came. */
static void test_each_counter_is_accepted_once(void **state)
{
	static bool came[200000];
	struct sync_replay r = {0};
	uint64_t top = 0;

	for (unsigned i = 0; i < 100000; i++) {
		uint64_t spread = random_below(8) == 0 ? 3000 : 40, base = top + 20;
		uint64_t counter = base > spread ? base - random_below((uint32_t)spread) : 1;
		bool accepted = sync_replay_accept(&r, counter);
		if (accepted)
			assert_false(came[counter]);
		else
			assert_true(came[counter] || counter + SYNC_REPLAY - 64 <= top);
		came[counter] |= accepted;
		top = counter > top ? counter : top;
		if (top > 190000)
			break;
	}
	assert_false(sync_replay_accept(&r, 0));
	assert_true(sync_replay_accept(&r, UINT64_MAX));
	assert_false(sync_replay_accept(&r, UINT64_MAX));
}

/* ---- hellos ---------------------------------------------------------------------------------- */

struct node {
	struct sync_self self;
	struct sync_peer peer;
};

static uint64_t now_ns;

static void node_start(struct node *n, uint8_t number, uint8_t other, uint64_t incarnation)
{
	n->self = (struct sync_self){
	        .incarnation = incarnation, .slot_key = 5, .node = number, .name = "node"};
	sync_peer_begin(&n->peer, other);
}

/* Sends the hello that is due, which arrives at `to` unless it is lost. Returns whether one was
 * due. */
static bool hello_pass(struct node *from, struct node *to, bool lost, struct sync_hello *recorded)
{
	struct sync_hello hello;

	if (!sync_hello_make(&from->peer, &from->self, now_ns, &hello))
		return false;
	if (recorded)
		*recorded = hello;
	if (!lost)
		sync_hello_receive(&to->peer, &to->self, from->self.incarnation, &hello,
		                   now_ns + 300000);
	return true;
}

static void time_pass(struct node *a, struct node *b, unsigned ms, unsigned loss_of_8)
{
	for (; ms > 0; ms--, now_ns += 1000000) {
		hello_pass(a, b, random_below(8) < loss_of_8, NULL);
		hello_pass(b, a, random_below(8) < loss_of_8, NULL);
	}
}

static void assert_together(const struct node *a, const struct node *b)
{
	assert_int_equal(a->peer.incarnation, b->self.incarnation);
	assert_int_equal(b->peer.incarnation, a->self.incarnation);
	assert_true(sync_peer_is_alive(&a->peer, now_ns) && sync_peer_is_alive(&b->peer, now_ns));
}

static void test_nodes_accept_each_other(void **state)
{
	for (unsigned loss = 0; loss < 5; loss++) {
		struct node a, b;
		now_ns = UINT64_C(1000000000000);
		node_start(&a, 1, 2, 1001);
		node_start(&b, 2, 1, 1002);
		time_pass(&a, &b, loss ? 5000 : 600, loss);
		assert_together(&a, &b);
		assert_in_range(a.peer.srtt_ns, 1, 30000000);
		node_start(&b, 2, 1, 1003); /* b restarts */
		time_pass(&a, &b, loss ? 5000 : 1000, loss);
		assert_together(&a, &b);
		assert_int_equal(a.peer.epoch, 2);
	}
}

static void test_a_silent_peer_is_away(void **state)
{
	struct node a, b;

	node_start(&a, 1, 2, 1001);
	node_start(&b, 2, 1, 1002);
	time_pass(&a, &b, 1000, 0);
	time_pass(&a, &b, 1500, 8);
	assert_false(sync_peer_is_alive(&a.peer, now_ns));
	time_pass(&a, &b, 1000, 0);
	assert_together(&a, &b);
	assert_int_equal(a.peer.epoch, 1); /* the same incarnation: its logs go on */
}

/* Neither node may wait for the other one: what it sends does not arrive, or no answer does. */
static void test_a_link_that_fails_in_one_direction_is_down(void **state)
{
	struct node a, b;

	node_start(&a, 1, 2, 1001);
	node_start(&b, 2, 1, 1002);
	time_pass(&a, &b, 1000, 0);
	assert_together(&a, &b);
	for (unsigned ms = 0; ms < 2500; ms++, now_ns += 1000000) {
		hello_pass(&a, &b, true, NULL);
		hello_pass(&b, &a, false, NULL);
	}
	assert_false(sync_peer_is_alive(&a.peer, now_ns));
	assert_false(sync_peer_is_alive(&b.peer, now_ns));
	time_pass(&a, &b, 500, 0);
	assert_together(&a, &b);
}

/* It is dead at once, until it says otherwise; a stranger's farewell changes nothing. */
static void test_a_peer_that_leaves_is_away(void **state)
{
	struct node a, b;
	struct sync_hello hello;

	node_start(&a, 1, 2, 1001);
	node_start(&b, 2, 1, 1002);
	time_pass(&a, &b, 2000, 0);
	assert_together(&a, &b);
	while (!sync_hello_make(&b.peer, &b.self, now_ns, &hello) || hello.echo != 1001)
		now_ns += SYNC_HELLO_NS;
	hello.role = SYNC_ROLE_LEAVING;
	assert_false(sync_hello_receive(&a.peer, &a.self, 1003, &hello, now_ns));
	assert_true(sync_peer_is_alive(&a.peer, now_ns));
	assert_true(sync_hello_receive(&a.peer, &a.self, 1002, &hello, now_ns));
	assert_false(sync_peer_is_alive(&a.peer, now_ns));
	assert_int_equal(a.peer.incarnation, 1002);
	time_pass(&a, &b, 2000, 0);
	assert_together(&a, &b);
}

static void test_another_slot_key_or_version_is_refused(void **state)
{
	struct node a, b;
	struct sync_hello hello;

	node_start(&a, 1, 2, 1001);
	node_start(&b, 2, 1, 1002);
	b.self.slot_key++;
	time_pass(&a, &b, 1000, 0);
	assert_int_equal(a.peer.incarnation, 0);
	assert_int_equal(a.peer.refusal, SYNC_OTHER_KEY);
	now_ns += SYNC_HELLO_NS;
	assert_true(sync_hello_make(&b.peer, &b.self, now_ns, &hello));
	hello.version_min = hello.version_max = SYNC_VERSION + 1;
	sync_hello_receive(&a.peer, &a.self, b.self.incarnation, &hello, now_ns);
	assert_int_equal(a.peer.refusal, SYNC_OTHER_VERSION);
}

/* An attacker who recorded hellos sends them again: after the peer's restart, after ours, and all
 * the time.
 */
static void test_recorded_hellos_change_nothing(void **state)
{
	struct node a, b;
	struct sync_hello recorded[40];
	unsigned count = 0;

	node_start(&a, 1, 2, 1001);
	node_start(&b, 2, 1, 1002);
	for (unsigned ms = 0; ms < 2000; ms++, now_ns += 1000000) {
		hello_pass(&a, &b, false, NULL);
		if (count < SY_ARRAY_LEN(recorded))
			count += hello_pass(&b, &a, false, &recorded[count]);
	}
	assert_together(&a, &b);
	node_start(&b, 2, 1, 1003);
	time_pass(&a, &b, 1000, 0);
	assert_together(&a, &b);
	for (unsigned ms = 0; ms < 20000; ms++, now_ns += 1000000) {
		sync_hello_receive(&a.peer, &a.self, 1002, &recorded[ms % count], now_ns);
		hello_pass(&a, &b, false, NULL);
		hello_pass(&b, &a, false, NULL);
		assert_int_equal(a.peer.incarnation, 1003);
		assert_true(sync_peer_is_alive(&a.peer, now_ns));
		assert_true(sync_peer_is_alive(&b.peer, now_ns));
	}
	node_start(&a, 1, 2, 1004); /* what was recorded does not know this incarnation */
	for (unsigned i = 0; i < count; i++)
		assert_false(sync_hello_receive(&a.peer, &a.self, 1002, &recorded[i], now_ns));
	assert_int_equal(a.peer.incarnation, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_sealed_bytes_come_back),
	        cmocka_unit_test(test_a_changed_bit_is_refused),
	        cmocka_unit_test(test_another_key_opens_nothing),
	        cmocka_unit_test(test_each_counter_is_accepted_once),
	        cmocka_unit_test(test_nodes_accept_each_other),
	        cmocka_unit_test(test_a_silent_peer_is_away),
	        cmocka_unit_test(test_a_link_that_fails_in_one_direction_is_down),
	        cmocka_unit_test(test_another_slot_key_or_version_is_refused),
	        cmocka_unit_test(test_a_peer_that_leaves_is_away),
	        cmocka_unit_test(test_recorded_hellos_change_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
