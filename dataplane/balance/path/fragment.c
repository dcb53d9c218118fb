// SPDX-License-Identifier: Apache-2.0
/* The fragment table. classify asks it for the ports of each fragment; it keeps later fragments
 * until the first one has come. */
#include "fragment.h"

#include <stdlib.h>

#include <rte_mbuf_dyn.h>

#define PLACE_NONE UINT16_MAX
#define WAYS       8 /* places that one datagram may take */
#define SETS       (FRAGMENT_DATAGRAMS / WAYS)
#define UNIT       8              /* bytes per unit of a fragment's offset (RFC 791 3.1) */
#define UNITS      (65536 / UNIT) /* of the longest datagram */

/*
 * Travels with a fragment from worker to worker, in its packet buffer. Writer: always the worker
 * that hands it over; reader: the worker that gets it. Otherwise its content is undefined.
 */
struct note {
	uint32_t id;
	uint16_t sport, dport;
	uint8_t proto;
	uint8_t completes; /* as in struct sy_view */
	uint8_t known;     /* the above are valid; else it goes to its datagram's worker */
	uint8_t reserved;
};
static int note_offset;

static struct note *note_of(struct rte_mbuf *m)
{
	return RTE_MBUF_DYNFIELD(m, note_offset, struct note *);
}

struct datagram {
	struct sy_tuple key; /* see key_of() */
	uint64_t begun_ns;
	uint64_t followed_tsc; /* sy_worker.tsc when waiting fragments followed the first */
	uint16_t older, newer; /* places in order of age; PLACE_NONE: none */
	/* The same list of the datagrams that have waiting fragments. */
	uint16_t waits_older, waits_newer;
	uint16_t seen, end; /* units that arrived; the end of the last of them */
	uint16_t total;     /* units in all, 0: unknown */
	uint8_t first;      /* has arrived: the note is valid */
	uint8_t spoilt;     /* its fragments overlap */
	uint8_t waiting;
	struct note note;
	struct rte_mbuf *wait[FRAGMENT_WAITING_MAX];
	uint64_t unit[UNITS / 64]; /* one bit per unit that arrived */
};

struct fragments {
	uint64_t hash[SETS][WAYS]; /* by place; 0: free */
	uint32_t ids;              /* incremented for each new id */
	uint16_t oldest, newest;
	uint16_t waits_oldest, waits_newest;
	uint16_t waiting;
	struct datagram datagram[FRAGMENT_DATAGRAMS];
};
_Static_assert(FRAGMENT_WAITING <= SY_BURST, "all of them may come again at once");

struct fragments *fragments_create(void)
{
	static const struct rte_mbuf_dynfield field = {
	        .name = "steelyard_fragment",
	        .size = sizeof(struct note),
	        .align = _Alignof(struct note),
	};
	note_offset = rte_mbuf_dynfield_register(&field);
	if (note_offset < 0)
		return NULL;
	/* Pages that no datagram uses are never touched. */
	struct fragments *f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->oldest = f->newest = f->waits_oldest = f->waits_newest = PLACE_NONE;
	/* Does not repeat the ids of the previous process, whose key we have inherited. */
	f->ids = (uint32_t)(sy_clock_ns() / 1000);
	return f;
}

void fragments_destroy(struct fragments *f)
{
	for (uint16_t at = f ? f->oldest : PLACE_NONE; at != PLACE_NONE; at = f->datagram[at].newer)
		rte_pktmbuf_free_bulk(f->datagram[at].wait, f->datagram[at].waiting);
	free(f);
}

/* ---- ids ------------------------------------------------------------------------------------- */

/* A permutation of 16 bits with our key, in four Feistel rounds. */
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
 * An unpredictable id (RFC 7739), for either family. Its low half repeats only after the worker has
 * used its share of all 65536. By then a receiver has given up incomplete datagrams between the
 * same addresses, unless it is very busy (RFC 4963).
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

/* The bits from unit `at` on in its 64-bit group, below `to`. */
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

/* May the units from..to, the datagram's last ones if `last`, be added? Units that all arrived
 * before are a duplicate (the bytes that came first count). A partial overlap, or a unit beyond the
 * end, spoils the datagram (RFC 5722; IPv4 as in Linux). */
static enum sy_drop units_check(const struct datagram *d, unsigned from, unsigned to, bool last)
{
	unsigned seen = units_seen(d, from, to);
	if (d->spoilt || (d->total && (to > d->total || (last && to != d->total))) ||
	    (last && to < d->end))
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

/* ---- the table ------------------------------------------------------------------------------- */

/* Source, destination and id; for IPv4 also the protocol. In IPv6 the first fragment may name
 * another protocol than the others, and the id is unique without it. */
static struct sy_tuple key_of(const struct sy_view *v)
{
	return (struct sy_tuple){.src = v->tuple.src,
	                         .dst = v->tuple.dst,
	                         .sport = (uint16_t)(v->fragment_id >> 16),
	                         .dport = (uint16_t)v->fragment_id,
	                         .proto = v->v4 ? v->proto : 0};
}

static uint64_t *hash_at(struct fragments *f, uint16_t place)
{
	return &f->hash[place / WAYS][place % WAYS];
}

static uint16_t set_of(uint64_t hash)
{
	return (uint16_t)((hash >> 32) % SETS * WAYS);
}

static uint16_t datagram_find(struct fragments *f, uint64_t hash, const struct sy_tuple *key)
{
	uint16_t set = set_of(hash);
	for (uint16_t at = set; at < set + WAYS; at++)
		if (*hash_at(f, at) == hash && !memcmp(&f->datagram[at].key, key, sizeof(*key)))
			return at;
	return PLACE_NONE;
}

static void waiting_add(struct fragments *f, struct datagram *d, struct rte_mbuf *m)
{
	if (d->waiting == 0) {
		uint16_t place = (uint16_t)(d - f->datagram);
		d->waits_older = f->waits_newest;
		d->waits_newer = PLACE_NONE;
		*(f->waits_newest == PLACE_NONE ? &f->waits_oldest
		                                : &f->datagram[f->waits_newest].waits_newer) =
		        place;
		f->waits_newest = place;
	}
	d->wait[d->waiting++] = m;
	f->waiting++;
}

/* Empties the waiting list of a datagram that has one. */
static void waiting_end(struct fragments *f, struct datagram *d)
{
	*(d->waits_older == PLACE_NONE ? &f->waits_oldest
	                               : &f->datagram[d->waits_older].waits_newer) = d->waits_newer;
	*(d->waits_newer == PLACE_NONE ? &f->waits_newest
	                               : &f->datagram[d->waits_newer].waits_older) = d->waits_older;
	f->waiting = (uint16_t)(f->waiting - d->waiting);
	d->waiting = 0;
}

static void waiting_drop(struct sy_worker *w, struct fragments *f, struct datagram *d,
                         enum sy_drop reason)
{
	unsigned count = d->waiting;
	if (count == 0)
		return;
	waiting_end(f, d);
	for (unsigned n = 0; n < count; n++)
		sy_packet_drop(w, d->wait[n], reason);
}

/* `reason`: for the fragments that still wait. */
static void datagram_end(struct sy_worker *w, struct fragments *f, uint16_t place,
                         enum sy_drop reason)
{
	struct datagram *d = &f->datagram[place];
	waiting_drop(w, f, d, reason);
	*(d->older == PLACE_NONE ? &f->oldest : &f->datagram[d->older].newer) = d->newer;
	*(d->newer == PLACE_NONE ? &f->newest : &f->datagram[d->newer].older) = d->older;
	*hash_at(f, place) = 0;
}

/* If a set is full, its oldest datagram is dropped: a legitimate datagram completes quickly. */
static uint16_t datagram_begin(struct sy_worker *w, struct fragments *f, uint64_t hash,
                               const struct sy_tuple *key)
{
	uint16_t set = set_of(hash), place = set;
	for (uint16_t at = set; at < set + WAYS && *hash_at(f, place); at++)
		if (!*hash_at(f, at) || f->datagram[at].begun_ns < f->datagram[place].begun_ns)
			place = at;
	if (*hash_at(f, place))
		datagram_end(w, f, place, SY_DROP_FRAGMENT_TABLE_FULL);
	struct datagram *d = &f->datagram[place];
	memset(d, 0, sizeof(*d));
	d->key = *key;
	d->begun_ns = w->now_ns;
	d->older = f->newest;
	d->newer = PLACE_NONE;
	*(f->newest == PLACE_NONE ? &f->oldest : &f->datagram[f->newest].newer) = place;
	f->newest = place;
	*hash_at(f, place) = hash;
	return place;
}

void fragments_expire(struct sy_worker *w)
{
	struct fragments *f = balance_worker_of(w)->fragments;
	while (f->oldest != PLACE_NONE &&
	       w->now_ns - f->datagram[f->oldest].begun_ns >= FRAGMENT_TIMEOUT_NS)
		datagram_end(w, f, f->oldest, SY_DROP_FRAGMENT_TIMEOUT);
}

/* ---- fragments ------------------------------------------------------------------------------- */

/* Puts a fragment back into the input, after the burst of its first fragment. */
static void fragment_again(struct sy_worker *w, struct rte_mbuf *m, const struct note *note)
{
	*note_of(m) = *note;
	if (!sy_packet_again(w, m))
		sy_packet_drop(w, m, SY_DROP_FRAGMENT_WAIT_FULL);
}

/* The first fragment has arrived: the waiting ones follow it. */
static void waiting_follow(struct sy_worker *w, struct fragments *f, struct datagram *d, bool whole)
{
	struct note note = d->note;
	unsigned count = d->waiting;
	waiting_end(f, d);
	for (unsigned n = 0; n < count; n++) {
		note.completes = whole && n + 1 == count;
		fragment_again(w, d->wait[n], &note);
	}
	d->followed_tsc = w->tsc;
}

/* Adds fragment i to datagram `place`, which has its units already. *note: what the fragment lacks,
 * if it continues at once. */
static void datagram_add(struct sy_worker *w, struct fragments *f, uint16_t place,
                         struct sy_burst *burst, unsigned i, bool whole, struct note *note)
{
	struct datagram *d = &f->datagram[place];
	const struct sy_view *v = &burst->view[i];
	bool followed = d->waiting > 0;
	if (v->fragment == SY_FRAGMENT_FIRST) {
		d->first = 1;
		d->note = (struct note){.id = fragment_id_new(w),
		                        .sport = v->tuple.sport,
		                        .dport = v->tuple.dport,
		                        .proto = v->proto,
		                        .known = 1};
		if (followed)
			waiting_follow(w, f, d, whole);
	} else if (!d->first) {
		waiting_add(f, d, burst->mbuf[i]);
		burst->next[i] = SY_NEXT_GONE;
		return;
	}
	*note = d->note;
	note->completes = whole && !followed;
	/* Must not overtake those that waited: the fragment that completes the datagram comes
	 * last. */
	if (v->fragment != SY_FRAGMENT_FIRST && d->followed_tsc == w->tsc) {
		fragment_again(w, burst->mbuf[i], note);
		burst->next[i] = SY_NEXT_GONE;
	}
	if (whole)
		datagram_end(w, f, place, SY_DROP_NONE);
}

/* Handles fragment i of a datagram that this worker owns. */
static enum sy_drop datagram_take(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                  uint64_t hash, const struct sy_tuple *key, struct note *note)
{
	struct fragments *f = balance_worker_of(w)->fragments;
	const struct sy_view *v = &burst->view[i];
	unsigned from = v->fragment_offset / UNIT;
	unsigned len = sy_packet_fragment_len(sy_frame(burst->mbuf[i]), v);
	unsigned to = from + (len + UNIT - 1) / UNIT;
	bool last = v->fragment == SY_FRAGMENT_LAST;

	uint16_t place = datagram_find(f, hash, key);
	struct datagram *d = place == PLACE_NONE ? NULL : &f->datagram[place];
	enum sy_drop reason = d ? units_check(d, from, to, last) : SY_DROP_NONE;
	if (reason == SY_DROP_FRAGMENT_OVERLAP) {
		d->spoilt = 1;
		waiting_drop(w, f, d, reason);
	}
	if (reason != SY_DROP_NONE)
		return reason;
	if (v->fragment != SY_FRAGMENT_FIRST && !(d && d->first)) {
		if (d && d->waiting == FRAGMENT_WAITING_MAX)
			return SY_DROP_FRAGMENT_WAIT_FULL;
		/* The oldest datagram is dropped: a legitimate datagram's first fragment is not
		 * late. */
		if (f->waiting == FRAGMENT_WAITING) {
			if (place == f->waits_oldest)
				d = NULL;
			datagram_end(w, f, f->waits_oldest, SY_DROP_FRAGMENT_WAIT_FULL);
		}
	}
	if (!d) {
		place = datagram_begin(w, f, hash, key);
		d = &f->datagram[place];
	}
	datagram_add(w, f, place, burst, i, units_add(d, from, to, last), note);
	return SY_DROP_NONE;
}

enum sy_drop fragment_classify(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	struct sy_view *v = &burst->view[i];
	struct note *on_it = note_of(burst->mbuf[i]), note = {0};
	if (v->proto == SY_PROTO_ICMP || v->proto == SY_PROTO_ICMPV6)
		return SY_DROP_ICMP_FRAGMENT;
	if (burst->handed_over)
		note = *on_it;
	if (!note.known) {
		const struct sy_tuple key = key_of(v);
		uint64_t hash = sy_hash_tuple(&b->key, &key) | 1; /* 0 is a free place */
		burst->slot[i] = (uint8_t)(hash >> 8);
		if (sy_slot_worker(b->rt, burst->slot[i]) != w->id) {
			*on_it = note;
			sy_burst_hand_over(w, burst, i);
			return SY_DROP_NONE;
		}
		enum sy_drop reason = datagram_take(w, burst, i, hash, &key, &note);
		if (reason != SY_DROP_NONE || burst->next[i] == SY_NEXT_GONE)
			return reason;
		*on_it = note; /* another worker may own its session */
	}
	v->tuple.sport = note.sport;
	v->tuple.dport = note.dport;
	v->proto = note.proto;
	v->tuple.proto = note.proto;
	v->fragment_id = note.id;
	v->completes = note.completes;
	return SY_DROP_NONE;
}
