// SPDX-License-Identifier: Apache-2.0
#include "sync_node.h"

#include <stdlib.h>
#include <sys/random.h>

#include "sync_lane.h"

static const char *const drop_name[] = {
#define X(id, name, help) name,
        SYNC_DROPS(X)
#undef X
};
static const char *const drop_help[] = {
#define X(id, name, help) help,
        SYNC_DROPS(X)
#undef X
};

const char *sync_drop_name(enum sync_drop reason)
{
	return drop_name[reason];
}

const char *sync_drop_help(enum sync_drop reason)
{
	return drop_help[reason];
}

static bool is_peer(const struct sync_node *n, uint8_t node)
{
	return n->options.peers >> node & 1;
}

/* ---- ciphers --------------------------------------------------------------------------------- */

/* Returns the cipher for datagrams of the peer's incarnation under the secret. Derives keys of an
 * incarnation that is not accepted only for hellos, at most one per millisecond: forged hellos cost
 * little. */
static struct sync_cipher *cipher_of(struct sync_node *n, struct sync_lane *lane, unsigned secret,
                                     uint8_t node, const struct sync_header *h, uint64_t now_ns)
{
	struct sync_opened *o = lane->opened[node];
	uint64_t accepted = __atomic_load_n(&n->peer[node].incarnation, __ATOMIC_ACQUIRE);
	unsigned which = h->from == accepted ? 0 : 1;

	if (o->cipher[which] && o->incarnation[which] == h->from && o->secret[which] == h->secret)
		return o->cipher[which];
	if (which == 1 && (h->kind != SYNC_HELLO || now_ns - lane->derived_ns < SYNC_MS))
		return NULL;
	if (which == 0 && o->incarnation[1] == h->from && o->secret[1] == h->secret) {
		sync_cipher_destroy(o->cipher[0]); /* newly accepted: move its replay window, too */
		o->cipher[0] = o->cipher[1];
		o->cipher[1] = NULL;
		memcpy(&o->replay[0], &o->replay[1], sizeof(o->replay[0]));
	} else {
		sync_cipher_destroy(o->cipher[which]);
		o->cipher[which] = sync_cipher_create(&n->options.secret[secret], node, h->from);
		lane->derived_ns = now_ns;
		if (o->incarnation[which] != h->from)
			memset(&o->replay[which], 0, sizeof(o->replay[which]));
	}
	o->incarnation[which] = h->from;
	o->secret[which] = h->secret;
	return o->cipher[which];
}

static struct sync_replay *replay_of(struct sync_lane *lane, const struct sync_header *h)
{
	struct sync_opened *o = lane->opened[h->node];

	return &o->replay[o->incarnation[0] == h->from && o->cipher[0] ? 0 : 1][h->worker];
}

/* ---- receiving ------------------------------------------------------------------------------- */

static bool lane_drop(struct sync_lane *lane, enum sync_drop reason)
{
	__atomic_store_n(&lane->drop[reason], lane->drop[reason] + 1, __ATOMIC_RELAXED);
	return false;
}

void sync_lane_drop(struct sync_node *n, unsigned worker, enum sync_drop reason)
{
	lane_drop(&n->lane[worker], reason);
}

static int secret_find(const struct sync_node *n, uint8_t id)
{
	for (int i = 0; i < SYNC_SECRETS; i++)
		if (n->options.secret[i].len && n->options.secret[i].id == id)
			return i;
	return -1;
}

/* Returns true if the datagram is from a configured peer and for this incarnation; otherwise counts
 * a drop. */
static bool header_fits(struct sync_node *n, struct sync_lane *lane, const struct sync_header *h)
{
	if (h->magic != SYNC_MAGIC || h->version != SYNC_VERSION || h->worker >= SYNC_WORKERS ||
	    h->kind < SYNC_HELLO || h->kind > SYNC_RELAY)
		return lane_drop(lane, SYNC_DROP_MALFORMED);
	if (h->node >= SYNC_NODES || !is_peer(n, h->node))
		return lane_drop(lane, SYNC_DROP_UNKNOWN_PEER);
	if (h->kind != SYNC_HELLO &&
	    (h->to != n->self.incarnation ||
	     h->from != __atomic_load_n(&n->peer[h->node].incarnation, __ATOMIC_ACQUIRE)))
		return lane_drop(lane, SYNC_DROP_OUTDATED);
	return true;
}

static void hello_receive(struct sync_node *n, const struct sync_header *h, const uint8_t *bytes,
                          size_t len, uint64_t now_ns)
{
	struct sync_hello hello;

	if (len < sizeof(hello))
		return;
	memcpy(&hello, bytes, sizeof(hello));
	if (sync_hello_receive(&n->peer[h->node], &n->self, h->from, &hello, now_ns))
		n->targets_due = true;
}

void sync_lane_receive(struct sync_node *n, unsigned worker, const uint8_t *datagram, size_t len,
                       uint64_t now_ns)
{
	struct sync_lane *lane = &n->lane[worker];
	struct sync_header h;
	struct sync_part part;
	uint8_t plain[SYNC_DATAGRAM_MAX];
	size_t at = 0;

	if (len < sizeof(h) + SYNC_TAG || len > SYNC_DATAGRAM_MAX) {
		lane_drop(lane, SYNC_DROP_MALFORMED);
		return;
	}
	memcpy(&h, datagram, sizeof(h));
	if (!header_fits(n, lane, &h))
		return;
	int secret = secret_find(n, h.secret);
	struct sync_cipher *cipher =
	        secret < 0 ? NULL : cipher_of(n, lane, (unsigned)secret, h.node, &h, now_ns);
	if (!cipher) {
		lane_drop(lane, secret < 0 ? SYNC_DROP_UNKNOWN_SECRET : SYNC_DROP_OUTDATED);
		return;
	}
	int64_t opened = sync_open(cipher, datagram, len, plain);
	if (opened < 0) {
		lane_drop(lane, SYNC_DROP_FORGED);
		return;
	}
	if (!sync_replay_accept(replay_of(lane, &h), h.counter)) {
		lane_drop(lane, SYNC_DROP_REPLAYED);
		return;
	}
	if (h.kind == SYNC_HELLO) {
		if (worker == 0)
			hello_receive(n, &h, plain, (size_t)opened, now_ns);
		return;
	}
	if (h.kind == SYNC_RELAY) {
		if (!sync_relay_receive(n, worker, h.node, plain, (size_t)opened))
			lane_drop(lane, SYNC_DROP_MALFORMED);
		return;
	}
	while (sync_part_next(plain, (size_t)opened, &at, &part) > 0) {
		unsigned owner = n->options.owner(n->options.context, part.slot);
		if (owner == worker)
			sync_lane_part(n, worker, h.node, &part, now_ns);
		else
			n->options.pass(n->options.context, owner, h.node, &part);
	}
}

/* Returns the replica of the part's slot, restarted if the part begins a new generation or comes
 * from a new incarnation. NULL: the part is of an earlier generation, or of one that begins too
 * soon. */
static struct sync_replica *replica_of(struct sync_node *n, uint8_t node,
                                       const struct sync_part *part, uint64_t now_ns)
{
	struct sync_replica *r = &n->replica[node][part->slot];
	uint32_t epoch = __atomic_load_n(&n->peer[node].epoch, __ATOMIC_RELAXED);

	if (r->epoch != epoch || sync_generation_is_later(part->generation, r->generation)) {
		if (!sync_replica_may_begin(r, now_ns))
			return NULL;
		const struct sync_sum stored =
		        n->options.stored(n->options.context, node, part->slot);
		sync_replica_begin(r, part->generation, &stored, now_ns);
		r->epoch = epoch;
	}
	return part->generation == r->generation ? r : NULL;
}

static void entries_apply(struct sync_node *n, struct sync_lane *lane, uint8_t node,
                          const struct sync_part *part, uint64_t now_ns)
{
	struct sync_replica *r = replica_of(n, node, part, now_ns);
	struct sync_answers *a = &lane->answers[node];
	uint64_t bit = UINT64_C(1) << part->slot % 64;
	unsigned word = part->slot / 64;

	if (!r)
		return;
	switch (sync_replica_apply(r, &n->options.sink, node, part, now_ns)) {
	case SYNC_REPLY_GAP:
		a->gap[word] |= bit;
		break;
	case SYNC_REPLY_COPY:
		a->copy[word] |= bit;
		break;
	case SYNC_REPLY_APPLIED:
		break;
	}
	a->applied[word] |= bit;
	lane->answers_due |= 1u << node;
}

/* Returns the slot's log if the node is its target; otherwise NULL. */
static struct sync_log *log_to(struct sync_node *n, uint8_t node, unsigned slot)
{
	if (slot == SYNC_DICTIONARY)
		return &n->dictionary[node];
	return n->assigned[slot].node == node ? &n->log[slot] : NULL;
}

static void owned_apply(struct sync_node *n, uint8_t node, const struct sync_part *part)
{
	const struct sync_sink *sink = &n->options.sink;

	if (sink->owned && part->len > 0 && part->number < SYNC_NODES &&
	    is_peer(n, (uint8_t)part->number))
		sink->owned(sink->context, part->number, part->slot, part->bytes,
		            part->number != node);
}

void sync_lane_part(struct sync_node *n, unsigned worker, uint8_t node,
                    const struct sync_part *part, uint64_t now_ns)
{
	struct sync_log *log = log_to(n, node, part->slot);

	if (part->kind == SYNC_ENTRIES)
		entries_apply(n, &n->lane[worker], node, part, now_ns);
	else if (part->kind == SYNC_OWNED)
		owned_apply(n, node, part);
	else if (log)
		sync_log_answer(log, part, now_ns);
}

void sync_lane_owned(struct sync_node *n, unsigned worker, uint8_t node, unsigned slot,
                     uint8_t owner, const uint8_t *entry)
{
	const struct sync_part part = {.slot = (uint16_t)slot,
	                               .kind = SYNC_OWNED,
	                               .number = owner,
	                               .len = ((const struct sync_entry_head *)entry)->len};
	struct sync_payload payload = {0};

	memcpy(sync_part_bytes(&payload), entry, part.len);
	sync_part_end(&payload, &part);
	sync_lane_send(n, worker, node, SYNC_PARTS, payload.bytes, payload.len);
}

/* ---- sending --------------------------------------------------------------------------------- */

void sync_lane_send(struct sync_node *n, unsigned worker, uint8_t node,
                    enum sync_datagram_kind kind, const void *plain, size_t len)
{
	struct sync_lane *lane = &n->lane[worker];
	uint8_t bytes[SYNC_DATAGRAM_MAX];
	const struct sync_header h = {
	        .magic = SYNC_MAGIC,
	        .version = SYNC_VERSION,
	        .secret = n->options.secret[0].id,
	        .node = n->self.node,
	        .worker = (uint8_t)worker,
	        .kind = (uint8_t)kind,
	        .from = n->self.incarnation,
	        .to = __atomic_load_n(&n->peer[node].incarnation, __ATOMIC_ACQUIRE),
	        .counter = ++lane->counter,
	};
	size_t sealed = sync_seal(lane->cipher, &h, plain, len, bytes);

	if (sealed)
		n->options.send(n->options.context, worker, node, bytes, sealed);
}

struct outgoing {
	struct sync_node *n;
	unsigned worker;
	uint8_t node;
	struct sync_payload payload;
};

static void outgoing_flush(struct outgoing *o)
{
	if (o->payload.len)
		sync_lane_send(o->n, o->worker, o->node, SYNC_PARTS, o->payload.bytes,
		               o->payload.len);
	o->payload.len = 0;
}

static void answer_add(struct outgoing *o, enum sync_part_kind kind, unsigned slot)
{
	const struct sync_replica *r = &o->n->replica[o->node][slot];

	if (sync_part_add(&o->payload, kind, slot, r->generation, r->expected))
		return;
	outgoing_flush(o);
	sync_part_add(&o->payload, kind, slot, r->generation, r->expected);
}

static void answers_add(struct outgoing *o)
{
	struct sync_answers *a = &o->n->lane[o->worker].answers[o->node];

	for (unsigned word = 0; word < SY_ARRAY_LEN(a->applied); word++) {
		for (uint64_t left = a->applied[word]; left; left &= left - 1) {
			unsigned bit = (unsigned)__builtin_ctzll(left), slot = word * 64 + bit;
			bool gap = a->gap[word] >> bit & 1;
			answer_add(o, gap ? SYNC_GAP : SYNC_APPLIED, slot);
			if (a->copy[word] >> bit & 1)
				answer_add(o, SYNC_COPY, slot);
		}
	}
	*a = (struct sync_answers){0};
}

static void log_send(struct outgoing *o, struct sync_log *log, uint64_t now_ns)
{
	while (sync_window_has_unsent(&log->window)) {
		if (sync_log_send(log, &o->payload, now_ns))
			continue;
		if (o->payload.len == 0)
			break;
		outgoing_flush(o);
	}
}

/* ---- which peer keeps the replicas ----------------------------------------------------------- */

/* A new target needs a copy. A peer that has restarted may have kept its replicas: renumber the
 * log, and compare sums. */
static void log_assign(struct sync_node *n, struct sync_log *log, struct sync_assignment *at,
                       uint8_t target)
{
	uint32_t epoch = __atomic_load_n(&n->peer[target].epoch, __ATOMIC_RELAXED);

	if (at->node != target)
		sync_log_restart(log, &n->options.source);
	else if (at->epoch != epoch)
		sync_log_renumber(log);
	*at = (struct sync_assignment){target, epoch};
}

/* ---- a worker's poll ------------------------------------------------------------------------- */

static uint64_t sessions_count(const struct sync_node *n)
{
	uint64_t sessions = 0;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		sessions += __atomic_load_n(&n->log[slot].sum.count, __ATOMIC_RELAXED);
	return sessions;
}

/* Adds counters that other workers write: a hello may be slightly out of date. Replicas that
 * another node is to keep now are not counted: the peer would compare them with what it offers
 * here. */
static void hello_count(const struct sync_node *n, uint8_t node, uint64_t now_ns,
                        struct sync_hello *hello)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct sync_replica *r = &n->replica[node][slot];
		if (__atomic_load_n(&r->verified, __ATOMIC_RELAXED) &&
		    sync_node_keeps(n, node, slot, now_ns))
			hello->kept += __atomic_load_n(&r->stored.count, __ATOMIC_RELAXED);
		hello->refused += __atomic_load_n(&r->refused.count, __ATOMIC_RELAXED);
	}
	const unsigned lacking = sync_node_lacking(n, node);
	hello->lacking = (uint8_t)(lacking < UINT8_MAX ? lacking : UINT8_MAX);
}

static void hellos_send(struct sync_node *n, uint64_t now_ns)
{
	struct sync_hello hello;

	for (uint8_t node = 1; node < SYNC_NODES; node++) {
		if (!is_peer(n, node) || !sync_hello_make(&n->peer[node], &n->self, now_ns, &hello))
			continue;
		hello_count(n, node, now_ns, &hello);
		sync_lane_send(n, 0, node, SYNC_HELLO, &hello, sizeof(hello));
	}
}

static void log_poll(struct outgoing *o, struct sync_log *log, unsigned *copies, uint64_t now_ns)
{
	struct sync_node *n = o->n;

	sync_log_expire(log, n->peer[o->node].timeout_ns, SYNC_TIMEOUT_MAX_NS, now_ns);
	do {
		bool sum_due = now_ns - log->sum_ns >= SYNC_SUM_NS;
		*copies -= sync_log_fill(log, &n->options.source, *copies, sum_due, now_ns);
		if (!sync_window_has_unsent(&log->window))
			break;
		log_send(o, log, now_ns);
	} while (sync_log_waiting(log) && sync_window_space(&log->window) > SYNC_WINDOW / 2);
}

static void slot_poll(struct outgoing *o, unsigned slot, unsigned *copies, uint64_t now_ns)
{
	struct sync_node *n = o->n;
	struct sync_log *log = &n->log[slot];
	uint64_t *due = &n->lane[o->worker].due[slot / 64], bit = UINT64_C(1) << slot % 64;

	log_assign(n, log, &n->assigned[slot], o->node);
	if (log->timeouts >= SYNC_STUCK && sync_peer_is_alive(&n->peer[o->node], now_ns))
		sync_log_restart(log, &n->options.source);
	log_poll(o, log, copies, now_ns);
	if (sync_log_is_due(log) || !sync_window_is_empty(&log->window))
		*due |= bit;
	else
		*due &= ~bit;
}

/* all: poll also slots that are not due, for their sums. */
static void slots_poll(struct outgoing *o, bool all, unsigned *copies, uint64_t now_ns)
{
	struct sync_node *n = o->n;
	const struct sync_lane *lane = &n->lane[o->worker];

	for (unsigned i = 0; i < SY_SLOTS; i++) {
		unsigned slot = (lane->first_slot + i) % SY_SLOTS;
		if ((all || lane->due[slot / 64] >> slot % 64 & 1) && n->target[slot] == o->node &&
		    n->options.owner(n->options.context, slot) == o->worker)
			slot_poll(o, slot, copies, now_ns);
	}
}

static void peer_poll(struct sync_node *n, unsigned worker, uint8_t node, bool all,
                      unsigned *copies, uint64_t now_ns)
{
	struct sync_lane *lane = &n->lane[worker];
	struct outgoing o = {.n = n, .worker = worker, .node = node};

	if (!__atomic_load_n(&n->peer[node].incarnation, __ATOMIC_ACQUIRE))
		return;
	if (lane->answers_due >> node & 1)
		answers_add(&o);
	if (n->options.owner(n->options.context, SYNC_DICTIONARY) == worker) {
		log_assign(n, &n->dictionary[node], &n->dictionary_assigned[node], node);
		log_poll(&o, &n->dictionary[node], copies, now_ns);
	}
	slots_poll(&o, all, copies, now_ns);
	outgoing_flush(&o);
}

uint64_t sync_lane_poll(struct sync_node *n, unsigned worker, uint64_t now_ns)
{
	struct sync_lane *lane = &n->lane[worker];
	uint64_t passed = now_ns - lane->polled_ns;
	unsigned copies = n->options.copies;
	bool all = now_ns - lane->all_ns >= SYNC_ALL_NS;
	uint64_t due = 0;

	if (all)
		lane->all_ns = now_ns;
	if (worker == 0) {
		hellos_send(n, now_ns);
		if (n->targets_due || now_ns - n->targets_ns >= SYNC_HELLO_NS) {
			n->self.sessions = sessions_count(n);
			sync_members_update(n, now_ns);
			n->targets_due = false;
			n->targets_ns = now_ns;
		}
	}
	if (passed < SYNC_MS) /* copies: at a bounded rate */
		copies = (unsigned)(copies * passed / SYNC_MS);
	for (uint8_t node = 1; node < SYNC_NODES; node++)
		if (is_peer(n, node))
			peer_poll(n, worker, node, all, &copies, now_ns);
	lane->first_slot = (lane->first_slot + 1) % SY_SLOTS;
	lane->answers_due = 0;
	lane->polled_ns = now_ns;
	for (unsigned word = 0; word < SY_ARRAY_LEN(lane->due); word++)
		due |= lane->due[word];
	return due ? now_ns + SYNC_MS : lane->all_ns + SYNC_ALL_NS;
}

/* ---- changes, reports ------------------------------------------------------------------------ */

static uint8_t *mark_of(const struct sync_node *n, unsigned slot, uint32_t record)
{
	const struct sync_source *source = &n->options.source;
	uint32_t count;

	return source->marks(source->context, slot, 0, &count) + record;
}

static void slot_set_due(struct sync_node *n, unsigned slot)
{
	struct sync_lane *lane = &n->lane[n->options.owner(n->options.context, slot)];

	lane->due[slot / 64] |= UINT64_C(1) << slot % 64;
}

void sync_node_change(struct sync_node *n, unsigned slot, uint32_t record)
{
	if (slot != SYNC_DICTIONARY) {
		if (*mark_of(n, slot, record) & SYNC_OWNER)
			return;
		sync_log_change(&n->log[slot], &n->options.source, record);
		slot_set_due(n, slot);
		return;
	}
	for (uint8_t node = 1; node < SYNC_NODES; node++)
		if (is_peer(n, node))
			sync_log_change(&n->dictionary[node], &n->options.source, record);
}

/* The record is no replica any more. taken: this node serves the session now, and the owner's puts
 * of it are refused; otherwise the owner finds the difference by the next sum, and copies the slot.
 */
static void replica_leave(struct sync_node *n, unsigned slot, uint32_t record, bool taken)
{
	const struct sync_source *source = &n->options.source;
	uint8_t *mark = mark_of(n, slot, record);
	struct sync_replica *of = n->replica[*mark & SYNC_OWNER];
	uint8_t entry[SYNC_ENTRY];
	uint64_t hash;

	if (of && *mark & SYNC_KEPT) {
		source->describe_end(source->context, slot, record, false, entry, &hash);
		sync_sum_subtract(&of[slot].stored, hash);
		if (taken)
			sync_sum_add(&of[slot].refused, hash);
	}
	*mark = 0;
}

static void record_end(struct sync_node *n, unsigned slot, uint32_t record, bool transferred)
{
	if (*mark_of(n, slot, record) & SYNC_OWNER) {
		replica_leave(n, slot, record, false);
		return;
	}
	sync_log_end(&n->log[slot], &n->options.source, record, transferred);
	slot_set_due(n, slot);
}

void sync_node_take(struct sync_node *n, unsigned slot, uint32_t record)
{
	replica_leave(n, slot, record, true);
}

void sync_node_end(struct sync_node *n, unsigned slot, uint32_t record)
{
	record_end(n, slot, record, false);
}

void sync_node_transfer(struct sync_node *n, unsigned slot, uint32_t record, uint8_t node)
{
	record_end(n, slot, record, true);
	*mark_of(n, slot, record) = node;
}

/* The sums towards the former owner count claimed sessions as refused. */
void sync_node_claim(struct sync_node *n, unsigned slot)
{
	for (uint8_t node = 1; node < SYNC_NODES; node++) {
		struct sync_replica *r = n->replica[node] ? &n->replica[node][slot] : NULL;
		if (!r)
			continue;
		r->refused.hash += r->stored.hash;
		r->refused.count += r->stored.count;
		r->stored = (struct sync_sum){0};
	}
}

void sync_node_request_copy(struct sync_node *n, unsigned worker, unsigned slot, bool refused_only)
{
	struct sync_lane *lane = &n->lane[worker];

	for (uint8_t node = 1; node < SYNC_NODES; node++) {
		struct sync_replica *r = n->replica[node] ? &n->replica[node][slot] : NULL;
		if (!r || !r->expected || (refused_only && !r->refused.count))
			continue;
		sync_replica_request_copy(r);
		lane->answers[node].applied[slot / 64] |= UINT64_C(1) << slot % 64;
		lane->answers[node].copy[slot / 64] |= UINT64_C(1) << slot % 64;
		lane->answers_due |= 1u << node;
	}
}

void sync_node_request_copies(struct sync_node *n, unsigned worker, bool refused_only)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		if (n->options.owner(n->options.context, slot) == worker)
			sync_node_request_copy(n, worker, slot, refused_only);
}

void sync_node_set_role(struct sync_node *n, enum sync_role role)
{
	__atomic_store_n(&n->self.role, (uint8_t)role, __ATOMIC_RELAXED);
}

enum sync_role sync_node_role(const struct sync_node *n)
{
	return (enum sync_role)__atomic_load_n(&n->self.role, __ATOMIC_RELAXED);
}

const struct sync_peer *sync_node_peer(const struct sync_node *n, uint8_t node)
{
	return &n->peer[node];
}

const struct sync_log *sync_node_log(const struct sync_node *n, unsigned slot)
{
	return &n->log[slot];
}

const struct sync_replica *sync_node_replica(const struct sync_node *n, uint8_t node, unsigned slot)
{
	return &n->replica[node][slot];
}

unsigned sync_node_lacking(const struct sync_node *n, uint8_t node)
{
	const uint32_t epoch = __atomic_load_n(&n->peer[node].epoch, __ATOMIC_RELAXED);
	unsigned lacking = 0;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		lacking += !sync_replica_is_complete(&n->replica[node][slot], epoch);
	return lacking;
}

uint8_t sync_node_target(const struct sync_node *n, unsigned slot)
{
	return __atomic_load_n(&n->target[slot], __ATOMIC_RELAXED);
}

uint64_t sync_node_drops(const struct sync_node *n, enum sync_drop reason)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n->options.workers; i++)
		sum += __atomic_load_n(&n->lane[i].drop[reason], __ATOMIC_RELAXED);
	return sum;
}

/* ---- creation, end --------------------------------------------------------------------------- */

static bool lane_create(struct sync_node *n, struct sync_lane *lane, uint64_t now_ns)
{
	bool ready = true;

	lane->polled_ns = now_ns;
	lane->cipher = sync_cipher_create(&n->options.secret[0], n->self.node, n->self.incarnation);
	for (uint8_t node = 1; node < SYNC_NODES; node++)
		if (is_peer(n, node))
			ready = (lane->opened[node] = calloc(1, sizeof(**lane->opened))) && ready;
	return lane->cipher && ready;
}

static void lane_destroy(struct sync_lane *lane)
{
	sync_cipher_destroy(lane->cipher);
	for (unsigned node = 1; node < SYNC_NODES; node++) {
		if (!lane->opened[node])
			continue;
		sync_cipher_destroy(lane->opened[node]->cipher[0]);
		sync_cipher_destroy(lane->opened[node]->cipher[1]);
		free(lane->opened[node]);
	}
}

static bool self_create(struct sync_node *n)
{
	n->self = (struct sync_self){.slot_key = n->options.slot_key, .node = n->options.node};
	memcpy(n->self.name, n->options.name, sizeof(n->self.name) - 1);
	if (getrandom(&n->self.incarnation, sizeof(n->self.incarnation), 0) !=
	    sizeof(n->self.incarnation))
		return false;
	n->self.incarnation |= !n->self.incarnation; /* 0 is reserved */
	return true;
}

struct sync_node *sync_node_create(const struct sync_node_options *options, uint64_t now_ns)
{
	struct sync_node *n = aligned_alloc(SY_CACHE_LINE, sizeof(*n));

	if (!n)
		return NULL;
	memset(n, 0, sizeof(*n));
	n->options = *options;
	n->created_ns = n->changed_ns = now_ns;
	bool ready = self_create(n);
	for (unsigned i = 0; i < options->workers; i++)
		ready = ready && lane_create(n, &n->lane[i], now_ns);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		sync_log_begin(&n->log[slot], slot, 0);
	for (uint8_t node = 1; node < SYNC_NODES; node++) {
		sync_peer_begin(&n->peer[node], node);
		sync_log_begin(&n->dictionary[node], SYNC_DICTIONARY, node);
		if (is_peer(n, node))
			ready = (n->replica[node] = calloc(SYNC_SLOTS, sizeof(**n->replica))) &&
			        ready;
	}
	if (ready)
		return n;
	sync_node_destroy(n);
	return NULL;
}

void sync_node_destroy(struct sync_node *n)
{
	if (!n)
		return;
	for (unsigned i = 0; i < SYNC_WORKERS; i++)
		lane_destroy(&n->lane[i]);
	for (unsigned node = 0; node < SYNC_NODES; node++)
		free(n->replica[node]);
	sy_secret_wipe(n->options.secret, sizeof(n->options.secret));
	free(n);
}
