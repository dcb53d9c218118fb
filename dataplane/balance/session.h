// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions: one table per slot, all tables in one mapped file. See
 * docs/design/0002-session-table.md for the byte layouts and why.
 *
 * The table knows nothing of services and servers: whoever looks up verifies candidates itself, and
 * hands in the two hashes of a session (client → VIP and server → local address) to insert or
 * remove it. A table belongs to the worker that owns its slot; nobody else touches it.
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
	SESSION_RESET,     /* a reset was seen; may be forged, so only the timeout shrinks */
	SESSION_UDP_ONE_WAY,
	SESSION_UDP_BOTH_WAYS,
	SESSION_STATES
};

enum session_direction { SESSION_CLIENT, SESSION_SERVER }; /* who sent the packet */

enum session_flags {
	SESSION_CLIENT_FIN = 1,
	SESSION_SERVER_FIN = 2,
	SESSION_CLIENT_FIN_ACKED = 4,
	SESSION_SERVER_FIN_ACKED = 8,
};

/* Hot half: what the fast path reads and writes. Half a cache line. */
struct session {
	struct sy_addr client;
	uint16_t client_port; /* network order */
	uint16_t local_port;  /* network order */
	uint32_t server : 24; /* id; names the service too, as a server belongs to one */
	uint32_t local : 8;   /* id of the local address */
	uint16_t delta;       /* checksum delta client → server; its inverse is the way back */
	uint16_t seen;        /* tick of the last packet: seconds mod 2^16 */
	uint16_t path;        /* next hops back to the client, sy_path_* */
	uint8_t state;        /* enum session_state */
	uint8_t flags;        /* enum session_flags */
};
_Static_assert(sizeof(struct session) == 32, "two sessions a cache line");

/* Cold half: what creation, the end and a restart need. */
struct session_cold {
	union {
		struct {
			uint32_t created;    /* seconds of sy_clock_ns() */
			uint32_t fin_seq[2]; /* by enum session_direction: sequence number after
			                        that side's FIN */
		};
		struct {
			uint32_t free_next, free_prev; /* while the record is free: the table's */
		};
	};
	uint8_t commit; /* 0: not whole; else session_check() of the hot half, stored last */
	uint8_t reserved[3];
};
_Static_assert(sizeof(struct session_cold) == 16, "four a cache line");

/* One slot's table; in process memory, its arrays in the mapped file. */
struct session_table;

struct session_store_options {
	uint64_t sessions;     /* capacity of all tables together, rounded up to 4 a slot */
	const char *directory; /* where the file goes: hugetlbfs for huge pages, NULL: anonymous */
	const char *name;      /* the file's name */
};

/* All tables and the memory they lie in. */
struct session_store;

/*
 * Makes empty tables under a new hash key, all memory present. The file is locked while the store
 * is open, mode 0600; what an earlier process left in it is given up. Returns 0 or a negative
 * errno: -EBUSY if another process holds the file, -ENOMEM or -ENOSPC if memory or huge pages do
 * not suffice.
 */
int session_store_open(const struct session_store_options *options, struct session_store **out,
                       struct sy_error *err);
/* Unmaps the tables and removes the file. s may be NULL. */
void session_store_close(struct session_store *s);
/* The table of a slot, which lives as long as the store. */
struct session_table *session_store_table(struct session_store *s, uint8_t slot);
/* Bytes mapped for tables, index, ports, header: all that sessions cost. */
uint64_t session_store_mapped(const struct session_store *s);
/* The key for the hashes of this store's tables, by sy_hash_tuple(). */
const struct sy_hash_key *session_store_key(const struct session_store *s);

#define SESSION_NONE UINT32_MAX

/* Brings the bucket of a hash, then the hot halves its tags point to, into the cache. */
static inline void session_prefetch_bucket(const struct session_table *t, uint64_t hash);
static inline void session_prefetch_record(const struct session_table *t, uint64_t hash);

/*
 * Finds the session of a hash. match(ctx, record, direction) is called for every candidate (same
 * tag) with its hot half; inlined. Returns the record's number and *direction, or SESSION_NONE.
 */
typedef bool (*session_match)(const void *ctx, const struct session *candidate,
                              enum session_direction direction);
static inline uint32_t session_find(const struct session_table *t, uint64_t hash,
                                    session_match match, const void *ctx,
                                    enum session_direction *direction);

/* The halves of a record; a pointer stays right as long as the store is open. */
static inline struct session *session_at(const struct session_table *t, uint32_t record);
static inline struct session_cold *session_cold_at(const struct session_table *t, uint32_t record);

/* Seconds since the session's last packet, for timeouts below 2^16 s; now: the present tick. */
static inline uint16_t session_idle(const struct session *s, uint16_t now)
{
	return (uint16_t)(now - s->seen);
}

/* The commit byte of a whole record: 1…255, of what never changes while the session lives: client,
 * ports, ids and delta. */
uint8_t session_check(const struct session *hot);

/*
 * Takes a free record, copies *hot into it, indexes it under both hashes and commits it. Returns
 * its number, or SESSION_NONE when no record is free or the index finds no place (table-full);
 * nothing has changed then. hot->state is not SESSION_FREE, and only session_remove() may make it
 * so.
 */
uint32_t session_insert(struct session_table *t, const struct session *hot, uint32_t created,
                        uint64_t client_hash, uint64_t server_hash);
/* Takes both index entries out and frees the record. Both hashes as at insertion. */
void session_remove(struct session_table *t, uint32_t record, uint64_t client_hash,
                    uint64_t server_hash);

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
 * Rotating cursors over (local address, port of the slot): one per server id mod
 * SESSION_PORT_CURSORS, so that a port comes back to a server as late as possible (TIME_WAIT).
 */
#define SESSION_PORT_CURSORS 64
/* The cursor of a server: the candidate that session_find_port() tries next. */
uint16_t *session_port_cursor(struct session_table *t, uint32_t server);

/* The search for a free local port; session_match callbacks get it as their ctx, with the candidate
 * in reply.dst, reply.dport and local (embed it in a larger struct for SY_CONTAINER_OF). */
struct session_port_search {
	/* given */
	const struct sy_addr *locals; /* of the server's family */
	const uint8_t *local_ids;     /* beside them, as in struct session */
	unsigned local_count;         /* at most 256 */
	uint32_t server;              /* chooses the cursor */
	/* the replies' tuple: src, sport and proto are given, dst and dport are found */
	struct sy_tuple reply;
	/* found */
	uint8_t local;        /* id */
	uint64_t server_hash; /* of reply, for session_insert() */
};

/* Tuples that one search tries: all of them with up to four local addresses. */
#define SESSION_PORT_PROBES 1024

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

#include "session_index.h" /* the inline functions and the table's struct */

#endif
