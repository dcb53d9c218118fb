// SPDX-License-Identifier: Apache-2.0
#include "sync_session.h"

enum {
	FLAG_CLIENT = 1,
	FLAG_CLIENT_V6 = 2,
	FLAG_PAIR = 4,
	FLAG_TRANSFERRED = 8,
	FLAG_KNOWN = 16,
	FLAG_MASTER = 32,
	FLAG_UNUSED = 64
};

struct __attribute__((packed)) identity {
	struct sync_entry_head head;
	uint8_t flags, local;
	uint8_t server[3];
	uint16_t meaning;
	uint16_t client_port, local_port, vport;
};
_Static_assert(sizeof(struct identity) == 15, "a wire format");

struct __attribute__((packed)) state {
	uint8_t state, flags;
	uint8_t inserted; /* 7 bits; 1 bit: cold.text */
	uint8_t syn_seen;
	uint16_t idle_s;
	uint32_t number[2]; /* cold.fin_seq, or what is in its place */
};
_Static_assert(sizeof(struct state) == 14, "a wire format");

/* cold: the bytes of the cold half before `commit` (session.h, session_splice.h). */
struct __attribute__((packed)) pair {
	struct sy_addr client;
	uint16_t client_port;
	uint8_t cold[offsetof(struct session_cold, commit)];
	uint16_t vport;
};
_Static_assert(sizeof(struct pair) == 32, "a wire format");

#define LONGEST (sizeof(struct identity) + 16 + sizeof(struct state) + 4 + sizeof(struct pair))
_Static_assert(LONGEST <= SYNC_ENTRY, "an entry's buffer");

struct cursor {
	uint8_t *at;
};

static void put_bytes(struct cursor *c, const void *bytes, size_t len)
{
	memcpy(c->at, bytes, len);
	c->at += len;
}

static void put_state(struct cursor *c, const struct sync_session *s)
{
	const struct session_cold *cold = &s->cold[0];
	const struct state state = {
	        .state = s->hot[0].state,
	        .flags = s->hot[0].flags,
	        .inserted = (uint8_t)(cold->inserted | cold->text << 7),
	        .syn_seen = cold->syn_seen,
	        .idle_s = s->idle_s,
	        .number = {cold->fin_seq[0], cold->fin_seq[1]},
	};

	put_bytes(c, &state, sizeof(state));
}

static void put_pair(struct cursor *c, const struct sync_session *s)
{
	struct pair pair = {
	        .client = s->hot[1].client,
	        .client_port = s->hot[1].client_port,
	        .vport = s->cold[1].vport,
	};

	memcpy(pair.cold, &s->cold[1], sizeof(pair.cold));
	put_bytes(c, &pair, sizeof(pair));
}

void sync_session_write(const struct sync_session *s, enum sync_entry_kind kind, bool by_local,
                        uint8_t entry[static SYNC_ENTRY])
{
	const struct session *hot = &s->hot[0];
	bool client = kind == SYNC_PUT || !by_local, v6 = !sy_addr_is_v4(&hot->client),
	     pair = s->is_pair && (kind == SYNC_PUT || !by_local);
	struct identity id = {
	        .head = {.kind = (uint8_t)kind},
	        .flags =
	                (uint8_t)((client ? FLAG_CLIENT : 0) | (v6 ? FLAG_CLIENT_V6 : 0) |
	                          (pair ? FLAG_PAIR : 0) | (s->transferred ? FLAG_TRANSFERRED : 0) |
	                          (s->known ? FLAG_KNOWN : 0) | (s->from_master ? FLAG_MASTER : 0) |
	                          (s->unused ? FLAG_UNUSED : 0)),
	        .local = hot->local,
	        .server = {hot->server & 0xff, hot->server >> 8 & 0xff, hot->server >> 16},
	        .meaning = s->meaning,
	        .client_port = hot->client_port,
	        .local_port = hot->local_port,
	        .vport = s->cold[0].vport,
	};
	struct cursor c = {entry};

	put_bytes(&c, &id, sizeof(id));
	if (client)
		put_bytes(&c, &hot->client.b[v6 ? 0 : 12], v6 ? 16 : 4);
	if (kind != SYNC_DELETE)
		put_state(&c, s);
	if (kind == SYNC_PUT)
		put_bytes(&c, &s->age_s, sizeof(s->age_s));
	if (pair)
		put_pair(&c, s);
	entry[offsetof(struct sync_entry_head, len)] = (uint8_t)(c.at - entry);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
	const uint8_t *at;
	size_t left;
	bool failed;
};

static void get_bytes(struct reader *r, void *to, size_t len)
{
	r->failed = r->failed || r->left < len;
	if (r->failed)
		return;
	memcpy(to, r->at, len);
	r->at += len;
	r->left -= len;
}

static void get_client(struct reader *r, bool v6, struct sy_addr *to)
{
	*to = v6 ? (struct sy_addr){0} : sy_addr_v4(0);
	get_bytes(r, &to->b[v6 ? 0 : 12], v6 ? 16 : 4);
	r->failed = r->failed || sy_addr_is_v4(to) == v6;
}

static void get_state(struct reader *r, struct sync_session *out)
{
	struct state state = {0};
	struct session_cold *cold = &out->cold[0];

	get_bytes(r, &state, sizeof(state));
	out->hot[0].state = state.state;
	out->hot[0].flags = state.flags;
	out->idle_s = state.idle_s;
	cold->inserted = state.inserted & 0x7f;
	cold->text = state.inserted >> 7;
	cold->syn_seen = state.syn_seen & 1;
	memcpy(cold->fin_seq, state.number, sizeof(cold->fin_seq));
	r->failed = r->failed || state.state == SESSION_FREE || state.state >= SESSION_STATES ||
	            state.state == SESSION_PAIR_RECORD || state.state == SESSION_AWAY;
}

static void get_pair(struct reader *r, struct sync_session *out)
{
	struct pair pair = {0};

	get_bytes(r, &pair, sizeof(pair));
	out->is_pair = true;
	out->hot[1].client = pair.client;
	out->hot[1].client_port = pair.client_port;
	out->cold[1].vport = pair.vport;
	memcpy(&out->cold[1], pair.cold, sizeof(pair.cold));
}

bool sync_session_read(const uint8_t *entry, struct sync_session *out)
{
	struct identity id = {0};
	struct reader r = {entry, ((const struct sync_entry_head *)entry)->len, false};

	*out = (struct sync_session){0};
	get_bytes(&r, &id, sizeof(id));
	out->meaning = id.meaning;
	out->hot[0].local = id.local;
	out->hot[0].server =
	        (uint32_t)(id.server[0] | id.server[1] << 8 | id.server[2] << 16) & 0xffffff;
	out->hot[0].client_port = id.client_port;
	out->hot[0].local_port = id.local_port;
	out->cold[0].vport = id.vport;
	out->has_client = id.flags & FLAG_CLIENT;
	out->transferred = id.flags & FLAG_TRANSFERRED;
	out->known = id.flags & FLAG_KNOWN;
	out->from_master = id.flags & FLAG_MASTER;
	out->unused = id.flags & FLAG_UNUSED;
	if (out->has_client)
		get_client(&r, id.flags & FLAG_CLIENT_V6, &out->hot[0].client);
	if (id.head.kind != SYNC_DELETE)
		get_state(&r, out);
	if (id.head.kind == SYNC_PUT)
		get_bytes(&r, &out->age_s, sizeof(out->age_s));
	if (id.flags & FLAG_PAIR)
		get_pair(&r, out);
	return !r.failed && (out->has_client || id.head.kind != SYNC_PUT);
}
