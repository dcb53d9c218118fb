// SPDX-License-Identifier: Apache-2.0
/* Sessions of all kinds as entries of a log, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../tcp/tests/random.h"
#include "sync_session.h"

static uint64_t draw(void)
{
	return (uint64_t)random_below(UINT32_MAX) << 32 | random_below(UINT32_MAX);
}

static struct sy_addr address_draw(bool v6)
{
	struct sy_addr a = sy_addr_v4((uint32_t)draw());

	if (v6) {
		a.d[0] = draw() << 20 | 1;
		a.d[1] = draw();
	}
	return a;
}

static struct sync_session session_draw(bool v6, bool pair)
{
	struct sync_session s = {
	        .hot[0] = {.client = address_draw(v6),
	                   .client_port = (uint16_t)draw(),
	                   .local_port = (uint16_t)draw(),
	                   .server = draw() & 0xffffff,
	                   .local = (uint8_t)draw(),
	                   .flags = (uint8_t)draw()},
	        .cold[0] = {.syn_seen = draw() & 1,
	                    .inserted = draw() & 0x7f,
	                    .text = draw() & 1,
	                    .fin_seq = {(uint32_t)draw(), (uint32_t)draw()},
	                    .vport = (uint16_t)draw()},
	        .idle_s = (uint16_t)draw(),
	        .age_s = (uint32_t)draw(),
	        .is_pair = pair,
	};

	do {
		s.hot[0].state = (uint8_t)(1 + draw() % (SESSION_STATES - 1));
	} while (s.hot[0].state == SESSION_PAIR_RECORD || s.hot[0].state == SESSION_AWAY);
	if (pair) {
		uint8_t *cold = (uint8_t *)&s.cold[1];
		s.hot[1].client = address_draw(draw() & 1);
		s.hot[1].client_port = (uint16_t)draw();
		s.cold[1].vport = (uint16_t)draw();
		for (unsigned i = 0; i < offsetof(struct session_cold, commit); i++)
			cold[i] = (uint8_t)draw();
	}
	return s;
}

static void assert_identity(const struct sync_session *a, const struct sync_session *b)
{
	assert_int_equal(a->hot[0].server, b->hot[0].server);
	assert_int_equal(a->hot[0].local, b->hot[0].local);
	assert_int_equal(a->hot[0].client_port, b->hot[0].client_port);
	assert_int_equal(a->hot[0].local_port, b->hot[0].local_port);
	assert_int_equal(a->cold[0].vport, b->cold[0].vport);
	if (b->has_client)
		assert_true(sy_addr_equal(&a->hot[0].client, &b->hot[0].client));
}

static void assert_state(const struct sync_session *a, const struct sync_session *b)
{
	assert_int_equal(a->hot[0].state, b->hot[0].state);
	assert_int_equal(a->hot[0].flags, b->hot[0].flags);
	assert_int_equal(a->idle_s, b->idle_s);
	assert_int_equal(a->cold[0].syn_seen, b->cold[0].syn_seen);
	assert_int_equal(a->cold[0].inserted, b->cold[0].inserted);
	assert_int_equal(a->cold[0].text, b->cold[0].text);
	assert_memory_equal(a->cold[0].fin_seq, b->cold[0].fin_seq, sizeof(a->cold[0].fin_seq));
}

static void test_a_put_has_all_of_a_session(void **state)
{
	uint8_t entry[SYNC_ENTRY];
	struct sync_session b;

	for (unsigned i = 0; i < 20000; i++) {
		const struct sync_session a = session_draw(i & 1, i & 2);
		sync_session_write(&a, SYNC_PUT, i & 4, entry);
		assert_true(sync_session_read(entry, &b));
		assert_true(b.has_client);
		assert_identity(&a, &b);
		assert_state(&a, &b);
		assert_int_equal(a.age_s, b.age_s);
		assert_int_equal(a.is_pair, b.is_pair);
		assert_memory_equal(&a.hot[1], &b.hot[1], sizeof(a.hot[1]));
		assert_memory_equal(&a.cold[1], &b.cold[1], sizeof(a.cold[1]));
	}
}

static void test_changes_and_deletions_identify_it(void **state)
{
	uint8_t entry[SYNC_ENTRY];
	struct sync_session b;

	for (unsigned i = 0; i < 20000; i++) {
		const struct sync_session a = session_draw(i & 1, i & 2);
		bool by_local = i & 4, change = i & 8;
		sync_session_write(&a, change ? SYNC_CHANGE : SYNC_DELETE, by_local, entry);
		assert_true(sync_session_read(entry, &b));
		assert_int_equal(b.has_client, !by_local);
		assert_int_equal(b.is_pair, a.is_pair && !by_local);
		assert_identity(&a, &b);
		if (change)
			assert_state(&a, &b);
	}
}

/* What docs/design/0068-session-sync.md says. */
static void test_entries_are_short(void **state)
{
	static const uint8_t max[2][2] = {{37, 49}, {69, 81}}; /* by pair and family, of puts */
	uint8_t entry[SYNC_ENTRY];

	for (unsigned pair = 0; pair < 2; pair++) {
		for (unsigned v6 = 0; v6 < 2; v6++) {
			const struct sync_session a = session_draw(v6, pair);
			sync_session_write(&a, SYNC_PUT, true, entry);
			assert_int_equal(entry[1], max[pair][v6]);
			sync_session_write(&a, SYNC_CHANGE, true, entry);
			assert_int_equal(entry[1], 29);
			sync_session_write(&a, SYNC_DELETE, true, entry);
			assert_int_equal(entry[1], 15);
		}
	}
}

/* Cut anywhere, or of a state or family that does not exist: refused. Longer: of a later version.
 */
static void test_damaged_entries_are_refused(void **state)
{
	uint8_t entry[SYNC_ENTRY] = {0};
	struct sync_session b, a = session_draw(true, true);

	sync_session_write(&a, SYNC_PUT, true, entry);
	uint8_t len = entry[1];
	for (entry[1] = 2; entry[1] < len; entry[1]++)
		assert_false(sync_session_read(entry, &b));
	entry[1] = len + 9;
	assert_true(sync_session_read(entry, &b));
	static const uint8_t wrong[] = {SESSION_FREE, SESSION_PAIR_RECORD, SESSION_AWAY,
	                                SESSION_STATES, 255};
	for (unsigned i = 0; i < sizeof(wrong); i++) {
		a.hot[0].state = wrong[i];
		sync_session_write(&a, SYNC_PUT, true, entry);
		assert_false(sync_session_read(entry, &b));
	}
	a = session_draw(true, false);
	sync_session_write(&a, SYNC_PUT, true, entry);
	const struct sy_addr v4 = sy_addr_v4(1);
	memcpy(entry + 15, &v4, sizeof(v4)); /* IPv4 in the form of IPv6 */
	assert_false(sync_session_read(entry, &b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_a_put_has_all_of_a_session),
	        cmocka_unit_test(test_changes_and_deletions_identify_it),
	        cmocka_unit_test(test_entries_are_short),
	        cmocka_unit_test(test_damaged_entries_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
