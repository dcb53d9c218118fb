// SPDX-License-Identifier: Apache-2.0
/* Which files are adopted, which are refused and why; seals, hand-over, halves, time away. */
#include <sys/wait.h>

#include "session_place.h"

#define SECOND UINT64_C(1000000000)

/* Time that tests set; 0: the clock's own. */
static uint64_t clock_ns;

uint64_t __real_sy_clock_ns(void);
uint64_t __wrap_sy_clock_ns(void);

uint64_t __wrap_sy_clock_ns(void)
{
	return clock_ns ? clock_ns : __real_sy_clock_ns();
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* A good file with a session in it, as a killed process leaves it, in memory. */
static uint8_t *file_good(size_t *size)
{
	struct session_store *s = place_open();
	insert_named(session_store_table(s, 3), 9, 1, 2);
	session_store_close(s);
	uint8_t *bytes = place_read("", size);
	place_remove("");
	return bytes;
}

static struct session_store_options inherit_options(void)
{
	struct session_store_options o = place_options();
	o.inherit = true;
	return o;
}

/* The file is refused with this word, kept aside as it was, and an empty one is used; nor can it be
 * taken over. */
static void refused(const uint8_t *bytes, size_t size, const char *word)
{
	struct session_store_options inherit = inherit_options();
	struct session_store *s;
	struct sy_error err = {0};
	size_t kept;

	place_write("", bytes, size);
	assert_int_equal(session_store_open(&inherit, &s, &err), -ENOENT);
	if (strstr(err.text, word) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", err.text, word);
	s = place_open();
	const struct session_found *found = session_store_found(s);
	if (strstr(found->refused, word) == NULL || strstr(found->refused, ".refused") == NULL)
		fail_msg("\"%s\" does not say \"%s\" and where it is", found->refused, word);
	assert_int_equal(found->source, SESSION_SOURCE_NEW);
	assert_int_equal(place_live(s), 0);
	assert_int_equal(index_used(session_store_table(s, 3)), 0);
	session_store_discard(s);
	uint8_t *aside = place_read(".refused", &kept);
	assert_int_equal(kept, size);
	assert_memory_equal(aside, bytes, size);
	free(aside);
}

static void refused_header(void (*change)(struct session_file *f), bool whole, const char *word)
{
	size_t size;
	uint8_t *bytes = file_good(&size);
	struct session_file *f = (struct session_file *)bytes;

	change(f);
	if (whole)
		f->check = session_file_check(f);
	refused(bytes, size, word);
	free(bytes);
}

static void change_magic(struct session_file *f)
{
	f->magic[0] = 'X';
}

static void change_version(struct session_file *f)
{
	f->version = 1;
}

static void change_bucket(struct session_file *f)
{
	f->bucket_size = 128;
}

static void change_hot(struct session_file *f)
{
	f->hot_size = 48;
}

static void change_cold(struct session_file *f)
{
	f->cold_size = 8;
}

static void change_cursors(struct session_file *f)
{
	f->cursors = 1;
}

static void change_slots(struct session_file *f)
{
	f->slots = 512;
}

static void change_size(struct session_file *f)
{
	f->file_size += 1 << 20;
}

static void change_size_little(struct session_file *f)
{
	f->file_size = SESSION_FILE_FIRST;
}

static void change_records(struct session_file *f)
{
	f->slot.records = UINT32_MAX & ~3u;
}

static void change_no_records(struct session_file *f)
{
	f->slot.records = 0;
}

static void change_buckets(struct session_file *f)
{
	f->slot.buckets = 0;
}

static void change_hot_at(struct session_file *f)
{
	f->slot.hot_at = UINT64_MAX - 63;
}

static void change_slot_size(struct session_file *f)
{
	f->slot.size = UINT64_MAX / SY_SLOTS;
}

static void change_servers(struct session_file *f)
{
	f->servers = UINT32_MAX;
}

static void change_servers_at(struct session_file *f)
{
	f->servers_at = UINT64_MAX - 64;
}

static void change_locals(struct session_file *f)
{
	f->locals = 512;
}

static void change_locals_at(struct session_file *f)
{
	f->locals_at += 64;
}

static void change_key(struct session_file *f)
{
	f->key.k[7] ^= 1;
}

static void change_boot(struct session_file *f)
{
	f->boot[15] ^= 1;
}

static void change_owner(struct session_file *f)
{
	f->owner++;
}

static void change_check(struct session_file *f)
{
	f->check ^= UINT64_C(1) << 63;
}

/* Damaged: the check word denies it. Whole but other: told by name. */
static void headers_are_refused_by_name(void **state)
{
	static const struct {
		void (*change)(struct session_file *f);
		const char *word, *damaged;
	} field[] = {
	        {change_magic, "it is no session file", "it is no session file"},
	        {change_version, "version 1, while this forwarder writes 2",
	         "version 1, while this forwarder writes 2"},
	        {change_bucket, "layout", NULL},
	        {change_hot, "layout", NULL},
	        {change_cold, "layout", NULL},
	        {change_cursors, "layout", NULL},
	        {change_slots, "512 slots, while this forwarder has 256", NULL},
	        {change_size, "truncated", NULL},
	        {change_size_little, "layout", NULL},
	        {change_records, "layout", NULL},
	        {change_no_records, "layout", NULL},
	        {change_buckets, "layout", NULL},
	        {change_hot_at, "layout", NULL},
	        {change_slot_size, "layout", NULL},
	        {change_servers, "layout", NULL},
	        {change_servers_at, "layout", NULL},
	        {change_locals, "layout", NULL},
	        {change_locals_at, "layout", NULL},
	        {change_boot, "of an earlier boot", NULL},
	        {change_owner, "of another network namespace", NULL},
	};

	for (unsigned i = 0; i < SY_ARRAY_LEN(field); i++) {
		refused_header(field[i].change, true, field[i].word);
		refused_header(field[i].change, false,
		               field[i].damaged ? field[i].damaged : "its header is damaged");
	}
	refused_header(change_key, false, "its header is damaged");
	refused_header(change_check, false, "its header is damaged");
}

static void foreign_files_are_refused(void **state)
{
	char text[3 * 4096];

	memset(text, 'x', sizeof(text));
	refused((const uint8_t *)text, sizeof(text), "it is no session file");
	refused((const uint8_t *)text, 5, "it is no session file");
}

static void truncated_files_are_refused(void **state)
{
	size_t size;
	uint8_t *bytes = file_good(&size);

	for (size_t at = 4096; at < size; at += 4096)
		refused(bytes, at, "truncated");
	refused(bytes, sizeof(struct session_file), "truncated");
	bytes = realloc(bytes, size + 4096);
	memset(bytes + size, 0, 4096);
	refused(bytes, size + 4096, "instead of");
	free(bytes);
}

/* Whoever else can write the file may do so at any time. */
static void files_open_to_others_are_refused(void **state)
{
	char path[PATH_MAX], other[PATH_MAX];
	size_t size;
	uint8_t *bytes = file_good(&size);

	place_path("", path);
	place_path(".copy", other);
	for (unsigned i = 0; i < 2; i++) {
		place_write("", bytes, size);
		assert_int_equal(i == 0 ? chmod(path, 0620) : link(path, other), 0);
		struct session_store *s = place_open();
		assert_non_null(strstr(session_store_found(s)->refused, "private"));
		struct stat st;
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
		assert_int_equal(st.st_nlink, 1);
		session_store_discard(s);
	}
	free(bytes);
}

static void refused_files_replace_older_ones(void **state)
{
	size_t size;

	place_write(".refused", "old", 3);
	place_write("", "rubbish", 7);
	session_store_discard(place_open());
	uint8_t *aside = place_read(".refused", &size);
	assert_int_equal(size, 7);
	free(aside);
	/* a file that was finished and is fine is none of that */
	session_store_close(place_open());
	session_store_discard(place_open());
	aside = place_read(".refused", &size);
	assert_int_equal(size, 7);
	free(aside);
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
	uint64_t count[SESSION_VERDICT_COUNT];
	struct network none = {0};

	place_adopt(s, &none, 1, count);
}

static void a_clean_stop_is_found_once(void **state)
{
	session_store_seal(place_open(), 0, true);
	struct session_store *s = place_open();
	assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_STOPPED);
	session_store_close(s);
	/* the seal is broken, and what was never adopted is not sealed */
	s = place_open();
	assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_CRASHED);
	session_store_seal(s, 0, true);
	s = place_open();
	assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_CRASHED);
	adopt_none(s);
	session_store_seal(s, 5, true);
	/* a hand-over that nobody took */
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
	/* not alive before it is adopted: the time away would be lost with another crash */
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
	/* after the seal is broken too */
	clock_ns += SECOND;
	s = place_open();
	assert_true(session_store_found(s)->away_ns == 4 * SECOND);
	session_store_close(s);
	/* a clock that went back, which it does not */
	clock_ns -= 100 * SECOND;
	s = place_open();
	assert_true(session_store_found(s)->away_ns == 0);
	session_store_close(s);
	clock_ns = 0;
}

/* ---- from process to process ----------------------------------------------------------------- */

/* Two stores of one file in this process are as those of two: locks belong to descriptors. */
static struct session_store *successor(void)
{
	return place_open_as(inherit_options());
}

static void take_fails(struct session_store *s, uint64_t ticket, int code)
{
	struct sy_error err = {0};

	assert_int_equal(session_store_take(s, ticket, &err), code);
	assert_int_equal(err.code, -code);
}

static void take(struct session_store *s, uint64_t ticket, enum session_source source)
{
	struct sy_error err = {0};

	if (session_store_take(s, ticket, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(session_store_found(s)->source, source);
}

static void tables_are_handed_over(void **state)
{
	uint64_t count[SESSION_VERDICT_COUNT];
	struct session_judge judge;
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
	/* nothing is written yet: the old one goes on and its successor may give up */
	session_store_seal(old, 42, true);
	take(new, 42, SESSION_SOURCE_HANDED_OVER);
	network_use(&n, new);
	assert_int_equal(place_check(&n), sessions);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = session_store_table(new, (uint8_t)slot);
		assert_int_equal(t->top, before[slot].top);
		assert_int_equal(t->free_head, before[slot].free_head);
		assert_int_equal(t->sweep_at, before[slot].sweep_at);
	}
	free(before);
	place_fill(&n, 100);
	judge = network_judge(&n);
	assert_int_equal(session_store_adopt(new, &judge, 1, count, NULL), -EINVAL);
	session_store_close(new);
	/* its seal is broken: what this one leaves is a crash */
	network_use(&n, place_open());
	assert_int_equal(session_store_found(n.store)->source, SESSION_SOURCE_CRASHED);
	assert_int_equal(session_store_path_half(n.store), 0);
	place_adopt(n.store, &n, 1, count);
	assert_int_equal(place_check(&n), sessions + 100);
	session_store_close(n.store);
	network_free(&n);
}

static void what_is_not_for_us_is_not_taken(void **state)
{
	struct session_store *old = place_open(), *new = successor();

	take_fails(new, 42, -EBUSY); /* still running */
	session_store_seal(old, 42, true);
	take_fails(new, 43, -EINVAL);
	take_fails(new, 0, -EINVAL);
	take(new, 42, SESSION_SOURCE_HANDED_OVER);
	session_store_seal(new, 0, true);
	new = successor();
	take_fails(new, 0, -EINVAL); /* a clean stop is for nobody */
	session_store_close(new);
	old = place_open();
	adopt_none(old);
	new = successor();
	session_store_close(old); /* a crash while the successor prepares */
	take_fails(new, 42, -EINVAL);
	session_store_close(new);
	place_remove("");
	struct session_store_options o = inherit_options();
	struct sy_error err = {0};
	assert_int_equal(session_store_open(&o, &new, &err), -ENOENT);
	assert_int_equal(err.code, ENOENT);
}

/* One that starts in between, with a new file, is not its predecessor. */
static void another_file_is_not_taken(void **state)
{
	struct session_store *old = place_open(), *new = successor();

	session_store_discard(old);
	old = place_open();
	session_store_seal(old, 42, true);
	take_fails(new, 42, -EINVAL);
	session_store_close(new);
}

static void what_is_not_settled_is_judged(void **state)
{
	struct session_store *old = place_open(), *new = successor();

	session_store_seal(old, 42, false);
	take(new, 42, SESSION_SOURCE_STOPPED);
	adopt_none(new);
	session_store_close(new);
}

/* Tables' states that are damaged, or impossible although their check is right. */
static void states_are_not_trusted_blindly(void **state)
{
	static const struct session_slot_state bad[] = {
	        {2, 1, SESSION_NONE, 0},
	        {1, UINT32_MAX, SESSION_NONE, 0},
	        {1, 1, 0, 0},
	        {1, 2, 2, 0},
	        {1, 2, SESSION_NONE, 0},
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

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, place_clear)
	const struct CMUnitTest tests[] = {
	        TEST(headers_are_refused_by_name),
	        TEST(foreign_files_are_refused),
	        TEST(truncated_files_are_refused),
	        TEST(files_open_to_others_are_refused),
	        TEST(refused_files_replace_older_ones),
	        TEST(a_crash_is_found),
	        TEST(a_clean_stop_is_found_once),
	        TEST(a_damaged_seal_is_a_crash),
	        TEST(time_away_counts),
	        TEST(tables_are_handed_over),
	        TEST(what_is_not_for_us_is_not_taken),
	        TEST(another_file_is_not_taken),
	        TEST(what_is_not_settled_is_judged),
	        TEST(states_are_not_trusted_blindly),
	};
	return cmocka_run_group_tests(tests, place_make, place_unmake);
}
