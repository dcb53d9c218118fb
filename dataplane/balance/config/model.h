// SPDX-License-Identifier: Apache-2.0
/*
 * The accepted configuration, and transactions on it. Control thread only.
 *
 * A transaction changes the model step by step, and saves a copy of each touched service. It ends
 * either with model_rollback(), which restores the model, or with model_check() and publishing.
 * Until it is published the packet path sees the old configuration.
 */
#ifndef MODEL_H
#define MODEL_H

#include <forwarder.pb-c.h>

#include "address_set.h"
#include "balance.h"
#include "early.h"
#include "ids.h"
#include "service.h"

typedef Steelyard__Forwarder__V1__Change model_change;

#define MODEL_NAME    64
#define MODEL_SERVERS 16384u /* per service: its description must fit one message */

struct model_server {
	struct sy_addr addr;
	uint16_t port; /* network order */
	uint16_t weight;
	uint8_t state; /* Steelyard__Forwarder__V1__ServerState */
	bool backup;
	uint8_t share;         /* slow start: last published share, in sixteenths */
	uint32_t max_sessions; /* 0: no limit */
	uint32_t check_mark;   /* 0: none */
	uint32_t id;
	uint64_t returned_ns; /* start of slow start; 0: none */
	uint32_t reported;    /* measured share, in parts of 2^32; 0: none. shares.h */
	uint32_t measured;    /* measured share as used by pools, which may lag behind */
};

struct model_service {
	struct service_key key;
	uint32_t id;
	char name[MODEL_NAME];
	uint8_t mode;
	struct policy policy;
	bool ramping;                     /* on the model's list of services in slow start */
	uint16_t timeout[SESSION_STATES]; /* 0: the default */
	unsigned servers, server_capacity;
	struct model_server *server;
	uint64_t shares_until_ns; /* measured shares are valid until then; 0: weights are used */
	uint32_t ceiling;         /* pool_ceiling() of its pools; 0: none */
	struct traffic gone;      /* traffic of removed servers */
	struct model_snat *snat; /* NULL; otherwise this is a SNAT rule, a service only for its ids:
	                            snat_model.c */
};

/* Saved state of a touched service. */
struct model_touch {
	uint32_t id;
	struct model_service *before; /* NULL: it did not exist */
};

/* An address to which sessions refer by id. */
struct model_local {
	struct sy_addr addr;
	bool used;
	uint16_t pools; /* number of SNAT rules that use it; 0: a local address */
	bool of_peer;   /* another node's: new sessions never use it */
};

struct id_pool {
	uint32_t *free;
	uint32_t count; /* of free[] */
	uint32_t fresh; /* the lowest id that was never allocated; loops over ids end here */
	uint32_t limit;
};

struct model {
	struct model_service **service; /* [max_services] by id */
	struct rte_hash *by_key;        /* service_key → id */
	struct rte_hash *address;       /* sy_addr → kind and references: address_publish.c */
	struct rte_hash *source;        /* sy_source of NAT servers → data word: source.c */
	struct id_pool service_ids, server_ids;
	struct model_local local[MAX_LOCALS];
	bool local_retired[MAX_LOCALS]; /* not used, but sessions may still refer to the id */
	uint32_t services, servers, snat_prefixes;
	uint32_t local_servers[2]; /* servers that need local addresses; [0]: IPv6, [1]: IPv4 */
	uint64_t revision;
	bool settled; /* unused addresses of an earlier process have been removed */

	/* Slow start: ids of services, some of which may no longer exist. */
	uint32_t *ramp;
	unsigned ramps, ramp_capacity, ramp_at; /* ramp_at: index of the next one to advance */
	uint32_t shares_at; /* id of the next service whose shares may have expired */

	/* The open transaction. */
	bool open;
	struct model_touch *touch;
	unsigned touches, touch_capacity;
	unsigned published;   /* number of touches published so far */
	struct service *next; /* being built: the service of the next touch */
	bool *touched;        /* [max_services] by id */
	uint32_t *new_server; /* server ids allocated by this transaction */
	unsigned new_server_count, new_server_capacity;
	/* [max_servers] by id: value of `publishings` when a service was last published with the
	 * server */
	uint64_t *published_at;
	uint64_t publishings;        /* number of services published so far */
	uint64_t publishings_before; /* publishings before this transaction */
	struct model_local local_before[MAX_LOCALS];
	bool local_touched, address_touched, source_touched, snat_touched;
	bool ranges_touched; /* the transaction adds a service with many ports */
};

int read_addr(const ProtobufCBinaryData *bytes, const char *what, struct sy_addr *out,
              struct sy_error *err);
/* Reads a prefix. Returns false if it is invalid. An IPv4 one has 4 bytes, and its length counts
 * their bits. Bits beyond the length are ignored. */
bool read_prefix_addr(const Steelyard__Forwarder__V1__Prefix *p, struct sy_addr *out);
int read_timeouts(const Steelyard__Forwarder__V1__Timeouts *pb, uint16_t out[SESSION_STATES],
                  struct sy_error *err);
/* Saves a copy of service `id` for model_rollback(), once per transaction. */
int model_touch(struct model *m, uint32_t id, struct sy_error *err);
void model_service_free(struct model_service *s);
/* Adds to the number of servers of this service: sign 1 or −1. */
void model_count_server(struct model *m, const struct model_service *s,
                        const struct model_server *server, int sign);

/* A hash of fixed-size keys for the control thread; NULL: no memory. */
struct rte_hash *model_hash(const char *name, uint32_t entries, uint32_t key_len);
int model_create(struct sy_balance *b, struct sy_error *err);
void model_destroy(struct sy_balance *b);

void model_begin(struct sy_balance *b);
/* Applies one change to the model. After an error the transaction must be rolled back. */
int model_change_apply(struct sy_balance *b, const model_change *change, struct sy_error *err);
int local_put(struct sy_balance *b, const Steelyard__Forwarder__V1__LocalAddress *pb,
              struct sy_error *err);
int local_delete(struct sy_balance *b, const Steelyard__Forwarder__V1__LocalAddress *pb,
                 struct sy_error *err);
/* Reads and checks a service's policy from a message. */
int read_policy(const Steelyard__Forwarder__V1__Service *pb, struct policy *out,
                struct sy_error *err);
/* Makes space for one more element after `count`. */
bool list_reserve(void **list, unsigned count, unsigned *capacity, size_t size);
/* Reads and checks a service's key from a message. */
int read_key(const Steelyard__Forwarder__V1__ServiceKey *pb, struct service_key *key,
             struct sy_error *err);
/* A service's ports in readable form: "port 80", "ports 8000-8099", "ports (all)". */
#define PORTS_TEXT 24
const char *ports_format(const struct service_key *key, char text[static PORTS_TEXT]);
/* Refuses port ranges of one VIP and protocol that overlap, unless one lies within the other. */
int ranges_check(struct sy_balance *b, struct sy_error *err);
/* Checks at the end of a transaction: there are enough local addresses, and no server is itself a
 * VIP, local or pool address. */
int model_check(struct sy_balance *b, struct sy_error *err);
void model_rollback(struct sy_balance *b);
/* Publishes new VIPs and local addresses, before a service needs them. */
void model_publish_addresses(struct sy_balance *b);
/* Publishes touched services until the budget (units of about 10 ns) is used up. Returns true when
 * all are published. */
bool model_publish(struct sy_balance *b, int64_t budget);
#define PUBLISH_PIECE 200000 /* budget of one loop iteration */
/* Ends a published transaction: releases addresses that no longer have references. */
void model_finish(struct sy_balance *b);
/* Runs a whole transaction: apply(b, what, err) makes its changes with model_change_apply(). */
typedef int (*model_changes)(struct sy_balance *b, const void *what, struct sy_error *err);
int model_transact(struct sy_balance *b, model_changes apply, const void *what,
                   struct sy_error *err);
/* Call once there is a configuration and the runtime has its ports: releases addresses of an
 * earlier process that are not configured. */
void model_settle(struct sy_balance *b);

/* Publishes the address set and the local addresses. `include_unreferenced`: including those
 * without references. */
int publish_addresses(struct sy_balance *b, bool include_unreferenced);
/* The same for the host's own addresses if they have changed. Called by the control thread's
 * tick. */
void address_follow_host(struct sy_balance *b);
/* Publishes a service as it is in the model, built as `now`, or removes it. */
void publish_service(struct sy_balance *b, uint32_t id, const struct model_service *before,
                     struct service *now);

/* check_publish.c: checks that a server of this service may have this mark. */
int check_read(const struct model_service *s, uint32_t mark, struct sy_error *err);
/* Routes the marked health checks of a service to its servers; either may be NULL. */
void check_publish(struct sy_balance *b, const struct model_service *before,
                   const struct model_service *after);
/* For all services: called when local addresses, the tunnels' source addresses, have changed. */
void check_publish_all(struct sy_balance *b);

/* Adds a reference to an address of the address set; kind from address_set.h. Claims an address
 * that is new. address_release() removes a reference. */
int address_acquire(struct sy_balance *b, const struct sy_addr *addr, uint8_t kind,
                    struct sy_error *err);
void address_release(struct sy_balance *b, const struct sy_addr *addr);
/* Is it referenced? */
bool address_is_known(const struct sy_balance *b, const struct sy_addr *addr);
/* Withdraws the claims of all addresses without references. */
void address_free_unused(struct sy_balance *b);
/* serve: claims all addresses. Otherwise withdraws the claims: a peer serves, and this host must
 * not answer for the addresses. Sources stay diverted: this host's kernel would route their packets
 * untranslated. */
void addresses_serve(struct sy_balance *b, bool serve);
/* Returns true if this node claims its addresses; false: it is a standby. */
static inline bool addresses_are_served(const struct sy_balance *b)
{
	return !b->ctl->standby && sy_runtime_is_claimed(b->rt);
}
/* Adds to the number of services with this NAT server: sign 1 or −1. */
void source_count(struct model *m, const struct sy_source *source, int sign);
uint32_t source_refs(const struct model *m, const struct sy_source *source);
/* Diverts packets of new sources from the kernel. */
void source_divert(struct sy_balance *b);
/* Stops diverting packets of sources without references. */
void source_collect(struct sy_balance *b);
/* Lists their addresses, maybe with duplicates; `include_unreferenced`: including those without
 * references. `entries` must have space for rte_hash_count(). Returns their number. */
unsigned source_list(const struct sy_balance *b, bool include_unreferenced,
                     struct address_set_entry *entries);
uint8_t address_kind(struct sy_balance *b, const struct sy_addr *addr);

uint32_t id_alloc(struct id_pool *p); /* UINT32_MAX: none left */
void id_free(struct id_pool *p, uint32_t id);

/* Defaults in seconds, by state. */
extern const uint16_t session_timeout_default[SESSION_STATES];

#endif
