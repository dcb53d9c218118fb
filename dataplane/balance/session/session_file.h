// SPDX-License-Identifier: Apache-2.0
/*
 * The session file as bytes, and what the parts of the store share: private to session_*.c.
 *
 *   file    │ header │ places │ slot states │ slot 0 │ slot 1 │ … │ servers │ local addresses │ to
 * a page │ slots that have grown │ slot    │ port cursors │ index: buckets │ hot halves │ cold
 * halves │
 *
 * A slot's region is contiguous, so that handing over a slot hands over one piece of memory.
 * Numbers are in the machine's byte order: the file never leaves the machine.
 */
#ifndef SY_SESSION_FILE_H
#define SY_SESSION_FILE_H

#include <limits.h>

#include "session.h"

#define SESSION_FILE_MAGIC   "SYSLOTS" /* with its end, 8 bytes */
#define SESSION_FILE_VERSION 7 /* of all layouts together: header, halves, buckets, hash, names */
#define SESSION_FILE_PLACES  2048 /* where the slots' places begin */
#define SESSION_FILE_STATES  4096 /* where the slot states begin */
#define SESSION_FILE_FIRST   8192 /* where slot 0 begins */

#define SESSION_FILE_MOST (UINT64_C(1) << 38) /* bytes, as places count cache lines */

/* Entry numbers have 31 bits for the record, in each of the slots; server ids have 24 bits. */
#define SESSION_RECORDS_MAX (UINT32_C(1) << 30)
#define SESSIONS_MAX        (UINT64_C(1) << 31) /* so that 32 bits count a file's cache lines */
#define SESSION_SERVERS_MAX (UINT32_C(1) << 24)

/* Where a slot's parts begin, in bytes from its region's start; each on a cache line. */
struct session_geometry {
	uint32_t records, buckets;
	uint64_t cursors_at, buckets_at, hot_at, cold_at;
	uint64_t size; /* of the region */
};

/* Written when a process lets go of its tables; valid while its check is right. */
struct session_seal {
	uint64_t ticket; /* 0: a clean stop; else for the process that knows it */
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
	uint8_t boot[16]; /* which boot of the kernel */
	uint64_t owner;   /* whose sessions */
	uint64_t check;   /* session_file_check(), stored last: 0: never finished */
	/* what changes while the file is in use; written by its process's control thread */
	uint64_t alive_ns;  /* of sy_clock_ns(): when that process was seen alive */
	uint64_t path_half; /* which half of the path ids it takes */
	struct session_seal seal;
};
_Static_assert(sizeof(struct session_file) == 272, "no holes that a check would miss");

/* Where the table of a slot that has grown lies: its first cache line, and above it the number of
 * its records. 0: where the header says. Stored at once, when all that is there has been written.
 */
static inline uint64_t *session_file_places(const struct session_file *f)
{
	return (uint64_t *)((uintptr_t)f + SESSION_FILE_PLACES);
}
_Static_assert(sizeof(struct session_file) <= SESSION_FILE_PLACES &&
                       SESSION_FILE_PLACES + SY_SLOTS * sizeof(uint64_t) <= SESSION_FILE_STATES,
               "places fit behind the header");

static inline uint64_t session_place_pack(const struct session_region *r)
{
	return r->line | (uint64_t)r->records << 32;
}

/* What a table keeps in process memory, for a successor that may trust it. */
struct session_slot_state {
	uint32_t live, top, free_head, sweep_at; /* as in struct session_table */
};
_Static_assert(SESSION_FILE_STATES + SY_SLOTS * sizeof(struct session_slot_state) <=
                       SESSION_FILE_FIRST,
               "slot states fit their page");

/* ---- bytes (session_file.c) ------------------------------------------------------------------ */

uint64_t session_file_check(const struct session_file *f);
uint64_t session_seal_check(const struct session_seal *seal);
uint64_t session_states_check(const struct session_slot_state states[SY_SLOTS]);

/* Lays out a slot of this many records (a multiple of SESSION_RECORDS_STEP) and buckets. */
#define SESSION_RECORDS_STEP 4 /* cold halves of a cache line */
void session_geometry_init(struct session_geometry *g, uint32_t records, uint32_t buckets);
/* Records and buckets of one slot when all slots together shall hold this many sessions. */
void session_geometry_choose(struct session_geometry *g, uint64_t sessions);
/* The same of one slot of so many records. */
void session_geometry_of(struct session_geometry *g, uint32_t records);
/* Where a slot's table lies, and how it is laid out. */
struct session_region session_slot_place(const struct session_file *f, uint8_t slot);
void session_slot_geometry(const struct session_file *f, uint8_t slot, struct session_geometry *g);
/* Do all places lie within a file of this size, and apart from each other and from all else? */
bool session_places_are_possible(const struct session_file *f, const uint64_t places[SY_SLOTS],
                                 uint64_t size);

/* Fills all sizes and places from a slot's geometry and the number of servers; file_size is that
 * of the bytes used. */
void session_file_layout(struct session_file *f, const struct session_geometry *slot,
                         uint32_t servers);

enum session_file_state { SESSION_FILE_USABLE, SESSION_FILE_UNFINISHED, SESSION_FILE_REFUSED };
#define SESSION_REASON 128
/* Judges a header that was read from a file of this size (zeros behind its end); REFUSED: `reason`
 * says why, as a sentence without its end. */
enum session_file_state session_file_examine(const struct session_file *f, uint64_t size,
                                             const uint8_t boot[static 16], uint64_t owner,
                                             char reason[static SESSION_REASON]);
/* The kernel's boot id. */
int session_boot_id(uint8_t out[static 16], struct sy_error *err);

static inline struct session_slot_state *session_file_states(struct session_file *f)
{
	return (struct session_slot_state *)((uint8_t *)f + SESSION_FILE_STATES);
}

/* ---- memory (session_memory.c) --------------------------------------------------------------- */

struct session_map {
	struct session_file *file; /* NULL: not mapped */
	uint64_t length;
	int fd; /* keeps the file locked; -1: anonymous memory */
	/* Addresses that it may grow into; 0: what it needs now. */
	uint64_t reserved;
	void *area; /* all of them, and some in front */
	uint64_t area_length;
};

/* Gives m->fd's file (or anonymous memory) `length` bytes, rounded up to whole pages, all of them
 * present, and maps it. -ENOMEM, -ENOSPC: err says how much is missing, and the remedy. */
int session_map_memory(struct session_map *m, const char *path, uint64_t length,
                       struct sy_error *err);
/* Makes a mapped file (or memory) longer, rounded up likewise. On failure nothing has changed. */
int session_map_extend(struct session_map *m, const char *path, uint64_t length,
                       struct sy_error *err);
/* Unmaps, closes, unlocks. */
void session_map_drop(struct session_map *m);

/* ---- the store (session_store.c) ------------------------------------------------------------- */

struct session_store {
	struct session_map now; /* tables and dictionary in use */
	struct session_map old; /* another size: what will be adopted from */
	char path[PATH_MAX];    /* empty: anonymous */
	char directory[PATH_MAX];
	char reason[SESSION_REASON];
	struct session_geometry wanted;
	bool any_size; /* what is found is wanted */
	uint32_t servers_wanted;
	uint64_t limit; /* sessions: see session_store_options */
	/* where tables were before they grew, and others may read still; oldest first */
	struct session_region left[SY_SLOTS];
	unsigned left_count;
	uint8_t boot[16];
	uint64_t owner;
	const struct sy_slot_key *slot_key_wanted; /* NULL: any; while it is opened */
	unsigned path_half;
	bool mine;        /* locked, and ours to write */
	bool due;         /* tables may not be used before adoption */
	uint64_t left_ns; /* when its last process was seen alive */
	struct session_found found;
	struct session_table tables[SY_SLOTS];
};

/* An empty table over a region of zeros, aligned to a cache line. */
void session_table_init(struct session_table *t, uint8_t slot, void *region,
                        const struct session_geometry *g);
/* Makes all free records below top, and only them, the free list, low numbers first. */
void session_table_list_free(struct session_table *t);
static inline void *session_slot_region(const struct session_file *f, uint8_t slot)
{
	return (uint8_t *)(uintptr_t)f + session_slot_place(f, slot).line * SY_CACHE_LINE;
}
/* What is wanted, and by how much it may grow (session_known.c). */
void session_store_size(struct session_store *s, const struct session_store_options *o);
/* Points s->tables into s->now, all empty. */
void session_store_tables(struct session_store *s);

/* The path of a file beside the session file. */
void session_store_beside(const struct session_store *s, const char *suffix,
                          char out[static PATH_MAX]);
/* Opens `path`, makes sure it is a regular file, locks it. Returns the descriptor, or -EBUSY if
 * another process has it. */
int session_file_open(const char *path, int flags, struct sy_error *err);
/* Memory and header, without its check, of a new file in m->fd or, -1, without one. A file that
 * was put aside is given up if its memory is needed. */
int session_store_make(struct session_store *s, struct session_map *m, const char *path,
                       const struct sy_hash_key *key, const struct sy_slot_key *slot_key,
                       struct sy_error *err);
/* The header is whole: its check. */
void session_file_finish(struct session_file *f);

/* ---- another size (session_resize.c) --------------------------------------------------------- */

/* Is the size of the file found, of its dictionary too, the one that is wanted? */
bool session_store_has_size(const struct session_store *s);
/* Removes what a crash left of an earlier attempt. */
void session_resize_clean(const struct session_store *s);
/* If the file found has another size than wanted: makes the other one beside it, with the
 * dictionary. If memory does not suffice, that is said, and the size stays. */
void session_resize_begin(struct session_store *s);
/* The new file takes the old one's name. */
int session_resize_finish(struct session_store *s, struct sy_error *err);
/* The new file is given up. */
void session_resize_cancel(struct session_store *s);

/* ---- names (session_dictionary.c)
 * ----------------------------------------------------------------- */

/* Copies all whole names that have room there. */
void session_dictionary_copy(struct session_file *to, const struct session_file *from);

#endif
