// SPDX-License-Identifier: Apache-2.0
/* Which files are not adopted, with which error, and where they are kept. */
#include "session_place.h"

/* Files that can still be created before memory runs out; deleting a file kept aside makes space
 * for one. */
static unsigned capacity = UINT_MAX;

int __real_fallocate64(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t size);

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t size)
{
	if (capacity == 0) {
		capacity = place_has(".refused"); /* the space that its deletion frees */
		errno = ENOSPC;
		return -1;
	}
	capacity--;
	return __real_fallocate64(fd, mode, offset, size);
}

/* Replaces the opened file with another one before it is locked. */
static bool exchange;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
	if (exchange)
		place_write("", "another", 7);
	exchange = false;
	return __real_flock(fd, operation);
}

/* A valid file with a session in it, as a killed process leaves it, in memory. */
static uint8_t *file_good(size_t *size)
{
	struct session_store *s = place_open();
	insert_named(session_store_table(s, 3), 9, 1, 2);
	session_store_close(s);
	uint8_t *bytes = place_read("", size);
	place_remove("");
	return bytes;
}

/* The file is refused with this text, set aside unchanged, and an empty one is used; a successor
 * cannot acquire it either. */
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

static void change_version_newer(struct session_file *f)
{
	f->version = SESSION_FILE_VERSION + 1;
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

/* Damaged: the checksum does not match. Valid but different: refused with the specific reason. */
static void headers_are_refused_by_name(void **state)
{
	static const struct {
		void (*change)(struct session_file *f);
		const char *word, *damaged;
	} field[] = {
	        {change_magic, "it is no session file", "it is no session file"},
	        {change_version, "version 1, while this forwarder writes 8",
	         "version 1, while this forwarder writes 8"},
	        {change_version_newer, "version 9 of a newer forwarder",
	         "version 9 of a newer forwarder"},
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
	        {change_boot, "from an earlier boot", NULL},
	        {change_owner, "to another network namespace", NULL},
	};

	for (unsigned i = 0; i < SY_ARRAY_LEN(field); i++) {
		refused_header(field[i].change, true, field[i].word);
		refused_header(field[i].change, false,
		               field[i].damaged ? field[i].damaged : "its header is damaged");
	}
	refused_header(change_key, false, "its header is damaged");
	refused_header(change_check, false, "its header is damaged");
}

static void files_of_others_are_refused(void **state)
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
	/* left by a process killed as its tables began to grow */
	place_write("", bytes, size + 4096);
	struct session_store *s = place_open();
	assert_string_equal(session_store_found(s)->refused, "");
	session_store_discard(s);
	free(bytes);
}

/* Another user that can write the file could do so at any time. */
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
	/* a finished, valid file gives none of these errors */
	session_store_close(place_open());
	session_store_discard(place_open());
	aside = place_read(".refused", &size);
	assert_int_equal(size, 7);
	free(aside);
}

static void refused_files_make_room(void **state)
{
	struct session_store_options o = place_options();
	struct session_store *s;
	struct sy_error err = {0};

	/* the file that was kept aside just now */
	place_write("", "rubbish", 7);
	capacity = 0;
	s = place_open();
	assert_false(place_has(".refused"));
	assert_non_null(strstr(session_store_found(s)->refused, "it is no session file"));
	assert_non_null(strstr(session_store_found(s)->refused, "removed"));
	session_store_close(s);
	/* an older one, for another size; the old file is deleted first for its space */
	place_write(".refused", "old", 3);
	o.sessions *= 2;
	capacity = 1;
	s = place_open_as(o);
	assert_true(session_store_found(s)->resized);
	assert_string_equal(session_store_found(s)->refused, "");
	assert_false(place_has(".refused"));
	session_store_discard(s);
	/* no file is left to delete */
	capacity = 0;
	assert_int_equal(session_store_open(&o, &s, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "free some space or lower --sessions"));
	assert_false(place_has(""));
	capacity = UINT_MAX;
}

/* Two forwarders that start at once: a lock on a file that has lost its name excludes no
 * process. */
static void a_file_that_lost_its_name_is_not_used(void **state)
{
	struct session_store_options o = place_options();
	struct session_store *s;
	struct sy_error err = {0};
	size_t size;

	exchange = true;
	assert_int_equal(session_store_open(&o, &s, &err), -EBUSY);
	assert_false(exchange);
	uint8_t *bytes = place_read("", &size);
	assert_int_equal(size, 7);
	free(bytes);
}

/* The key that maps sessions to slots is random and stays; a file with another key is refused. */
static void slots_keep_their_key(void **state)
{
	struct session_store_options o = place_options();
	const struct sy_slot_key shared = {{5, 6}};
	struct session_store *s = place_open();
	const struct sy_slot_key first = *session_store_slot_key(s);
	assert_memory_not_equal(&first, &shared, sizeof(first));
	session_store_close(s);
	s = place_open();
	assert_string_equal(session_store_found(s)->refused, "");
	assert_memory_equal(session_store_slot_key(s), &first, sizeof(first));
	session_store_close(s);

	o.slot_key = &shared;
	s = place_open_as(o);
	assert_non_null(strstr(session_store_found(s)->refused, "its slots are of another key"));
	assert_memory_equal(session_store_slot_key(s), &shared, sizeof(shared));
	session_store_close(s);
	s = place_open_as(o);
	assert_string_equal(session_store_found(s)->refused, "");
	session_store_discard(s);
	s = place_open();
	assert_memory_not_equal(session_store_slot_key(s), &first, sizeof(first));
	session_store_discard(s);
}

/* Tables that overlap, or are outside their region or beyond the end. */
static void places_are_looked_at(void **state)
{
	for (unsigned n = 0; n < 5; n++) {
		size_t size;
		uint8_t *bytes = file_good(&size);
		const struct session_file *f = (const struct session_file *)bytes;
		uint64_t records = (uint64_t)f->slot.records << 32;
		const uint64_t wrong[] = {
		        records | 1,                                  /* the header */
		        records | SESSION_FILE_FIRST / SY_CACHE_LINE, /* the first slot */
		        records | f->servers_at / SY_CACHE_LINE,      /* names */
		        records | (size / SY_CACHE_LINE - 4),         /* beyond the end */
		        1 << 20,                                      /* of nothing */
		};
		session_file_locations(f)[9] = wrong[n];
		refused(bytes, size, "its slots lie where they cannot");
		free(bytes);
		position_clear(state);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, position_clear)
	const struct CMUnitTest tests[] = {
	        TEST(headers_are_refused_by_name),
	        TEST(files_of_others_are_refused),
	        TEST(truncated_files_are_refused),
	        TEST(files_open_to_others_are_refused),
	        TEST(refused_files_replace_older_ones),
	        TEST(refused_files_make_room),
	        TEST(a_file_that_lost_its_name_is_not_used),
	        TEST(slots_keep_their_key),
	        TEST(places_are_looked_at),
	};
	return cmocka_run_group_tests(tests, place_make, place_unmake);
}
