// SPDX-License-Identifier: Apache-2.0
/*
 * The configuration as accepted, and transactions on it. Control thread only.
 *
 * A transaction changes the model step by step, keeping what each touched service was before. It
 * ends in model_rollback(), after which nothing has happened, or in model_check() and publishing:
 * until then the packet path sees the old configuration.
 */
#ifndef MODEL_H
#define MODEL_H

#include <forwarder.pb-c.h>

#include "address_set.h"
#include "balance.h"
#include "ids.h"
#include "service.h"

typedef Steelyard__Forwarder__V1__Change model_change;

#define MODEL_NAME    64
#define MODEL_SERVERS 16384u /* of one service: its description must fit one message */

struct model_server {
	struct sy_addr addr;
	uint16_t port; /* network order */
	uint16_t weight;
	uint8_t state; /* Steelyard__Forwarder__V1__ServerState */
	bool backup;
	uint8_t share;         /* published last, in sixteenths: slow start */
	uint32_t max_sessions; /* 0: no limit */
	uint32_t check_mark;   /* 0: none */
	uint32_t id;
	uint64_t returned_ns; /* when its slow start began; 0: never */
};

struct model_service {
	struct service_key key;
	uint32_t id;
	char name[MODEL_NAME];
	uint8_t mode;
	struct policy policy;
	bool ramping;                     /* on the model's list of those with a slow start */
	uint16_t timeout[SESSION_STATES]; /* 0: the default */
	unsigned servers;
	struct model_server *server;
	struct traffic gone;     /* of servers it no longer has */
	struct model_snat *snat; /* NULL; or of a rule of SNAT, which is no service but for its ids:
	                            snat_model.c */
};

/* What a touched service was: NULL before: it did not exist. */
struct model_touch {
	uint32_t id;
	struct model_service *before;
};

/* An address that sessions name by its id. */
struct model_local {
	struct sy_addr addr;
	bool used;
	uint16_t pools; /* rules of SNAT that have it; 0: a local address */
};

struct id_pool {
	uint32_t *free;
	uint32_t count, fresh, limit; /* fresh: ids below were handed out once */
};

struct model {
	struct model_service **service; /* [max_services] by id */
	struct rte_hash *by_key;        /* service_key → id */
	struct rte_hash *address;       /* sy_addr → struct model_address */
	struct rte_hash *source;        /* sy_source of NAT servers → see source.c */
	struct id_pool service_ids, server_ids;
	struct model_local local[MAX_LOCALS];
	bool local_retired[MAX_LOCALS]; /* not used, and sessions may still name the id */
	uint32_t services, servers, snat_prefixes;
	uint32_t local_servers[2]; /* [0]: IPv6, [1]: IPv4: those that need local addresses */
	uint64_t revision;
	bool settled; /* what an earlier process left of addresses has been removed */

	/* Slow start: ids of services, some of them gone since. */
	uint32_t *ramp;
	unsigned ramps, ramp_capacity, ramp_at; /* at: whose turn is next */

	/* The transaction under way. */
	bool open;
	struct model_touch *touch;
	unsigned touches, touch_capacity;
	unsigned published;   /* of the touches */
	struct service *next; /* under construction: the next touch's */
	bool *touched;        /* [max_services] by id */
	uint32_t *fresh;      /* server ids taken by this transaction */
	unsigned freshes, fresh_capacity;
	uint64_t *kept;       /* [max_servers] by id: number of the publishing that last held it */
	uint64_t publishings; /* so far */
	uint64_t publishings_before; /* this transaction */
	struct model_local local_before[MAX_LOCALS];
	bool local_touched, address_touched, source_touched, snat_touched;
	bool ranges_touched; /* a service with many ports is new */
};

int read_addr(const ProtobufCBinaryData *bytes, const char *what, struct sy_addr *out,
              struct sy_error *err);
int read_timeouts(const Steelyard__Forwarder__V1__Timeouts *pb, uint16_t out[SESSION_STATES],
                  struct sy_error *err);
/* Remembers what service id was, once a transaction. */
int model_touch(struct model *m, uint32_t id, struct sy_error *err);
void model_service_free(struct model_service *s);
/* Notes that the model has one server of this service more (sign 1) or less (−1). */
void model_count_server(struct model *m, const struct model_service *s,
                        const struct model_server *server, int sign);

int model_create(struct sy_balance *b, struct sy_error *err);
void model_destroy(struct sy_balance *b);

void model_begin(struct sy_balance *b);
/* Applies one change to the model. On an error the transaction must be rolled back. */
int model_change_apply(struct sy_balance *b, const model_change *change, struct sy_error *err);
int local_put(struct sy_balance *b, const Steelyard__Forwarder__V1__LocalAddress *pb,
              struct sy_error *err);
int local_delete(struct sy_balance *b, const Steelyard__Forwarder__V1__LocalAddress *pb,
                 struct sy_error *err);
/* How a service spreads its sessions, out of a message, checked. */
int read_policy(const Steelyard__Forwarder__V1__Service *pb, struct policy *out,
                struct sy_error *err);
/* Room for one more element behind `count`. */
bool list_reserve(void **list, unsigned count, unsigned *capacity, size_t size);
/* A service's key out of a message, checked. */
int read_key(const Steelyard__Forwarder__V1__ServiceKey *pb, struct service_key *key,
             struct sy_error *err);
/* A service's ports for people: "port 80", "ports 8000-8099", "ports (all)". */
#define PORTS_TEXT 24
const char *ports_format(const struct service_key *key, char text[static PORTS_TEXT]);
/* Refuses ranges of one VIP and protocol that overlap, but for those that lie within each other. */
int ranges_check(struct sy_balance *b, struct sy_error *err);
/* What can only be validated at the end: local addresses suffice, no server is one of our
 * addresses.
 */
int model_check(struct sy_balance *b, struct sy_error *err);
void model_rollback(struct sy_balance *b);
/* Makes new VIPs and local addresses known, before a service needs them. */
void model_publish_addresses(struct sy_balance *b);
/* Publishes touched services until the budget (units of about 10 ns) is used up; true: all are out.
 */
bool model_publish(struct sy_balance *b, int64_t budget);
#define PUBLISH_PIECE 200000 /* a turn of the loop */
/* Ends a published transaction: addresses that nobody needs any more are given back. */
void model_finish(struct sy_balance *b);
/* A whole transaction at once: apply(b, what, err) makes its changes by model_change_apply(). */
typedef int (*model_changes)(struct sy_balance *b, const void *what, struct sy_error *err);
int model_transact(struct sy_balance *b, model_changes apply, const void *what,
                   struct sy_error *err);
/* Once there is a configuration, and the runtime has its ports: addresses that an earlier process
 * left and nobody took are given back. */
void model_settle(struct sy_balance *b);

/* Makes the set of our addresses and of local addresses visible to the workers; `leaving`: also
 * those that nobody needs any more. */
int publish_addresses(struct sy_balance *b, bool leaving);
/* Makes a service visible as it stands in the model, built as `now`, or takes it away. */
void publish_service(struct sy_balance *b, uint32_t id, const struct model_service *before,
                     struct service *now);

/* check.c: a mark that a server of this service may have. */
int check_read(const struct model_service *s, uint32_t mark, struct sy_error *err);
/* Leads the marked checks of a service's servers to them; either may be NULL. */
void check_publish(struct sy_balance *b, const struct model_service *before,
                   const struct model_service *after);
/* Local addresses have changed, where tunnels begin. */
void check_publish_all(struct sy_balance *b);

/* Reference to an address of ours; kind from address_set.h. Takes it from the kernel when it is
 * new. */
int address_hold(struct sy_balance *b, const struct sy_addr *addr, uint8_t kind,
                 struct sy_error *err);
void address_drop(struct sy_balance *b, const struct sy_addr *addr);
/* Has been held, and not been given back yet. */
bool address_is_known(const struct sy_balance *b, const struct sy_addr *addr);
/* Gives back all addresses without references. */
void address_collect(struct sy_balance *b);
/* A NAT server has become one of a service more (sign 1) or less (−1). */
void source_count(struct model *m, const struct sy_source *source, int sign);
uint32_t source_refs(const struct model *m, const struct sy_source *source);
/* Takes what new ones send from the kernel; gives back what those without references sent. */
void source_take(struct sy_balance *b);
void source_collect(struct sy_balance *b);
/* Their addresses, each perhaps more than once; `leaving`: also those without references. Room:
 * rte_hash_count() of them. Returns how many. */
unsigned source_list(const struct sy_balance *b, bool leaving, struct address_set_entry *entries);
uint8_t address_kind(struct sy_balance *b, const struct sy_addr *addr);

uint32_t id_take(struct id_pool *p); /* UINT32_MAX: none left */
void id_give(struct id_pool *p, uint32_t id);

/* Defaults in seconds, by state. */
extern const uint16_t session_timeout_default[SESSION_STATES];

#endif
