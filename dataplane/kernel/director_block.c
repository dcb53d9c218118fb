// SPDX-License-Identifier: Apache-2.0
/*
 * Blocked sources in the maps of the flow director's program (docs/design/0028-host-protection.md).
 * A new list replaces the old one in pieces: two cursors run over both in the order of addresses;
 * entries in the old list only are removed, entries in the new list only are added. If a third list
 * comes meanwhile, the contents of the maps are first merged into one list, also in pieces. A
 * network is added to its map before its bit is set, and loses its bit first. The state of a /24 is
 * always computed from the new list. Bits of IPv6 are cleared only together: they decide nothing
 * alone. Entries that do not fit while the old list is still there are left to workers; the
 * exchange continues, so that all old entries are removed.
 */
#include "director_state.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PIECE      256   /* max writes per step */
#define PASSED     16384 /* max entries visited per step */
#define JOIN_PIECE 1024  /* max entries copied per step */
#define BITMAP_LEN ((size_t)DIRECTOR_BLOCK_WORDS * sizeof(uint64_t))
#define SHORT6     48

struct sy_blocked_list {
	unsigned holders;
	bool fits; /* added to the maps */
	struct sy_blocked *at;
	size_t count;
};

struct blocks {
	int hosts4, long6, short6; /* maps */
	uint64_t *bits4, *bits6;   /* mapped */
	/* The maps contain `next` up to its cursor, and `now` from its cursor on. `wanted` follows
	 * once `joined` has both. NULL: none. */
	struct sy_blocked_list *now, *next, *wanted;
	size_t now_at, next_at;
	struct sy_blocked *joined;
	size_t joined_count;
	unsigned clearing; /* maps to clear first: 3, 2, 1 */
	bool batch_begun;  /* and whether the next piece of the hash has begun */
	uint32_t batch;
	uint32_t mode;   /* of `next` */
	uint32_t shorts; /* number of IPv6 prefixes shorter than 48 bits in the map */
	bool begun;      /* a list was set */
	int failed;      /* first error of this exchange, a negative errno; 0: none */
};

static int map_of(const struct sy_director *d, const char *name)
{
	return bpf_map__fd(bpf_object__find_map_by_name(d->bpf, name));
}

static uint64_t *bitmap_map(int fd)
{
	void *at = mmap(NULL, BITMAP_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void blocks_free(struct blocks *b)
{
	if (b->bits4)
		munmap(b->bits4, BITMAP_LEN);
	if (b->bits6)
		munmap(b->bits6, BITMAP_LEN);
	sy_blocked_list_drop(b->now);
	sy_blocked_list_drop(b->next);
	sy_blocked_list_drop(b->wanted);
	free(b->joined);
	free(b);
}

void director_blocks_free(struct sy_director *d)
{
	if (d->blocks)
		blocks_free(d->blocks);
	d->blocks = NULL;
}

int director_settings_write(struct sy_director *d)
{
	uint32_t first = 0;

	return bpf_map_update_elem(d->settings, &first, &d->now, BPF_ANY) < 0 ? -errno : 0;
}

void director_blocks_reload(struct sy_director *d)
{
	struct blocks *b = d->blocks;

	if (!b)
		return;
	b->hosts4 = map_of(d, "blocked4_hosts");
	b->long6 = map_of(d, "blocked6_long");
	b->short6 = map_of(d, "blocked6_short");
}

/* The blocks of an earlier process are unknown: clear the maps first. */
static int blocks_open(struct sy_director *d)
{
	struct blocks *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	d->blocks = b;
	director_blocks_reload(d);
	b->bits4 = bitmap_map(map_of(d, "blocked4"));
	b->bits6 = bitmap_map(map_of(d, "blocked6"));
	b->clearing = 3;
	if (!b->bits4 || !b->bits6) {
		int rc = -errno;

		director_blocks_free(d);
		return rc;
	}
	return 0;
}

/* Each removes up to PIECE entries and returns whether the map is then empty. */
static bool trie_clear(int map)
{
	struct director_prefix key;

	for (unsigned n = 0; n < PIECE; n++)
		if (bpf_map_get_next_key(map, NULL, &key) < 0 || bpf_map_delete_elem(map, &key) < 0)
			return true;
	return false;
}

static bool hosts4_clear(struct blocks *b)
{
	static uint32_t key[PIECE];
	static uint8_t value[PIECE];
	uint32_t count = PIECE;
	int rc = bpf_map_lookup_and_delete_batch(b->hosts4, b->batch_begun ? &b->batch : NULL,
	                                         &b->batch, key, value, &count, NULL);

	b->batch_begun = true;
	return rc < 0; /* ENOENT: that was the last piece */
}

static void blocks_clear_step(struct blocks *b)
{
	bool empty = b->clearing == 3   ? hosts4_clear(b)
	             : b->clearing == 2 ? trie_clear(b->long6)
	                                : trie_clear(b->short6);

	if (empty)
		b->clearing--;
}

/* ---- IPv4 ------------------------------------------------------------------------------------ */

static uint32_t host_of(const struct sy_blocked *p)
{
	return ntohl(p->addr.w[3]);
}

/* The first entry of a sorted list that is not before this IPv4 host. */
static size_t list_find4(const struct sy_blocked_list *l, uint32_t host)
{
	const struct sy_addr key = {.w = {0, 0, htonl(0xffff), htonl(host)}};
	size_t low = 0, high = l->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (memcmp(&l->at[middle].addr, &key, sizeof(key)) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The state of a /24 by the new list. */
static uint64_t net4_state(const struct sy_blocked_list *l, uint32_t net)
{
	size_t at = list_find4(l, net << 8);
	const struct sy_blocked *p = at < l->count ? &l->at[at] : NULL;

	if (p && sy_addr_is_v4(&p->addr) && host_of(p) >> 8 == net)
		return p->bits <= 24 ? DIRECTOR_BLOCK_ALL : DIRECTOR_BLOCK_SOME;
	p = at > 0 ? &l->at[at - 1] : NULL; /* a larger network that begins before? */
	if (p && sy_addr_is_v4(&p->addr) && p->bits <= 24 &&
	    (p->bits == 0 || (host_of(p) ^ net << 8) >> (32 - p->bits) == 0))
		return DIRECTOR_BLOCK_ALL;
	return DIRECTOR_BLOCK_NONE;
}

static void net4_set(struct blocks *b, uint32_t net, uint64_t state)
{
	uint64_t *word = &b->bits4[net / 32], shift = net % 32 * 2;

	__atomic_store_n(word, (*word & ~(UINT64_C(3) << shift)) | state << shift,
	                 __ATOMIC_RELAXED);
}

static int hosts4_write(const struct blocks *b, const struct sy_blocked *p, bool on)
{
	const uint8_t one = 1;
	int rc = 0;

	for (uint32_t i = 0; i < 1u << (32 - p->bits); i++) {
		uint32_t host = host_of(p) + i;

		if (on && bpf_map_update_elem(b->hosts4, &host, &one, BPF_ANY) < 0)
			rc = -errno;
		else if (!on)
			bpf_map_delete_elem(b->hosts4, &host);
	}
	return rc;
}

static int change4(struct blocks *b, const struct sy_blocked *p, bool on)
{
	uint32_t first = host_of(p) >> 8, nets = p->bits < 24 ? 1u << (24 - p->bits) : 1;
	int rc = p->bits > 24 && on ? hosts4_write(b, p, true) : 0;

	for (uint32_t net = first; net < first + nets; net++)
		net4_set(b, net, net4_state(b->next, net));
	if (p->bits > 24 && !on)
		hosts4_write(b, p, false);
	return rc;
}

/* ---- IPv6 ------------------------------------------------------------------------------------ */

static int change6(struct sy_director *d, const struct sy_blocked *p, bool on)
{
	struct blocks *b = d->blocks;
	struct director_prefix key = {.bits = p->bits};
	const bool is_short = p->bits < SHORT6;
	const int map = is_short ? b->short6 : b->long6;
	const uint32_t bit = director_block_bit(p->addr.b);
	const uint8_t one = 1;

	memcpy(key.w, p->addr.b, sizeof(key.w));
	if (on && bpf_map_update_elem(map, &key, &one, BPF_ANY) < 0)
		return -errno;
	if (!on && bpf_map_delete_elem(map, &key) < 0)
		return 0; /* it was not added: the map was full */
	if (is_short) {
		b->shorts += on ? 1 : UINT32_MAX;
		d->now.short6 = b->shorts > 0;
		return director_settings_write(d);
	}
	if (on)
		__atomic_fetch_or(&b->bits6[bit / 64], UINT64_C(1) << bit % 64, __ATOMIC_RELAXED);
	return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int entry_compare(const struct sy_blocked *x, const struct sy_blocked *y)
{
	int order = memcmp(&x->addr, &y->addr, sizeof(x->addr));

	return order ? order : (int)x->bits - y->bits;
}

static bool list_fits(const struct sy_blocked *at, size_t count)
{
	size_t hosts4 = 0, long6 = 0, short6 = 0;

	for (size_t i = 0; i < count; i++) {
		if (sy_addr_is_v4(&at[i].addr))
			hosts4 += at[i].bits > 24 ? 1u << (32 - at[i].bits) : 0;
		else if (at[i].bits < SHORT6)
			short6++;
		else
			long6++;
	}
	return hosts4 <= DIRECTOR_BLOCK_HOSTS && long6 <= DIRECTOR_BLOCK_LONG &&
	       short6 <= DIRECTOR_BLOCK_SHORT;
}

struct sy_blocked_list *sy_blocked_list_make(struct sy_blocked *at, size_t count)
{
	struct sy_blocked_list *l = malloc(sizeof(*l));

	if (!l) {
		free(at);
		return NULL;
	}
	*l = (struct sy_blocked_list){1, list_fits(at, count), at, count};
	return l;
}

struct sy_blocked_list *sy_blocked_list_hold(struct sy_blocked_list *l)
{
	l->holders++;
	return l;
}

void sy_blocked_list_drop(struct sy_blocked_list *l)
{
	if (!l || --l->holders > 0)
		return;
	free(l->at);
	free(l);
}

size_t sy_blocked_list_count(const struct sy_blocked_list *l)
{
	return l->count;
}

static size_t list_count(const struct sy_blocked_list *l)
{
	return l ? l->count : 0;
}

int sy_director_block(struct sy_director *d, struct sy_blocked_list *list, bool all)
{
	struct blocks *b;
	int rc = list->fits ? 0 : -E2BIG;

	if (!rc && !d->blocks)
		rc = blocks_open(d);
	if (rc)
		return rc;
	b = d->blocks;
	sy_blocked_list_drop(b->wanted);
	b->wanted = sy_blocked_list_hold(list);
	b->mode = all ? DIRECTOR_BLOCK_PACKETS : DIRECTOR_BLOCK_SYNS;
	if (b->clearing == 3 && !b->begun) {
		d->now.block = d->now.short6 = 0;
		rc = director_settings_write(d);
		memset(b->bits4, 0, BITMAP_LEN);
		memset(b->bits6, 0, BITMAP_LEN);
	}
	b->begun = true;
	return rc;
}

/* The contents of the maps become `now`, and the wanted list `next`. */
static void lists_exchange(struct blocks *b, struct sy_blocked_list *now)
{
	sy_blocked_list_drop(b->now);
	sy_blocked_list_drop(b->next);
	b->now = now;
	b->next = b->wanted;
	b->wanted = NULL;
	b->now_at = b->next_at = 0;
	b->failed = 0;
}

/* Copies the first entries of the maps' contents, from joined_count on. */
static void joined_copy(struct blocks *b)
{
	for (size_t left = JOIN_PIECE, part; left > 0; left -= part) {
		const size_t at = b->joined_count,
		             behind = at - b->next_at; /* index in the new list */
		const bool from_next = at < b->next_at;
		const size_t more =
		        from_next ? b->next_at - at : list_count(b->now) - b->now_at - behind;

		part = left < more ? left : more;
		if (part == 0)
			return;
		memcpy(b->joined + at,
		       from_next ? b->next->at + at : b->now->at + b->now_at + behind,
		       part * sizeof(*b->joined));
		b->joined_count += part;
	}
}

/* A newer list has arrived during an exchange: merges the next piece of the maps' contents into one
 * list. Returns 0 or -ENOMEM. */
static int lists_join_step(struct blocks *b)
{
	const size_t count = b->next_at + list_count(b->now) - b->now_at;
	struct sy_blocked_list *now = NULL;

	if (b->next_at == list_count(b->next) && b->now_at == list_count(b->now)) {
		if (b->next)
			now = sy_blocked_list_hold(b->next);
		lists_exchange(b, now);
		return 0;
	}
	if (!b->joined)
		b->joined = malloc((count + 1) * sizeof(*b->joined));
	if (!b->joined)
		return -ENOMEM;
	joined_copy(b);
	if (b->joined_count < count)
		return 0;
	now = malloc(sizeof(*now));
	if (!now)
		return -ENOMEM;
	*now = (struct sy_blocked_list){1, true, b->joined, count};
	b->joined = NULL;
	b->joined_count = 0;
	lists_exchange(b, now);
	return 0;
}

static int change(struct sy_director *d, const struct sy_blocked *p, bool on)
{
	return sy_addr_is_v4(&p->addr) ? change4(d->blocks, p, on) : change6(d, p, on);
}

/* The cost of a change in writes, or reads of about the same cost. */
static unsigned change_cost(const struct sy_blocked *p)
{
	if (!sy_addr_is_v4(&p->addr) || p->bits == 24)
		return 1;
	return p->bits > 24 ? 1u << (32 - p->bits) : 1 + (1u << (24 - p->bits)) / 8;
}

/* Advances the cursors by one difference, or over common entries. Adds to *cost. */
static int lists_advance(struct sy_director *d, unsigned *cost)
{
	struct blocks *b = d->blocks;
	const struct sy_blocked *x = b->now_at < list_count(b->now) ? &b->now->at[b->now_at] : NULL;
	const struct sy_blocked *y =
	        b->next_at < list_count(b->next) ? &b->next->at[b->next_at] : NULL;
	int order = x && y ? entry_compare(x, y) : x ? -1 : 1;

	*cost += order ? change_cost(order < 0 ? x : y) : 0;
	if (order <= 0)
		b->now_at++;
	if (order >= 0)
		b->next_at++;
	if (order == 0)
		return 0;
	return order < 0 ? change(d, x, false) : change(d, y, true);
}

/* Both cursors are at the end. Returns the exchange's result. */
static int lists_end(struct blocks *b)
{
	int rc = b->failed;

	b->failed = 0;
	sy_blocked_list_drop(b->now);
	b->now = NULL;
	b->now_at = 0;
	return rc;
}

static void failure_keep(struct blocks *b, int rc)
{
	b->failed = b->failed ? b->failed : rc;
}

int sy_director_block_step(struct sy_director *d)
{
	struct blocks *b = d->blocks;

	if (!b)
		return 0;
	if (b->clearing) {
		blocks_clear_step(b);
		return 1;
	}
	if (b->wanted)
		return lists_join_step(b) < 0 ? -EAGAIN : 1;
	if (d->now.block != b->mode) {
		d->now.block = b->mode;
		failure_keep(b, director_settings_write(d));
	}
	for (unsigned n = 0, cost = 0; n < PASSED && cost < PIECE; n++) {
		if (b->now_at == list_count(b->now) && b->next_at == list_count(b->next))
			return lists_end(b);
		failure_keep(b, lists_advance(d, &cost));
	}
	return 1;
}

int director_blocks_settle(struct sy_director *d)
{
	struct sy_blocked_list *none = d->now.block ? sy_blocked_list_make(NULL, 0) : NULL;
	int rc = none ? sy_director_block(d, none, false) : d->now.block ? -ENOMEM : 0;

	sy_blocked_list_drop(none);
	while (rc == 0 && d->blocks && (rc = sy_director_block_step(d)) > 0)
		rc = 0;
	return rc;
}
