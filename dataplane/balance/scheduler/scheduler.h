// SPDX-License-Identifier: Apache-2.0
/*
 * Schedulers: which server gets a new session (docs/design/0008-schedulers.md).
 *
 * This code depends on base only. The control thread builds pools and frees them after a grace
 * period. Workers pick from them and do not change them. A worker's running state is indexed by
 * server and service id, so that it survives every change of configuration.
 */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include <sy_base.h>

#define SHARES 16 /* slow start: a server has 1 to 16 sixteenths of its weight */

/* A server of a pool. */
struct candidate {
	uint32_t server; /* id */
	uint32_t limit;  /* max live sessions; UINT32_MAX: no limit */
	uint32_t weight; /* current weight, ≥ 1; in sixteenths while some server of the pool has
	                    only part of its share */
	uint32_t full;  /* weight without slow start: measured (pool_measure), otherwise configured;
	                   1 if the scheduler ignores weights */
	uint32_t part;  /* of USE_ALL: the part of its table entries that it uses */
	uint16_t share; /* 0: accepts no new sessions; otherwise 1–SHARES */
	uint64_t name;  /* hash of its address and port: the same on every forwarder */
};

#define USE_ALL 65536u

/* Measured shares of all servers together are below 2^32; weights derived from them are below 2^24,
 * so that their sixteenths fit 32 bits. */
#define MEASURED_SHIFT 8

/* The servers among which new sessions of a service are distributed: all servers of one kind with a
 * weight above 0. */
struct pool {
	const struct scheduler_ops *ops;
	uint32_t members;  /* number of candidates */
	uint32_t eligible; /* number of candidates with a share above 0 */
	uint64_t weight;   /* sum of the eligible candidates' weights */
	uint32_t ceiling;  /* pool_ceiling() */
	bool measured;     /* shares are measured ones */
	void *made;        /* created by ops->build */
	struct candidate candidate[];
};

/* Tables that pools with equal servers share. Control thread only. */
struct table_cache;
struct table_cache *table_cache_create(void);
/* Call when all pools were freed. */
void table_cache_destroy(struct table_cache *s);
/* The number of tables, and their bytes. */
void table_cache_measure(const struct table_cache *s, unsigned *tables, uint64_t *bytes);

/* Per worker. */
struct scheduler_state {
	int64_t *current;   /* by server id: a class's running value, stored at its first server */
	uint32_t *position; /* by server id: a class's position, stored likewise */
	uint32_t *cursor;   /* by service id: where the next scan starts; share: its last number */
	uint64_t random;    /* of scheduler_random() */
};

/* The input of one pick, for one new session. */
struct pick {
	const struct pool *pool;
	struct scheduler_state *state;
	const uint32_t *active; /* live sessions by server id, over all workers; relaxed */
	const uint32_t
	        *delay;   /* of answers to SYNs by server id, ns; 0: not known; relaxed; or NULL */
	uint32_t service; /* id */
	uint64_t hash;    /* hash of the client: scheduler_hash() */
};

#define PICK_NONE UINT32_MAX

struct scheduler_ops {
	const char *name;
	bool by_weight; /* false: ignores weights */
	bool by_hash;   /* picks by the client's hash */
	bool by_table;  /* has a table built from configured weights; measured shares only select
	                   which part of its entries a server uses */
	/* Builds what pick needs. While it returns 1, call it again with a new *budget, from which
	 * it subtracts the work done, in units of about 10 ns. Returns 0 when done, or a negative
	 * errno. May be NULL. May reorder the candidates. */
	int (*build)(struct pool *p, struct table_cache *s, int64_t *budget);
	/* Frees what build created, even if it did not finish. NULL if build is. */
	void (*discard)(struct pool *p, struct table_cache *s);
	/* Returns the index of an eligible candidate below its limit, or PICK_NONE. */
	uint32_t (*pick)(const struct pick *p);
};

/* By the scheduler's number in the API; NULL: unknown. */
const struct scheduler_ops *scheduler_find(uint32_t number);
/* The numbers are 1 to SCHEDULERS. */
#define SCHEDULERS 10

extern const struct scheduler_ops scheduler_rr, scheduler_wrr, scheduler_lc, scheduler_wlc,
        scheduler_sed, scheduler_sh, scheduler_maglev, scheduler_conhash, scheduler_share,
        scheduler_p2c;

/* A pool with capacity for this many candidates; NULL: no memory. */
struct pool *pool_create(const struct scheduler_ops *ops, uint32_t capacity);
/* share ≤ SHARES. A server of weight 0 is not added. */
void pool_add(struct pool *p, uint32_t server, uint64_t name, uint16_t weight, uint16_t share,
              uint32_t limit);
/* The same with a measured share of the service's new sessions, in parts of 2^32, which replaces
 * the weight until it is measured again. Either all servers of a pool have one (≥ 1), or none. */
void pool_measure(struct pool *p, uint32_t server, uint64_t name, uint16_t weight,
                  uint32_t measured, uint16_t share, uint32_t limit);
/* For a pool of measured shares whose scheduler has a table: a server with this measured share per
 * weight uses all its table entries, others use fewer in proportion. Stable where possible, because
 * a change moves clients of all servers: returns `before` (0: none), or another value if the
 * largest share per weight is clearly above it or below a third of it. */
uint32_t pool_ceiling(uint32_t before, uint32_t largest);
/* Call when all candidates were added; otherwise like ops->build. */
int pool_build(struct pool *p, struct table_cache *s, int64_t *budget);
/* p may be NULL. */
void pool_free(struct pool *p, struct table_cache *s);

/* The server's name, from its address and port (network order). */
uint64_t scheduler_name(const struct sy_addr *addr, uint16_t port);
/* The key of hashing schedulers: the client's address and, if with_port, its port. */
uint64_t scheduler_hash(const struct sy_addr *client, uint16_t port, bool with_port);

/* ---- for schedulers -------------------------------------------------------------------------- */

static inline bool pick_is_below_limit(const struct pick *p, const struct candidate *c)
{
	return c->limit == UINT32_MAX ||
	       __atomic_load_n(&p->active[c->server], __ATOMIC_RELAXED) < c->limit;
}

/* Does a candidate accept the clients with these evenly spread `bits`, by the part of its entries
 * that it uses? */
static inline bool pick_accepts(const struct pick *p, const struct candidate *c, uint32_t bits)
{
	return bits % USE_ALL < c->part && pick_is_below_limit(p, c);
}

/* Evenly spread bits: a Weyl sequence through a mixer. */
static inline uint64_t scheduler_random(struct scheduler_state *s)
{
	s->random += 0xa0761d6478bd642f;
	return sy_hash_mix(s->random, s->random ^ 0xe7037ed1a0b428db);
}

/* Another hash of the same client. */
static inline uint64_t hash_next(uint64_t hash)
{
	return sy_hash_mix(hash ^ 0xd6e8feb86659fd93, 0xa0761d6478bd642f);
}

/* A number below n, from the upper bits of a hash. */
static inline uint32_t hash_below(uint64_t hash, uint32_t n)
{
	return (uint32_t)((hash >> 32) * n >> 32);
}

/* Fallback if repeated hashing finds no candidate: the first one below its limit, from position
 * `from` on. */
uint32_t pick_any(const struct pick *p, uint32_t from);
/* Sorts the candidates by name. */
void pool_sort_by_name(struct pool *p);

/* A shared table; the scheduler's own data follows the struct. */
struct table {
	struct table *next;
	const struct scheduler_ops *ops;
	uint64_t digest;
	uint64_t bytes;
	uint32_t references, members;
	bool built;
	struct table_member {
		uint64_t name;
		uint64_t weight;
	} * member; /* sorted by name */
};

/* Returns a table for the pool's candidates (sorted by name): an existing one, or a new one built
 * by make(table). If make() fails it frees its allocations. NULL: no memory. */
struct table *table_cache_acquire(struct table_cache *s, const struct pool *p, size_t size,
                                  bool (*make)(struct table *t));
/* Drops a reference; free_own frees what make() created. t may be NULL. */
void table_cache_release(struct table_cache *s, struct table *t, void (*free_own)(struct table *t));

#endif
