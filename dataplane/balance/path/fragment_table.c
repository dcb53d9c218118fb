// SPDX-License-Identifier: Apache-2.0
/*
 * Virtual reassembly: all fragments of a datagram wait until it is complete; then they continue as
 * packets of its session, in order, the first fragment first.
 *
 *     fragment_classify() ──▶ datagram_add() ── incomplete ──▶ waits ──▶ dropped, by name
 *             ▲                     └─ complete ─▶ datagram_release() ─┐
 *             └────────── note in the packet buffer ◀──────────────────┘
 *
 * In an ECMP group the fragments of a datagram may arrive at different nodes. What is not complete
 * after MEET_NS moves to one node, datagram_move(), and so do its later fragments.
 */
#include "fragment_table.h"

#include <stdlib.h>

#include <rte_mbuf_dyn.h>

#include "packet_relay.h"

#define PLACE_NONE UINT16_MAX
#define BUCKETS    FRAGMENT_MAX_WAITING
#define SOURCES    1024           /* source counters, indexed by hash */
#define UNIT       8              /* bytes per unit of the fragment offset (RFC 791 3.1) */
#define UNITS      (65536 / UNIT) /* in the longest datagram */
#define MEET_NS    UINT64_C(2000000)

/*
 * Steering metadata in a fragment's packet buffer. Writer: the worker that steers it; reader: the
 * worker that receives it. Undefined at all other times.
 */
struct note {
	uint32_t id;
	uint16_t sport, dport;
	uint16_t offset; /* in bytes, while the fragment waits */
	uint8_t proto;
	uint8_t completes : 1; /* as in struct sy_view */
	uint8_t known : 1; /* the datagram is complete; otherwise steered to the datagram's worker
	                    */
};
static int note_offset;

static struct note *note_of(struct rte_mbuf *m)
{
	return RTE_MBUF_DYNFIELD(m, note_offset, struct note *);
}

/* A list of datagrams by age; PLACE_NONE: empty. */
struct ends {
	uint16_t oldest, newest;
};
struct link {
	uint16_t older, newer;
};
enum list { OF_ALL, OF_SOURCE, OF_MOVABLE, LISTS };

/* A datagram counts as its number of waiting fragments. One that is spoilt or has moved has none
 * and counts as 1. */
struct datagram {
	struct sy_tuple key; /* see key_of() */
	uint32_t hash;
	uint16_t next; /* next in its bucket, or next free */
	uint16_t source;
	struct link in[LISTS];
	uint64_t begun_ns;
	uint16_t seen, end; /* units that arrived; end of the last one */
	uint16_t total;     /* total units; 0: unknown */
	uint16_t count;
	uint16_t spoilt;       /* enum sy_drop: why its fragments are dropped; NONE: they are not */
	uint16_t sport, dport; /* of the first fragment, once it has arrived; so is proto */
	uint8_t proto;
	bool movable;  /* its fragments may be at different nodes: datagram_move() */
	uint8_t moved; /* the node to which they have moved; 0: none */
	struct rte_mbuf *waiting, *last; /* linked by mbuf.next */
	uint64_t unit[UNITS / 64];       /* one bit per unit that arrived */
};

/* All sources with one hash. */
struct source {
	struct ends datagrams;
	uint16_t count;
};

struct fragments {
	uint32_t ids;   /* next id */
	uint16_t count; /* waiting fragments of all datagrams */
	uint16_t limit, share;
	uint16_t free, used; /* first entry that is free again; number of entries ever used */
	uint16_t bucket[BUCKETS];
	struct ends all, movable;
	uint16_t over[FRAGMENT_SHARES]; /* sources above their share */
	uint16_t overs;
	struct source source[SOURCES];
	/* One more than the limit: a datagram is added before one is evicted. */
	struct datagram datagram[FRAGMENT_MAX_WAITING + 1];
};

struct fragments *fragments_create(unsigned limit)
{
	static const struct rte_mbuf_dynfield field = {
	        .name = "steelyard_fragment",
	        .size = sizeof(struct note),
	        .align = _Alignof(struct note),
	};
	note_offset = rte_mbuf_dynfield_register(&field);
	if (note_offset < 0)
		return NULL;
	/* calloc: pages of unused entries are never touched */
	struct fragments *f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->limit = (uint16_t)(limit < FRAGMENT_MAX_WAITING ? limit : FRAGMENT_MAX_WAITING);
	f->share = f->limit / FRAGMENT_SHARES;
	f->free = PLACE_NONE;
	memset(f->bucket, 0xff, sizeof(f->bucket)); /* PLACE_NONE */
	memset(&f->all, 0xff, sizeof(f->all));
	f->movable = f->all;
	for (unsigned n = 0; n < SOURCES; n++)
		f->source[n].datagrams = f->all;
	/* start beyond the ids of a predecessor, which used the same key */
	f->ids = (uint32_t)(sy_clock_ns() / 1000);
	return f;
}

void fragment_note_reset(struct rte_mbuf *m)
{
	*note_of(m) = (struct note){0};
}

void fragments_destroy(struct fragments *f)
{
	for (uint16_t at = f ? f->all.oldest : PLACE_NONE; at != PLACE_NONE;
	     at = f->datagram[at].in[OF_ALL].newer)
		rte_pktmbuf_free(f->datagram[at].waiting); /* and those linked to it */
	free(f);
}

/* ---- ids ------------------------------------------------------------------------------------- */

/* A keyed permutation of 16 bits: four Feistel rounds. */
static uint16_t id_permute(const struct sy_hash_key *key, uint16_t n)
{
	uint8_t left = (uint8_t)(n >> 8), right = (uint8_t)n;
	for (unsigned round = 0; round < 4; round++) {
		uint8_t next =
		        left ^ (uint8_t)sy_hash_mix(right ^ key->k[round], key->k[4 + round]);
		left = right;
		right = next;
	}
	return (uint16_t)(left << 8 | right);
}

/*
 * Returns an unpredictable id (RFC 7739) for IPv4 or IPv6. Its low half repeats only after the
 * worker has used its share of all 65536; receivers have discarded incomplete datagrams by then,
 * unless they are very busy (RFC 4963).
 */
uint32_t fragment_id_new(struct sy_worker *w)
{
	const struct sy_balance *b = w->app;
	struct fragments *f = balance_worker_of(w)->fragments;
	uint32_t share = 65536 / b->workers, n = f->ids++;
	uint32_t high = (uint32_t)sy_hash_mix(n ^ b->key.k[1], b->key.k[0]);
	return high << 16 | id_permute(&b->key, (uint16_t)(w->id * share + n % share));
}

/* ---- one datagram's units -------------------------------------------------------------------- */

/* Mask of the units from `at` on, below `to`, within the 64-bit group of `at`. */
static uint64_t units_mask(unsigned at, unsigned to)
{
	uint64_t bits = to - at < 64 ? (UINT64_C(1) << (to - at)) - 1 : UINT64_MAX;
	return bits << at % 64;
}

static unsigned units_seen(const struct datagram *d, unsigned from, unsigned to)
{
	unsigned seen = 0;
	for (unsigned at = from; at < to; at = (at | 63) + 1)
		seen += (unsigned)__builtin_popcountll(d->unit[at / 64] & units_mask(at, to));
	return seen;
}

/* Checks the units from..to, the last ones if `last`. A duplicate is dropped: the first bytes
 * count. A partial overlap or a unit beyond the end spoils the datagram (RFC 5722; for IPv4 as in
 * Linux). */
static enum sy_drop units_check(const struct datagram *d, unsigned from, unsigned to, bool last)
{
	unsigned seen = units_seen(d, from, to);
	if (d->spoilt != SY_DROP_NONE)
		return (enum sy_drop)d->spoilt;
	if ((d->total && (to > d->total || (last && to != d->total))) || (last && to < d->end))
		return SY_DROP_FRAGMENT_OVERLAP;
	if (seen == to - from)
		return SY_DROP_FRAGMENT_DUPLICATE;
	return seen ? SY_DROP_FRAGMENT_OVERLAP : SY_DROP_NONE;
}

/* Returns whether the datagram is now complete. */
static bool units_add(struct datagram *d, unsigned from, unsigned to, bool last)
{
	for (unsigned at = from; at < to; at = (at | 63) + 1)
		d->unit[at / 64] |= units_mask(at, to);
	d->seen = (uint16_t)(d->seen + to - from);
	if (to > d->end)
		d->end = (uint16_t)to;
	if (last)
		d->total = (uint16_t)to;
	return d->total && d->seen == d->total;
}

/* ---- lists and counts ------------------------------------------------------------------------ */

static struct ends *ends_of(struct fragments *f, const struct datagram *d, enum list which)
{
	switch (which) {
	case OF_SOURCE:
		return &f->source[d->source].datagrams;
	case OF_MOVABLE:
		return &f->movable;
	default:
		return &f->all;
	}
}

static void list_add(struct fragments *f, uint16_t place, enum list which)
{
	struct datagram *d = &f->datagram[place];
	struct ends *ends = ends_of(f, d, which);
	d->in[which] = (struct link){.older = ends->newest, .newer = PLACE_NONE};
	*(ends->newest == PLACE_NONE ? &ends->oldest : &f->datagram[ends->newest].in[which].newer) =
	        place;
	ends->newest = place;
}

static void list_remove(struct fragments *f, uint16_t place, enum list which)
{
	const struct datagram *d = &f->datagram[place];
	struct ends *ends = ends_of(f, d, which);
	const struct link *l = &d->in[which];
	*(l->older == PLACE_NONE ? &ends->oldest : &f->datagram[l->older].in[which].newer) =
	        l->newer;
	*(l->newer == PLACE_NONE ? &ends->newest : &f->datagram[l->newer].in[which].older) =
	        l->older;
}

static void count_set(struct fragments *f, struct datagram *d, unsigned count)
{
	struct source *s = &f->source[d->source];
	bool was_over = s->count > f->share;
	f->count = (uint16_t)(f->count - d->count + count);
	s->count = (uint16_t)(s->count - d->count + count);
	d->count = (uint16_t)count;
	if (was_over == (s->count > f->share))
		return;
	if (!was_over) {
		f->over[f->overs++] = d->source;
		return;
	}
	unsigned at = 0;
	while (f->over[at] != d->source)
		at++;
	f->over[at] = f->over[--f->overs];
}

/* The oldest datagram of the source that exceeds its share most, otherwise the oldest of all. */
static uint16_t victim_find(const struct fragments *f)
{
	const struct source *max = NULL;
	for (unsigned n = 0; n < f->overs; n++)
		if (!max || f->source[f->over[n]].count > max->count)
			max = &f->source[f->over[n]];
	return max ? max->datagrams.oldest : f->all.oldest;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The key: source, destination, id, and for IPv4 the protocol. In IPv6 the first fragment may carry
 * another protocol than the others; the id is unique without it. */
static struct sy_tuple key_of(const struct sy_view *v)
{
	return (struct sy_tuple){.src = v->tuple.src,
	                         .dst = v->tuple.dst,
	                         .sport = (uint16_t)(v->fragment_id >> 16),
	                         .dport = (uint16_t)v->fragment_id,
	                         .proto = v->v4 ? v->proto : 0};
}

/* Hash of an IPv4 address or an IPv6 /64: a host may use any address of its /64. */
static uint16_t source_of(const struct sy_hash_key *key, const struct sy_addr *src)
{
	uint64_t hash = sy_hash_mix(src->d[sy_addr_is_v4(src) ? 1 : 0] ^ key->k[2], key->k[3]);
	return (uint16_t)(hash % SOURCES);
}

static uint16_t *bucket_of(struct fragments *f, uint32_t hash)
{
	return &f->bucket[hash % BUCKETS];
}

static uint16_t datagram_find(struct fragments *f, uint32_t hash, const struct sy_tuple *key)
{
	uint16_t at = *bucket_of(f, hash);
	while (at != PLACE_NONE && (f->datagram[at].hash != hash ||
	                            memcmp(&f->datagram[at].key, key, sizeof(*key)) != 0))
		at = f->datagram[at].next;
	return at;
}

static void waiting_add(struct datagram *d, struct rte_mbuf *m, uint16_t offset)
{
	note_of(m)->offset = offset;
	m->next = NULL;
	*(d->waiting ? &d->last->next : &d->waiting) = m;
	d->last = m;
}

static struct rte_mbuf *waiting_next(struct datagram *d)
{
	struct rte_mbuf *m = d->waiting;
	if (m) {
		d->waiting = m->next;
		m->next = NULL;
	}
	return m;
}

static void waiting_drop(struct sy_worker *w, struct datagram *d, enum sy_drop reason)
{
	for (struct rte_mbuf *m; (m = waiting_next(d));)
		sy_packet_drop(w, m, reason);
}

/* Its fragments do not move. */
static void datagram_fix(struct fragments *f, uint16_t place)
{
	struct datagram *d = &f->datagram[place];
	if (d->movable)
		list_remove(f, place, OF_MOVABLE);
	d->movable = false;
}

static void datagram_end(struct fragments *f, uint16_t place)
{
	struct datagram *d = &f->datagram[place];
	datagram_fix(f, place);
	uint16_t *at = bucket_of(f, d->hash);
	while (*at != place)
		at = &f->datagram[*at].next;
	*at = d->next;
	count_set(f, d, 0);
	list_remove(f, place, OF_ALL);
	list_remove(f, place, OF_SOURCE);
	d->next = f->free;
	f->free = place;
}

static void datagram_drop(struct sy_worker *w, struct fragments *f, uint16_t place,
                          enum sy_drop reason)
{
	waiting_drop(w, &f->datagram[place], reason);
	datagram_end(f, place);
}

/* Requires a free entry. There is one: each datagram counts as at least 1 towards the limit of
 * fragments. */
static uint16_t datagram_begin(struct sy_worker *w, struct fragments *f, uint32_t hash,
                               const struct sy_tuple *key, const struct rte_mbuf *first)
{
	const struct sy_balance *b = w->app;
	uint16_t place = f->free;
	if (place == PLACE_NONE)
		place = f->used++;
	else
		f->free = f->datagram[place].next;
	struct datagram *d = &f->datagram[place];
	memset(d, 0, sizeof(*d));
	d->key = *key;
	d->hash = hash;
	d->source = source_of(&b->key, &key->src);
	d->begun_ns = w->now_ns;
	d->next = *bucket_of(f, hash);
	*bucket_of(f, hash) = place;
	list_add(f, place, OF_ALL);
	list_add(f, place, OF_SOURCE);
	d->movable = !relay_is_from_peer(b, first) && relay_fragments_to(w, &key->src, key->dport);
	if (SY_UNLIKELY(d->movable))
		list_add(f, place, OF_MOVABLE);
	return place;
}

/* Relays a fragment of a datagram that has moved, or drops it. */
static void fragment_move(struct sy_worker *w, struct rte_mbuf *m, uint8_t node)
{
	if (relay_fragment(w, m, node))
		rte_pktmbuf_free(m);
	else
		sy_packet_drop(w, m, SY_DROP_RELAY_RATE);
}

/* Relays the fragments to the node where they meet. If too many packets are relayed, they stay. */
static void datagram_move(struct sy_worker *w, struct fragments *f, uint16_t place)
{
	struct datagram *d = &f->datagram[place];
	const uint8_t node = relay_fragments_to(w, &d->key.src, d->key.dport);
	datagram_fix(f, place);
	if (!node || !relay_fragment(w, d->waiting, node))
		return;
	rte_pktmbuf_free(waiting_next(d));
	for (struct rte_mbuf *m; (m = waiting_next(d));)
		fragment_move(w, m, node);
	d->moved = node;
	count_set(f, d, 1);
}

/* Drops the datagram's waiting fragments, and later ones when they arrive. */
static void datagram_spoil(struct sy_worker *w, struct fragments *f, struct datagram *d,
                           enum sy_drop reason)
{
	if (d->spoilt != SY_DROP_NONE)
		return;
	d->spoilt = (uint16_t)reason;
	datagram_fix(f, (uint16_t)(d - f->datagram));
	waiting_drop(w, d, reason);
	count_set(f, d, 1);
}

void fragments_expire(struct sy_worker *w)
{
	struct fragments *f = balance_worker_of(w)->fragments;
	while (f->movable.oldest != PLACE_NONE &&
	       w->now_ns - f->datagram[f->movable.oldest].begun_ns >= MEET_NS)
		datagram_move(w, f, f->movable.oldest);
	while (f->all.oldest != PLACE_NONE &&
	       w->now_ns - f->datagram[f->all.oldest].begun_ns >= FRAGMENT_TIMEOUT_NS)
		datagram_drop(w, f, f->all.oldest, SY_DROP_FRAGMENT_TIMEOUT);
}

/* ---- fragments ------------------------------------------------------------------------------- */

/* Fills `piece` with the waiting fragments in order and returns their number. Insertion sort: they
 * mostly arrive in order. */
static unsigned waiting_sort(struct datagram *d, struct rte_mbuf *piece[static FRAGMENT_PIECES])
{
	uint16_t offset[FRAGMENT_PIECES];
	unsigned count = 0;
	for (struct rte_mbuf *m; (m = waiting_next(d)); count++) {
		uint16_t own = note_of(m)->offset;
		unsigned low = count > 0 && offset[count - 1] > own ? 0 : count;
		for (unsigned high = count; low < high;) {
			unsigned middle = (low + high) / 2;
			*(offset[middle] < own ? &low : &high) =
			        offset[middle] < own ? middle + 1 : middle;
		}
		memmove(piece + low + 1, piece + low, (count - low) * sizeof(piece[0]));
		memmove(offset + low + 1, offset + low, (count - low) * sizeof(offset[0]));
		piece[low] = m;
		offset[low] = own;
	}
	return count;
}

/* Resubmits the fragments of a complete datagram to the pipeline, after this burst. */
static void datagram_release(struct sy_worker *w, struct fragments *f, uint16_t place)
{
	struct datagram *d = &f->datagram[place];
	struct rte_mbuf *piece[FRAGMENT_PIECES];
	unsigned count = waiting_sort(d, piece);
	struct note note = {.id = fragment_id_new(w),
	                    .sport = d->sport,
	                    .dport = d->dport,
	                    .proto = d->proto,
	                    .known = 1};
	datagram_end(f, place);
	for (unsigned n = 0; n < count; n++) {
		note.completes = n + 1 == count;
		*note_of(piece[n]) = note;
	}
	if (!sy_packets_resubmit(w, piece, count))
		for (unsigned n = 0; n < count; n++)
			sy_packet_drop(w, piece[n], SY_DROP_FRAGMENT_WAIT_FULL);
}

/* The datagram with this key. One that has moved and comes back, to its session, begins anew. */
static uint16_t datagram_find_for(struct sy_worker *w, const struct rte_mbuf *m, uint32_t hash,
                                  const struct sy_tuple *key)
{
	struct fragments *f = balance_worker_of(w)->fragments;
	const uint16_t place = datagram_find(f, hash, key);
	if (place == PLACE_NONE || !f->datagram[place].moved || !relay_is_from_peer(w->app, m))
		return place;
	datagram_end(f, place);
	return PLACE_NONE;
}

/* Adds fragment i to a datagram that this worker owns. Returns NONE if it waits, was resubmitted or
 * relayed; otherwise the drop reason. */
static enum sy_drop datagram_add(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                 uint32_t hash, const struct sy_tuple *key)
{
	struct fragments *f = balance_worker_of(w)->fragments;
	const struct sy_view *v = &burst->view[i];
	unsigned from = v->fragment_offset / UNIT;
	unsigned len = sy_packet_fragment_len(sy_frame(burst->mbuf[i]), v);
	unsigned to = from + (len + UNIT - 1) / UNIT;
	bool last = v->fragment == SY_FRAGMENT_LAST;

	uint16_t place = datagram_find_for(w, burst->mbuf[i], hash, key);
	struct datagram *d = place == PLACE_NONE ? NULL : &f->datagram[place];
	burst->next[i] = SY_NEXT_PENDING;
	if (d && d->moved) {
		fragment_move(w, burst->mbuf[i], d->moved);
		burst->next[i] = SY_NEXT_RELAYED;
		return SY_DROP_NONE;
	}
	if (d) {
		enum sy_drop reason = units_check(d, from, to, last);
		if (reason == SY_DROP_NONE && d->count == FRAGMENT_PIECES)
			reason = SY_DROP_FRAGMENT_TOO_MANY;
		if (reason != SY_DROP_NONE && reason != SY_DROP_FRAGMENT_DUPLICATE)
			datagram_spoil(w, f, d, reason);
		if (reason != SY_DROP_NONE)
			return reason;
	} else {
		place = datagram_begin(w, f, hash, key, burst->mbuf[i]);
		d = &f->datagram[place];
	}
	if (v->fragment == SY_FRAGMENT_FIRST) {
		d->sport = v->tuple.sport;
		d->dport = v->tuple.dport;
		d->proto = v->proto;
	}
	waiting_add(d, burst->mbuf[i], v->fragment_offset);
	if (units_add(d, from, to, last)) {
		datagram_release(w, f, place);
		return SY_DROP_NONE;
	}
	count_set(f, d, d->count + 1u);
	if (f->count > f->limit) /* maybe this datagram itself */
		datagram_drop(w, f, victim_find(f), SY_DROP_FRAGMENT_WAIT_FULL);
	return SY_DROP_NONE;
}

enum sy_drop fragment_classify(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	struct sy_view *v = &burst->view[i];
	struct note *on_it = note_of(burst->mbuf[i]);
	if (v->proto == SY_PROTO_ICMP || v->proto == SY_PROTO_ICMPV6)
		return SY_DROP_ICMP_FRAGMENT;
	if (!burst->steered || !on_it->known) {
		const struct sy_tuple key = key_of(v);
		uint64_t hash = sy_hash_tuple(&b->key, &key);
		burst->slot[i] = (uint8_t)(hash >> 8);
		if (sy_slot_worker(b->rt, burst->slot[i]) != w->id) {
			*on_it = (struct note){0};
			sy_burst_steer(w, burst, i);
			return SY_DROP_NONE;
		}
		return datagram_add(w, burst, i, (uint32_t)(hash >> 32), &key);
	}
	v->tuple.sport = on_it->sport;
	v->tuple.dport = on_it->dport;
	v->proto = on_it->proto;
	v->tuple.proto = on_it->proto;
	v->fragment_id = on_it->id;
	v->completes = on_it->completes;
	return SY_DROP_NONE;
}
