// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions: one table per slot, all tables in one mapped file. docs/design/0002-session-table.md
 * has the byte layouts and their reasons.
 *
 * The table knows neither services nor servers: callers of a look-up verify the candidates. To
 * insert or remove a session the caller passes its two hashes (client → VIP and server → local
 * address). A table belongs to the worker that owns its slot. Other workers may read it, and store
 * `seen` when they forward a packet (session_hot.h).
 */
#ifndef SY_SESSION_H
#define SY_SESSION_H

#include <sy_base.h>
#include <sy_siphash.h>

enum session_state {
	SESSION_FREE, /* 0: the record is unused */
	SESSION_SYN_SENT,
	SESSION_SYN_RECEIVED,
	SESSION_ESTABLISHED,
	SESSION_FIN_WAIT,  /* one side has sent its FIN */
	SESSION_CLOSING,   /* both sides have */
	SESSION_TIME_WAIT, /* both FINs are acknowledged */
	SESSION_RESET,     /* a reset was seen before the handshake completed, or is certain */
	SESSION_UDP_ONE_WAY,
	SESSION_UDP_BOTH_WAYS,
	SESSION_ECHO,
	SESSION_RESET_BY_CLIENT, /* an established session got a reset in the client's name; a
	                            challenge was sent */
	SESSION_RESET_BY_SERVER, /* the same, in the server's name */
	SESSION_DYING,           /* every packet of either end is answered by a reset */
	SESSION_PAIR_RECORD,     /* not a session: the second record of a pair */
	SESSION_OPENING,         /* the client returned a cookie; the server has not answered */
	SESSION_UDP_ANSWERED,    /* the server has answered; the client has not sent since */
	SESSION_AWAY,            /* another node serves it: view/away.h has its state there */
	SESSION_STATES
};

/* Is a session in this state embryonic: half open, or UDP whose client has sent nothing after an
 * answer? A packet with a forged source can begin such a session. */
static inline bool session_state_is_embryonic(uint8_t state)
{
	const uint32_t embryonic = 1u << SESSION_SYN_SENT | 1u << SESSION_SYN_RECEIVED |
	                           1u << SESSION_UDP_ONE_WAY | 1u << SESSION_UDP_ANSWERED |
	                           1u << SESSION_ECHO | 1u << SESSION_OPENING;
	return embryonic >> state & 1;
}

/* The name that operators see; "?" for an unknown state. */
const char *session_state_name(enum session_state state);

enum session_direction { SESSION_CLIENT, SESSION_SERVER }; /* the sender of a packet */

enum session_flags {
	SESSION_CLIENT_FIN = 1,
	SESSION_SERVER_FIN = 2,
	SESSION_CLIENT_FIN_ACKED = 4, /* one-way: the client's FIN or reset is credible */
	SESSION_SERVER_FIN_ACKED = 8,
	SESSION_ONE_PACKET = 16, /* UDP: no further packet of the client belongs to it */
	SESSION_WATCHED = SESSION_ONE_PACKET, /* TCP: a worker counts its lost segments */
	SESSION_SERVER_FIRST = 32,    /* the server sent the first FIN: it keeps TIME_WAIT */
	SESSION_ADDRESS_PENDING = 64, /* the server may not have the client's address yet */
	/* written by an older build in SESSION_UDP_BOTH_WAYS: means SESSION_UDP_ANSWERED now */
	SESSION_UNSHOWN = SESSION_ADDRESS_PENDING,
	SESSION_SHIFTED = 128, /* forward_shift() converts sequence numbers */
};

/* Hot half: the fields of the fast path. Half a cache line. */
struct session {
	struct sy_addr client;
	uint16_t client_port; /* network order */
	uint16_t local_port;  /* network order */
	uint32_t server : 24; /* id; also implies the service, as a server belongs to one */
	uint32_t local : 8;   /* id of the local address */
	uint16_t delta; /* checksum delta client → server; invert it for the other direction */
	uint16_t seen;  /* tick of the last packet: seconds mod 2^16. Any worker writes it */
	uint16_t path;  /* next hops back to the client, sy_path_* */
	uint8_t state;  /* enum session_state */
	uint8_t flags;  /* enum session_flags */
};
_Static_assert(sizeof(struct session) == 32, "two sessions a cache line");

static inline bool session_is_one_packet(const struct session *s)
{
	return s->flags & SESSION_ONE_PACKET &&
	       (s->state == SESSION_UDP_ONE_WAY || s->state == SESSION_UDP_BOTH_WAYS);
}

/*
 * A session whose second end has no id (SNAT) is a pair: two adjacent records in one cache line.
 * The first, even-numbered, is the session. The second, its pair record, has the other end in place
 * of the client, and the path to that end.
 */
static inline struct session *session_pair_record(struct session *s)
{
	return s + 1;
}

/* Cold half: fields for session creation, session end and adoption. */
struct session_cold {
	union {
		struct {
			uint32_t created : 23; /* seconds of sy_clock_ns(), modulo 2^23 */
			/* A SYN of the client may still be answered by a SYN-ACK. In the pair
			 * record of a SNAT session: syn_ack is known. */
			uint32_t syn_seen : 1;
			uint32_t inserted : 7; /* bytes inserted before the client's data */
			uint32_t text : 1;     /* the inserted bytes are a PROXY v1 header; with
			                          inserted 0: the client's address goes into TOA */
			union {
				uint32_t fin_seq[2]; /* by enum session_direction: the number after
				                        that side's FIN, in its own numbering */
				/* In the pair record of a SNAT session: an answer to the last SYN
				 * acknowledges a number in syn_ack..syn_end. */
				struct {
					uint32_t syn_ack, syn_end;
				};
				struct {
					/* Before the client's FIN, if client's sessions are
					 * counted: the number that validates the client by its ACK,
					 * in the server's numbering. 0: validated, or unknown. */
					uint32_t client_fin;
					/* Instead of the server's: while SESSION_ADDRESS_PENDING
					 * the number of the client's first byte; in a one-way
					 * session that of its SYN. */
					uint32_t client_first;
				};
			};
		};
		struct {
			uint32_t free_next, free_prev; /* list links while the record is free */
		};
	};
	uint16_t commit; /* 0: incomplete; else session_check() of the hot half, stored last */
	uint16_t vport;  /* destination port of the client's packets, network order; 0: the
	                    endpoint's */
};
_Static_assert(sizeof(struct session_cold) == 16, "four a cache line");
#define SESSION_CREATED_MASK 0x7fffffu

/* Does its server get the client's address by a PROXY header, or by TOA? */
static inline bool session_is_by_proxy(const struct session_cold *cold)
{
	return cold->inserted != 0;
}

static inline bool session_is_by_toa(const struct session_cold *cold)
{
	return cold->text && cold->inserted == 0;
}

/* One slot's table. The struct is in process memory, its arrays are in the mapped file. */
struct session_table;
struct session_index;

struct session_store_options {
	/* Capacity of all tables together, rounded up to 4 per slot. 0: the capacity of the
	 * existing file, or chosen by the free memory, less the `reserved` bytes for other uses. */
	uint64_t sessions;
	uint64_t limit; /* growth limit; 0: also by memory */
	uint64_t reserved;
	uint32_t servers;      /* number of server ids in the dictionary */
	const char *directory; /* the file's directory: hugetlbfs for huge pages, NULL: anonymous */
	const char *name;      /* the file's name */
	uint64_t owner;        /* network of the sessions; a file of another owner is refused */
	/* NULL: the key of the existing file, otherwise a random one. A file with another key is
	 * refused. Read while the store is being opened. */
	const struct sy_slot_key *slot_key;
	/* A running forwarder owns the file: open maps and examines it, and neither locks nor
	 * writes anything before session_store_acquire(). Fails with -ENOENT without a usable
	 * file. */
	bool inherit;
};

/* How the earlier process left the file. */
enum session_source {
	SESSION_SOURCE_NEW,         /* no file, or it was refused: the tables are empty */
	SESSION_SOURCE_CRASHED,     /* by a process that was killed */
	SESSION_SOURCE_STOPPED,     /* sealed at a clean stop */
	SESSION_SOURCE_HANDED_OVER, /* sealed for this process, whose index may be trusted: the
	                               tables are ready */
};

struct session_found {
	enum session_source source;
	uint64_t away_ns;  /* since the last process was alive */
	char refused[300]; /* not empty: why the file was refused, and its new name */
	bool resized;      /* other geometry: adopted sessions move to new tables */
};

/* All tables and their memory. */
struct session_store;

/*
 * Opens the file of an earlier process, or creates empty tables with a new hash key. Allocates all
 * memory; the file has mode 0600 and is locked while the store is open. A file that cannot be
 * adopted is renamed to NAME.refused (and removed if its huge pages are needed); the reason is
 * logged and returned by session_store_found(). Unless found is NEW or HANDED_OVER,
 * session_store_adopt() must come before any use of the tables. Returns 0, -EBUSY if another
 * process has locked the file, -ENOMEM or -ENOSPC without enough memory or huge pages, or another
 * negative errno.
 */
int session_store_open(const struct session_store_options *options, struct session_store **out,
                       struct sy_error *err);
const struct session_found *session_store_found(const struct session_store *s);
/*
 * With inherit only: acquires the file after its process has sealed it with this ticket. Then found
 * is HANDED_OVER if the index may be trusted; otherwise session_store_adopt() must follow. Returns
 * 0; -EBUSY if the lock is not released within a second; -EINVAL if the file was not sealed for
 * this process.
 */
int session_store_acquire(struct session_store *s, uint64_t ticket, struct sy_error *err);
/*
 * Releases the tables for a successor: writes what it needs to trust them, unmaps, unlocks. ticket
 * 0: a clean stop; otherwise a hand-over. settled: no record has a path id of an earlier process.
 * The caller has stored the dictionary's `active`. Frees s; the file stays.
 */
void session_store_seal(struct session_store *s, uint64_t ticket, bool settled);
/* Unmaps the tables and unlocks the file without a seal, as a crash would. s may be NULL. */
void session_store_close(struct session_store *s);
/* Closes and removes the file. s may be NULL. */
void session_store_discard(struct session_store *s);
/* The start has succeeded: marks a file of an older version as one of this version, which older
 * builds refuse. */
void session_store_started(struct session_store *s);
/* Notes that the process is alive; called every second. */
void session_store_alive(struct session_store *s);
/* The half of the path ids that this process uses (0 or 1): its predecessor uses the other. */
unsigned session_store_path_half(const struct session_store *s);
/* The table of a slot. The struct is valid as long as the store; its records move when it grows. */
struct session_table *session_store_table(struct session_store *s, uint8_t slot);
/* The index of every slot, SY_SLOTS of them: always where its table is now. */
const struct session_index *session_store_indexes(const struct session_store *s);
/* Number of sessions that the tables may grow to hold. */
uint64_t session_store_limit(const struct session_store *s);
/* Bytes mapped for tables, index, ports, header and names: the whole cost of sessions. */
uint64_t session_store_mapped(const struct session_store *s);
/* The key for this store's session hashes, by sy_hash_tuple(). */
const struct sy_hash_key *session_store_key(const struct session_store *s);
/* The secret for cookies, once this process owns the file. It must not be logged or sent. */
struct sy_siphash_key session_store_secret(const struct session_store *s);
/* The key that determines slots and local ports, for sy_slot_set_key(). */
const struct sy_slot_key *session_store_slot_key(const struct session_store *s);

/* The kernel's boot id. Returns 0 or a negative errno. */
int session_boot_id(uint8_t out[static 16], struct sy_error *err);

/* ---- the id dictionary: the meaning of ids, for a later process (session_dictionary.c) ------- */

/* A server by id. Its sessions exist only while its name is complete. */
struct session_server_name {
	struct sy_addr addr, vip;
	uint16_t port; /* network order, like all ports here; 0: each session has its own */
	uint16_t vport, last_port; /* as in struct service_key */
	uint8_t proto;
	uint8_t mode : 7;    /* enum mode: how session records are interpreted */
	uint8_t removed : 1; /* no longer configured: its sessions end */
	uint32_t active;     /* live sessions, as of the last seal */
	uint32_t check;      /* stored last; 0: the id has no meaning */
};
_Static_assert(sizeof(struct session_server_name) == 48, "a file format");

struct session_local_name {
	struct sy_addr addr;
	uint32_t reserved;
	uint32_t check; /* as above */
};
_Static_assert(sizeof(struct session_local_name) == 24, "a file format");

#define SESSION_LOCALS 256 /* ids of local addresses */

/* Sets the meaning of an id; NULL clears it. Computes `check`. Called by the control thread once
 * this process owns the file. Ids from session_servers() up get no name: they are beyond the
 * capacity of an older, smaller dictionary, and do not survive a restart. */
void session_name_server(struct session_store *s, uint32_t id,
                         const struct session_server_name *name);
void session_name_local(struct session_store *s, uint8_t id, const struct sy_addr *addr);
/* Returns the meaning of an id, or false if it has none or its name is torn. */
bool session_server_named(const struct session_store *s, uint32_t id,
                          struct session_server_name *out);
bool session_local_named(const struct session_store *s, uint8_t id, struct sy_addr *out);
/* Both keep the name valid while they change it. */
void session_server_set_removed(struct session_store *s, uint32_t id);
void session_server_set_active(struct session_store *s, uint32_t id, uint32_t active);
/* Changes whenever a name does. Any thread. */
uint32_t session_names_version(const struct session_store *s);
/* Ids below this one may have names. */
uint32_t session_servers(const struct session_store *s);

/* ---- adoption (session_adopt.c) -------------------------------------------------------------- */

/* Results of adoption per record: name in status and metrics, meaning. */
#define SESSION_RESULTS(X)                                                                         \
	X(KEPT, "kept", "goes on")                                                                 \
	X(TORN, "torn", "it was being written, or is damaged")                                     \
	X(MISPLACED, "misplaced", "its ports do not belong to its slot: it is damaged")            \
	X(UNKNOWN_ID, "unknown-id", "it names a server or local address that has no meaning")      \
	X(SERVER_GONE, "server-gone", "its server or service is no longer configured")             \
	X(LOCAL_GONE, "local-gone", "its local address is no longer configured")                   \
	X(EXPIRED, "expired", "its timeout passed, the time away included")                        \
	X(DUPLICATE, "duplicate", "another session has the same tuple")                            \
	X(NO_ROOM, "no-room", "the tables are smaller now, or the index found no free entry")

enum session_result {
#define X(id, name, help) SESSION_##id,
	SESSION_RESULTS(X)
#undef X
	        SESSION_RESULT_COUNT
};
const char *session_result_name(enum session_result v);
const char *session_result_help(enum session_result v);

/* Checks a complete record against services and servers. Several threads call it, each for its own
 * slots. */
struct session_validator {
	void *ctx;
	/* Returns KEPT with both tuples as they arrive on the wire (the server's with protocol 0 if
	 * it is SESSION_ONE_WAY), or the reason to drop it. May change what the commit word does
	 * not cover (path, state, flags, seen). hot[1] is its pair record, or a record whose state
	 * is not SESSION_PAIR_RECORD. idle_s: seconds since its last packet, including the time
	 * between the processes. */
	enum session_result (*validate)(void *ctx, uint8_t slot, struct session *hot,
	                                const struct session_cold *cold, uint32_t idle_s,
	                                struct sy_tuple *client, struct sy_tuple *server);
	/* Do two live records have the same tuple on this side? */
	bool (*same)(void *ctx, const struct session *a, const struct session_cold *a_cold,
	             const struct session *b, const struct session_cold *b_cold,
	             enum session_direction side);
};

/* Validates every record with up to `threads` threads, and builds the tables from those that are
 * kept. Counts by enum session_result. Slots are those of session_store_slot_key(). Records with a
 * server id of session_servers() or above end as UNKNOWN_ID without the validator. Of two records
 * with one tuple, the lower-numbered one is kept. Returns 0; -EINVAL if there is nothing to adopt
 * (found is NEW or HANDED_OVER, or adopted already); or another negative errno: then the store can
 * only be closed, and the file's sessions can be adopted again. */
int session_store_adopt(struct session_store *s, const struct session_validator *validator,
                        unsigned threads, uint64_t count[SESSION_RESULT_COUNT],
                        struct sy_error *err);

#define SESSION_NONE UINT32_MAX
/* Max records of a slot: it has fewer than SESSION_INDEX_BUCKETS buckets, and an index entry has 31
 * bits for a record number. */
#define SESSION_RECORDS_MAX (UINT32_C(1) << 24)

/* Prefetches the bucket of a hash. */
static SY_PREFETCH_INLINE void session_prefetch_bucket(const struct session_index *x,
                                                       uint64_t hash);
/* Prefetches the hot half of the entry with a matching tag in the bucket. Returns the entry for
 * session_find_guessed(); the table must not change in between. */
static inline uint32_t session_guess(const struct session_index *x, uint64_t hash);
/* The same for the other bucket, when session_guess() found nothing. */
static inline uint32_t session_guess_other(const struct session_index *x, uint64_t hash);
static SY_PREFETCH_INLINE void session_prefetch_record(const struct session_index *x, uint64_t hash)
{
	session_guess(x, hash);
}

/*
 * Finds the session of a hash. Calls match(ctx, record, direction), inlined, with the hot half of
 * each candidate (same tag). Returns the record's number and *direction, or SESSION_NONE.
 */
typedef bool (*session_match)(const void *ctx, const struct session *candidate,
                              enum session_direction direction);
static inline uint32_t session_find(const struct session_index *x, uint64_t hash,
                                    session_match match, const void *ctx,
                                    enum session_direction *direction);

/* The same, but tries the entry of session_guess() first. */
static inline uint32_t session_find_guessed(const struct session_index *x, uint32_t guess,
                                            uint64_t hash, session_match match, const void *ctx,
                                            enum session_direction *direction);

/* The halves of a record; valid until the table grows. */
static inline struct session *session_at(const struct session_table *t, uint32_t record);
static inline struct session_cold *session_cold_at(const struct session_table *t, uint32_t record);
/* The cold half of this hot half. Computes an address; reads nothing. */
static inline const struct session_cold *session_cold_beside(const struct session_table *t,
                                                             const struct session *hot);

/* Seconds since the session's last packet, for timeouts below 2^16 s; now: the current tick. */
static inline uint16_t session_idle(const struct session *s, uint16_t now)
{
	return (uint16_t)(now - s->seen);
}

/* Seconds since the session was created, modulo 2^23. now: of sy_clock_ns(). */
static inline uint32_t session_age(const struct session_cold *cold, uint32_t now)
{
	return (now - cold->created) & SESSION_CREATED_MASK;
}

/* Stores the tick of a packet; seen: `seen` as read before. Writes once a second only: other
 * workers read the record, and also call this (session_hot.h). */
static inline void session_touch(struct session *s, uint16_t seen, uint16_t now)
{
	if (SY_UNLIKELY(seen != now))
		__atomic_store_n(&s->seen, now, __ATOMIC_RELAXED);
}

/* The commit word of a complete record, never 0. It covers the fields that are constant during the
 * session: client, ports, ids and delta. */
uint16_t session_check(const struct session *hot);

/* In place of a server hash: the server's packets bypass the balancer, so only the client's side is
 * indexed. (A real hash has this value with probability 2^-64.) */
#define SESSION_ONE_WAY UINT64_C(0)

/*
 * Allocates a record, copies *hot and *cold into it, indexes it under both hashes and commits it
 * (ignores cold->commit). Returns its number, or SESSION_NONE, with nothing changed, if no record
 * is free or the index is full (table-full). hot->state is not SESSION_FREE; only session_remove()
 * sets that.
 */
uint32_t session_insert(struct session_table *t, const struct session *hot,
                        const struct session_cold *cold, uint64_t client_hash,
                        uint64_t server_hash);
/* The same for a pair: inserts both records, or none. Makes hot[1] the pair record of hot[0]; the
 * caller has set only its client, client port and path. Each record gets its own cold half. */
uint32_t session_insert_pair(struct session_table *t, struct session hot[2],
                             const struct session_cold cold[2], uint64_t client_hash,
                             uint64_t server_hash);
/* Is this record the first of a pair? */
bool session_is_pair(const struct session_table *t, uint32_t record);
/* Removes both index entries and frees the record (both records of a pair). The hashes are those of
 * the insertion. */
void session_remove(struct session_table *t, uint32_t record, uint64_t client_hash,
                    uint64_t server_hash);

/* Prefetches the record that the next insertion will use. */
static SY_PREFETCH_INLINE void session_prefetch_free(const struct session_table *t);

uint32_t session_count(const struct session_table *t);    /* live; any thread may call it */
uint32_t session_capacity(const struct session_table *t); /* records */

/*
 * Visits the next `records` records from the table's sweep cursor. Calls visit(ctx, table, record)
 * for live ones; visit may remove that record. Returns true when the cursor wraps: every session
 * that existed at the previous wrap has been visited. Skips the free records above the highest live
 * one.
 */
bool session_sweep(struct session_table *t, uint32_t records,
                   void (*visit)(void *ctx, struct session_table *t, uint32_t record), void *ctx);

/* The next live session from *cursor on, for listings; SESSION_NONE at the end. */
uint32_t session_next(const struct session_table *t, uint32_t *cursor);

/*
 * Rotating cursors over the slot's ports: a server sees a port of a local address again as late as
 * possible (TIME_WAIT). The hash of a server's address and port and of the local address's index
 * selects a cursor, so cursors outlive server ids and are common to all services of a server.
 */
#define SESSION_PORT_CURSORS 64
/* Cursor n modulo SESSION_PORT_CURSORS: the next port of the home address; in its upper byte, how
 * many of the other addresses to skip first. */
uint16_t *session_port_cursor(struct session_table *t, uint32_t n);
uint32_t session_port_cursor_of(const struct sy_addr *server, uint16_t port);

/* A search for a free local port. session_match callbacks get it as ctx, with the candidate in
 * reply.dst, reply.dport and local (embed it in a larger struct for SY_CONTAINER_OF). */
struct session_port_search {
	/* input */
	const struct sy_addr *locals; /* of the server's family */
	const uint8_t *local_ids;     /* parallel to locals, as in struct session */
	unsigned local_count;         /* at most 256 */
	unsigned home;                /* index of the home address: its ports are tried first */
	uint16_t now;                 /* the current tick */
	/* The cost of ending a session for its port; the lowest is chosen. SESSION_NONE: it may not
	 * end. NULL: session_port_cost(). */
	uint32_t (*cost)(const struct session_port_search *search, const struct session *s);
	/* tuple of the replies: src, sport and proto are input, dst and dport output */
	struct sy_tuple reply;
	/* output */
	uint8_t local;        /* id */
	uint64_t server_hash; /* of reply, for session_insert() */
	uint32_t victim;      /* SESSION_NONE; or the session to end first, which uses this port */
	/* this server's cursor, from session_port_prefetch_cursor(), or NULL */
	uint16_t *cursor;
	/* candidate of session_port_look_ahead(): its reply, local and server_hash are set */
	unsigned ahead;
};

/* Max tuples per search: all of them with up to four local addresses. */
#define SESSION_PORT_PROBES 1024
/* The same after such a search has failed in this second: otherwise each packet of a flood that
 * uses up all ports would cause a whole search. */
#define SESSION_PORT_SHORT 16
/* After this many tries the search accepts the port of a session that may end: the one with the
 * lowest cost so far. */
#define SESSION_PORT_PATIENCE 64

/* Min local port, host order: lower ones are system ports (RFC 6335 6). */
#define SESSION_PORT_FIRST 1024

/*
 * Finds a local address and port (SESSION_PORT_FIRST or above) in the table's slot that no session
 * of the same server endpoint and protocol uses: at the home address if it has one, otherwise at
 * others. Starts after the port found last. taken() returns whether a candidate of direction
 * SESSION_SERVER uses search->reply; it compares endpoints, because two ids may name one. Tries at
 * most SESSION_PORT_PROBES tuples, or SESSION_PORT_SHORT. So with more than four local addresses,
 * or after a failed search in this second, it may fail although a port is free; the next search
 * continues after it. Returns false if it finds none (no-local-port).
 */
bool session_find_port(struct session_table *t, const struct sy_hash_key *key,
                       struct session_port_search *search, session_match taken);
/* Only a session that has been in TIME_WAIT for at least a second may end, the oldest first.
 * Returns at most UINT16_MAX, or SESSION_NONE. */
uint32_t session_port_cost(const struct session_port_search *search, const struct session *s);
/* Prefetches what such a search reads first; sets the server's cursor. */
void session_port_prefetch_cursor(struct session_table *t, struct session_port_search *search);
/* Call after that: stores the search's first candidate and its hash, so that the search need not
 * compute them. */
void session_port_look_ahead(struct session_table *t, const struct sy_hash_key *key,
                             struct session_port_search *search);

#include "session_index.h" /* the inline functions and the table's struct */

/* ---- growth (session_grow.c) ----------------------------------------------------------------- */

/* Location of a slot's table in the file. */
struct session_region {
	uint64_t line, lines; /* in cache lines from the start of the file */
	uint32_t records;
};

/* A larger table in preparation; after session_grow_finish(), `region` is that of the smaller
 * one. */
struct session_growth {
	struct session_index index;
	struct session_table table;
	struct session_region region;
};

/* Does the growth limit allow the slot's table to double? */
bool session_grow_is_possible(const struct session_store *s, uint8_t slot);
/* Control thread: reserves memory for a table with twice the records. Returns 0, -ENOMEM or
 * -ENOSPC. */
int session_grow_prepare(struct session_store *s, uint8_t slot, struct session_growth *out,
                         struct sy_error *err);
/* Called by the slot's owner, in this order, with no change to the table in between. copy: copies
 * all records, which keep their numbers. enter: indexes one session by both hashes, as at
 * insertion; returns false if the index is full, which cancels the growth. finish: makes it the
 * slot's table. */
void session_grow_copy(const struct session_table *from, struct session_growth *g);
bool session_grow_enter(struct session_growth *g, uint32_t record, uint64_t client_hash,
                        uint64_t server_hash);
void session_grow_finish(struct session_store *s, struct session_growth *g);
/* Control thread. leave: after session_grow_finish() or a cancelled growth, puts the region, which
 * workers may still read, on a list. release: frees the oldest `count` regions of the list, once no
 * worker reads them. */
void session_grow_leave(struct session_store *s, const struct session_growth *g);
void session_grow_release(struct session_store *s, unsigned count);

#endif
