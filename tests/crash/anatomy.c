// SPDX-License-Identifier: Apache-2.0
/* The adopted tables as bytes: every record is either live and in the index twice, or free and on
 * the list. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"
#include "session_file.h"

static bool is_blank(const void *bytes, size_t len)
{
	const uint8_t *p = bytes;
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

/* ---- before it is opened --------------------------------------------------------------------- */

static uint64_t slot_records(const struct session_file *f, unsigned slot)
{
	const uint8_t *region = session_slot_region(f, (uint8_t)slot);
	struct session_geometry g;
	uint64_t n = 0;
	session_slot_geometry(f, (uint8_t)slot, &g);
	for (uint32_t i = 0; i < g.records; i++) {
		const struct session_cold *cold =
		        (const struct session_cold *)(region + g.cold_at) + i;
		n += cold->commit || !is_blank(region + g.hot_at + i * sizeof(struct session),
		                               sizeof(struct session));
	}
	return n;
}

uint64_t anatomy_count(const char *path)
{
	struct stat st;
	uint64_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	MUST(fstat(fd, &st) == 0, "%s cannot be read", path);
	const struct session_file *f =
	        st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
	MUST(f != MAP_FAILED, "%s cannot be mapped", path);
	/* A file killed during its creation has no checksum yet and no contents. */
	for (unsigned slot = 0; f && f->check && slot < SY_SLOTS; slot++)
		n += slot_records(f, slot);
	if (f)
		munmap((void *)(uintptr_t)f, (size_t)st.st_size);
	close(fd);
	return n;
}

/* ---- after adoption -------------------------------------------------------------------------- */

/* The two tuples of a session's arriving packets. */
static struct sy_tuple tuple_of(const struct run *l, const struct session *s, unsigned side)
{
	const struct endpoint *e = inspect_endpoint(l->harness.b, s->server);
	if (side == SESSION_CLIENT)
		return (struct sy_tuple){s->client, e->vip, s->client_port, e->vport, e->proto};
	return (struct sy_tuple){e->addr, *inspect_local(l->harness.b, s->local), e->port,
	                         s->local_port, e->proto};
}

struct wanted {
	const struct run *l;
	struct sy_tuple tuple;
};

static bool match_tuple(const void *ctx, const struct session *s, enum session_direction direction)
{
	const struct wanted *w = ctx;
	const struct sy_tuple t = tuple_of(w->l, s, direction);
	return memcmp(&t, &w->tuple, sizeof(t)) == 0;
}

/* Looks the session up by both tuples. If another session had one of its tuples, the lookup would
 * find that one instead. */
static void record_must_be_found(const struct run *l, const struct session_table *t,
                                 uint32_t record)
{
	const struct session *s = session_at(t, record);
	for (unsigned side = 0; side < 2; side++) {
		const struct wanted w = {l, tuple_of(l, s, side)};
		enum session_direction direction = SESSION_CLIENT;
		uint64_t hash = sy_hash_tuple(inspect_key(l->harness.b), &w.tuple);
		uint32_t found = session_find(t->index, hash, match_tuple, &w, &direction);
		MUST(found == record && (unsigned)direction == side,
		     "slot %u: record %u is not what is found by its %s's tuple", t->slot, record,
		     side ? "server" : "client");
	}
	MUST(sy_slot_of(&s->client, s->client_port) == t->slot &&
	             sy_slot_of(inspect_local(l->harness.b, s->local), s->local_port) == t->slot,
	     "slot %u: record %u belongs elsewhere", t->slot, record);
}

/* Each bucket counts its entries that are in their alternative bucket. */
static void guests_check(const struct session_table *t)
{
	uint16_t *absent = calloc(session_bucket_count(t->index), sizeof(*absent));
	MUST(absent, "no memory");
	for (uint32_t bucket = 0; bucket < session_bucket_count(t->index); bucket++) {
		const struct session_bucket *b = &session_buckets(t->index)[bucket];
		for (unsigned place = 0; place < SESSION_BUCKET_ENTRIES; place++) {
			bool guest = b->guests >> place & 1;
			MUST(!guest || b->tags[place], "slot %u: no guest in bucket %u", t->slot,
			     bucket);
			if (guest)
				absent[session_bucket_other(t->index, bucket, b->tags[place])]++;
		}
	}
	for (uint32_t bucket = 0; bucket < session_bucket_count(t->index); bucket++)
		MUST(absent[bucket] == session_buckets(t->index)[bucket].absent,
		     "slot %u: bucket %u counts %u entries elsewhere, not %u", t->slot, bucket,
		     session_buckets(t->index)[bucket].absent, absent[bucket]);
	free(absent);
}

/* Every entry of the index leads to a live record, and no two entries lead to the same side of one
 * record. */
static void index_check(const struct session_table *t, uint8_t *sides)
{
	uint32_t entries = 0;
	for (uint32_t bucket = 0; bucket < session_bucket_count(t->index); bucket++)
		for (unsigned place = 0; place < SESSION_BUCKET_ENTRIES; place++) {
			if (!session_buckets(t->index)[bucket].tags[place])
				continue;
			uint32_t entry = session_buckets(t->index)[bucket].entries[place],
			         record = entry >> 1;
			MUST(record < t->top && t->index->hot[record].state != SESSION_FREE,
			     "slot %u: the index leads to record %u, which does not live", t->slot,
			     record);
			MUST(!(sides[record] & 1u << (entry & 1)),
			     "slot %u: record %u is indexed twice", t->slot, record);
			sides[record] |= (uint8_t)(1u << (entry & 1));
			entries++;
		}
	MUST(entries == 2 * t->live, "slot %u: %u index entries for %u sessions", t->slot, entries,
	     t->live);
}

static uint32_t free_check(const struct session_table *t, uint8_t *listed)
{
	uint32_t n = 0, before = SESSION_NONE;
	for (uint32_t r = t->free_head; r != SESSION_NONE; r = t->cold[r].free_next) {
		MUST(r < t->top && !listed[r] && t->index->hot[r].state == SESSION_FREE,
		     "slot %u: the free list leads to record %u, which is not free", t->slot, r);
		/* the first one's free_prev has no meaning */
		MUST((before == SESSION_NONE || t->cold[r].free_prev == before) &&
		             t->cold[r].commit == 0,
		     "slot %u: the free list is torn at record %u", t->slot, r);
		listed[r] = 1;
		before = r;
		n++;
	}
	return n;
}

static void table_check(const struct run *l, const struct session_table *t)
{
	uint8_t *sides = calloc(2, t->capacity), *listed = sides + t->capacity;
	MUST(sides, "no memory");
	uint32_t live = 0, freed = free_check(t, listed);
	index_check(t, sides);
	guests_check(t);
	for (uint32_t r = 0; r < t->capacity; r++) {
		if (t->index->hot[r].state == SESSION_FREE) {
			MUST(t->cold[r].commit == 0 && (r >= t->top || listed[r]),
			     "slot %u: the free record %u is on no list", t->slot, r);
			continue;
		}
		live++;
		MUST(r < t->top && sides[r] == 3 &&
		             t->cold[r].commit == session_check(&t->index->hot[r]),
		     "slot %u: record %u is not whole", t->slot, r);
		record_must_be_found(l, t, r);
	}
	MUST(live == t->live && live + freed == t->top,
	     "slot %u: %u records live and %u are free of %u; it says %u", t->slot, live, freed,
	     t->top, t->live);
	free(sides);
}

uint64_t anatomy_check(struct run *l)
{
	uint64_t live = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		table_check(l, inspect_table(l->harness.b, slot));
		live += session_count(inspect_table(l->harness.b, slot));
	}
	return live;
}

void anatomy_chill(const struct run *l)
{
	const struct session_map *m = &inspect_store(l->harness.b)->now;
	madvise(m->file, m->length, MADV_DONTNEED);
}

/* ---- damaging -------------------------------------------------------------------------------- */

struct victim {
	struct session_table *t;
	struct session *s;
	uint32_t record;
	uint64_t client_hash, server_hash;
};

/* It must be there, and will be probed. */
static bool is_expected(const struct run *l, const struct session *s)
{
	const struct plain_config *c = &l->h->config[l->h->accepted];
	const struct endpoint *e = inspect_endpoint(l->harness.b, s->server);
	uint32_t now = plain_seconds(l->h);
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		const struct flow *f = &l->h->flow[i];
		const struct sy_addr vip = plain_vip(f->service);
		if (f->client_port == s->client_port && sy_addr_equal(&f->client, &s->client) &&
		    sy_addr_equal(&vip, &e->vip) && plain_proto(f->service) == e->proto &&
		    flow_is_fresh(f, now) && flow_must_live(f, c, now))
			return true;
	}
	return false;
}

static bool victim_find(struct run *l, struct victim *v)
{
	struct sy_balance *b = l->harness.b;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint32_t cursor = 0;
		v->t = inspect_table(b, slot);
		while ((v->record = session_next(v->t, &cursor)) != SESSION_NONE) {
			v->s = session_at(v->t, v->record);
			if ((v->s->state != SESSION_ESTABLISHED &&
			     v->s->state != SESSION_UDP_BOTH_WAYS) ||
			    !is_expected(l, v->s) ||
			    (l->spoil == SPOIL_SHIFT && !(v->s->flags & SESSION_SHIFTED)))
				continue;
			const struct endpoint *e = inspect_endpoint(b, v->s->server);
			const struct session_cold *cold = session_cold_at(v->t, v->record);
			const struct sy_tuple client = session_client_tuple(v->s, cold, e);
			const struct sy_tuple server = session_server_tuple(b, v->s, cold, e);
			v->client_hash = sy_hash_tuple(inspect_key(b), &client);
			v->server_hash = sy_hash_tuple(inspect_key(b), &server);
			return true;
		}
	}
	return false;
}

static bool spoil_free(struct run *l)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		struct session_table *t = inspect_table(l->harness.b, slot);
		if (t->top == t->capacity)
			continue;
		t->top++;
		return true;
	}
	return false;
}

static bool spoil_index(const struct victim *v)
{
	for (uint32_t bucket = 0; bucket < session_bucket_count(v->t->index); bucket++)
		for (unsigned place = 0; place < SESSION_BUCKET_ENTRIES; place++)
			if (session_buckets(v->t->index)[bucket].tags[place] &&
			    session_buckets(v->t->index)[bucket].entries[place] == v->record << 1) {
				session_buckets(v->t->index)[bucket].tags[place] = 0;
				return true;
			}
	return false;
}

static bool spoil_port(struct run *l, const struct victim *v)
{
	const struct sy_balance *b = l->harness.b;
	struct session moved = *v->s;
	const struct endpoint *e = inspect_endpoint(b, moved.server);
	const struct session_cold cold = *session_cold_at(v->t, v->record);
	struct sy_tuple server = session_server_tuple(b, v->s, &cold, e);
	for (unsigned n = 0; moved.local_port == v->s->local_port; n++)
		moved.local_port = sy_slot_port(v->t->slot, inspect_local(b, moved.local), 200 + n);
	server.dport = moved.local_port;
	session_remove(v->t, v->record, v->client_hash, v->server_hash);
	return session_insert(v->t, &moved, &cold, v->client_hash,
	                      sy_hash_tuple(inspect_key(b), &server)) != SESSION_NONE;
}

bool anatomy_spoil(struct run *l)
{
	struct victim v;
	if (l->spoil == SPOIL_FREE)
		return spoil_free(l);
	if (!victim_find(l, &v))
		return false;
	switch (l->spoil) {
	case SPOIL_SESSION:
		session_remove(v.t, v.record, v.client_hash, v.server_hash);
		return true;
	case SPOIL_DUPLICATE:
		return session_insert(v.t, v.s, session_cold_at(v.t, v.record), v.client_hash,
		                      v.server_hash) != SESSION_NONE;
	case SPOIL_PORT: /* consistent in itself: removed, and inserted again with another port */
		return spoil_port(l, &v);
	case SPOIL_INDEX:
		return spoil_index(&v);
	case SPOIL_GUESTS:
		session_buckets(v.t->index)[session_bucket_of(v.t->index, v.client_hash)].absent++;
		return true;
	case SPOIL_LIVE:
		v.t->live++;
		return true;
	case SPOIL_STATE:
		v.s->state =
		        v.s->state == SESSION_ESTABLISHED ? SESSION_CLOSING : SESSION_UDP_ONE_WAY;
		return true;
	case SPOIL_SHIFT:
		v.t->cold[v.record].inserted = 0;
		return true;
	case SPOIL_DELTA:
		v.s->delta ^= 0x0101;
		v.t->cold[v.record].commit = session_check(v.s);
		return true;
	default:
		return false;
	}
}
