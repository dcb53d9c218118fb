// SPDX-License-Identifier: Apache-2.0
/*
 * The session file as bytes, and what the parts of the store share: private to session_*.c.
 *
 *   file  │ header │ locations │ slot states │ slot 0 │ slot 1 │ … │ server names │ local names │
 *         │ (to a page boundary) │ slots that have grown │
 *   slot  │ port cursors │ index: buckets │ hot halves │ cold halves │
 *
 * A slot's region is contiguous: handing over a slot hands over one piece of memory. Numbers are in
 * the machine's byte order, as the file never leaves the machine.
 */
#ifndef SY_SESSION_FILE_H
#define SY_SESSION_FILE_H

#include <limits.h>

#include "session.h"

#define SESSION_FILE_MAGIC   "SYSLOTS" /* 8 bytes with the terminating 0 */
#define SESSION_FILE_VERSION 8 /* of all layouts together: header, halves, buckets, hash, names */
/* An older version that is read as well: a file of version 8 without a secret and without spliced
 * sessions. The header's check covers this number in files of either version, so that a single
 * store converts one into the other. */
#define SESSION_FILE_READS     7
#define SESSION_FILE_SECRET    1024 /* where the secret is */
#define SESSION_FILE_LOCATIONS 2048 /* start of the slots' locations */
#define SESSION_FILE_STATES    4096 /* where the slot states begin */
#define SESSION_FILE_FIRST     8192 /* where slot 0 begins */

#define SESSION_FILE_MAX (UINT64_C(1) << 38) /* bytes: 2^32 cache lines */

/* Server ids have 24 bits. */
#define SESSIONS_MAX        (UINT64_C(1) << 31) /* a file's cache lines are counted in 32 bits */
#define SESSION_SERVERS_MAX (UINT32_C(1) << 24)

/* Offsets of a slot's parts, in bytes from the start of its region; each on a cache line. */
struct session_geometry {
	uint32_t records, buckets;
	uint64_t cursors_at, buckets_at, hot_at, cold_at;
	uint64_t size; /* of the region */
};

/* Written when a process releases its tables; valid while its check is right. */
struct session_seal {
	uint64_t ticket; /* 0: a clean stop; otherwise for the process with this ticket */
	uint64_t at_ns;  /* of sy_clock_ns() */
	uint64_t states; /* session_states_check() */
	uint64_t settled;
	uint64_t check; /* session_seal_check(), stored last */
};

struct session_file {
	char magic[8];
	uint32_t version;
	uint16_t bucket_size, hot_size, cold_size, cursors; /* layout sizes of this version */
	uint32_t slots;
	uint64_t file_size;
	struct session_geometry slot;
	uint32_t servers, locals; /* names in the dictionary */
	uint64_t servers_at, locals_at;
	struct sy_hash_key key; /* of the index */
	struct sy_slot_key slot_key;
	uint8_t boot[16]; /* boot id of the kernel */
	uint64_t owner;   /* network that the sessions belong to */
	uint64_t check;   /* session_file_check(), stored last; 0: creation never finished */
	/* Fields that change while the file is in use; the control thread of its process writes
	 * them. */
	uint64_t alive_ns;  /* of sy_clock_ns(): when that process was last alive */
	uint64_t path_half; /* the half of the path ids that it uses */
	struct session_seal seal;
};
_Static_assert(sizeof(struct session_file) == 272, "no holes that a check would miss");

/* The secret for cookies (docs/design/0025-syn-defence.md), beside the header. */
struct session_secret {
	struct sy_siphash_key key;
	uint64_t check; /* stored last; wrong: there is no secret */
};
_Static_assert(sizeof(struct session_file) <= SESSION_FILE_SECRET &&
                       SESSION_FILE_SECRET + sizeof(struct session_secret) <=
                               SESSION_FILE_LOCATIONS,
               "the secret fits between header and places");

static inline struct session_secret *session_file_secret(const struct session_file *f)
{
	return (struct session_secret *)((uintptr_t)f + SESSION_FILE_SECRET);
}

/* The location of a grown slot's table: first cache line in the lower 32 bits, number of records in
 * the upper. 0: the location from the header. One store, after the region's content. */
static inline uint64_t *session_file_locations(const struct session_file *f)
{
	return (uint64_t *)((uintptr_t)f + SESSION_FILE_LOCATIONS);
}
_Static_assert(sizeof(struct session_file) <= SESSION_FILE_LOCATIONS &&
                       SESSION_FILE_LOCATIONS + SY_SLOTS * sizeof(uint64_t) <= SESSION_FILE_STATES,
               "places fit behind the header");

static inline uint64_t session_location_pack(const struct session_region *r)
{
	return r->line | (uint64_t)r->records << 32;
}

/* State of a table in process memory, saved for a successor that may trust it. */
struct session_slot_state {
	uint32_t live, top, free_head, sweep_at; /* as in struct session_table */
};
_Static_assert(SESSION_FILE_STATES + SY_SLOTS * sizeof(struct session_slot_state) <=
                       SESSION_FILE_FIRST,
               "slot states fit their page");

/* ---- bytes (session_file.c) ------------------------------------------------------------------ */

uint64_t session_file_check(const struct session_file *f);
uint64_t session_seal_check(const struct session_seal *seal);
uint64_t session_secret_check(const struct session_secret *secret);
uint64_t session_states_check(const struct session_slot_state states[SY_SLOTS]);

/* Computes the layout of a slot of this many records (a multiple of SESSION_RECORDS_STEP) and
 * buckets. */
#define SESSION_RECORDS_STEP 4 /* cold halves per cache line */
void session_geometry_init(struct session_geometry *g, uint32_t records, uint32_t buckets);
/* Records and buckets per slot for this many sessions in all slots. */
void session_geometry_choose(struct session_geometry *g, uint64_t sessions);
/* The same for one slot with this many records. */
void session_geometry_of(struct session_geometry *g, uint32_t records);
/* The location and the layout of a slot's table. */
struct session_region session_slot_location(const struct session_file *f, uint8_t slot);
void session_slot_geometry(const struct session_file *f, uint8_t slot, struct session_geometry *g);
/* Location of the id dictionary: between the initial tables and the grown ones. */
struct session_region session_dictionary_location(const struct session_file *f);
/* Sorts by start. */
void session_regions_sort(struct session_region r[], unsigned count);
/* Are all locations within a file of this size, without overlaps? */
bool session_locations_are_possible(const struct session_file *f,
                                    const uint64_t locations[SY_SLOTS], uint64_t size);

/* Sets all sizes and offsets from a slot's geometry and the number of servers; file_size is the
 * number of bytes used. */
void session_file_layout(struct session_file *f, const struct session_geometry *slot,
                         uint32_t servers);

enum session_file_state { SESSION_FILE_USABLE, SESSION_FILE_UNFINISHED, SESSION_FILE_REFUSED };
#define SESSION_REASON 128
/* Checks a header read from a file of this size (zeros past its end). REFUSED: `reason` says why,
 * as a sentence without full stop. */
enum session_file_state session_file_examine(const struct session_file *f, uint64_t size,
                                             const uint8_t boot[static 16], uint64_t owner,
                                             char reason[static SESSION_REASON]);

static inline struct session_slot_state *session_file_states(struct session_file *f)
{
	return (struct session_slot_state *)((uint8_t *)f + SESSION_FILE_STATES);
}

/* ---- memory (session_memory.c) --------------------------------------------------------------- */

struct session_map {
	struct session_file *file; /* NULL: not mapped */
	uint64_t length;
	int fd; /* keeps the file locked; -1: anonymous memory */
	/* Address space that the mapping may grow into, bytes; 0: only what it needs now. */
	uint64_t reserved;
	void *area; /* the whole reservation; it may start before `file` */
	uint64_t area_length;
};

/* Sizes m->fd's file (or anonymous memory) to `length` bytes, rounded up to whole pages, allocates
 * all of them and maps the file. -ENOMEM, -ENOSPC: err says how much is missing, and the remedy. */
int session_map_memory(struct session_map *m, const char *path, uint64_t length,
                       struct sy_error *err);
/* Extends a mapped file (or memory), rounded up likewise. Changes nothing on failure. */
int session_map_extend(struct session_map *m, const char *path, uint64_t length,
                       struct sy_error *err);
/* Unmaps, closes, unlocks. */
void session_map_drop(struct session_map *m);

/* ---- the store (session_store.c) ------------------------------------------------------------- */

struct session_store {
	struct session_map now; /* the tables and the id dictionary in use */
	struct session_map old; /* a file of another size, to adopt from */
	char path[PATH_MAX];    /* empty: anonymous */
	char directory[PATH_MAX];
	char reason[SESSION_REASON];
	struct session_geometry wanted;
	bool any_size; /* accept the size of the existing file */
	uint32_t servers_wanted;
	uint64_t limit; /* sessions: see session_store_options */
	/* Regions of tables before they grew, which workers may still read; oldest first. */
	struct session_region left[SY_SLOTS];
	unsigned left_count;
	uint8_t boot[16];
	uint64_t owner;
	const struct sy_slot_key
	        *slot_key_wanted; /* NULL: any; valid while the store is being opened */
	unsigned path_half;
	bool mine;        /* this process owns the lock and may write */
	bool due;         /* adoption is due before the tables are used */
	uint64_t left_ns; /* when the file's last process was last alive */
	struct session_found found;
	uint32_t names_version; /* writer: control thread; readers: acquire */
	struct session_index index[SY_SLOTS] __attribute__((aligned(SY_CACHE_LINE)));
	struct session_table tables[SY_SLOTS];
};

/* An empty table over a region of zeros, aligned to a cache line. index: the table's; is set. */
void session_table_init(struct session_table *t, struct session_index *index, uint8_t slot,
                        void *region, const struct session_geometry *g);
/* Builds the free list from all free records below top, low numbers first. */
void session_table_list_free(struct session_table *t);
static inline void *session_slot_region(const struct session_file *f, uint8_t slot)
{
	return (uint8_t *)(uintptr_t)f + session_slot_location(f, slot).line * SY_CACHE_LINE;
}
/* Sets the desired size and the growth limit, from the options and the file at s->path
 * (session_known.c). */
void session_store_size(struct session_store *s, const struct session_store_options *o);
/* Points s->tables into s->now, all empty. */
void session_store_tables(struct session_store *s);

/* The path of a file next to the session file: its name with `suffix`. */
void session_store_beside(const struct session_store *s, const char *suffix,
                          char out[static PATH_MAX]);
/* Opens `path`, checks that it is a regular file, and locks it. Returns the descriptor, -EBUSY if
 * another process has the lock, or another negative errno. */
int session_file_open(const char *path, int flags, struct sy_error *err);
/* Allocates memory and writes the header, without its check, of a new file in m->fd, or of
 * anonymous memory if that is -1. Removes a file that was put aside if its memory is needed. */
int session_store_make(struct session_store *s, struct session_map *m, const char *path,
                       const struct sy_hash_key *key, const struct sy_slot_key *slot_key,
                       struct sy_error *err);
/* Adds a secret to a file without one; older builds ignore it. Returns 0 or a negative errno. */
int session_file_renew(struct session_file *f);
/* Completes the header: stores its check. */
void session_file_finish(struct session_file *f);

/* ---- another size (session_resize.c) --------------------------------------------------------- */

/* Has the existing file the desired size, including its dictionary? */
bool session_store_has_size(const struct session_store *s);
/* Removes what a crash left of an earlier attempt. */
void session_resize_clean(const struct session_store *s);
/* If the existing file does not have the desired size: creates a new file beside it, and copies the
 * dictionary. Without enough memory, logs that and keeps the size. */
void session_resize_begin(struct session_store *s);
/* Renames the new file to the old one's name. */
int session_resize_finish(struct session_store *s, struct sy_error *err);
/* Discards the new file. */
void session_resize_cancel(struct session_store *s);

/* ---- the id dictionary (session_dictionary.c) ------------------------------------------------ */

/* Copies all complete names whose ids fit. */
void session_dictionary_copy(struct session_file *to, const struct session_file *from);

#endif
