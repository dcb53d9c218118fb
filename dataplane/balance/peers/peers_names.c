// SPDX-License-Identifier: Apache-2.0
#include "peers_names.h"

#include <stdlib.h>

#include "sync_node.h"
#include "table_map.h"

#define SCAN_STEP    1024 /* own ids compared in one poll */
#define RESOLVE_STEP 256  /* peers' ids translated in one poll */

enum name_kind { NAME_SERVER = 1, NAME_LOCAL };

struct __attribute__((packed)) name_entry {
	struct sync_entry_head head;
	uint8_t kind; /* enum name_kind */
	uint8_t id[3];
	/* Of a server; or of an address: struct sy_addr, and 1 if new sessions use it. Not in a
	 * deletion */
	uint8_t meaning[sizeof(struct names_server)];
};
_Static_assert(sizeof(struct name_entry) == 46 && sizeof(struct name_entry) <= SYNC_ENTRY,
               "a wire format");
#define NAME_HEAD offsetof(struct name_entry, meaning)
#define NAME_OWN  sizeof(struct sy_addr) /* where that is; earlier versions leave it out */

/* ---- own ids --------------------------------------------------------------------------------- */

struct names_table {
	uint32_t servers;
	struct names_own {
		struct names_server name;
		uint32_t id;
	} * server; /* sorted */
	struct sy_addr local[SESSION_LOCALS];
	bool has_local[SESSION_LOCALS];
};

struct names_server names_of(const struct endpoint *e)
{
	return (struct names_server){
	        .addr = e->addr,
	        .vip = e->vip,
	        .port = e->port,
	        .vport = e->first_port,
	        .last_port = e->last_port,
	        .proto = e->proto,
	        .mode = e->mode,
	};
}

/* Stores the meaning of an own id. usable: fail for removed servers, whose ids keep their meaning
 * until the last session has ended. */
static bool own_server(const struct names *n, uint32_t id, bool usable, struct names_server *out)
{
	struct session_server_name name;
	if (id >= session_servers(n->store) || !session_server_named(n->store, id, &name) ||
	    (usable && name.removed))
		return false;
	*out = (struct names_server){
	        .addr = name.addr,
	        .vip = name.vip,
	        .port = name.port,
	        .vport = name.vport,
	        .last_port = name.last_port,
	        .proto = name.proto,
	        .mode = name.mode,
	};
	return true;
}

static int own_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct names_server));
}

static void table_free(void *table)
{
	struct names_table *t = table;
	if (t)
		free(t->server);
	free(t);
}

static struct names_table *table_build(const struct names *n)
{
	struct names_table *t = calloc(1, sizeof(*t));
	const uint32_t ids = session_servers(n->store);
	struct names_server name;
	uint32_t count = 0;
	for (uint32_t id = 0; t && id < ids; id++)
		count += own_server(n, id, true, &name);
	if (!t || !(t->server = calloc((size_t)count + 1, sizeof(*t->server)))) {
		table_free(t);
		return NULL;
	}
	for (uint32_t id = 0; id < ids && t->servers < count; id++)
		if (own_server(n, id, true, &t->server[t->servers].name))
			t->server[t->servers++].id = id;
	qsort(t->server, t->servers, sizeof(*t->server), own_compare);
	for (unsigned id = 0; id < SESSION_LOCALS; id++)
		t->has_local[id] = session_local_named(n->store, (uint8_t)id, &t->local[id]);
	return t;
}

void names_tick(struct sy_balance *b, struct names *n)
{
	const uint32_t version = session_names_version(n->store);
	if (n->table && version == n->table_version)
		return;
	struct names_table *t = table_build(n), *old = (void *)(uintptr_t)n->table;
	if (!t) /* the next tick retries */
		return;
	SY_RCU_PUBLISH(n->table, t);
	n->table_version = version;
	sy_rcu_retire(b->rt, old, table_free);
}

static uint32_t table_find(const struct names_table *t, const struct names_server *name)
{
	const struct names_own *found =
	        t ? bsearch(name, t->server, t->servers, sizeof(*t->server), own_compare) : NULL;
	return found ? found->id : NAMES_NONE;
}

static uint32_t table_find_local(const struct names_table *t, const struct sy_addr *addr)
{
	for (unsigned id = 0; t && id < SESSION_LOCALS; id++)
		if (t->has_local[id] && sy_addr_equal(&t->local[id], addr))
			return id;
	return NAMES_NONE;
}

/* ---- peers' ids ------------------------------------------------------------------------------ */

static void peer_resolve(struct names *n, struct names_peer *p, uint32_t record)
{
	const struct names_table *t = SY_RCU_READ(n->table);
	uint32_t own = NAMES_NONE;
	if (p->flags[record] & NAMES_KNOWN)
		own = record < NAMES_LOCALS ? table_find_local(t, &p->local[record])
		                            : table_find(t, &p->server[record - NAMES_LOCALS]);
	__atomic_store_n(&p->own[record], own, __ATOMIC_RELAXED);
}

static bool is_known(const struct names *n, unsigned node, uint32_t record)
{
	const struct names_peer *p = n->peer[node];
	return p && __atomic_load_n(&p->flags[record], __ATOMIC_ACQUIRE) & NAMES_KNOWN;
}

const struct names_server *names_server(const struct names *n, unsigned node, uint32_t id)
{
	return is_known(n, node, NAMES_LOCALS + id) ? &n->peer[node]->server[id] : NULL;
}

const struct sy_addr *names_local(const struct names *n, unsigned node, uint8_t id)
{
	return is_known(n, node, id) ? &n->peer[node]->local[id] : NULL;
}

uint32_t names_own_server(const struct names *n, unsigned node, uint32_t id)
{
	return __atomic_load_n(&n->peer[node]->own[NAMES_LOCALS + id], __ATOMIC_RELAXED);
}

uint32_t names_own_local(const struct names *n, unsigned node, uint8_t id)
{
	return __atomic_load_n(&n->peer[node]->own[id], __ATOMIC_RELAXED);
}

static uint64_t words_hash(uint64_t h, const void *words, size_t size)
{
	for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
		uint64_t word;
		memcpy(&word, (const uint8_t *)words + at, sizeof(word));
		h = sy_hash_mix(h ^ word, UINT64_C(0x9e3779b97f4a7c15));
	}
	return h;
}

uint16_t names_meaning(const struct names_server *server, const struct sy_addr *local)
{
	uint64_t h = words_hash(1, server, sizeof(*server));
	return (uint16_t)(local ? words_hash(h, local, sizeof(*local)) : h);
}

/* ---- polls of worker 0 ----------------------------------------------------------------------- */

static uint8_t local_is_own(const struct names *n, uint32_t id)
{
	return id < MAX_LOCALS ? SY_READ(n->b->local_is_own[id]) : 0;
}

/* Returns a hash of the meaning of an own record; 0: the id is not in use. */
static uint32_t meaning_hash(const struct names *n, uint32_t record)
{
	struct names_server name = {
	        .mode = record < NAMES_LOCALS ? local_is_own(n, record) : 0,
	};
	bool has = record < NAMES_LOCALS
	                   ? session_local_named(n->store, (uint8_t)record, &name.addr)
	                   : own_server(n, record - NAMES_LOCALS, false, &name);
	return has ? (uint32_t)words_hash(record, &name, sizeof(name)) | 1 : 0;
}

static void own_scan(struct sy_balance *b, struct names *n)
{
	for (unsigned step = 0; step < SCAN_STEP && n->scan_at < n->count; step++) {
		uint32_t record = n->scan_at++, now = meaning_hash(n, record);
		if (n->sent[record] == now)
			continue;
		n->sent[record] = now;
		sync_node_change(b->sync, SYNC_DICTIONARY, record);
	}
}

static void peers_resolve(struct names *n)
{
	for (unsigned step = 0; step < RESOLVE_STEP && n->resolve_at < NAMES_RECORDS; step++) {
		uint32_t top = NAMES_LOCALS, record = n->resolve_at++;
		for (unsigned node = 1; node < SYNC_NODES; node++) {
			if (!n->peer[node])
				continue;
			peer_resolve(n, n->peer[node], record);
			top = n->peer[node]->top > top ? n->peer[node]->top : top;
		}
		if (n->resolve_at >= top)
			n->resolve_at = NAMES_RECORDS;
	}
	if (n->resolve_at >= NAMES_RECORDS)
		__atomic_store_n(&n->resolved, n->resolved + 1, __ATOMIC_RELEASE);
}

bool names_poll(struct sy_balance *b, struct names *n)
{
	const struct names_table *table = SY_RCU_READ(n->table);
	const uint32_t version = session_names_version(n->store);
	const uint32_t locals = __atomic_load_n(&b->locals_version, __ATOMIC_ACQUIRE);
	if (version != n->sent_version || locals != n->locals_version) {
		n->sent_version = version;
		n->locals_version = locals;
		n->scan_at = 0;
	}
	if (table != n->resolved_by) {
		n->resolved_by = table;
		n->resolve_at = 0;
	}
	if (n->scan_at < n->count)
		own_scan(b, n);
	if (n->resolve_at < NAMES_RECORDS)
		peers_resolve(n);
	return n->scan_at < n->count || n->resolve_at < NAMES_RECORDS;
}

/* ---- source ---------------------------------------------------------------------------------- */

static uint64_t record_hash(uint32_t record)
{
	return sy_hash_mix(record + UINT64_C(0xd6e8feb86659fd93), UINT64_C(0x9e3779b97f4a7c15));
}

static struct name_entry entry_of(uint32_t record, enum sync_entry_kind kind, size_t meaning)
{
	const uint32_t id = record < NAMES_LOCALS ? record : record - NAMES_LOCALS;
	return (struct name_entry){
	        .head = {(uint8_t)kind, (uint8_t)(NAME_HEAD + meaning)},
	        .kind = record < NAMES_LOCALS ? NAME_LOCAL : NAME_SERVER,
	        .id = {id & 0xff, id >> 8 & 0xff, (uint8_t)(id >> 16)},
	};
}

bool names_describe(const struct names *n, uint32_t record, uint8_t entry[static SYNC_ENTRY],
                    uint64_t *hash)
{
	const bool is_server = record >= NAMES_LOCALS;
	struct names_server name;
	struct name_entry e = entry_of(record, SYNC_PUT, is_server ? sizeof(name) : NAME_OWN + 1);
	*hash = record_hash(record);
	if (is_server ? !own_server(n, record - NAMES_LOCALS, false, &name)
	              : !session_local_named(n->store, (uint8_t)record, &name.addr))
		return false;
	memcpy(e.meaning, &name, is_server ? sizeof(name) : sizeof(name.addr));
	if (!is_server)
		e.meaning[NAME_OWN] = local_is_own(n, record);
	memcpy(entry, &e, e.head.len);
	return true;
}

void names_describe_end(uint32_t record, uint8_t entry[static SYNC_ENTRY], uint64_t *hash)
{
	const struct name_entry e = entry_of(record, SYNC_DELETE, 0);
	*hash = record_hash(record);
	memcpy(entry, &e, e.head.len);
}

uint32_t names_next(const struct names *n, uint32_t record)
{
	for (; record < n->count; record++)
		if (meaning_hash(n, record))
			return record;
	return SYNC_NO_RECORD;
}

/* ---- sink ------------------------------------------------------------------------------------ */

static bool entry_read(const uint8_t *entry, struct name_entry *e, uint32_t *record)
{
	const uint8_t len = ((const struct sync_entry_head *)entry)->len;
	*e = (struct name_entry){0};
	memcpy(e, entry, len < sizeof(*e) ? len : sizeof(*e));
	const size_t meaning = e->head.kind == SYNC_DELETE ? 0
	                       : e->kind == NAME_SERVER    ? sizeof(struct names_server)
	                                                   : sizeof(struct sy_addr);
	*record = e->id[0] | (uint32_t)e->id[1] << 8 | (uint32_t)e->id[2] << 16;
	if (len < NAME_HEAD + meaning || (e->kind != NAME_SERVER && e->kind != NAME_LOCAL) ||
	    (e->kind == NAME_LOCAL && *record >= SESSION_LOCALS))
		return false;
	*record += e->kind == NAME_SERVER ? NAMES_LOCALS : 0;
	return true;
}

static void peer_forget(struct names_peer *p, uint32_t record)
{
	__atomic_store_n(&p->own[record], NAMES_NONE, __ATOMIC_RELAXED);
	__atomic_store_n(&p->flags[record], 0, __ATOMIC_RELEASE);
}

static void peer_store(struct names *n, struct names_peer *p, uint32_t record,
                       const struct name_entry *e)
{
	/* clear the flag first: other workers read the meaning while it is set */
	__atomic_store_n(&p->own[record], NAMES_NONE, __ATOMIC_RELAXED);
	__atomic_store_n(&p->flags[record], p->flags[record] & (uint8_t)~NAMES_KNOWN,
	                 __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (record < NAMES_LOCALS)
		memcpy(&p->local[record], e->meaning, sizeof(p->local[record]));
	else
		memcpy(&p->server[record - NAMES_LOCALS], e->meaning, sizeof(*p->server));
	if (record >= p->top)
		p->top = record + 1;
	p->flags[record] |= NAMES_KNOWN;
	peer_resolve(n, p, record);
	const bool is_own = record < NAMES_LOCALS && e->meaning[NAME_OWN];
	__atomic_store_n(&p->flags[record], NAMES_KNOWN | NAMES_COUNTED | (is_own ? NAMES_OWN : 0),
	                 __ATOMIC_RELEASE);
}

enum sync_result names_apply(struct names *n, unsigned node, const uint8_t *entry, uint64_t *hash)
{
	struct names_peer *p = n->peer[node];
	struct name_entry e;
	uint32_t record;
	if (!entry_read(entry, &e, &record))
		return SYNC_INVALID;
	*hash = record_hash(record);
	const uint8_t before = p->flags[record];
	if (e.head.kind == SYNC_DELETE) {
		peer_forget(p, record);
		/* NEW: it was not in the sum */
		return !before ? SYNC_MISSING : before & NAMES_COUNTED ? SYNC_DONE : SYNC_NEW;
	}
	peer_store(n, p, record, &e);
	return before & NAMES_COUNTED ? SYNC_DONE : SYNC_NEW;
}

bool names_find_shared(const struct names *n, uint8_t *node, struct sy_addr *addr)
{
	for (*node = 1; *node < SYNC_NODES; (*node)++) {
		const struct names_peer *p = n->peer[*node];
		for (uint32_t id = 0; p && id < NAMES_LOCALS; id++) {
			const uint32_t own = __atomic_load_n(&p->own[id], __ATOMIC_RELAXED);
			if (!(__atomic_load_n(&p->flags[id], __ATOMIC_ACQUIRE) & NAMES_OWN) ||
			    own == NAMES_NONE || !local_is_own(n, own))
				continue;
			*addr = p->local[id];
			return true;
		}
	}
	return false;
}

/* Calls fn for all records of a peer that have a meaning. */
static void peer_walk(struct names_peer *p,
                      void (*fn)(struct names_peer *p, uint32_t record, struct sync_sum *sum),
                      struct sync_sum *sum)
{
	for (uint32_t record = 0; record < p->top; record++)
		if (p->flags[record])
			fn(p, record, sum);
}

static void record_uncount(struct names_peer *p, uint32_t record, struct sync_sum *sum)
{
	(void)sum;
	p->flags[record] &= (uint8_t)~NAMES_COUNTED;
}

static void record_sweep(struct names_peer *p, uint32_t record, struct sync_sum *sum)
{
	(void)sum;
	if (!(p->flags[record] & NAMES_COUNTED))
		peer_forget(p, record);
}

static void record_count(struct names_peer *p, uint32_t record, struct sync_sum *sum)
{
	p->flags[record] |= NAMES_COUNTED;
	sync_sum_add(sum, record_hash(record));
}

void names_copy_begin(struct names *n, unsigned node)
{
	peer_walk(n->peer[node], record_uncount, NULL);
}

void names_copy_end(struct names *n, unsigned node)
{
	peer_walk(n->peer[node], record_sweep, NULL);
}

struct sync_sum names_stored(struct names *n, unsigned node)
{
	struct sync_sum sum = {0};
	peer_walk(n->peer[node], record_count, &sum);
	return sum;
}

/* ---- creation, end --------------------------------------------------------------------------- */

static void peer_destroy(struct names_peer *p)
{
	if (!p)
		return;
	table_unmap(p->flags, NAMES_RECORDS, sizeof(*p->flags));
	table_unmap(p->server, NAMES_SERVERS, sizeof(*p->server));
	table_unmap(p->own, NAMES_RECORDS, sizeof(*p->own));
	table_unmap(p->mark, NAMES_RECORDS, sizeof(*p->mark));
	free(p);
}

static struct names_peer *peer_create(void)
{
	struct names_peer *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->flags = table_map(NAMES_RECORDS, sizeof(*p->flags));
	p->server = table_map(NAMES_SERVERS, sizeof(*p->server));
	p->own = table_map(NAMES_RECORDS, sizeof(*p->own));
	p->mark = table_map(NAMES_RECORDS, sizeof(*p->mark));
	if (p->flags && p->server && p->own && p->mark)
		return p;
	peer_destroy(p);
	return NULL;
}

int names_create(struct names *n, const struct sy_balance *b, const struct session_store *store,
                 uint32_t servers, uint32_t peers)
{
	*n = (struct names){.store = store,
	                    .b = b,
	                    .resolve_at = NAMES_RECORDS,
	                    .count = NAMES_LOCALS + servers};
	n->sent_version = session_names_version(store) - 1; /* all are new */
	n->sent = table_map(n->count, sizeof(*n->sent));
	bool ready = n->sent;
	for (unsigned node = 1; node < SYNC_NODES; node++)
		if (peers >> node & 1)
			ready = (n->peer[node] = peer_create()) && ready;
	if (!ready)
		names_destroy(n);
	return ready ? 0 : -ENOMEM;
}

void names_destroy(struct names *n)
{
	for (unsigned node = 1; node < SYNC_NODES; node++)
		peer_destroy(n->peer[node]);
	table_unmap(n->sent, n->count, sizeof(*n->sent));
	table_free((void *)(uintptr_t)n->table);
	*n = (struct names){0};
}
