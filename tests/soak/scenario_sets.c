// SPDX-License-Identifier: Apache-2.0
/* Access sets from files: the forwarder receives their prefixes in pieces, under a digest, before
 * the transaction that names them. */
#include <arpa/inet.h>
#include <stdlib.h>

#include <rte_hash_crc.h>

#include "access_model.h"
#include "scenario.h"

#define MAX_OTHERS 3000u /* prefixes without clients */
#define KINDS      2     /* of sets: each has half of the clients */

struct data {
	uint8_t digest[SET_DIGEST];
	uint32_t size, crc;
	_Alignas(uint64_t) uint8_t bytes[SET_HEAD + (MAX_OTHERS + 2) * 5 + 17];
};

static uint8_t *number_put(uint8_t *at, uint32_t n)
{
	memcpy(at, &n, sizeof(n)); /* little-endian, as all machines are that this runs on */
	return at + sizeof(n);
}

static uint8_t *network4_put(uint8_t *at, uint32_t address, uint8_t bits)
{
	address = htonl(address);
	memcpy(at, &address, sizeof(address));
	at[4] = bits;
	return at + 5;
}

/* 32 of the clients of each family (all have the same network), and unused addresses. */
static void data_make(struct fuzz_traffic *w, struct data *d, unsigned kind)
{
	const uint32_t others = rng_below(&w->rng, MAX_OTHERS);
	const struct sy_addr clients = harness_addr(kind ? "2001:db8:c::20" : "2001:db8:c::");
	uint8_t *at = number_put(number_put(d->bytes, others + 1 + kind), 1);
	for (uint32_t i = 0; i < others; i++)
		at = network4_put(at, UINT32_C(0x0a400000) + 2 * i, 32);
	at = network4_put(at, UINT32_C(0xc6120000) + 32 * kind, 27);
	if (kind)
		at = network4_put(at, UINT32_C(0xc6120040), 32);
	memcpy(at, clients.b, sizeof(clients.b));
	at[16] = 123;
	d->size = (uint32_t)(at + 17 - d->bytes);
	d->crc = ~rte_hash_crc(d->bytes, d->size, UINT32_MAX);
	for (unsigned i = 0; i < SET_DIGEST; i++) /* a name, to the forwarder */
		d->digest[i] = (uint8_t)rng_below(&w->rng, 256);
}

static void clients_send(struct fuzz_traffic *w, unsigned count)
{
	for (unsigned n = 0; n < count; n++) {
		struct frame f;
		struct service_key key = topology_service(n % TOPOLOGY_SERVICES);
		struct sy_tuple t = fuzz_traffic_client(w, &key);
		fuzz_traffic_greet(w, &f, &t);
		fuzz_traffic_send(w, &f);
		if (n % SY_BURST == SY_BURST - 1)
			fuzz_traffic_turn(w);
	}
	fuzz_traffic_turn(w);
}

static uint64_t piece_send(struct fuzz_traffic *w, struct data *d, uint64_t at, uint64_t len)
{
	Steelyard__Forwarder__V1__PutSetDataRequest piece =
	        STEELYARD__FORWARDER__V1__PUT_SET_DATA_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	piece.digest = (ProtobufCBinaryData){sizeof(d->digest), d->digest};
	piece.size = d->size;
	piece.crc32c = d->crc;
	piece.offset = at;
	piece.piece = (ProtobufCBinaryData){len, d->bytes + at};
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_PUT_SET_DATA;
	q.put_set_data = &piece;
	pb_response *response = harness_request(&w->topology.harness, &q);
	if (response->error)
		abort();
	const uint64_t next = response->put_set_data->next;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return next;
}

/* Clients continue meanwhile. */
static void data_send(struct fuzz_traffic *w, struct data *d)
{
	for (uint64_t at = piece_send(w, d, 0, 0); at < d->size;) {
		const uint64_t left = d->size - at, len = 1 + rng_below(&w->rng, d->size / 2);
		at = piece_send(w, d, at, len < left ? len : left);
		clients_send(w, SY_BURST);
	}
}

static bool set_commit(struct fuzz_traffic *w, struct data *d)
{
	struct changes c = {0};
	put_access_set(&c, "file")->digest = (ProtobufCBinaryData){sizeof(d->digest), d->digest};
	return harness_commit(&w->topology.harness, &c);
}

static bool is_member(const struct sy_addr *client, unsigned kind)
{
	return kind ? client->b[15] >= 32 : client->b[15] < 32;
}

/* Returns whether the published table agrees with this set for each client. */
static void check_members(struct fuzz_traffic *w, unsigned kind)
{
	const struct address_ranges *ranges = w->topology.harness.b->access->ranges;
	for (unsigned host = 1; host <= 64; host++)
		for (unsigned family = 0; family < 2; family++) {
			struct sy_addr client =
			        harness_addr(family ? "198.18.0.0" : "2001:db8:c::");
			const struct sy_addr *at = &client;
			uint32_t sets;
			client.b[15] = (uint8_t)host;
			address_ranges_find(ranges, &at, &sets, 1);
			/* 2001:db8:c::40 is in neither */
			if ((sets != 0) != (is_member(&client, kind) && (family || host < 64)))
				abort();
		}
}

static bool is_members(const struct session *s, const struct endpoint *e, unsigned kind)
{
	return is_member(&s->client, kind) && (sy_addr_is_v4(&s->client) || s->client.b[15] < 64);
}

/* Counts sessions of members that have not ended. */
static uint64_t members_count(struct fuzz_traffic *w, unsigned kind)
{
	return scenario_count_sessions(w, kind, is_members);
}

/* A list drops the members of a set that is loaded, refreshed, and named without its data. */
void scenario_sets(struct fuzz_traffic *w)
{
	static struct data data[KINDS + 1];
	struct harness *r = &w->topology.harness;
	struct changes c = {0};
	for (unsigned kind = 0; kind < KINDS; kind++) {
		data_make(w, &data[kind], kind);
		if (set_commit(w, &data[kind])) /* its data is not here yet */
			abort();
		data_send(w, &data[kind]);
		if (!set_commit(w, &data[kind]))
			abort();
		if (kind == 0) {
			Steelyard__Forwarder__V1__AccessList *l = put_access_list(
			        &c, "files",
			        STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW);
			l->existing =
			        STEELYARD__FORWARDER__V1__EXISTING_SESSIONS__EXISTING_SESSIONS_END;
			add_access_from_set(
			        &c,
			        add_access_rule(
			                &c, l,
			                STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP,
			                NULL, 0),
			        "file");
			put_global_access(&c, "files");
			if (!harness_commit(r, &c))
				abort();
		}
		clients_send(w, 4 * SY_BURST);
		check_members(w, kind);
		w->tally.stayed += members_count(w, kind);
	}
	data_make(w, &data[KINDS], 0);
	if (set_commit(w, &data[KINDS]))
		abort();
	check_members(w, KINDS - 1);
	put_global_access(&c, "");
	delete_access_list(&c, "files");
	delete_access_set(&c, "file");
	if (!harness_commit(r, &c))
		abort();
	if (r->b->access || r->b->ctl->access->data) /* no object has the data any more */
		abort();
}
