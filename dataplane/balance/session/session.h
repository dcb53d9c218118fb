// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions: one table per slot, all tables in one mapped file. See
 * docs/design/0002-session-table.md for the byte layouts and why.
 *
 * The table knows nothing of services and servers: whoever looks up verifies candidates itself, and
 * hands in the two hashes of a session (client → VIP and server → local address) to insert or
 * remove it. A table belongs to the worker that owns its slot; others read it, and note in `seen`
 * that they forwarded a packet (session_hot.h).
 */
#ifndef SY_SESSION_H
#define SY_SESSION_H

#include <sy_base.h>

enum session_state {
	SESSION_FREE, /* 0: the record holds nothing */
	SESSION_SYN_SENT,
	SESSION_SYN_RECEIVED,
	SESSION_ESTABLISHED,
	SESSION_FIN_WAIT,  /* one side has sent its FIN */
	SESSION_CLOSING,   /* both have */
	SESSION_TIME_WAIT, /* both are acknowledged */
	SESSION_RESET,     /* a reset was seen before the handshake was over, or is certain */
	SESSION_UDP_ONE_WAY,
	SESSION_UDP_BOTH_WAYS,
	SESSION_ECHO,
	SESSION_RESET_BY_CLIENT, /* an established one was reset in the client's name, which was
	                            asked */
	SESSION_RESET_BY_SERVER, /* likewise */
	SESSION_DYING,           /* whatever comes of it is answered by a reset */
	SESSION_PAIR_RECORD,     /* no session: the second record of a pair */
	SESSION_STATES
};

/* As operators read it; "?" of what is none. */
const char *session_state_name(enum session_state state);

enum session_direction { SESSION_CLIENT, SESSION_SERVER }; /* who sent the packet */

enum session_flags {
	SESSION_CLIENT_FIN = 1,
	SESSION_SERVER_FIN = 2,
	SESSION_CLIENT_FIN_ACKED = 4, /* one-way: its FIN or reset has a number near its first */
	SESSION_SERVER_FIN_ACKED = 8,
	SESSION_ONE_PACKET = 16,      /* no packet of the client belongs to it any more */
	SESSION_SERVER_FIRST = 32,    /* the server's FIN came first: it keeps TIME_WAIT */
	SESSION_ADDRESS_PENDING = 64, /* the server may not know the client's address yet */
	SESSION_SHIFTED = 128, /* the client's sequence numbers grow by the cold `inserted` */
};

/* Hot half: what the fast path reads and writes. Half a cache line. */
struct session {
	struct sy_addr client;
	uint16_t client_port; /* network order */
	uint16_t local_port;  /* network order */
	uint32_t server : 24; /* id; names the service too, as a server belongs to one */
	uint32_t local : 8;   /* id of the local address */
	uint16_t delta;       /* checksum delta client → server; its inverse is the way back */
	uint16_t seen;        /* tick of the last packet: seconds mod 2^16. Writers: any worker */
	uint16_t path;        /* next hops back to the client, sy_path_* */
	uint8_t state;        /* enum session_state */
	uint8_t flags;        /* enum session_flags */
};
_Static_assert(sizeof(struct session) == 32, "two sessions a cache line");

/*
 * A session with two ends that no id names takes a pair: two neighbouring records in one cache
 * line. The first, of even number, is the session; the second, its pair record, has the other end
 * as its client and the path there.
 */
static inline struct session *session_pair_record(struct session *s)
{
	return s + 1;
}

/* Cold half: what creation, the end and a restart need. */
struct session_cold {
	union {
		struct {
			uint32_t created : 24; /* seconds of sy_clock_ns(), modulo 2^24 */
			uint32_t inserted : 7; /* bytes put in front of the client's data */
			uint32_t text : 1;     /* they are the PROXY protocol's version 1;
			                          of none: its server is told by TOA */
			uint32_t fin_seq[2];   /* by enum session_direction: sequence number after
			                          that side's FIN, as that side counts; while
			                          SESSION_ADDRESS_PENDING the server's: that of the
			                          client's first byte; of a one-way session
			                          the server's: that of the client's SYN */
		};
		struct {
			uint32_t free_next, free_prev; /* while the record is free: the table's */
		};
	};
	uint16_t commit; /* 0: not whole; else session_check() of the hot half, stored last */
	uint16_t vport;  /* that the client asked for, network order; 0: the endpoint's */
};
_Static_assert(sizeof(struct session_cold) == 16, "four a cache line");
#define SESSION_CREATED_MASK 0xffffffu

static inline bool session_is_by_toa(const struct session_cold *cold)
{
	return cold->text && cold->inserted == 0;
}

/* One slot's table; in process memory, its arrays in the mapped file. */
struct session_table;
struct session_space;

struct session_store_options {
	/* Capacity of all tables together, rounded up to 4 a slot; 0: a found file's, or by the
	 * memory that there is beyond `reserved` bytes, which others will take. */
	uint64_t sessions;
	uint64_t limit; /* that growth does not pass; 0: by that memory too */
	uint64_t reserved;
	uint32_t servers;      /* ids that the dictionary names, 0 to this − 1 */
	const char *directory; /* where the file goes: hugetlbfs for huge pages, NULL: anonymous */
	const char *name;      /* the file's name */
	uint64_t owner;        /* whose sessions; those of another owner are refused */
	/* NULL: the found file's, else a random one. A file of another key is refused. Read while
	 * the store is opened. */
	const struct sy_slot_key *slot_key;
	/* A running forwarder still holds the file: it is mapped and looked at, and nothing is
	 * locked or written before session_store_take(). Without a usable file: -ENOENT. */
	bool inherit;
};

/* How the file was left. */
enum session_source {
	SESSION_SOURCE_NEW,         /* there was none, or it was refused: the tables are empty */
	SESSION_SOURCE_CRASHED,     /* by a process that was killed */
	SESSION_SOURCE_STOPPED,     /* sealed at a clean stop */
	SESSION_SOURCE_HANDED_OVER, /* sealed for us; its index may be trusted: tables are ready */
};

struct session_found {
	enum session_source source;
	uint64_t away_ns;  /* since its last process was seen alive */
	char refused[300]; /* not empty: why a file was refused, and where it was put aside */
	bool resized;      /* other geometry: what is adopted goes into new tables */
};

/* All tables and the memory they lie in. */
struct session_store;

/*
 * Finds the file that an earlier process left, or makes empty tables under a new hash key; all
 * memory present, mode 0600, locked while the store is open. A file that cannot be adopted is put
 * aside as NAME.refused (and given up if its huge pages are needed), with the reason in the log and
 * in session_store_found(). Unless found is NEW or HANDED_OVER, the tables may not be used before
 * session_store_adopt(). Returns 0 or a negative errno: -EBUSY if another process holds the file,
 * -ENOMEM or -ENOSPC if memory or huge pages do not suffice.
 */
int session_store_open(const struct session_store_options *options, struct session_store **out,
                       struct sy_error *err);
const struct session_found *session_store_found(const struct session_store *s);
/*
 * inherit only: takes the file over once its process has sealed it with this ticket. found tells
 * HANDED_OVER if the index may be trusted; otherwise session_store_adopt() is due. Returns 0;
 * -EBUSY if its lock is not let go within a second; -EINVAL if it was not sealed for us.
 */
int session_store_take(struct session_store *s, uint64_t ticket, struct sy_error *err);
/*
 * Lets go of the tables, for a successor: writes what a later process needs to trust them, unmaps,
 * unlocks. ticket 0: a clean stop; else a hand-over. settled: no record names a path of an earlier
 * process. The dictionary's `active` must have been written. s is freed, the file stays.
 */
void session_store_seal(struct session_store *s, uint64_t ticket, bool settled);
/* Unmaps the tables, unlocks the file and leaves it as a crash would. s may be NULL. */
void session_store_close(struct session_store *s);
/* Closes and removes the file. s may be NULL. */
void session_store_discard(struct session_store *s);
/* Notes that its process lives; every second. */
void session_store_alive(struct session_store *s);
/* Which half of the path ids this process takes (0 or 1): not its predecessor's. */
unsigned session_store_path_half(const struct session_store *s);
/* The table of a slot, which lives as long as the store; where its records lie changes when it
 * grows. */
struct session_table *session_store_table(struct session_store *s, uint8_t slot);
/* Where all of them lie now. */
void session_store_space(const struct session_store *s, struct session_space *out);
/* How many sessions its tables may grow to hold. */
uint64_t session_store_limit(const struct session_store *s);
/* Bytes mapped for tables, index, ports, header, names: all that sessions cost. */
uint64_t session_store_mapped(const struct session_store *s);
/* The key for the hashes of this store's tables, by sy_hash_tuple(). */
const struct sy_hash_key *session_store_key(const struct session_store *s);
/* The key that its sessions' slots and local ports follow from, for sy_slot_set_key(). */
const struct sy_slot_key *session_store_slot_key(const struct session_store *s);

/* ---- the dictionary: what ids mean, for a later process (session_dictionary.c)
 * ------------------- */

/* A server, by id. Sessions of a server may only exist while its name is whole. */
struct session_server_name {
	struct sy_addr addr, vip;
	uint16_t port; /* network order, as the others; 0: the one that the client asked for */
	uint16_t vport, last_port; /* as in struct service_key */
	uint8_t proto;
	uint8_t mode : 7;    /* how packets reach it: decides what its sessions' records mean */
	uint8_t removed : 1; /* it is no longer configured: its sessions end */
	uint32_t active;     /* live sessions, as of the last seal */
	uint32_t check;      /* stored last; 0: the id means nothing */
};
_Static_assert(sizeof(struct session_server_name) == 48, "a file format");

struct session_local_name {
	struct sy_addr addr;
	uint32_t reserved;
	uint32_t check; /* likewise */
};
_Static_assert(sizeof(struct session_local_name) == 24, "a file format");

#define SESSION_LOCALS 256 /* ids of local addresses */

/* Writers: the control thread, once the file is ours (not before session_store_take()). name
 * NULL: the id means nothing any more. `check` is computed. Ids from session_servers() on get no
 * name: what an older, smaller dictionary has no room for does not survive a restart. */
void session_name_server(struct session_store *s, uint32_t id,
                         const struct session_server_name *name);
void session_name_local(struct session_store *s, uint8_t id, const struct sy_addr *addr);
/* What an id means; false: nothing, or the name is torn. */
bool session_server_named(const struct session_store *s, uint32_t id,
                          struct session_server_name *out);
bool session_local_named(const struct session_store *s, uint8_t id, struct sy_addr *out);
/* Both change while the name stays whole. */
void session_server_set_removed(struct session_store *s, uint32_t id);
void session_server_set_active(struct session_store *s, uint32_t id, uint32_t active);
/* Ids below this one may have names. */
uint32_t session_servers(const struct session_store *s);

/* ---- adoption (session_adopt.c) -------------------------------------------------------------- */

/* What became of the records found: name in status and metrics, meaning. */
#define SESSION_RESULTS(X)                                                                         \
	X(KEPT, "kept", "goes on")                                                                 \
	X(TORN, "torn", "it was being written, or is damaged")                                     \
	X(MISPLACED, "misplaced", "its ports do not belong to its slot: it is damaged")            \
	X(UNKNOWN_ID, "unknown-id", "it names a server or local address that has no meaning")      \
	X(SERVER_GONE, "server-gone", "its server or service is no longer configured")             \
	X(LOCAL_GONE, "local-gone", "its local address is no longer configured")                   \
	X(EXPIRED, "expired", "its timeout passed, the time away included")                        \
	X(DUPLICATE, "duplicate", "another session has the same tuple")                            \
	X(NO_ROOM, "no-room", "the tables are smaller now, or the index found no place")

enum session_result {
#define X(id, name, help) SESSION_##id,
	SESSION_RESULTS(X)
#undef X
	        SESSION_RESULT_COUNT
};
const char *session_result_name(enum session_result v);
const char *session_result_help(enum session_result v);

/* What only the owner of services and servers can tell of a whole record. Called by several
 * threads, each for slots of its own. */
struct session_validator {
	void *ctx;
	/* KEPT with both tuples as they come in from the wire (the server's with protocol 0 if it
	 * is SESSION_ONE_WAY), or why not. May change what the commit word does not cover (path,
	 * state, flags, seen). Behind hot is its pair record, or a record that is not in state
	 * COMPANION. idle_s: seconds since its last packet, the time away included. */
	enum session_result (*validator)(void *ctx, uint8_t slot, struct session *hot,
	                                 const struct session_cold *cold, uint32_t idle_s,
	                                 struct sy_tuple *client, struct sy_tuple *server);
	/* Do two living records hold the same tuple on this side? */
	bool (*same)(void *ctx, const struct session *a, const struct session_cold *a_cold,
	             const struct session *b, const struct session_cold *b_cold,
	             enum session_direction side);
};

/* Judges every record and builds the tables from those that are kept, by up to `threads` threads.
 * count, by enum session_result, is filled. Slots are those of
 * session_store_slot_key(). Records whose server's id is
 * not below session_servers() end as UNKNOWN_ID and are not shown to the judge. Of two records with
 * one tuple, the lower lives. Returns 0 or a negative errno: -EINVAL if nothing is to be adopted
 * (found NEW or HANDED_OVER, or adopted already); after any other the store can only be closed, and
 * what the file holds can be adopted again. */
int session_store_adopt(struct session_store *s, const struct session_validator *validator,
                        unsigned threads, uint64_t count[SESSION_RESULT_COUNT],
                        struct sy_error *err);

#define SESSION_NONE UINT32_MAX

/* Brings the bucket of a hash into the cache. */
static inline void session_prefetch_bucket(const struct session_table *t, uint64_t hash);
/* Brings the hot half that a tag in the bucket points to into the cache, and returns the entry for
 * session_find_guessed(); the table must not change in between. */
static inline uint32_t session_guess(const struct session_table *t, uint64_t hash);
/* The same of the other bucket, where session_guess() found nothing. */
static inline uint32_t session_guess_other(const struct session_table *t, uint64_t hash);
static inline void session_prefetch_record(const struct session_table *t, uint64_t hash)
{
	session_guess(t, hash);
}

/*
 * Finds the session of a hash. match(ctx, record, direction) is called for every candidate (same
 * tag) with its hot half; inlined. Returns the record's number and *direction, or SESSION_NONE.
 */
typedef bool (*session_match)(const void *ctx, const struct session *candidate,
                              enum session_direction direction);
static inline uint32_t session_find(const struct session_table *t, uint64_t hash,
                                    session_match match, const void *ctx,
                                    enum session_direction *direction);

/* The same, with the entry of session_guess() tried first. */
static inline uint32_t session_find_guessed(const struct session_table *t, uint32_t guess,
                                            uint64_t hash, session_match match, const void *ctx,
                                            enum session_direction *direction);

/* The halves of a record; a pointer stays right until the table grows. */
static inline struct session *session_at(const struct session_table *t, uint32_t record);
static inline struct session_cold *session_cold_at(const struct session_table *t, uint32_t record);
/* The cold half of a record of this table, whose hot one this is: an address, nothing is read. */
static inline const struct session_cold *session_cold_beside(const struct session_table *t,
                                                             const struct session *hot);

/* Seconds since the session's last packet, for timeouts below 2^16 s; now: the present tick. */
static inline uint16_t session_idle(const struct session *s, uint16_t now)
{
	return (uint16_t)(now - s->seen);
}

/* A packet of it came at the present tick; seen: what its record says of the last one. Written once
 * a second only: other workers read the record too (session_hot.h), or are who writes this. */
static inline void session_seen(struct session *s, uint16_t seen, uint16_t now)
{
	if (SY_UNLIKELY(seen != now))
		__atomic_store_n(&s->seen, now, __ATOMIC_RELAXED);
}

/* The commit word of a whole record, never 0, of what never changes while the session lives:
 * client, ports, ids and delta. */
uint16_t session_check(const struct session *hot);

/* In place of a server hash: no packet of this session comes from its server, so it is indexed
 * under the client's hash alone. (A real hash is this one by a chance of 2^-64.) */
#define SESSION_ONE_WAY UINT64_C(0)

/*
 * Takes a free record, copies *hot and *cold into it, indexes it under both hashes and commits it
 * (cold->commit is not read). Returns its number, or SESSION_NONE when no record is free or the
 * index finds no place (table-full); nothing has changed then. hot->state is not SESSION_FREE, and
 * only session_remove() may make it so.
 */
uint32_t session_insert(struct session_table *t, const struct session *hot,
                        const struct session_cold *cold, uint64_t client_hash,
                        uint64_t server_hash);
/* The same for a pair: both records, or none. Fills in what makes hot[1] the pair record of hot[0],
 * which has all but its client, client's port and path already. */
uint32_t session_insert_pair(struct session_table *t, struct session hot[2],
                             const struct session_cold *cold, uint64_t client_hash,
                             uint64_t server_hash);
/* Is this record the first of a pair? */
bool session_is_pair(const struct session_table *t, uint32_t record);
/* Takes both index entries out and frees the record, of a pair both. Both hashes as at insertion.
 */
void session_remove(struct session_table *t, uint32_t record, uint64_t client_hash,
                    uint64_t server_hash);

/* Brings the record that the next insertion will take into the cache. */
static inline void session_prefetch_free(const struct session_table *t);

uint32_t session_count(const struct session_table *t);    /* live; readable by any thread */
uint32_t session_capacity(const struct session_table *t); /* records */

/*
 * Visits the next `records` records from the table's sweep cursor, calling visit(ctx, table,
 * record) for the live ones, which may remove the one it is given. Returns true when the cursor
 * came round: every session that existed when it last did has been visited. Free space above the
 * highest live record is skipped.
 */
bool session_sweep(struct session_table *t, uint32_t records,
                   void (*visit)(void *ctx, struct session_table *t, uint32_t record), void *ctx);

/* Live sessions from record *cursor on, for listings; SESSION_NONE at the end. */
uint32_t session_next(const struct session_table *t, uint32_t *cursor);

/*
 * Rotating cursors over (local address, port of the slot), so that a port comes back to a server as
 * late as possible (TIME_WAIT). A server's address and port choose its cursor: what it remembers of
 * earlier ports outlives its ids, and services that share it.
 */
#define SESSION_PORT_CURSORS 64
/* Cursor n modulo their number: the candidate that is tried next. */
uint16_t *session_port_cursor(struct session_table *t, uint32_t n);
uint32_t session_port_cursor_of(const struct sy_addr *server, uint16_t port);

/* The search for a free local port; session_match callbacks get it as their ctx, with the candidate
 * in reply.dst, reply.dport and local (embed it in a larger struct for SY_CONTAINER_OF). */
struct session_port_search {
	/* given */
	const struct sy_addr *locals; /* of the server's family */
	const uint8_t *local_ids;     /* beside them, as in struct session */
	unsigned local_count;         /* at most 256 */
	uint16_t now;                 /* the present tick */
	/* the replies' tuple: src, sport and proto are given, dst and dport are found */
	struct sy_tuple reply;
	/* found */
	uint8_t local;        /* id */
	uint64_t server_hash; /* of reply, for session_insert() */
	uint32_t held; /* SESSION_NONE; or the session to be ended first, which has this port */
	/* by session_port_prefetch_cursor(), or NULL: this server's */
	uint16_t *cursor;
	/* by session_port_look_ahead(), after that: whose reply, local and server_hash are here */
	unsigned ahead;
};

/* Tuples that one search tries: all of them with up to four local addresses. */
#define SESSION_PORT_PROBES 1024
/* From so many on it is content with the port of a session that has been in TIME_WAIT for a second
 * at least: the longest of those it has met. */
#define SESSION_PORT_PATIENCE 64

/*
 * Finds a local address and port (1024 or above) in the table's slot that no session of the same
 * server endpoint and protocol holds, beginning after the one found last. taken() tells whether a
 * candidate of direction SESSION_SERVER holds search->reply: it compares endpoints, as two ids may
 * name one. Looks at no more than SESSION_PORT_PROBES tuples: with more than four local addresses
 * a search may fail near exhaustion although a port is free, and the next one goes on behind it.
 * Returns false when it found none (no-local-port).
 */
bool session_find_port(struct session_table *t, const struct sy_hash_key *key,
                       struct session_port_search *search, session_match taken);
/* Brings what such a search will begin with into the cache; fills in the server's cursor. */
void session_port_prefetch_cursor(struct session_table *t, struct session_port_search *search);
/* After that: notes the candidate that the search will begin with, and its hash, so that it need
 * not make them out again. */
void session_port_look_ahead(struct session_table *t, const struct sy_hash_key *key,
                             struct session_port_search *search);

#include "session_index.h" /* the inline functions and the table's struct */

/* ---- growth (session_grow.c) ------------------------------------------------------------------
 */

/* A part of the file: where a slot's table lies. */
struct session_region {
	uint64_t line, lines; /* cache lines, counted from the file's begin */
	uint32_t records;
};

/* A larger table on its way; once it is finished, `region` is where the smaller one was. */
struct session_growth {
	struct session_table table;
	struct session_region region;
};

/* May the slot's table be doubled, by the limit of growth? */
bool session_grow_is_possible(const struct session_store *s, uint8_t slot);
/* Control thread: memory for a table of twice as many records. Returns 0, -ENOMEM or -ENOSPC.
 */
int session_grow_prepare(struct session_store *s, uint8_t slot, struct session_growth *out,
                         struct sy_error *err);
/* The slot's owner, in this order and with nothing in between that changes the table: copies all
 * records, which keep their numbers; enters each session, by both hashes as at insertion (false:
 * the index finds no place, and the growth is given up); makes it the slot's table. */
void session_grow_copy(const struct session_table *from, struct session_growth *g);
bool session_grow_enter(struct session_growth *g, uint32_t record, uint64_t client_hash,
                        uint64_t server_hash);
void session_grow_finish(struct session_store *s, struct session_growth *g);
/* Control thread, after session_grow_finish() or a growth that was given up: the region is not
 * used again before session_grow_release() of the oldest `count` of them, when nobody reads what
 * was there any more. */
void session_grow_leave(struct session_store *s, const struct session_growth *g);
void session_grow_release(struct session_store *s, unsigned count);

#endif
