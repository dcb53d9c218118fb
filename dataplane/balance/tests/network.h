// SPDX-License-Identifier: Apache-2.0
/*
 * A network of one service, for benchmarks and tests of the session table: FNAT sessions of random
 * clients, made and found as the forwarder does, but without packets.
 */
#ifndef TESTS_NETWORK_H
#define TESTS_NETWORK_H

#include "session.h"

#define NETWORK_LOCALS 64

struct network {
	struct session_store *store;
	struct sy_hash_key key;
	uint64_t random; /* splitmix64's state */
	bool v6;
	uint32_t server_count;
	unsigned local_count;
	struct sy_addr locals[NETWORK_LOCALS];
	uint8_t local_ids[NETWORK_LOCALS];
	struct sy_addr *servers; /* by id; all on one port over TCP */
	struct sy_addr vip;
	uint16_t seen; /* tick that new sessions get */
	/* what network_validator() tells: sessions of ids below these are over, and idle ones */
	uint32_t servers_gone;
	unsigned locals_gone;
	uint32_t timeout_s; /* 0: none */
};

uint64_t network_random(struct network *n);

/* Addresses: as many servers as leave a third of the local ports free when there are `sessions`;
 * near exhaustion the search for ports would be measured. Returns false without memory. */
bool network_init(struct network *n, unsigned family, uint64_t sessions, uint64_t seed);
/* Uses this store from now on. */
void network_use(struct network *n, struct session_store *store);
void network_free(struct network *n);

enum network_outcome { NETWORK_INSERTED, NETWORK_KNOWN, NETWORK_FULL, NETWORK_NO_PORT };

/* One more session of a random client; *table and *record say where. */
enum network_outcome network_create(struct network *n, struct session_table **table,
                                    uint32_t *record);
/* As a session's end does. */
void network_remove(const struct network *n, struct session_table *t, uint32_t record);
/* The record of this tuple, and who sends it; or SESSION_NONE. Hash and guess (session_guess()) are
 * the tuple's. */
uint32_t network_find(const struct network *n, const struct session_table *t, uint32_t guess,
                      uint64_t hash, const struct sy_tuple *tuple, enum session_direction *from);
/* Looks a record up by both its tuples; does each find it and say its direction? */
bool network_verify(const struct network *n, const struct session_table *t, uint32_t record);

/* The tuple of a session's packets, from either side. */
struct sy_tuple network_client_tuple(const struct network *n, const struct session *hot);
struct sy_tuple network_server_tuple(const struct network *n, const struct session *hot);

/* For session_store_adopt(); ctx is the network. */
struct session_validator network_validator(const struct network *n);

#endif
