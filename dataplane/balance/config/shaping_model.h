// SPDX-License-Identifier: Apache-2.0
/* Shaping as configured, by ports' names (docs/design/0037-shaping.md). */
#ifndef SHAPING_MODEL_H
#define SHAPING_MODEL_H

#include <sy_shaping.h>

#include "arena.h"
#include "model.h"

typedef Steelyard__Forwarder__V1__Shaping pb_shaping;

/* Twice the ports: a transaction may add all ports under other names before it deletes the old
 * ones. */
#define SHAPED_PORTS   (2 * SY_MAX_PORTS)
#define SHAPING_FAILED "the port stays as it was, and the forwarder tries again each second"

/* A service, or all services of a VIP (port and protocol 0), and its number in the tree. */
struct shaped_key {
	struct service_key key;
	uint16_t branch;
};

struct model_shaping {
	char port[32];
	uint8_t *packed; /* the message */
	size_t packed_len;
	struct sy_shape_config config;
	struct shaped_key *key; /* sorted */
	unsigned keys;
	uint16_t *first; /* by tenant: the number of its first service */
};

struct shaping_model {
	struct model_shaping *now[SHAPED_PORTS], *before[SHAPED_PORTS];
	bool published;  /* of this transaction */
	uint32_t failed; /* bitmap of ports that are not shaped as configured */
	char why[SY_MAX_PORTS][160];
	uint64_t retry_ns; /* time of the next attempt */
};

/* shaping_read.c */
int shaping_read(const pb_shaping *pb, struct model_shaping **out, struct sy_error *err);
void shaping_free(struct model_shaping *s);
/* The number of a service in a port's tree. */
uint16_t shaping_branch(const struct model_shaping *s, const struct service_key *key);

int shaping_model_create(struct sy_balance *b, struct sy_error *err);
void shaping_model_destroy(struct sy_balance *b);
int shaping_put(struct sy_balance *b, const pb_shaping *pb, struct sy_error *err);
int shaping_delete(struct sy_balance *b, const char *port, struct sy_error *err);
/* Is any port shaped? Then packets need the ids of their services. */
bool shaping_is_on(const struct sy_balance *b);
/* Call when a service was published under this id. */
void shaping_service(struct sy_balance *b, uint32_t id, const struct service_key *key);
void shaping_begin(struct sy_balance *b);
/* Checks the whole transaction. */
int shaping_check(const struct sy_balance *b, struct sy_error *err);
void shaping_rollback(struct sy_balance *b);
void shaping_publish(struct sy_balance *b);
/* Each tick: retries what could not be published. */
void shaping_retry(struct sy_balance *b);
/* Why a port is not shaped as configured; NULL: it is. */
const char *shaping_problem(const struct sy_balance *b, unsigned port);
void shaping_finish(struct sy_balance *b);
/* The port of a name; SY_PORT_NONE if there is none. */
unsigned shaping_port(const struct sy_balance *b, const char *name);
/* The tree of the port as configured; NULL: no such port, or it has not changed. */
const struct sy_shape *shaping_in_force(const struct sy_balance *b, const struct model_shaping *s);
int reply_shaping(const struct sy_balance *b, struct arena *a, Steelyard__Forwarder__V1__Config *c);
pb_shaping *shaping_message(const struct model_shaping *s, struct arena *a);

#endif
