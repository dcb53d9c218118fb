// SPDX-License-Identifier: Apache-2.0
/* Path MTU: reported by routers or found by probes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "path_mtu.h"
#include "random.h"

static struct path_mtu path_of(uint16_t link, bool v4)
{
	struct path_mtu m;
	path_mtu_init(&m, link, v4);
	return m;
}

/* ---- routers --------------------------------------------------------------------------------- */

static void test_too_big(void **state) /* RFC 1191, 3 and 6.3 */
{
	struct path_mtu m = path_of(1500, true);
	(void)state;
	assert_int_equal(path_mtu_size(&m), 1500);
	assert_int_equal(path_mtu_probe(&m, 0), 0); /* the link's size: nothing to search */
	assert_true(path_mtu_too_big(&m, 1500, 1400, 1000));
	assert_int_equal(path_mtu_size(&m), 1400);
	assert_false(path_mtu_too_big(&m, 1500, 1400, 1001)); /* of another packet of the window */
	assert_false(path_mtu_too_big(&m, 1500, 1450, 1002));
	assert_false(path_mtu_passed(&m, 1500, 1003)); /* by the path as it was */
	assert_int_equal(path_mtu_size(&m), 1400);
	assert_int_equal(path_mtu_probe(&m, 1000 + PATH_MTU_RAISE_MS - 1), 0);
	assert_int_equal(path_mtu_probe(&m, 1000 + PATH_MTU_RAISE_MS), 1420);
}

static void test_old_routers(void **state) /* RFC 1191 5 and 7.1: they report no size */
{
	static const uint16_t want[] = {8166, 4352, 2002, 1492, 1006, 576};
	struct path_mtu m = path_of(9000, true);
	(void)state;
	for (unsigned n = 0; n < sizeof(want) / sizeof(*want); n++) {
		assert_true(path_mtu_too_big(&m, m.size, n % 2 ? 0 : m.size, 0));
		assert_int_equal(path_mtu_size(&m), want[n]);
	}
	assert_false(path_mtu_too_big(&m, m.size, 0, 0));
	m = path_of(1500, false); /* RFC 8201: no such thing */
	assert_false(path_mtu_too_big(&m, 1500, 0, 0));
	assert_false(path_mtu_too_big(&m, 1500, 1500, 0));
}

static void test_floor(void **state) /* RFC 8201, 4: discard; RFC 791, 3.1: 576, then fragments */
{
	struct path_mtu m = path_of(1500, false);
	(void)state;
	assert_false(path_mtu_too_big(&m, 1500, 1279, 0));
	assert_int_equal(path_mtu_size(&m), 1500);
	assert_true(path_mtu_too_big(&m, 1500, 1280, 0));
	assert_int_equal(path_mtu_size(&m), 1280);
	assert_true(path_mtu_needs_df(&m));
	m = path_of(1500, true);
	assert_true(path_mtu_needs_df(&m));
	assert_true(path_mtu_too_big(&m, 1500, 68, 0));
	assert_int_equal(path_mtu_size(&m), 576);
	assert_false(path_mtu_needs_df(&m));
}

static void test_small_link(void **state)
{
	struct path_mtu m = path_of(500, true);
	(void)state;
	assert_int_equal(path_mtu_size(&m), 500);
	for (unsigned n = 0; n < 9; n++)
		assert_false(path_mtu_lost(&m, 500, 0));
	assert_int_equal(path_mtu_size(&m), 500);
	assert_int_equal(path_mtu_probe(&m, 0), 0);
}

static void test_link_changes(void **state)
{
	struct path_mtu m = path_of(1500, true);
	(void)state;
	path_mtu_link(&m, 9000, 0);
	assert_int_equal(path_mtu_size(&m), 9000);
	path_mtu_link(&m, 1400, 0);
	assert_int_equal(path_mtu_size(&m), 1400);
	path_mtu_too_big(&m, 1400, 1300, 0);
	path_mtu_link(&m, 1500, 0); /* routers' reports are about the path */
	assert_int_equal(path_mtu_size(&m), 1300);
	path_mtu_link(&m, 1280, 0);
	assert_int_equal(path_mtu_size(&m), 1280);
}

/* ---- black holes and probes ------------------------------------------------------------------ */

/* Sends the requested probes over a path without ICMP, until there are none. Returns the number of
 * losses. */
static unsigned search(struct path_mtu *m, uint16_t path, uint64_t now)
{
	unsigned lost = 0;
	for (unsigned n = 0; n < 1000; n++) {
		uint16_t probe = path_mtu_probe(m, now), bytes = probe ? probe : m->size;
		if (probe) {
			assert_true(probe > m->size && probe <= m->link);
			path_mtu_probed(m, probe);
			assert_int_equal(path_mtu_probe(m, now), 0); /* one at a time */
		} else if (m->size <= path && !m->lost) {
			return lost;
		}
		if (bytes <= path) {
			path_mtu_passed(m, bytes, now);
		} else {
			path_mtu_lost(m, bytes, now);
			lost++;
		}
	}
	fail_msg("no end");
	return 0;
}

static void test_black_hole(void **state) /* RFC 8899, 4.3, 5.1.2 and 5.3 */
{
	struct path_mtu m = path_of(1500, true);
	(void)state;
	assert_false(path_mtu_lost(&m, 1500, 0));
	assert_false(path_mtu_lost(&m, 1000, 0)); /* says nothing of the size */
	assert_false(path_mtu_lost(&m, 1500, 0));
	assert_int_equal(path_mtu_probe(&m, 0), 0); /* a bad time for probes */
	path_mtu_passed(&m, 1500, 0);               /* it was congestion */
	assert_false(path_mtu_lost(&m, 1500, 0));
	assert_false(path_mtu_lost(&m, 1500, 0));
	assert_true(path_mtu_lost(&m, 1500, 0));
	assert_int_equal(path_mtu_size(&m), 1200);
	assert_true(path_mtu_probe(&m, 0) > 0);
	path_mtu_lost(&m, 1200, 0);
	assert_int_equal(path_mtu_probe(&m, 0), 0); /* while full packets are lost as well */
	search(&m, 1450, 0);
	assert_in_range(path_mtu_size(&m), 1450 - PATH_MTU_NEAR, 1450);
	m = path_of(1500, false);
	search(&m, 1400, 0);
	assert_in_range(path_mtu_size(&m), 1400, 1400); /* a likely size */
}

/* Nothing passes, of whatever size; then all does. */
static void test_outage(void **state) /* RFC 4821, 7.7 */
{
	struct path_mtu m = path_of(1500, true);
	(void)state;
	for (unsigned n = 0; n < 3; n++)
		path_mtu_lost(&m, 1500, 0);
	for (unsigned n = 0; n < 3; n++)
		path_mtu_lost(&m, 1200, 0);
	assert_int_equal(path_mtu_size(&m), 576);
	path_mtu_passed(&m, 576, 0);
	assert_int_equal(path_mtu_probe(&m, 0), 1500);
	path_mtu_probed(&m, 1500);
	assert_true(path_mtu_passed(&m, 1500, 0));
	assert_int_equal(path_mtu_size(&m), 1500);
	assert_int_equal(path_mtu_probe(&m, PATH_MTU_RAISE_MS), 0);
}

/* The peer had been slow, and nothing was lost. */
static void test_late(void **state)
{
	struct path_mtu m = path_of(1500, true);
	(void)state;
	path_mtu_too_big(&m, 1500, 1400, 0);
	assert_false(path_mtu_late(&m, 0)); /* a router's word stays */
	for (unsigned n = 0; n < 3; n++)
		path_mtu_lost(&m, 1400, 0);
	assert_int_equal(path_mtu_size(&m), 1200);
	assert_true(path_mtu_late(&m, 0));
	assert_int_equal(path_mtu_size(&m), 1400);
	assert_int_equal(path_mtu_probe(&m, PATH_MTU_RAISE_MS - 1), 0);
	assert_false(path_mtu_late(&m, 0));
}

static void test_below_the_base(void **state) /* RFC 8899, 5.2, ERROR state */
{
	struct path_mtu m = path_of(1500, true);
	(void)state;
	search(&m, 900, 0);
	assert_in_range(path_mtu_size(&m), 900 - PATH_MTU_NEAR, 900);
}

static void test_probe_losses(void **state) /* RFC 8899, 5.1.2: MAX_PROBES of each size */
{
	struct path_mtu m = path_of(1500, true);
	(void)state;
	for (unsigned n = 0; n < 3; n++)
		path_mtu_lost(&m, 1500, 0);
	for (unsigned n = 0; n < 6; n++) { /* it may have been no black hole */
		const uint16_t size = n < 3 ? 1500 : 1492;
		assert_int_equal(path_mtu_probe(&m, 0), size);
		path_mtu_probed(&m, size);
		path_mtu_lost(&m, size, 0);
	}
	assert_int_equal(path_mtu_probe(&m, 0), 1480);
	assert_int_equal(path_mtu_size(&m), 1200);
	assert_int_equal(m.lost, 0); /* probes are not the path's fault */
}

static void test_probe_refused(void **state) /* RFC 8899 4.6.2: the reported size is probed next */
{
	struct path_mtu m = path_of(1500, true);
	(void)state;
	for (unsigned n = 0; n < 3; n++)
		path_mtu_lost(&m, 1500, 0);
	path_mtu_probed(&m, path_mtu_probe(&m, 0));
	assert_false(path_mtu_too_big(&m, 1500, 1373, 0));
	assert_int_equal(path_mtu_probe(&m, 0), 1373);
	path_mtu_probed(&m, 1373);
	assert_true(path_mtu_passed(&m, 1373, 0));
	assert_int_equal(path_mtu_size(&m), 1373);
	assert_int_equal(path_mtu_probe(&m, 0), 0);
	assert_int_equal(path_mtu_probe(&m, PATH_MTU_RAISE_MS), 1400);
}

static void test_raise(void **state) /* RFC 8899, 5.1.1, PMTU_RAISE_TIMER */
{
	struct path_mtu m = path_of(9000, true);
	uint64_t now = 5;
	(void)state;
	path_mtu_too_big(&m, 9000, 1400, now);
	/* nothing has changed: three probes in ten minutes, no more */
	for (unsigned n = 0; n < 5; n++) {
		assert_int_equal(search(&m, 1400, now += PATH_MTU_RAISE_MS - 1), 0);
		assert_int_equal(search(&m, 1400, now += 1), PATH_MTU_TRIES);
	}
	/* the path is better: all of it is found */
	search(&m, 9000, now += PATH_MTU_RAISE_MS);
	assert_int_equal(path_mtu_size(&m), 9000);
	assert_int_equal(search(&m, 9000, now += PATH_MTU_RAISE_MS), 0);
	path_mtu_too_big(&m, 9000, 1400, now);
	search(&m, 3000, now += PATH_MTU_RAISE_MS);
	assert_in_range(path_mtu_size(&m), 3000 - PATH_MTU_NEAR, 3000);
}

/* Every path is found from every link, and with few losses. */
static void test_every_path(void **state)
{
	(void)state;
	for (uint32_t link = 1280; link <= 9216; link += 64)
		for (uint32_t path = 576; path <= link; path += 97) {
			struct path_mtu m = path_of((uint16_t)link, true);
			assert_true(search(&m, (uint16_t)path, 0) <= 100);
			assert_in_range(m.size, path < 592 ? 576 : path - PATH_MTU_NEAR, path);
		}
}

/* Random reports, losses and ACKs: sizes stay within bounds. */
static void test_random(void **state)
{
	(void)state;
	for (unsigned run = 0; run < 10000; run++) {
		bool v4 = random_below(2);
		struct path_mtu m = path_of((uint16_t)(1280 + random_below(60000)), v4);
		uint64_t now = 0;
		for (unsigned step = 0; step < 300; step++) {
			uint16_t bytes = (uint16_t)random_below(65536), before = m.size;
			bytes = random_below(3) ? m.size : bytes;
			bytes = m.probe && random_below(2) ? m.probe : bytes;
			bool changed = false;
			now += random_below(100) ? random_below(1000) : PATH_MTU_RAISE_MS;
			switch (random_below(7)) {
			case 6:
				changed = path_mtu_late(&m, now);
				break;
			case 0:
				changed = path_mtu_too_big(&m, bytes, (uint16_t)random_below(65536),
				                           now);
				break;
			case 1:
				changed = path_mtu_passed(&m, bytes, now);
				break;
			case 2:
				changed = path_mtu_lost(&m, bytes, now);
				break;
			case 3:
				if (random_below(50) == 0) {
					path_mtu_link(&m, (uint16_t)(1280 + random_below(60000)),
					              now);
					before = m.size;
				}
				break;
			default:
				bytes = path_mtu_probe(&m, now);
				assert_true(bytes == 0 || (bytes > m.size && bytes <= m.link));
				if (bytes)
					path_mtu_probed(&m, bytes);
			}
			assert_int_equal(changed, m.size != before);
			assert_in_range(m.size, v4 ? 576 : 1280, m.link);
			assert_true(m.high >= m.size && m.high <= m.link);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_too_big),        cmocka_unit_test(test_old_routers),
	        cmocka_unit_test(test_floor),          cmocka_unit_test(test_small_link),
	        cmocka_unit_test(test_link_changes),   cmocka_unit_test(test_black_hole),
	        cmocka_unit_test(test_below_the_base), cmocka_unit_test(test_probe_losses),
	        cmocka_unit_test(test_probe_refused),  cmocka_unit_test(test_raise),
	        cmocka_unit_test(test_every_path),     cmocka_unit_test(test_random),
	        cmocka_unit_test(test_outage),         cmocka_unit_test(test_late),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
