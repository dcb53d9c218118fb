// SPDX-License-Identifier: Apache-2.0
/*
 * Neighbours by (port, address) with their MAC addresses: gateways and, for on-link routes, the
 * destinations. Writer: control thread; workers look up without a lock. Records are in a fixed
 * array, chained by hash. An unlinked record keeps its link, and is reused only after a grace
 * period.
 */
#ifndef ADJACENCY_H
#define ADJACENCY_H

#include <sy_base.h>
#include <sy_kernel.h>

struct sy_runtime;

#define ADJACENCY_NONE 0
#define ADJACENCIES    65536
/* Idle time after which an on-link neighbour is released to the kernel; seconds. */
#define ADJACENCY_IDLE_S 120

enum adjacency_state { ADJACENCY_PENDING, ADJACENCY_VALID, ADJACENCY_FAILED };

struct adjacency {
	struct sy_addr addr;
	uint64_t link; /* MAC in the low 48 bits as in memory, state above: written at once.
	                  Writer: control thread; readers: workers */
	uint32_t next; /* index of the next in the hash chain, 0: end. Likewise */
	uint32_t used; /* second of the last packet. Writers: workers, relaxed */
	/* Private to the control thread. */
	struct adjacencies *owner;
	uint32_t refs;        /* paths with this hop */
	uint32_t requested_s; /* second of the last request to the kernel */
	uint8_t port;
	bool managed; /* the kernel was requested to keep it resolved (NTF_EXT_MANAGED) */
	bool known;   /* the kernel has an entry */
	bool fixed;   /* from static configuration */
} __attribute__((aligned(SY_CACHE_LINE)));
_Static_assert(sizeof(struct adjacency) == SY_CACHE_LINE, "one line a neighbour");

struct adjacencies {
	struct adjacency *record; /* [ADJACENCIES]; 0 is none */
	uint32_t *head;           /* [ADJACENCIES], by hash */
	struct sy_hash_key key;
	uint32_t *free; /* stack of indices */
	uint32_t free_count;
	uint32_t high; /* records from this index on were never used */
	bool full_logged;
};

static inline enum adjacency_state adjacency_link_state(uint64_t link)
{
	return (enum adjacency_state)(link >> 48);
}

static inline uint32_t adjacency_bucket(const struct adjacencies *a, unsigned port,
                                        const struct sy_addr *addr)
{
	return (uint32_t)sy_hash_mix(addr->d[0] ^ a->key.k[0] ^ port, addr->d[1] ^ a->key.k[1]) %
	       ADJACENCIES;
}

/* Returns ADJACENCY_NONE if there is no record. Any thread, under RCU. */
static inline uint32_t adjacency_find(const struct adjacencies *a, unsigned port,
                                      const struct sy_addr *addr)
{
	uint32_t i = __atomic_load_n(&a->head[adjacency_bucket(a, port, addr)], __ATOMIC_ACQUIRE);
	while (i && (a->record[i].port != port || !sy_addr_equal(&a->record[i].addr, addr)))
		i = __atomic_load_n(&a->record[i].next, __ATOMIC_ACQUIRE);
	return i;
}

/* Marks the neighbour as used; `second` as in `used`. Any worker. */
static inline void adjacency_use(struct adjacency *r, uint32_t second)
{
	if (__atomic_load_n(&r->used, __ATOMIC_RELAXED) != second)
		__atomic_store_n(&r->used, second, __ATOMIC_RELAXED);
}

int adjacencies_open(struct adjacencies **out);
void adjacencies_close(struct adjacencies *a);
/* Finds or creates the record of a path's hop, and references it until adjacency_drop(). Returns
 * ADJACENCY_NONE if the table is full. */
uint32_t adjacency_acquire(struct sy_runtime *rt, unsigned port, const struct sy_addr *addr);
void adjacency_drop(struct sy_runtime *rt, uint32_t index);
/* Creates the record of a neighbour for which a worker has queued packets, and requests its
 * resolution. */
void adjacency_resolve(struct sy_runtime *rt, unsigned port, const struct sy_addr *addr);
/* Applies a kernel report about a neighbour on a port. */
void adjacency_publish(struct sy_runtime *rt, unsigned port, const struct sy_neigh *neigh,
                       bool gone);
/* Adds a neighbour of the static configuration. Returns false if the table is full. */
bool adjacency_fix(struct sy_runtime *rt, unsigned port, const struct sy_addr *addr,
                   const uint8_t mac[6]);
/* The port's interface was deleted, and with it the kernel's neighbour entries. */
void adjacencies_lose(struct sy_runtime *rt, unsigned port);
/* Once a second: renews requests for neighbours in use and releases the others. */
void adjacencies_tick(struct sy_runtime *rt);

#endif
