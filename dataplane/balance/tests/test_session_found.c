// SPDX-License-Identifier: Apache-2.0
/* How a file was left: crash, stop, hand-over; the time away, the records' halves, what is
 * trusted. */
#include "session_place.h"

#define SECOND UINT64_C(1000000000)

/* The time that tests set; 0: the real clock. */
static uint64_t clock_ns;

uint64_t __real_sy_clock_ns(void);
uint64_t __wrap_sy_clock_ns(void);

uint64_t __wrap_sy_clock_ns(void)
{
	return clock_ns ? clock_ns : __real_sy_clock_ns();
}

/* ---- how it was left ------------------------------------------------------------------------- */

static void a_crash_is_found(void **state)
{
	struct session_store *s = place_open();
	assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_NEW);
	assert_int_equal(session_store_path_half(s), 0);
	struct sy_hash_key key = *session_store_key(s);
	session_store_close(s);
	for (unsigned i = 1; i < 4; i++) {
		s = place_open();
		assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_CRASHED);
		assert_string_equal(session_store_found(s)->refused, "");
		assert_false(session_store_found(s)->resized);
		assert_int_equal(session_store_path_half(s), i % 2);
		assert_memory_equal(session_store_key(s), &key, sizeof(key));
		session_store_close(s);
	}
}

static void adopt_none(struct session_store *s)
{
	uint64_t count[SESSION_RESULT_COUNT];
	struct network none = {0};

	place_adopt(s, &none, 1, count);
}

static void a_clean_stop_is_found_once(void **state)
{
	session_store_seal(place_open(), 0, true);
	struct session_store *s = place_open();
	assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_STOPPED);
	session_store_close(s);
	/* the seal is broken, and a file that was never adopted is not sealed */
	s = place_open();
	assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_CRASHED);
	session_store_seal(s, 0, true);
	s = place_open();
	assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_CRASHED);
	adopt_none(s);
	session_store_seal(s, 5, true);
	/* a hand-over that no successor acquired */
	s = place_open();
	assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_STOPPED);
	session_store_close(s);
}

static void a_damaged_seal_is_a_crash(void **state)
{
	size_t size;

	session_store_seal(place_open(), 0, true);
	uint8_t *bytes = place_read("", &size);
	struct session_file *f = (struct session_file *)bytes;
	for (size_t at = 0; at < sizeof(f->seal); at += 7) {
		((uint8_t *)&f->seal)[at] ^= 0x10;
		place_write("", bytes, size);
		((uint8_t *)&f->seal)[at] ^= 0x10;
		struct session_store *s = place_open();
		assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_CRASHED);
		session_store_close(s);
	}
	free(bytes);
}

static void time_away_counts(void **state)
{
	clock_ns = 900000 * SECOND;
	struct session_store *s = place_open();
	clock_ns += 5 * SECOND;
	session_store_alive(s);
	session_store_close(s);
	clock_ns += 70000 * SECOND;
	s = place_open();
	assert_true(session_store_found(s)->away_ns == 70000 * SECOND);
	/* not alive before it is adopted: another crash would lose the time away */
	session_store_alive(s);
	session_store_close(s);
	clock_ns += SECOND;
	s = place_open();
	assert_true(session_store_found(s)->away_ns == 70001 * SECOND);
	adopt_none(s);
	clock_ns += SECOND;
	session_store_seal(s, 0, true);
	clock_ns += 3 * SECOND;
	s = place_open();
	assert_true(session_store_found(s)->away_ns == 3 * SECOND);
	session_store_close(s);
	/* also after the seal is broken */
	clock_ns += SECOND;
	s = place_open();
	assert_true(session_store_found(s)->away_ns == 4 * SECOND);
	session_store_close(s);
	/* the seal's contents have a checksum, and count */
	s = place_open();
	adopt_none(s);
	session_store_seal(s, 0, true);
	size_t size;
	uint8_t *bytes = place_read("", &size);
	((struct session_file *)bytes)->alive_ns = 1;
	place_write("", bytes, size);
	free(bytes);
	clock_ns += 7 * SECOND;
	s = place_open();
	assert_true(session_store_found(s)->away_ns == 7 * SECOND);
	session_store_close(s);
	/* a clock that went back, which the real one does not */
	clock_ns -= 100 * SECOND;
	s = place_open();
	assert_true(session_store_found(s)->away_ns == 0);
	session_store_close(s);
	clock_ns = 0;
}

/* ---- from process to process ----------------------------------------------------------------- */

/* Two stores of one file in this process act like those of two processes: locks belong to
 * descriptors. */
static struct session_store *successor(void)
{
	return place_open_as(inherit_options());
}

static void acquire_fails(struct session_store *s, uint64_t ticket, int code)
{
	struct sy_error err = {0};

	assert_int_equal(session_store_acquire(s, ticket, &err), code);
	assert_int_equal(err.code, -code);
}

static void take(struct session_store *s, uint64_t ticket, enum session_source source)
{
	struct sy_error err = {0};

	if (session_store_acquire(s, ticket, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(session_store_found(s)->source, source);
}

static void tables_are_passed_on(void **state)
{
	uint64_t count[SESSION_RESULT_COUNT];
	struct session_validator validator;
	struct network n;

	network_init(&n, 4, PLACE_SESSIONS, 11);
	network_use(&n, place_open());
	place_fill(&n, PLACE_SESSIONS / 2);
	uint64_t sessions = PLACE_SESSIONS / 2;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		struct session_table *t = session_store_table(n.store, (uint8_t)slot);
		if (session_count(t) < 3)
			continue;
		network_remove(&n, t, slot % 3);
		sessions--;
	}
	struct session_store *old = n.store, *new = successor();
	struct session_table *before = malloc(SY_SLOTS * sizeof(*before));
	memcpy(before, session_store_table(old, 0), SY_SLOTS * sizeof(*before));
	assert_int_equal(session_store_path_half(new), 1);
	/* nothing is written yet: the old forwarder continues, and its successor may give up */
	session_store_seal(old, 42, true);
	take(new, 42, SESSION_SOURCE_HANDED_OVER);
	network_use(&n, new);
	assert_int_equal(place_check(&n), sessions);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = session_store_table(new, (uint8_t)slot);
		assert_int_equal(t->top, before[slot].top);
		assert_int_equal(t->free_head, before[slot].free_head);
		assert_int_equal(t->sweep_at, 0);
	}
	free(before);
	place_fill(&n, 100);
	validator = network_validator(&n);
	assert_int_equal(session_store_adopt(new, &validator, 1, count, NULL), -EINVAL);
	session_store_close(new);
	/* its seal is broken: this store leaves a crash */
	network_use(&n, place_open());
	assert_int_equal(session_store_found(n.store)->source, SESSION_SOURCE_CRASHED);
	assert_int_equal(session_store_path_half(n.store), 0);
	place_adopt(n.store, &n, 1, count);
	assert_int_equal(place_check(&n), sessions + 100);
	session_store_close(n.store);
	network_free(&n);
}

/* A pair is one session in two records. A table of pairs may have no free record. */
static void pairs_are_steered(void **state)
{
	struct session hot[2] = {{.state = SESSION_SYN_SENT, .client_port = 1}, {.client_port = 2}};
	const struct session_cold cold[2] = {{.created = 1}, {.created = 1}};
	struct session_store *old = place_open();
	struct session_table *t = session_store_table(old, 7);
	assert_int_equal(session_insert_pair(t, hot, cold, 0x123456789, 0x987654321), 0);
	assert_int_equal(session_count(t), 1);
	assert_int_equal(t->top, 2);
	assert_int_equal(t->free_head, SESSION_NONE);
	struct session_store *new = successor();
	session_store_seal(old, 42, true);
	take(new, 42, SESSION_SOURCE_HANDED_OVER);
	t = session_store_table(new, 7);
	assert_int_equal(session_count(t), 1);
	assert_true(session_is_pair(t, 0));
	/* its records are not considered free */
	assert_int_equal(session_insert(t, hot, cold, 0x1111111111, 0x2222222222), 2);
	session_store_close(new);
}

static void what_is_not_for_us_is_not_taken(void **state)
{
	struct session_store *old = place_open(), *new = successor();

	acquire_fails(new, 42, -EBUSY); /* still running */
	session_store_seal(old, 42, true);
	acquire_fails(new, 43, -EINVAL);
	acquire_fails(new, 0, -EINVAL);
	take(new, 42, SESSION_SOURCE_HANDED_OVER);
	session_store_seal(new, 0, true);
	new = successor();
	acquire_fails(new, 0, -EINVAL); /* a clean stop has no successor */
	session_store_close(new);
	old = place_open();
	adopt_none(old);
	new = successor();
	session_store_close(old); /* a crash while the successor prepares */
	acquire_fails(new, 42, -EINVAL);
	session_store_close(new);
	place_remove("");
	struct session_store_options o = inherit_options();
	struct sy_error err = {0};
	assert_int_equal(session_store_open(&o, &new, &err), -ENOENT);
	assert_int_equal(err.code, ENOENT);
}

/* A forwarder that starts in between, with a new file, is not the predecessor. */
static void another_file_is_not_taken(void **state)
{
	struct session_store *old = place_open(), *new = successor();

	session_store_discard(old);
	old = place_open();
	session_store_seal(old, 42, true);
	acquire_fails(new, 42, -EINVAL);
	session_store_close(new);
}

static void what_is_not_settled_is_validated(void **state)
{
	struct session_store *old = place_open(), *new = successor();

	session_store_seal(old, 42, false);
	take(new, 42, SESSION_SOURCE_STOPPED);
	adopt_none(new);
	session_store_close(new);
}

/* Table states that are damaged, or impossible although their checksum is right. */
static void states_are_not_trusted_blindly(void **state)
{
	static const struct session_slot_state bad[] = {
	        {2, 1, SESSION_NONE, 0},
	        {1, UINT32_MAX, SESSION_NONE, 0},
	        {1, 1, 0, 0},
	        {1, 2, 2, 0},
	        {1, 3, SESSION_NONE, 0},
	        {0, 0, SESSION_NONE, UINT32_MAX},
	        {1, 1, SESSION_NONE, 0xffffff00},
	};
	char path[PATH_MAX];

	place_path("", path);
	for (unsigned i = 0; i < 2 * SY_ARRAY_LEN(bad); i++) {
		struct session_file header;
		struct session_slot_state st[SY_SLOTS];
		struct session_store *old = place_open(), *new = successor();
		session_store_seal(old, 42, true);
		int fd = open(path, O_RDWR);
		assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
		assert_int_equal(pread(fd, st, sizeof(st), SESSION_FILE_STATES), sizeof(st));
		st[200] = bad[i / 2];
		if (i % 2) {
			header.seal.states = session_states_check(st);
			header.seal.check = session_seal_check(&header.seal);
			assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
		}
		assert_int_equal(pwrite(fd, st, sizeof(st), SESSION_FILE_STATES), sizeof(st));
		close(fd);
		take(new, 42, SESSION_SOURCE_STOPPED);
		assert_int_equal(session_count(session_store_table(new, 0)), 0);
		session_store_discard(new);
	}
}

/* ---- its version ----------------------------------------------------------------------------- */

static uint32_t version_set(uint32_t version)
{
	size_t size;
	uint8_t *bytes = place_read("", &size);
	struct session_file *f = (struct session_file *)bytes;
	uint32_t was = f->version;
	if (version) {
		f->version = version;
		place_write("", bytes, size);
	}
	free(bytes);
	return was;
}

/* A start that fails leaves a file that the older build still accepts. */
static void an_older_version_stays_until_the_start(void **state)
{
	session_store_close(place_open());
	version_set(SESSION_FILE_READS);
	for (unsigned times = 1; times <= 2; times++) {
		struct session_store_options o = place_options();
		o.sessions = PLACE_SESSIONS * times;
		struct session_store *s = place_open_as(o);
		assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_CRASHED);
		adopt_none(s);
		session_store_close(s);
		assert_int_equal(version_set(0), SESSION_FILE_READS);
	}
	struct session_store *s = place_open();
	adopt_none(s);
	session_store_started(s);
	session_store_close(s);
	assert_int_equal(version_set(0), SESSION_FILE_VERSION);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, position_clear)
	const struct CMUnitTest tests[] = {
	        TEST(a_crash_is_found),
	        TEST(a_clean_stop_is_found_once),
	        TEST(a_damaged_seal_is_a_crash),
	        TEST(time_away_counts),
	        TEST(tables_are_passed_on),
	        TEST(pairs_are_steered),
	        TEST(what_is_not_for_us_is_not_taken),
	        TEST(another_file_is_not_taken),
	        TEST(what_is_not_settled_is_validated),
	        TEST(states_are_not_trusted_blindly),
	        TEST(an_older_version_stays_until_the_start),
	};
	return cmocka_run_group_tests(tests, place_make, place_unmake);
}
