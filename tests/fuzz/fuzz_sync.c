// SPDX-License-Identifier: Apache-2.0
/* Input: datagrams of a peer node that has the secret, and of others. Datagrams with an invalid
 * seal are dropped; after each one, the sums count the stored sessions.
 *
 *     how │ length (2 bytes, modulo the rest) │ bytes │ …          how: enum how */
#include "../../dataplane/balance/sync/sync_lane.h"
#include "../../dataplane/balance/sync/sync_session.h"
#include "fuzz.h"

enum how {
	PARTS = 1, /* the bytes are sealed as parts */
	HELLO = 2, /* as a hello */
	           /* else they are the datagram */
};

#define PEER   2
#define STORED 64

static const struct sync_secret secret = {1, SYNC_SECRET, "a secret of thirty-two bytes ..."};

static struct stored {
	bool here, counted;
	uint64_t hash;
} stored[SYNC_SLOTS][STORED];

static uint64_t now_ns;

/* ---- the node that receives ------------------------------------------------------------------ */

static struct stored *stored_at(unsigned slot, const struct sync_session *s)
{
	return &stored[slot][(s->hot[0].client_port ^ s->hot[0].local_port) % STORED];
}

static enum sync_result apply(void *context, unsigned node, unsigned slot, const uint8_t *entry,
                              uint64_t *hash)
{
	struct sync_session s;
	uint8_t kind = entry[0];

	CHECK(node == PEER && slot < SYNC_SLOTS);
	if (!sync_session_read(entry, &s))
		return SYNC_INVALID;
	struct stored *at = stored_at(slot, &s);
	*hash = 1 + (uint64_t)(at - stored[slot]);
	bool counted = at->here && at->counted;
	if (kind == SYNC_DELETE) {
		enum sync_result result = !at->here ? SYNC_MISSING : counted ? SYNC_DONE : SYNC_NEW;
		*at = (struct stored){0};
		return result;
	}
	if (!at->here && (kind == SYNC_CHANGE || s.hot[0].server % 8 == 7))
		return kind == SYNC_CHANGE ? SYNC_MISSING : SYNC_REFUSED;
	if (s.hot[0].server % 8 == 6)
		return SYNC_LATER;
	*at = (struct stored){true, true, *hash};
	return counted ? SYNC_DONE : SYNC_NEW;
}

static void copy_begin(void *context, unsigned node, unsigned slot)
{
	for (unsigned i = 0; i < STORED; i++)
		stored[slot][i].counted = false;
}

static void copy_end(void *context, unsigned node, unsigned slot)
{
	for (unsigned i = 0; i < STORED; i++)
		if (!stored[slot][i].counted)
			stored[slot][i] = (struct stored){0};
}

static struct sync_sum sum_of(void *context, uint8_t node, unsigned slot)
{
	struct sync_sum sum = {0};

	for (unsigned i = 0; i < STORED; i++) {
		stored[slot][i].counted = stored[slot][i].here;
		if (stored[slot][i].here)
			sync_sum_add(&sum, stored[slot][i].hash);
	}
	return sum;
}

/* Returns whether the sums of each slot count the stored sessions. */
static bool sums_match(const struct sync_node *n)
{
	for (unsigned slot = 0; slot < SYNC_SLOTS; slot++) {
		const struct sync_replica *r = sync_node_replica(n, PEER, slot);
		struct sync_sum sum = {0};
		for (unsigned i = 0; i < STORED; i++)
			if (stored[slot][i].here && stored[slot][i].counted)
				sync_sum_add(&sum, stored[slot][i].hash);
		HOLDS(r->expected == 0 || sync_sum_equal(&sum, &r->stored));
	}
	return true;
}

/* It has no sessions of its own. */
static bool describe(void *context, unsigned slot, uint32_t record, bool known, uint8_t *entry,
                     uint64_t *hash)
{
	return false;
}

static void describe_end(void *context, unsigned slot, uint32_t record, bool transferred,
                         uint8_t *entry, uint64_t *hash)
{
	(void)transferred;
	CHECK(false);
}

static uint32_t next(void *context, unsigned slot, uint32_t record)
{
	return SYNC_NO_RECORD;
}

static uint8_t *marks(void *context, unsigned slot, uint8_t peer, uint32_t *count)
{
	*count = 0;
	return NULL;
}

static unsigned owner(void *context, unsigned slot)
{
	return 0;
}

static void pass(void *context, unsigned worker, uint8_t node, const struct sync_part *part)
{
	CHECK(false);
}

static void datagram_send(void *context, unsigned worker, uint8_t node, const uint8_t *bytes,
                          size_t len)
{
	CHECK(node == PEER && len <= SYNC_DATAGRAM);
}

/* ---- its peer -------------------------------------------------------------------------------- */

static void peer_send(struct sync_node *n, struct sync_cipher *cipher, enum sync_datagram_kind kind,
                      const void *plain, size_t len)
{
	static uint64_t counter;
	uint8_t bytes[SYNC_DATAGRAM];
	const struct sync_header h = {.magic = SYNC_MAGIC,
	                              .version = SYNC_VERSION,
	                              .secret = secret.id,
	                              .node = PEER,
	                              .kind = (uint8_t)kind,
	                              .from = 77,
	                              .to = n->self.incarnation,
	                              .counter = ++counter};

	sync_lane_receive(n, 0, bytes, sync_seal(cipher, &h, plain, len, bytes), now_ns);
}

static void peer_greet(struct sync_node *n, struct sync_cipher *cipher)
{
	const struct sync_hello hello = {.echo = n->self.incarnation,
	                                 .slot_key = 99,
	                                 .sent_ns = 1,
	                                 .echo_ns = now_ns,
	                                 .version_min = SYNC_VERSION,
	                                 .version_max = SYNC_VERSION};

	peer_send(n, cipher, SYNC_HELLO, &hello, sizeof(hello));
	CHECK(sync_node_peer(n, PEER)->incarnation == 77);
}

/* Receives a datagram; returns whether an unsealed one is dropped under one name. */
static bool unsealed_datagram_is_dropped(struct sync_node *n, struct sync_cipher *cipher,
                                         uint8_t how, const uint8_t *bytes, size_t len)
{
	size_t sealed = len < SYNC_PAYLOAD ? len : SYNC_PAYLOAD;

	if (how & (PARTS | HELLO)) {
		peer_send(n, cipher, how & PARTS ? SYNC_PARTS : SYNC_HELLO, bytes, sealed);
	} else {
		uint64_t faults = 0, after = 0;
		for (unsigned i = 0; i < SYNC_DROP_COUNT; i++)
			faults += sync_node_drops(n, i);
		sync_lane_receive(n, 0, bytes, len, now_ns);
		for (unsigned i = 0; i < SYNC_DROP_COUNT; i++)
			after += sync_node_drops(n, i);
		return after == faults + 1;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sync_node_options options = {
	        .node = 1,
	        .slot_key = 99,
	        .secret = {secret},
	        .peers = 1u << PEER,
	        .workers = 1,
	        .copies = 10,
	        .source = {NULL, describe, describe_end, next, marks},
	        .sink = {NULL, apply, copy_begin, copy_end, NULL},
	        .owner = owner,
	        .pass = pass,
	        .send = datagram_send,
	        .stored = sum_of,
	};

	now_ns = UINT64_C(1000000000000);
	memset(stored, 0, sizeof(stored));
	struct sync_node *n = sync_node_create(&options, now_ns);
	struct sync_cipher *cipher = sync_cipher_create(&secret, PEER, 77);
	CHECK(n && cipher);
	peer_greet(n, cipher);
	while (size >= 3) {
		size_t len = (size_t)(data[1] | data[2] << 8) % (size - 2);
		CHECK(unsealed_datagram_is_dropped(n, cipher, data[0], data + 3, len));
		now_ns += SYNC_MS;
		sync_lane_poll(n, 0, now_ns);
		CHECK(sums_match(n));
		data += 3 + len;
		size -= 3 + len;
	}
	sync_cipher_destroy(cipher);
	sync_node_destroy(n);
	return 0;
}
