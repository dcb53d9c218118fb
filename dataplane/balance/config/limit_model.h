// SPDX-License-Identifier: Apache-2.0
/*
 * Limits as configured, and their publishing. Control thread only.
 *
 *     limit_model.c    transactions, ids, publishing
 *     limit_read.c     messages
 *     limit_chain.c    which limits apply to a server
 */
#ifndef LIMIT_MODEL_H
#define LIMIT_MODEL_H

#include <forwarder.pb-c.h>

#include "arena.h"
#include "limit.h"
#include "model.h"
#include "nodes.h"

typedef Steelyard__Forwarder__V1__Limit pb_limit;

#define LIMIT_CONCERNS  1024u               /* max services, VIPs and servers of a limit */
#define LIMIT_ALL       (UINT32_C(1) << 18) /* max of all limits, including clients' prefixes */
#define LIMIT_CLIENTS   (UINT32_C(1) << 20) /* max buckets of clients of all limits */
#define LIMIT_TRANSIENT (2 * LIMIT_NAMED)   /* as LIMIT_NAMED, within a transaction */

/* What a limit names; compared as bytes. */
enum limit_kind { LIMIT_OF_ALL, LIMIT_OF_VIP, LIMIT_OF_SERVICE, LIMIT_OF_SERVER };
struct limit_target {
	struct service_key service; /* LIMIT_OF_VIP: only its VIP is used */
	struct sy_addr server;
	uint16_t port; /* port of the server; network order */
	uint16_t kind; /* enum limit_kind */
	uint32_t zero;
};
_Static_assert(sizeof(struct limit_target) == 48, "no padding");

/* The limits that name one target: all services, a VIP, a service or a server. */
struct limit_named {
	struct node node;
	struct limit_target target;
	bool touched, emptied; /* emptied: it is in limit_model.emptied */
	unsigned count;
	struct limit_named *next;
	uint16_t id[LIMIT_TRANSIENT];
};

/* A configured limit: immutable. */
struct model_limit {
	struct node by_name;
	uint32_t id;
	char name[MODEL_NAME];
	uint8_t *packed; /* the message as received */
	size_t packed_len;
	uint64_t amount, period_ns, burst;
	uint32_t batch, max;
	unsigned targets;
	unsigned within; /* prefixes of clients */
	struct limit_target *target;
	struct limit *built; /* to be published; NULL afterwards */
	uint32_t replaces;   /* the published limit of this name under another id; LIMITS: none */
	uint8_t unit;        /* enum limit_unit */
	uint8_t requested_engine; /* Steelyard__Forwarder__V1__LimitEngine */
	uint8_t prefix[2];        /* of clients; [1]: IPv4 */
};

struct limit_totals {
	struct sy_limit_counts passed, above, unlimited;
};

/* State of an id, whatever limit has it. */
struct limit_state {
	struct sy_limit_table *table; /* NULL: no clients */
	uint32_t flow;                /* flow in the event device, of the chains with the limit */
	bool flows;                   /* not all of them have that flow */
	struct limit_totals base; /* base of the counts: other limits' counts under the id, minus
	                             this limit's counts under another id */
};

#define FLOW_NONE   0u         /* in no chain */
#define FLOW_DIRECT UINT32_MAX /* not by the device */

struct limit_touch {
	uint32_t id;
	struct model_limit *before; /* NULL: new */
};

struct limit_model {
	struct model_limit **limit; /* [LIMITS] by id */
	struct limit_state *state;  /* [LIMITS] by id */
	struct id_pool ids;
	struct nodes names, targets, chains;
	uint32_t limits;
	uint64_t target_count, clients; /* of all limits */
	uint32_t lines;                 /* see struct limit */
	bool flows_changed;             /* chains have changed since limits_note_flows() */
	uint32_t *sorted;               /* ids by name; NULL: must be built */
	uint64_t tick_ns;               /* time of the last limits_tick() */

	/* The open transaction. */
	struct limit_touch *touch;
	unsigned touches, touch_capacity;
	uint32_t *touched; /* [LIMITS] by id: index in touch[] + 1 */
	unsigned published;
	bool of_all, of_vips; /* touched targets */
	bool *of_service;     /* [max_services] */
	uint32_t service_at;  /* service from which on chains must be updated */
	/* Concerns that no limit named at some time since; a rollback finds them here. */
	struct limit_named *emptied;
};

int limit_model_create(struct sy_balance *b, struct sy_error *err);
void limit_model_destroy(struct sy_balance *b);

/* Steps of a transaction, as for access lists. limits_publish() goes before services are published,
 * limits_publish_chains() after. Both return whether they are done. */
void limits_begin(struct sy_balance *b);
int limit_put(struct sy_balance *b, const pb_limit *pb, struct sy_error *err);
int limit_delete(struct sy_balance *b, const char *name, struct sy_error *err);
int limits_check(struct sy_balance *b, struct sy_error *err);
void limits_rollback(struct sy_balance *b);
bool limits_publish(struct sy_balance *b, int64_t *budget);
bool limits_publish_chains(struct sy_balance *b, int64_t *budget);
void limits_finish(struct sy_balance *b);

/* The limit of this name; NULL: none. */
struct model_limit *limit_find(const struct limit_model *m, const char *name);
/* Ids of all limits, by name; NULL: no memory. */
const uint32_t *limits_sorted(struct limit_model *m);
/* Counts over all workers. */
struct limit_totals limit_totals(const struct sy_balance *b, uint32_t id);
/* The time of workers' clocks. */
uint64_t limits_now(const struct sy_balance *b);
/* A limit as a message on the arena; NULL: no memory. */
pb_limit *reply_limit(const struct model_limit *l, struct arena *a);

/* ---- limit_read.c ---------------------------------------------------------------------------- */

/* Reads and checks a message; 0, or a negative errno with err. */
int limit_read(struct sy_balance *b, const pb_limit *pb, struct model_limit **out,
               struct sy_error *err);
void limit_free(struct model_limit *l);
/* Frees a published limit; its table belongs to the id. */
void limit_built_free(struct limit *l);
/* May a limit replace another one under its id, keeping the bucket? */
bool limit_keeps_id(const struct model_limit *before, const struct model_limit *now);
/* Why the engine in use was chosen. */
const char *limit_engine_reason(const struct sy_balance *b, const struct model_limit *l);
uint8_t limit_engine(const struct sy_balance *b, const struct model_limit *l);

/* ---- limit_chain.c --------------------------------------------------------------------------- */

/* Adds a limit to everything that it names, or removes it. Adding fails without memory, or if too
 * many limits name the same. */
int limit_targets_add(struct limit_model *m, const struct model_limit *l, struct sy_error *err);
void limit_targets_remove(struct limit_model *m, const struct model_limit *l);
int limit_targets_check(struct limit_model *m, struct sy_error *err);
/* Removes targets that no limit names any more. */
void limit_targets_collect(struct limit_model *m);
void limit_targets_destroy(struct limit_model *m);
/* Marks the chains of everything that a limit names as outdated. */
void limit_targets_touch(struct sy_balance *b, const struct model_limit *l);
bool limit_targets_touched(struct sy_balance *b, const struct model_service *s);
/* Assigns chains to a service's servers. */
void limits_service(struct sy_balance *b, const struct model_service *s);
/* Determines which limits have a single flow in the event device, after chains have changed. */
void limits_note_flows(struct sy_balance *b);
/* Once a second: returns buckets to the exclusive use of the event device's consumers if no other
 * worker has charged them for a second. */
void limits_tick(struct sy_balance *b);
/* The server is leaving, or its id has none: no limit applies to it. */
void limits_forget_server(struct sy_balance *b, uint32_t server);

#endif
