// SPDX-License-Identifier: Apache-2.0
/* The file as bytes: sizes, offsets, checks, and which files can be adopted. */
#include "session_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* Index load in percent when all records are used: 0002-session-table.md has the arithmetic. */
#define INDEX_LOAD_PERCENT 97

static uint64_t round_up(uint64_t value, uint64_t step)
{
	return (value + step - 1) / step * step;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Never 0: 0 means not yet written. */
static uint64_t words_check(const void *from, size_t size)
{
	const uint8_t *bytes = from;
	uint64_t h = 0x9e3779b97f4a7c15;

	for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
		uint64_t word;
		memcpy(&word, bytes + i, sizeof(word));
		h = sy_hash_mix(h ^ word, 0xbf58476d1ce4e5b9);
	}
	return h | 1;
}

uint64_t session_file_check(const struct session_file *f)
{
	_Static_assert(offsetof(struct session_file, check) % sizeof(uint64_t) == 0, "whole words");
	struct session_file as_read = *f;
	as_read.version = SESSION_FILE_READS;
	uint64_t check = words_check(&as_read, offsetof(struct session_file, check));
	sy_secret_wipe(&as_read, sizeof(as_read)); /* it has keys */
	return check;
}

uint64_t session_secret_check(const struct session_secret *secret)
{
	return words_check(secret, offsetof(struct session_secret, check));
}

int session_file_renew(struct session_file *f)
{
	struct session_secret *secret = session_file_secret(f), fresh;

	if (__atomic_load_n(&secret->check, __ATOMIC_ACQUIRE) != session_secret_check(secret)) {
		while (getrandom(&fresh.key, sizeof(fresh.key), 0) <
		       0) /* all of it, or the call fails */
			if (errno != EINTR)
				return -errno;
		secret->check = 0;
		secret->key = fresh.key;
		sy_secret_wipe(&fresh, sizeof(fresh));
		__atomic_store_n(&secret->check, session_secret_check(secret), __ATOMIC_RELEASE);
	}
	return 0;
}

uint64_t session_seal_check(const struct session_seal *seal)
{
	_Static_assert(offsetof(struct session_seal, check) % sizeof(uint64_t) == 0, "whole words");
	return words_check(seal, offsetof(struct session_seal, check));
}

uint64_t session_states_check(const struct session_slot_state states[SY_SLOTS])
{
	return words_check(states, SY_SLOTS * sizeof(*states));
}

void session_file_finish(struct session_file *f)
{
	__atomic_store_n(&f->check, session_file_check(f), __ATOMIC_RELEASE);
}

/* ---- layout ---------------------------------------------------------------------------------- */

void session_geometry_init(struct session_geometry *g, uint32_t records, uint32_t buckets)
{
	g->records = records;
	g->buckets = buckets;
	g->cursors_at = 0;
	g->buckets_at = round_up(SESSION_PORT_CURSORS * sizeof(uint16_t), SY_CACHE_LINE);
	g->hot_at = g->buckets_at + (uint64_t)buckets * sizeof(struct session_bucket);
	g->cold_at = g->hot_at + (uint64_t)records * sizeof(struct session);
	g->size = g->cold_at + (uint64_t)records * sizeof(struct session_cold);
}

void session_geometry_choose(struct session_geometry *g, uint64_t sessions)
{
	uint64_t records = round_up((sessions + SY_SLOTS - 1) / SY_SLOTS, SESSION_RECORDS_STEP);

	session_geometry_of(g, (uint32_t)records);
}

void session_geometry_of(struct session_geometry *g, uint32_t records)
{
	uint64_t locations =
	        (UINT64_C(2) * records * 100 + INDEX_LOAD_PERCENT - 1) / INDEX_LOAD_PERCENT;
	uint64_t buckets = (locations + SESSION_BUCKET_ENTRIES - 1) / SESSION_BUCKET_ENTRIES;

	_Static_assert(UINT64_C(2) * SESSION_RECORDS_MAX * 100 / INDEX_LOAD_PERCENT /
	                                       SESSION_BUCKET_ENTRIES +
	                               2 <
	                       SESSION_INDEX_BUCKETS,
	               "struct session_index counts the buckets of the largest table");
	session_geometry_init(g, records, (uint32_t)buckets);
}

/* The layout of a slot's table. */
static void location_geometry(const struct session_file *f, uint64_t location,
                              struct session_geometry *g)
{
	if (location == 0)
		*g = f->slot;
	else
		session_geometry_of(g, (uint32_t)(location >> 32));
}

static struct session_region location_unpack(const struct session_file *f, uint8_t slot,
                                             uint64_t location)
{
	struct session_geometry g;

	location_geometry(f, location, &g);
	uint64_t line = location != 0 ? (uint32_t)location
	                              : (SESSION_FILE_FIRST + g.size * slot) / SY_CACHE_LINE;
	return (struct session_region){line, g.size / SY_CACHE_LINE, g.records};
}

static uint64_t slot_place_read(const struct session_file *f, uint8_t slot)
{
	return __atomic_load_n(&session_file_locations(f)[slot], __ATOMIC_RELAXED);
}

struct session_region session_slot_location(const struct session_file *f, uint8_t slot)
{
	return location_unpack(f, slot, slot_place_read(f, slot));
}

void session_slot_geometry(const struct session_file *f, uint8_t slot, struct session_geometry *g)
{
	location_geometry(f, slot_place_read(f, slot), g);
}

struct session_region session_dictionary_location(const struct session_file *f)
{
	const uint64_t line = f->servers_at / SY_CACHE_LINE;

	return (struct session_region){line, f->file_size / SY_CACHE_LINE - line, 0};
}

static int region_compare(const void *a, const void *b)
{
	const struct session_region *one = a, *two = b;
	return one->line < two->line ? -1 : one->line > two->line;
}

void session_regions_sort(struct session_region r[], unsigned count)
{
	qsort(r, count, sizeof(*r), region_compare);
}

bool session_locations_are_possible(const struct session_file *f,
                                    const uint64_t locations[SY_SLOTS], uint64_t size)
{
	struct session_region r[SY_SLOTS + 1];

	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint64_t records = locations[slot] >> 32;
		if (locations[slot] != 0 && (records == 0 || records > SESSION_RECORDS_MAX ||
		                             records % SESSION_RECORDS_STEP != 0))
			return false;
		r[slot] = location_unpack(f, (uint8_t)slot, locations[slot]);
	}
	r[SY_SLOTS] = session_dictionary_location(f);
	session_regions_sort(r, SY_ARRAY_LEN(r));
	uint64_t end = SESSION_FILE_FIRST / SY_CACHE_LINE;
	for (unsigned i = 0; i < SY_ARRAY_LEN(r); i++) {
		if (r[i].line < end)
			return false;
		end = r[i].line + r[i].lines;
	}
	return end * SY_CACHE_LINE <= size;
}

void session_file_layout(struct session_file *f, const struct session_geometry *slot,
                         uint32_t servers)
{
	memcpy(f->magic, SESSION_FILE_MAGIC, sizeof(f->magic));
	f->version = SESSION_FILE_VERSION;
	f->bucket_size = sizeof(struct session_bucket);
	f->hot_size = sizeof(struct session);
	f->cold_size = sizeof(struct session_cold);
	f->cursors = SESSION_PORT_CURSORS;
	f->slots = SY_SLOTS;
	f->slot = *slot;
	f->servers = servers;
	f->locals = SESSION_LOCALS;
	f->servers_at = SESSION_FILE_FIRST + slot->size * SY_SLOTS;
	f->locals_at =
	        round_up(f->servers_at + (uint64_t)servers * sizeof(struct session_server_name),
	                 SY_CACHE_LINE);
	f->file_size = f->locals_at + SESSION_LOCALS * sizeof(struct session_local_name);
}

/* ---- which files can be adopted -------------------------------------------------------------- */

int session_boot_id(uint8_t out[static 16], struct sy_error *err)
{
	const char *path = "/proc/sys/kernel/random/boot_id";
	FILE *file = fopen(path, "re");
	unsigned digits = 0;

	memset(out, 0, 16);
	for (int c; file != NULL && digits < 32 && (c = fgetc(file)) != EOF;) {
		if (c == '-')
			continue;
		int value = c >= '0' && c <= '9'   ? c - '0'
		            : c >= 'a' && c <= 'f' ? c - 'a' + 10
		                                   : -1;
		if (value < 0)
			break;
		out[digits / 2] |= (uint8_t)(value << (digits % 2 ? 0 : 4));
		digits++;
	}
	if (file != NULL)
		fclose(file);
	if (digits < 32)
		return sy_fail(err, EIO, "session table: no boot id in %s: is /proc mounted?",
		               path);
	return 0;
}

/* All zeros, or a header whose writer did not finish. */
static bool file_is_unfinished(const struct session_file *f)
{
	static const char zeros[sizeof(f->magic)];

	return f->check == 0 &&
	       (f->version == 0 || f->version == SESSION_FILE_VERSION ||
	        f->version == SESSION_FILE_READS) &&
	       (memcmp(f->magic, zeros, sizeof(zeros)) == 0 ||
	        memcmp(f->magic, SESSION_FILE_MAGIC, sizeof(f->magic)) == 0);
}

/* Checks that sizes are within bounds (so that no sum overflows) and that the offsets follow from
 * them. */
static bool file_layout_is_known(const struct session_file *f)
{
	struct session_geometry slot;
	struct session_file address_set = {0};

	if (f->slot.records == 0 || f->slot.records > SESSION_RECORDS_MAX ||
	    f->slot.records % SESSION_RECORDS_STEP != 0 || f->slot.buckets == 0 ||
	    f->servers > SESSION_SERVERS_MAX)
		return false;
	session_geometry_init(&slot, f->slot.records, f->slot.buckets);
	session_file_layout(&address_set, &slot, f->servers);
	return f->bucket_size == address_set.bucket_size && f->hot_size == address_set.hot_size &&
	       f->cold_size == address_set.cold_size && f->cursors == address_set.cursors &&
	       memcmp(&f->slot, &address_set.slot, sizeof(f->slot)) == 0 &&
	       f->locals == address_set.locals && f->servers_at == address_set.servers_at &&
	       f->locals_at == address_set.locals_at && f->file_size >= address_set.file_size;
}

/* All hashes by such a key are 0, which is SESSION_ONE_WAY. */
static bool key_is_void(const struct sy_hash_key *key)
{
	return key->k[7] == 0;
}

enum session_file_state session_file_examine(const struct session_file *f, uint64_t size,
                                             const uint8_t boot[static 16], uint64_t owner,
                                             char reason[static SESSION_REASON])
{
	if (file_is_unfinished(f))
		return SESSION_FILE_UNFINISHED;
	if (memcmp(f->magic, SESSION_FILE_MAGIC, sizeof(f->magic)) != 0)
		snprintf(reason, SESSION_REASON, "it is no session file");
	else if (f->version > SESSION_FILE_VERSION)
		snprintf(reason, SESSION_REASON,
		         "it has version %" PRIu32 " of a newer forwarder, while this one reads up "
		         "to %u",
		         f->version, SESSION_FILE_VERSION);
	else if (f->version != SESSION_FILE_VERSION && f->version != SESSION_FILE_READS)
		snprintf(reason, SESSION_REASON,
		         "it has version %" PRIu32 ", while this forwarder writes %u", f->version,
		         SESSION_FILE_VERSION);
	else if (size < SESSION_FILE_FIRST)
		snprintf(reason, SESSION_REASON, "it is truncated: %" PRIu64 " bytes", size);
	else if (f->check != session_file_check(f) || key_is_void(&f->key))
		snprintf(reason, SESSION_REASON, "its header is damaged");
	else if (f->slots != SY_SLOTS)
		snprintf(reason, SESSION_REASON,
		         "it has %" PRIu32 " slots, while this forwarder has %u", f->slots,
		         SY_SLOTS);
	else if (!file_layout_is_known(f))
		snprintf(reason, SESSION_REASON, "its layout is another build's");
	else if (size < f->file_size)
		snprintf(reason, SESSION_REASON,
		         "it is truncated: %" PRIu64 " bytes instead of %" PRIu64, size,
		         f->file_size);
	else if (memcmp(f->boot, boot, sizeof(f->boot)) != 0)
		snprintf(reason, SESSION_REASON, "it is from an earlier boot");
	else if (f->owner != owner)
		snprintf(reason, SESSION_REASON, "it belongs to another network namespace");
	else
		return SESSION_FILE_USABLE;
	return SESSION_FILE_REFUSED;
}
