// SPDX-License-Identifier: Apache-2.0
/* A network of one service, for benchmarks and session table tests: FNAT sessions of random
 * clients, created and looked up as in the forwarder, but without packets. */
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
	uint16_t seen; /* tick of new sessions */
	/* for network_validator(): sessions of lower ids are over, and so are idle ones */
	uint32_t servers_gone;
	unsigned locals_gone;
	uint32_t timeout_s; /* 0: none */
};

uint64_t network_random(struct network *n);

/* Addresses: enough servers to leave a third of the local ports free with `sessions` sessions. Near
 * exhaustion a benchmark would measure the search for ports. Returns false if out of memory. */
bool network_init(struct network *n, unsigned family, uint64_t sessions, uint64_t seed);
/* Uses this store from now on. */
void network_use(struct network *n, struct session_store *store);
void network_free(struct network *n);

enum network_outcome { NETWORK_INSERTED, NETWORK_KNOWN, NETWORK_FULL, NETWORK_NO_PORT };

/* Creates a session of a random client; *table and *record say where it is. */
enum network_outcome network_create(struct network *n, struct session_table **table,
                                    uint32_t *record);
/* Removes a session as its end does. */
void network_remove(const struct network *n, struct session_table *t, uint32_t record);
/* The record of this tuple and the sender's direction, or SESSION_NONE. Hash and guess
 * (session_guess()) are the tuple's. */
uint32_t network_find(const struct network *n, const struct session_table *t, uint32_t guess,
                      uint64_t hash, const struct sy_tuple *tuple, enum session_direction *from);
/* Looks a record up by both its tuples; true if each finds it with the right direction. */
bool network_verify(const struct network *n, const struct session_table *t, uint32_t record);

/* The tuple of a session's packets from either side. */
struct sy_tuple network_client_tuple(const struct network *n, const struct session *hot);
struct sy_tuple network_server_tuple(const struct network *n, const struct session *hot);

/* For session_store_adopt(); ctx is the network. */
struct session_validator network_validator(const struct network *n);

#endif
