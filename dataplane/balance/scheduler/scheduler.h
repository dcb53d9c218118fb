// SPDX-License-Identifier: Apache-2.0
/*
 * Schedulers: who gets a new session. See docs/design/0008-schedulers.md.
 *
 * Testbeds on base alone. The control thread makes pools and frees them after a grace period;
 * workers pick from them and change nothing in them. A worker's running state is kept by server and
 * service id, so that it survives every change of configuration.
 */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include <sy_base.h>

#define SHARES 16 /* slow start: a server has 1 to 16 sixteenths of its weight */

/* A server that a pool may choose. */
struct candidate {
	uint32_t server; /* id */
	uint32_t limit;  /* live sessions at most; UINT32_MAX: no limit */
	uint32_t weight; /* ≥ 1, as it counts now: in sixteenths if some server of the pool has not
	                    its whole share */
	uint16_t full;   /* weight as configured; 1 if the scheduler does not look at weights */
	uint16_t share;  /* 0: takes no new sessions; else 1–SHARES */
	uint64_t name;   /* of its address and port: the same on every forwarder */
};

/* What a service's new sessions are spread over: all servers of one kind with a weight above 0. */
struct pool {
	const struct scheduler_ops *ops;
	uint32_t members;  /* candidates */
	uint32_t eligible; /* … of them with a share */
	uint64_t weight;   /* sum of the eligible ones' */
	void *made;        /* by ops->build */
	struct candidate candidate[];
};

/* Tables that pools of equal servers share. Control thread only. */
struct table_cache;
struct table_cache *table_cache_create(void);
/* Every pool must be gone. */
void table_cache_destroy(struct table_cache *s);
/* Tables there, and the bytes they take. */
void table_cache_measure(const struct table_cache *s, unsigned *tables, uint64_t *bytes);

/* A worker's own. */
struct scheduler_state {
	int64_t *current; /* by server id: a class's running value, at its first server */
	uint32_t *turn;   /* by server id: a class's place, likewise */
	uint32_t *cursor; /* by service id: where the next scan begins */
};

/* One new session. */
struct pick {
	const struct pool *pool;
	struct scheduler_state *state;
	const uint32_t *active; /* live sessions by server id, of all workers; relaxed */
	uint32_t service;       /* id */
	uint64_t hash;          /* of the client: scheduler_hash() */
};

#define PICK_NONE UINT32_MAX

struct scheduler_ops {
	const char *name;
	bool by_weight; /* else all servers weigh the same */
	bool by_hash;   /* the client's hash decides */
	/* Makes what pick needs. Called again while it returns 1, with new *budget; takes from it
	 * what it has done, in units of about 10 ns. 0: done; a negative errno: failed. May be
	 * NULL. May put candidates into another order. */
	int (*build)(struct pool *p, struct table_cache *s, int64_t *budget);
	/* Frees what build made, also when it is not done. NULL if build is. */
	void (*discard)(struct pool *p, struct table_cache *s);
	/* The number of an eligible candidate with room, PICK_NONE if there is none. */
	uint32_t (*pick)(const struct pick *p);
};

/* By its number in the API; NULL: unknown. */
const struct scheduler_ops *scheduler_find(uint32_t number);
/* Numbers are 1 to this. */
#define SCHEDULERS 8

extern const struct scheduler_ops scheduler_rr, scheduler_wrr, scheduler_lc, scheduler_wlc,
        scheduler_sed, scheduler_sh, scheduler_maglev, scheduler_conhash;

/* A pool with room for so many candidates; NULL: no memory. */
struct pool *pool_create(const struct scheduler_ops *ops, uint32_t capacity);
/* share ≤ SHARES. Weight 0 is no candidate. */
void pool_add(struct pool *p, uint32_t server, uint64_t name, uint16_t weight, uint16_t share,
              uint32_t limit);
/* Once all are added: as ops->build. */
int pool_build(struct pool *p, struct table_cache *s, int64_t *budget);
/* p may be NULL. */
void pool_free(struct pool *p, struct table_cache *s);

/* The server's name from its address and port (network order). */
uint64_t scheduler_name(const struct sy_addr *addr, uint16_t port);
/* What hashing schedulers go by: the client's address, with_port: and its port. */
uint64_t scheduler_hash(const struct sy_addr *client, uint16_t port, bool with_port);

/* ---- for schedulers
 * -------------------------------------------------------------------------------- */

static inline bool pick_is_below_limit(const struct pick *p, const struct candidate *c)
{
	return c->limit == UINT32_MAX ||
	       __atomic_load_n(&p->active[c->server], __ATOMIC_RELAXED) < c->limit;
}

/* Whether a candidate takes what `bits` (evenly spread) belong to: by its share. */
static inline bool pick_takes(const struct pick *p, const struct candidate *c, uint32_t bits)
{
	return bits % SHARES < c->share && pick_is_below_limit(p, c);
}

/* Another hash of the same client. */
static inline uint64_t hash_again(uint64_t hash)
{
	return sy_hash_mix(hash ^ 0xd6e8feb86659fd93, 0xa0761d6478bd642f);
}

/* A number below n by the upper bits of a hash. */
static inline uint32_t hash_below(uint64_t hash, uint32_t n)
{
	return (uint32_t)((hash >> 32) * n >> 32);
}

/* When hashing again and again finds nobody: the first with room from a place on. */
uint32_t pick_any(const struct pick *p, uint32_t from);
/* Candidates in the order of their names. */
void pool_sort_by_name(struct pool *p);

/* A shared table; a scheduler's own lies behind it. */
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
	} * member; /* by name */
};

/* The table for the pool's candidates (sorted by name): one that is there, or a new one made by
 * make(table), which frees what it got so far when it fails. NULL: no memory. */
struct table *table_cache_take(struct table_cache *s, const struct pool *p, size_t size,
                               bool (*make)(struct table *t));
/* Gives it back; free_own frees what make() made. t may be NULL. */
void table_cache_give(struct table_cache *s, struct table *t, void (*free_own)(struct table *t));

#endif
