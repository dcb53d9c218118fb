// SPDX-License-Identifier: Apache-2.0
/* Sets whose prefixes come before the transaction: in pieces, checked, saved, and found again by
 * the next process. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_hash_crc.h>

#include "../../../tests/folder.h"
#include "access_model.h"
#include "control.h"
#include "file.h"
#include "harness.h"
#include "saved.h"

#define MANY 200000u

typedef Steelyard__Forwarder__V1__PutSetDataRequest pb_piece;

struct fixture {
	struct harness harness;
	char directory[FOLDER_NAME], sets[96];
	uint8_t *bytes; /* of the data built last */
	size_t size;
	uint8_t digest[SET_DIGEST];
};

static void harness_start(struct fixture *f)
{
	struct sy_error err;
	const struct harness_options o = {.state_directory = f->directory};
	if (harness_open(&f->harness, &o, &err) < 0)
		fail_msg("%s", err.text);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	assert_true(folder_make(f->directory, "/dev/shm"));
	snprintf(f->sets, sizeof(f->sets), "%s/sets", f->directory);
	harness_start(f);
	*state = f;
	return 0;
}

/* The files in sets/; each is removed if `remove`. */
static unsigned files(const struct fixture *f, bool remove)
{
	unsigned count = 0;
	const struct dirent *e;
	DIR *folder = opendir(f->sets);
	while (folder && (e = readdir(folder))) {
		if (e->d_name[0] == '.')
			continue;
		count++;
		if (remove)
			assert_int_equal(unlinkat(dirfd(folder), e->d_name, 0), 0);
	}
	if (folder)
		closedir(folder);
	return count;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char path[96];
	harness_close(&f->harness);
	files(f, true);
	rmdir(f->sets);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", f->directory, i ? "journal" : "config");
		unlink(path);
	}
	assert_int_equal(rmdir(f->directory), 0);
	free(f->bytes);
	free(f);
	return 0;
}

/* ---- data ------------------------------------------------------------------------------------ */

static void number_put(uint8_t *at, uint32_t n)
{
	for (unsigned i = 0; i < 4; i++)
		at[i] = (uint8_t)(n >> 8 * i);
}

/* (10 + SEED).0.0.0/32 and every second address behind it, and 2001:db8:SEED::/48. */
static void data_make(struct fixture *f, uint8_t seed, uint32_t count4)
{
	free(f->bytes);
	f->size = SET_HEAD + (size_t)count4 * 5 + 17;
	f->bytes = calloc(1, f->size);
	number_put(f->bytes, count4);
	number_put(f->bytes + 4, 1);
	uint8_t *at = f->bytes + SET_HEAD;
	for (uint32_t i = 0; i < count4; i++, at += 5) {
		const uint32_t address = ((UINT32_C(10) + seed) << 24) + 2 * i;
		for (unsigned k = 0; k < 4; k++)
			at[k] = (uint8_t)(address >> (24 - 8 * k));
		at[4] = 32;
	}
	static const uint8_t network[4] = {0x20, 0x01, 0x0d, 0xb8};
	memcpy(at, network, sizeof(network));
	at[5] = seed;
	at[16] = 48;
	memset(f->digest, seed, sizeof(f->digest)); /* a name, to the forwarder */
}

static void piece_make(struct fixture *f, size_t offset, size_t len, uint32_t crc, pb_piece *piece,
                       pb_request *q)
{
	*piece = (pb_piece)STEELYARD__FORWARDER__V1__PUT_SET_DATA_REQUEST__INIT;
	*q = (pb_request)STEELYARD__FORWARDER__V1__REQUEST__INIT;
	piece->digest = (ProtobufCBinaryData){sizeof(f->digest), f->digest};
	piece->size = f->size;
	piece->crc32c = crc;
	piece->offset = offset;
	piece->piece = (ProtobufCBinaryData){len, f->bytes + offset};
	q->version = STEELYARD__FORWARDER__V1__VERSION__VERSION_CURRENT;
	q->body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_PUT_SET_DATA;
	q->put_set_data = piece;
}

/* One request; the reply's offset, or UINT64_MAX with the harness's error. */
static uint64_t piece_send(struct fixture *f, size_t offset, size_t len, uint32_t crc)
{
	pb_piece piece;
	pb_request q;
	piece_make(f, offset, len, crc, &piece, &q);
	pb_response *response = harness_request(&f->harness, &q);
	uint64_t next = UINT64_MAX;
	if (response->error)
		snprintf(f->harness.error, sizeof(f->harness.error), "%s", response->error->text);
	else
		next = response->put_set_data->next;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return next;
}

static uint32_t data_crc(const struct fixture *f)
{
	return ~rte_hash_crc(f->bytes, (uint32_t)f->size, UINT32_MAX);
}

static void data_send(struct fixture *f)
{
	const uint32_t crc = data_crc(f);
	uint64_t at = piece_send(f, 0, 0, crc);
	for (unsigned n = 0; at < f->size && n < 100; n++) {
		size_t len = f->size - at < 300000 ? f->size - at : 300000;
		uint64_t next = piece_send(f, at, len, crc);
		assert_int_equal(next, at + len);
		at = next;
	}
	assert_int_equal(at, f->size);
}

static void data_check_refused(struct fixture *f, uint32_t crc, const char *why)
{
	f->harness.error[0] = 0;
	assert_int_equal(piece_send(f, 0, 0, crc), 0);
	assert_int_equal(piece_send(f, 0, f->size, crc), UINT64_MAX);
	assert_non_null(strstr(f->harness.error, why));
	assert_null(set_data_find(f->harness.b, f->digest));
	assert_int_equal(files(f, false), 0);
}

/* ---- sets ------------------------------------------------------------------------------------ */

static bool set_commit(struct fixture *f, const char *name)
{
	struct changes c = {0};
	Steelyard__Forwarder__V1__AccessSet *s = put_access_set(&c, name);
	s->digest = (ProtobufCBinaryData){sizeof(f->digest), f->digest};
	return harness_commit(&f->harness, &c);
}

static bool is_in(const struct fixture *f, const char *name, const char *address)
{
	const struct access_version *v = &f->harness.b->ctl->access->now;
	const struct sy_addr addr = harness_addr(address), *at = &addr;
	const unsigned bit = access_set_find(v, name);
	uint32_t sets;
	assert_true(bit < ADDRESS_SETS);
	assert_non_null(v->ranges);
	address_ranges_find(v->ranges->built, &at, &sets, 1);
	return sets >> bit & 1;
}

/* The set has what data_make() made last, of this seed. */
static void check_set(const struct fixture *f, const char *name, unsigned seed, uint32_t count4)
{
	const struct access_version *v = &f->harness.b->ctl->access->now;
	const struct model_set *s = v->set[access_set_find(v, name)];
	char text[64];
	assert_int_equal(s->prefixes4, count4);
	assert_int_equal(s->prefixes, count4 + 1);
	assert_false(s->missing);
	assert_true(s->data->saved);
	for (unsigned other = 1; other < 4; other++) {
		snprintf(text, sizeof(text), "%u.0.0.2", 10 + other);
		assert_int_equal(is_in(f, name, text), other == seed);
		snprintf(text, sizeof(text), "%u.0.0.3", 10 + other);
		assert_false(is_in(f, name, text));
		snprintf(text, sizeof(text), "2001:db8:%u::1", other);
		assert_int_equal(is_in(f, name, text), other == seed);
	}
}

/* Both transactions and restarts of each kind; what no set has any more is removed. */
static void test_pieces(void **state)
{
	struct fixture *f = *state;
	data_make(f, 1, MANY);
	assert_false(set_commit(f, "bad"));
	assert_non_null(strstr(f->harness.error, "its data is not here"));
	data_send(f);
	data_send(f); /* known: request only */
	assert_true(set_commit(f, "bad"));
	check_set(f, "bad", 1, MANY);
	data_make(f, 2, 10);
	data_send(f);
	check_set(f, "bad", 1, MANY);
	assert_true(set_commit(f, "bad"));
	check_set(f, "bad", 2, 10);
	assert_null(f->harness.b->ctl->access->data->next); /* the old data is freed */
	assert_int_equal(files(f, false), 2);
	config_file_flush(f->harness.b, true);
	assert_int_equal(files(f, false), 1);
}

static void test_refused_data(void **state)
{
	struct fixture *f = *state;
	data_make(f, 1, 10);
	const uint32_t crc = data_crc(f);
	data_check_refused(f, crc + 1, "the checksum of a set's data is wrong");
	assert_int_equal(piece_send(f, 10, 10, crc), UINT64_MAX); /* no piece before it */
	assert_int_equal(piece_send(f, 0, 0, crc), 0);
	assert_int_equal(piece_send(f, 0, 20, crc), 20);
	assert_int_equal(piece_send(f, 0, 20, crc), UINT64_MAX); /* came already */
	assert_int_equal(piece_send(f, 20, 20, crc + 1), UINT64_MAX);
	f->size += 10;
	assert_int_equal(piece_send(f, 20, 20, crc), UINT64_MAX); /* of other data */
	f->size = SET_SIZE_MAX + 1;
	assert_int_equal(piece_send(f, 0, 0, crc), UINT64_MAX);

	data_make(f, 1, 10);
	f->size--;
	data_check_refused(f, data_crc(f), "has a wrong size");
	data_make(f, 1, 10);
	f->bytes[SET_HEAD + 4] = 31; /* covers the second */
	f->bytes[SET_HEAD + 9] = 33;
	data_check_refused(f, data_crc(f), "prefix 2 of a set's data has bits behind");
	data_make(f, 1, 10);
	f->bytes[SET_HEAD + 8] = 0; /* the second is the first */
	data_check_refused(f, data_crc(f), "prefix 2 of a set's data");
	data_make(f, 1, 1);
	uint8_t *v6 = f->bytes + SET_HEAD + 5;
	memset(v6, 0, 16);
	v6[10] = v6[11] = 0xff; /* IPv4 in the form of IPv6 */
	v6[16] = 0;
	data_check_refused(f, data_crc(f), "prefix 2 of a set's data");
	data_make(f, 1, 1);
	number_put(f->bytes, SET_PREFIXES);
	data_check_refused(f, data_crc(f), "more than 4194304 prefixes");
	assert_null(f->harness.b->ctl->access->data);
}

static void count_reply(void *replies, const uint8_t *bytes, size_t len)
{
	pb_response *response = steelyard__forwarder__v1__response__unpack(NULL, len, bytes);
	assert_non_null(response);
	assert_null(response->error);
	++*(unsigned *)replies;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

/* A client that begins a set while another one is checked and saved waits for that; the control
 * thread does not. */
static void test_one_after_another(void **state)
{
	struct fixture *f = *state;
	struct control *k = f->harness.b->ctl->control;
	unsigned replies[3] = {0};
	struct client client[3];
	pb_piece piece;
	pb_request q;
	for (unsigned i = 0; i < 3; i++)
		client[i] = (struct client){
		        .control = k, .reply = count_reply, .reply_ctx = &replies[i]};
	data_make(f, 1, MANY);
	piece_make(f, 0, 0, data_crc(f), &piece, &q);
	upload_receive(&client[0], &q);
	piece_make(f, 0, f->size, data_crc(f), &piece, &q);
	upload_receive(&client[0], &q);
	assert_true(k->upload.is_checking);
	assert_int_equal(replies[0], 1);
	piece_make(f, 0, 0, data_crc(f), &piece, &q);
	upload_receive(&client[1], &q); /* the same: need not send it */
	data_make(f, 2, 10);
	piece_make(f, 0, 0, data_crc(f), &piece, &q);
	upload_receive(&client[2], &q);
	assert_true(k->upload.is_checking);
	assert_int_equal(replies[1] + replies[2], 0);
	upload_finish(k); /* as the loop would */
	assert_false(k->upload.is_checking);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(replies[i], i == 0 ? 2 : 1);
	assert_ptr_equal(f->harness.b->ctl->access->data->sender, &client[1]);
	assert_ptr_equal(k->upload.client, &client[2]);
	upload_forget(&client[1]);
	upload_forget(&client[2]);
	assert_null(f->harness.b->ctl->access->data);
	assert_null(k->upload.data);
}

static void test_restarts(void **state)
{
	struct fixture *f = *state;
	data_make(f, 1, 1000);
	data_send(f);
	assert_true(set_commit(f, "bad"));
	config_file_flush(f->harness.b, true);
	data_make(f, 2, 20);
	data_send(f);
	assert_true(set_commit(f, "worse"));
	data_make(f, 3, 30);
	data_send(f); /* no transaction names it */
	harness_crash(&f->harness);
	harness_start(f);
	check_set(f, "bad", 1, 1000);
	check_set(f, "worse", 2, 20);
	config_file_flush(f->harness.b, true);
	assert_int_equal(files(f, false), 2);
	harness_close(&f->harness);
	harness_start(f);
	check_set(f, "bad", 1, 1000);
	check_set(f, "worse", 2, 20);
}

/* The path of the file of the data built last. */
static void file_name(const struct fixture *f, char path[static 192])
{
	int at = snprintf(path, 192, "%s/", f->sets);
	for (unsigned i = 0; i < sizeof(f->digest); i++)
		at += snprintf(path + at, 192 - (size_t)at, "%02x", f->digest[i]);
}

/* A set whose file is missing or damaged is empty until its data is sent again. */
static void test_lost_files(void **state)
{
	struct fixture *f = *state;
	char path[192];
	sy_log_set_level(SY_LOG_ERROR);
	data_make(f, 1, 100);
	file_name(f, path);
	for (unsigned how = 0; how < 4; how++) {
		data_send(f);
		assert_true(set_commit(f, "bad"));
		check_set(f, "bad", 1, 100);
		assert_int_equal(harness_warnings(&f->harness, "access set bad"), 0);
		harness_close(&f->harness);
		size_t len;
		uint8_t *bytes = file_read(path, &len);
		if (how == 0)
			assert_int_equal(unlink(path), 0);
		else if (how == 1)
			file_write(path, bytes, len / 2);
		else if (how == 2)
			file_write(path, bytes, 3);
		else {
			bytes[len - 3] ^= 1;
			file_write(path, bytes, len);
		}
		free(bytes);
		harness_start(f);
		const struct access_version *v = &f->harness.b->ctl->access->now;
		const struct model_set *s = v->set[access_set_find(v, "bad")];
		assert_true(s->missing);
		assert_int_equal(s->prefixes, 0);
		assert_false(is_in(f, "bad", "11.0.0.2"));
		assert_int_equal(
		        harness_warnings(&f->harness, "access set bad is empty: its data is lost"),
		        1);
	}
}

static void snapshot(struct fixture *f)
{
	f->harness.b->ctl->unsaved = true;
	config_file_flush(f->harness.b, true);
	assert_false(f->harness.b->ctl->unsaved);
}

/* A file that this start cannot read is left for the next one, until new data of its set
 * arrives. */
static void test_unread_files_stay(void **state)
{
	struct fixture *f = *state;
	char path[192];
	size_t len;
	sy_log_set_level(SY_LOG_ERROR);
	data_make(f, 1, 100);
	file_name(f, path);
	data_send(f);
	assert_true(set_commit(f, "bad"));
	harness_close(&f->harness);
	uint8_t *bytes = file_read(path, &len);
	bytes[8]++; /* of a later version */
	file_write(path, bytes, len);
	harness_start(f);
	assert_int_equal(harness_warnings(&f->harness, "access set bad is empty"), 1);
	snapshot(f);
	assert_int_equal(files(f, false), 1);
	harness_close(&f->harness);
	bytes[8]--;
	file_write(path, bytes, len);
	harness_start(f);
	check_set(f, "bad", 1, 100);
	harness_close(&f->harness);
	bytes[8]++;
	file_write(path, bytes, len);
	free(bytes);
	harness_start(f);
	f->harness.b->ctl->newer.count = 1; /* a configuration is kept aside, which may name it */
	data_make(f, 2, 100);
	data_send(f);
	assert_true(set_commit(f, "bad"));
	snapshot(f);
	assert_int_equal(files(f, false), 2);
	f->harness.b->ctl->newer.count = 0;
	snapshot(f);
	assert_int_equal(files(f, false), 1);
}

/* As after the 10 s between attempts. */
static void save_again(struct fixture *f)
{
	struct late_save *s = &f->harness.b->ctl->control->late_save;
	harness_attend(&f->harness);
	assert_null(s->data); /* not yet */
	s->retry_ns = 0;
	harness_attend(&f->harness);
	assert_non_null(s->data);
	late_save_finish(f->harness.b->ctl->control);
}

/* A set that cannot be saved, as on a full disk, is in effect, and saved later. */
static void test_saved_later(void **state)
{
	struct fixture *f = *state;
	sy_log_set_level(SY_LOG_ERROR);
	data_make(f, 1, 100);
	file_write(f->sets, f->bytes, 1); /* where the folder should be */
	data_send(f);
	assert_true(set_commit(f, "bad"));
	assert_true(is_in(f, "bad", "11.0.0.2"));
	save_again(f);
	assert_int_equal(harness_warnings(&f->harness, "access set bad is in effect but not saved"),
	                 1);
	assert_int_equal(unlink(f->sets), 0);
	save_again(f);
	assert_int_equal(harness_warnings(&f->harness, "access set"), 0);
	assert_int_equal(files(f, false), 1);
	harness_crash(&f->harness);
	harness_start(f);
	check_set(f, "bad", 1, 100);
}

static void without_directory(struct fixture *f)
{
	struct sy_error err;
	harness_close(&f->harness);
	const struct harness_options o = {0};
	if (harness_open(&f->harness, &o, &err) < 0)
		fail_msg("%s", err.text);
}

/* Without a state directory sets live as long as the process. */
static void test_without_a_directory(void **state)
{
	struct fixture *f = *state;
	without_directory(f);
	data_make(f, 1, 100);
	data_send(f);
	assert_true(set_commit(f, "bad"));
	check_set(f, "bad", 1, 100);
	assert_int_equal(harness_warnings(&f->harness, "access set"), 0);
	assert_int_equal(files(f, false), 0);
}

/* All sets together have a limit, which a transaction that is refused leaves as it was. */
static void test_limit(void **state)
{
	struct fixture *f = *state;
	data_make(f, 1, 1000);
	data_send(f);
	assert_true(set_commit(f, "bad"));
	data_make(f, 2, SET_PREFIXES - 1000);
	data_send(f);
	assert_false(set_commit(f, "worse"));
	assert_non_null(strstr(f->harness.error, "at most 4194304 are possible"));
	check_set(f, "bad", 1, 1000);
	struct changes c = {0};
	delete_access_set(&c, "bad");
	assert_true(harness_commit(&f->harness, &c));
	assert_null(f->harness.b->ctl->access->now.ranges);
}

/* Versions of a large set that transactions could not use do not prevent their sender from sending
 * the next one; data that it requested again stays. */
static void test_refused_versions(void **state)
{
	struct fixture *f = *state;
	struct sy_balance *b = f->harness.b;
	uint8_t small[SET_DIGEST], large[SET_DIGEST] = {9};
	data_make(f, 1, 10);
	memcpy(small, f->digest, sizeof(small));
	data_send(f);
	struct set_data *d = set_data_alloc(large, SET_SIZE_MAX - 200, 0);
	assert_non_null(d);
	set_data_add(b, d, &b->ctl->control->local);
	data_make(f, 2, 100);
	assert_int_equal(piece_send(f, 0, 0, data_crc(f)), UINT64_MAX);
	assert_non_null(strstr(f->harness.error, "waits for a transaction"));
	assert_false(set_commit(f, "bad")); /* its data is not here */
	data_make(f, 1, 10);
	data_send(f);
	data_make(f, 2, 100);
	data_send(f);
	assert_null(set_data_find(b, large));
	assert_non_null(set_data_find(b, small));
	assert_true(set_commit(f, "bad"));
	check_set(f, "bad", 2, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_refused_data, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_one_after_another, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_restarts, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_lost_files, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_unread_files_stay, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_saved_later, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_without_a_directory, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_refused_versions, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
