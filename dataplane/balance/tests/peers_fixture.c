// SPDX-License-Identifier: Apache-2.0
#include "peers_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sync_lane.h"

#define QUEUE    4096
#define DATAGRAM 2200 /* bytes: of a relayed packet of a test, too */

bool mirror_has_third;
static struct mirror *running; /* the peer of the harness that runs */

/* ---- datagrams ------------------------------------------------------------------------------- */

static struct datagram {
	unsigned worker;
	size_t len;
	uint8_t bytes[DATAGRAM];
} to_harness[QUEUE], to_mirror[QUEUE];
static unsigned for_harness, for_mirror;

static void queue_add(struct datagram *queue, unsigned *count, unsigned worker,
                      const uint8_t *bytes, size_t len)
{
	const bool hello = bytes[offsetof(struct sync_header, kind)] == SYNC_HELLO;
	if (!running || running->paused || (running->lossy && rng_percent(&running->f->rng, 25)) ||
	    (running->only_hellos && !hello))
		return;
	assert_true(*count < QUEUE && len <= DATAGRAM);
	queue[*count].worker = worker;
	queue[*count].len = len;
	memcpy(queue[(*count)++].bytes, bytes, len);
}

int __wrap_peers_sockets_open(struct peers *p, struct sy_error *err);
bool __wrap_peers_receive(struct peers *p, struct sy_worker *w, bool *more);
void __wrap_peers_send(void *peers, unsigned worker, uint8_t node, const uint8_t *bytes,
                       size_t len);

int __wrap_peers_sockets_open(struct peers *p, struct sy_error *err)
{
	(void)p;
	(void)err;
	return 0;
}

/* A sender's worker decides which one receives, as in peers_socket.c. */
bool __wrap_peers_receive(struct peers *p, struct sy_worker *w, bool *more)
{
	unsigned kept = 0, count = for_harness;
	*more = false;
	for (unsigned i = 0; i < count; i++) {
		struct datagram *d = &to_harness[i];
		if (d->worker % p->b->workers == w->id)
			sync_lane_receive(p->node, w->id, d->bytes, d->len, w->now_ns);
		else
			to_harness[kept++] = *d;
	}
	for_harness = kept;
	return kept < count;
}

void __wrap_peers_send(void *peers, unsigned worker, uint8_t node, const uint8_t *bytes, size_t len)
{
	(void)peers;
	(void)node;
	queue_add(to_mirror, &for_mirror, worker, bytes, len);
}

static void mirror_send(void *context, unsigned worker, uint8_t node, const uint8_t *bytes,
                        size_t len)
{
	(void)context;
	(void)node;
	queue_add(to_harness, &for_harness, worker, bytes, len);
}

/* ---- what it keeps --------------------------------------------------------------------------- */

static unsigned name_record(const uint8_t *entry)
{
	/* kind, then the id: peers_names.c */
	unsigned id = entry[3] | (unsigned)entry[4] << 8 | (unsigned)entry[5] << 16;
	unsigned record = entry[2] == 2 ? id : NAMES_LOCALS + id;
	assert_true(record < MIRROR_NAMES);
	return record;
}

static const struct names_server *server_of(const struct mirror *m, const struct session *s)
{
	const struct mirror_name *name = &m->name[NAMES_LOCALS + s->server];
	assert_true(name->used);
	return (const struct names_server *)&name->entry[6];
}

static uint64_t session_identity(const struct mirror *m, const struct sync_session *s)
{
	const struct mirror_name *local = &m->name[s->hot[0].local];
	struct names_server name;
	struct sy_addr addr;
	memcpy(&name, server_of(m, &s->hot[0]), sizeof(name));
	memcpy(&addr, &local->entry[6], sizeof(addr));
	return peers_identity(m->f->harness.b->peers, &name, &addr, s->hot, s->cold);
}

static bool is_by_local(const struct mirror *m, const struct sync_session *s)
{
	struct names_server name;
	memcpy(&name, server_of(m, &s->hot[0]), sizeof(name));
	return peers_is_by_local(name.mode);
}

static struct mirror_session *session_of(const struct mirror *m, unsigned slot, uint64_t hash)
{
	struct mirror_session *s = &m->session[slot * MIRROR_SLOT];
	for (unsigned i = 0; i < MIRROR_SLOT; i++)
		if (s[i].used && s[i].hash == hash)
			return &s[i];
	return NULL;
}

static struct mirror_session *session_new(const struct mirror *m, unsigned slot)
{
	struct mirror_session *s = &m->session[slot * MIRROR_SLOT];
	for (unsigned i = 0; i < MIRROR_SLOT; i++)
		if (!s[i].used)
			return &s[i];
	fail_msg("a slot of the mirror is full");
	return NULL;
}

static enum sync_result keep_name(struct mirror *m, const uint8_t *entry, uint64_t *hash)
{
	const struct sync_entry_head *head = (const void *)entry;
	struct mirror_name *name = &m->name[name_record(entry)];
	uint8_t end[SYNC_ENTRY];
	const bool was = name->used;
	names_describe_end((uint32_t)(name - m->name), end, hash);
	name->used = head->kind == SYNC_PUT;
	if (name->used)
		memcpy(name->entry, entry, head->len);
	return name->used ? (was ? SYNC_DONE : SYNC_NEW) : (was ? SYNC_DONE : SYNC_MISSING);
}

/* While it offers sessions, names have the meaning that they had at their node. */
static enum sync_result skip_name(struct mirror *m, const uint8_t *entry, uint64_t *hash)
{
	uint8_t end[SYNC_ENTRY];
	(void)m;
	names_describe_end(name_record(entry), end, hash);
	return SYNC_NEW;
}

/* Counts sessions that the harness puts, whose ids are the harness's. */
static enum sync_result decline(struct mirror *m, uint8_t kind, const struct sync_session *in,
                                uint64_t *hash)
{
	const struct sy_balance *b = m->f->harness.b;
	const struct names_server name = names_of(inspect_endpoint(b, in->hot[0].server));
	*hash = peers_identity(b->peers, &name, &b->local[in->hot[0].local], in->hot, in->cold);
	m->declined += kind == SYNC_PUT;
	return kind == SYNC_PUT ? SYNC_REFUSED : SYNC_MISSING;
}

static enum sync_result keep(void *context, unsigned node, unsigned slot, const uint8_t *entry,
                             uint64_t *hash)
{
	struct mirror *m = context;
	const uint8_t kind = ((const struct sync_entry_head *)entry)->kind;
	struct sync_session in;
	(void)node;
	if (m->offers && slot == SYNC_DICTIONARY)
		return skip_name(m, entry, hash);
	if (slot == SYNC_DICTIONARY)
		return keep_name(m, entry, hash);
	assert_true(sync_session_read(entry, &in));
	if (m->offers)
		return decline(m, kind, &in, hash);
	if (!m->name[NAMES_LOCALS + in.hot[0].server].used)
		return SYNC_LATER;
	*hash = session_identity(m, &in);
	struct mirror_session *s = session_of(m, slot, *hash);
	if (kind == SYNC_DELETE && s)
		s->used = false;
	if (kind != SYNC_PUT && !s)
		return SYNC_MISSING;
	if (kind == SYNC_DELETE)
		return SYNC_DONE;
	const bool known = s;
	if (!s)
		s = session_new(m, slot);
	if (kind == SYNC_PUT) {
		s->session = in;
	} else {
		s->session.hot[0].state = in.hot[0].state;
		s->session.hot[0].flags = in.hot[0].flags;
		s->session.cold[0] = in.cold[0];
	}
	s->used = true;
	s->hash = *hash;
	return known ? SYNC_DONE : SYNC_NEW;
}

static void copy_begin(void *context, unsigned node, unsigned slot)
{
	struct mirror *m = context;
	(void)node;
	if (m->offers) /* what it has is its own */
		return;
	for (unsigned i = 0; slot != SYNC_DICTIONARY && i < MIRROR_SLOT; i++)
		m->session[slot * MIRROR_SLOT + i].used = false; /* the copy puts them again */
	for (unsigned i = 0; slot == SYNC_DICTIONARY && i < MIRROR_NAMES; i++)
		m->name[i].used = false;
}

static void copy_end(void *context, unsigned node, unsigned slot)
{
	(void)context;
	(void)node;
	(void)slot;
}

static struct sync_sum stored(void *context, uint8_t node, unsigned slot)
{
	(void)context;
	(void)node;
	(void)slot;
	return (struct sync_sum){0};
}

/* ---- what it puts again ---------------------------------------------------------------------- */

static bool describe(void *context, unsigned slot, uint32_t record, bool known,
                     uint8_t entry[static SYNC_ENTRY], uint64_t *hash)
{
	struct mirror *m = context;
	(void)known;
	if (slot == SYNC_DICTIONARY) {
		names_describe_end(record, entry, hash);
		memcpy(entry, m->name[record].entry, SYNC_ENTRY);
		return m->name[record].used;
	}
	const struct mirror_session *s = &m->session[slot * MIRROR_SLOT + record];
	*hash = s->hash ^ m->wrong_sums;
	struct sync_session put = s->session;
	put.from_master = put.known = false;
	if (s->used)
		sync_session_write(&put, SYNC_PUT, is_by_local(m, &put), entry);
	return s->used;
}

static void describe_end(void *context, unsigned slot, uint32_t record, bool transferred,
                         uint8_t entry[static SYNC_ENTRY], uint64_t *hash)
{
	struct mirror *m = context;
	const struct mirror_session *s = &m->session[slot * MIRROR_SLOT + record];
	assert_true(slot != SYNC_DICTIONARY);
	struct sync_session end = s->session;
	end.transferred = transferred;
	*hash = s->hash;
	sync_session_write(&end, SYNC_DELETE, is_by_local(m, &s->session), entry);
}

static uint32_t next(void *context, unsigned slot, uint32_t record)
{
	struct mirror *m = context;
	const unsigned count = slot == SYNC_DICTIONARY ? MIRROR_NAMES : MIRROR_SLOT;
	for (; record < count; record++)
		if (slot == SYNC_DICTIONARY ? m->name[record].used
		                            : m->session[slot * MIRROR_SLOT + record].used)
			return record;
	return SYNC_NO_RECORD;
}

static uint8_t *marks(void *context, unsigned slot, uint8_t peer, uint32_t *count)
{
	struct mirror *m = context;
	(void)peer;
	*count = slot == SYNC_DICTIONARY ? MIRROR_NAMES : MIRROR_SLOT;
	return slot == SYNC_DICTIONARY ? m->name_marks : &m->marks[slot * MIRROR_SLOT];
}

void mirror_offer(struct mirror *m)
{
	m->offers = true;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		for (uint32_t i = 0; (i = next(m, slot, i)) != SYNC_NO_RECORD; i++)
			sync_node_change(m->node, slot, i);
}

void mirror_give_all(struct mirror *m)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		for (uint32_t i = 0; (i = next(m, slot, i)) != SYNC_NO_RECORD; i++) {
			sync_node_transfer(m->node, slot, i, 3 - m->number);
			m->session[slot * MIRROR_SLOT + i].used = false;
		}
}

void mirror_end_one(struct mirror *m)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const uint32_t record = next(m, slot, 0);
		if (record == SYNC_NO_RECORD)
			continue;
		sync_node_end(m->node, slot, record);
		m->session[slot * MIRROR_SLOT + record].used = false;
		return;
	}
}

bool mirror_is_acknowledged(const struct mirror *m)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct sync_log *log = sync_node_log(m->node, slot);
		if (sync_log_is_due(log) || !sync_window_is_empty(&log->window))
			return false;
	}
	return true;
}

void mirror_end_all(struct mirror *m)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		for (uint32_t i = 0; (i = next(m, slot, i)) != SYNC_NO_RECORD; i++) {
			sync_node_end(m->node, slot, i);
			m->session[slot * MIRROR_SLOT + i].used = false;
		}
}

/* ---- relayed packets ------------------------------------------------------------------------- */

static void relayed(void *context, unsigned worker, const struct sync_relay *relay,
                    const uint8_t *packet, size_t len)
{
	struct mirror *m = context;
	(void)worker;
	assert_true(len <= sizeof(m->packet));
	m->relays++;
	m->relay = *relay;
	m->packet_len = len;
	memcpy(m->packet, packet, len);
}

void mirror_pause(struct mirror *m, bool paused)
{
	m->paused = paused;
}

void mirror_relay(struct mirror *m, const struct sync_relay *relay, const struct frame *frame)
{
	assert_true(sync_lane_relay(m->node, 0, 3 - m->number, relay, frame->bytes + SY_ETH_LEN,
	                            frame->len - SY_ETH_LEN));
}

/* ---- lifecycle ------------------------------------------------------------------------------- */

static unsigned owner(void *context, unsigned slot)
{
	(void)context;
	(void)slot;
	return 0;
}

struct sy_peers_options mirror_options(uint8_t node)
{
	struct sy_peers_options o = {.node = node, .address = harness_addr("127.0.0.1"), .port = 1};
	o.peer[3 - node].addr = o.address;
	o.peer[3 - node].port = 2;
	if (mirror_has_third) {
		o.peer[MIRROR_THIRD].addr = o.address;
		o.peer[MIRROR_THIRD].port = 3;
	}
	o.secret[0].id = 1;
	o.secret[0].len = SYNC_SECRET;
	return o;
}

void mirror_open(struct mirror *m, struct flows *f, uint8_t number)
{
	const struct peers *p = f->harness.b->peers;
	struct sync_node_options o = {
	        .node = number,
	        .slot_key = p->node->options.slot_key,
	        .peers = 1u << (3 - number),
	        .workers = 1,
	        .copies = 100,
	        .source = {m, describe, describe_end, next, marks},
	        .sink = {m, keep, copy_begin, copy_end, NULL},
	        .context = m,
	        .owner = owner,
	        .send = mirror_send,
	        .stored = stored,
	        .relayed = relayed,
	};
	o.secret[0].id = 1;
	o.secret[0].len = SYNC_SECRET;
	m->f = f;
	m->number = number;
	if (!m->session) {
		m->session = calloc(SY_SLOTS * MIRROR_SLOT, sizeof(*m->session));
		m->name = calloc(MIRROR_NAMES, sizeof(*m->name));
		m->marks = calloc(SY_SLOTS * MIRROR_SLOT, 1);
		m->name_marks = calloc(MIRROR_NAMES, 1);
	}
	assert_true(m->session && m->name && m->marks && m->name_marks);
	m->node = sync_node_create(&o, f->harness.now_ns);
	assert_non_null(m->node);
	sync_node_set_role(m->node, m->role);
	running = m;
	for_harness = for_mirror = 0;
}

void mirror_close(struct mirror *m)
{
	sync_node_destroy(m->node);
	m->node = NULL;
	running = NULL;
}

void mirror_free(struct mirror *m)
{
	if (m->node)
		mirror_close(m);
	free(m->session);
	free(m->name);
	free(m->marks);
	free(m->name_marks);
	*m = (struct mirror){0};
}

static void mirror_poll(struct mirror *m)
{
	for (unsigned i = 0; i < for_mirror; i++)
		sync_lane_receive(m->node, 0, to_mirror[i].bytes, to_mirror[i].len,
		                  m->f->harness.now_ns);
	for_mirror = 0;
	sync_lane_poll(m->node, 0, m->f->harness.now_ns);
}

void mirror_run(struct mirror *m, unsigned ms)
{
	const unsigned step = ms > 100000 ? 200 : ms > 2000 ? 50 : 1;
	for (; ms >= step; ms -= step) {
		harness_advance(&m->f->harness, step * UINT64_C(1000000));
		mirror_poll(m);
	}
}

void mirror_run_alone(struct mirror *m)
{
	m->f->harness.now_ns += 1000000;
	mirror_poll(m);
}

unsigned mirror_count(const struct mirror *m)
{
	unsigned count = 0;
	for (unsigned i = 0; i < SY_SLOTS * MIRROR_SLOT; i++)
		count += m->session[i].used;
	return count;
}

/* Has the replica what the log says? */
static bool is_equal(const struct sync_log *log, const struct sync_replica *r)
{
	return !sync_log_waiting(log) && log->copy == SYNC_COPY_NONE && r->verified &&
	       log->sum.count == r->stored.count + r->refused.count &&
	       log->sum.hash == r->stored.hash + r->refused.hash;
}

bool mirror_is_complete(const struct mirror *m)
{
	const struct sync_node *own = m->f->harness.b->sync;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		if (!is_equal(sync_node_log(own, slot),
		              sync_node_replica(m->node, 3 - m->number, slot)) ||
		    !is_equal(sync_node_log(m->node, slot),
		              sync_node_replica(own, m->number, slot)))
			return false;
	return true;
}
