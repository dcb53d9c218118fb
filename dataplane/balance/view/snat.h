// SPDX-License-Identifier: Apache-2.0
/*
 * SNAT: hosts inside talk to others from addresses of a pool. See docs/design/0013-snat.md.
 *
 * A rule has a service's id, for its timeouts, and one server's id per protocol, which sessions
 * name; neither has an address. What the workers need of all rules is one immutable object, swapped
 * under RCU.
 */
#ifndef SNAT_H
#define SNAT_H

#include <forwarder.pb-c.h>

#include "balance.h"
#include "ours.h"

#define SNAT_PREFIXES 4096u /* of all rules together */

enum snat_protocol { SNAT_TCP, SNAT_UDP, SNAT_ICMP, SNAT_ICMPV6, SNAT_PROTOCOLS };

struct snat_pool {
	unsigned count;
	struct sy_addr addr[MAX_LOCALS];
	uint8_t id[MAX_LOCALS]; /* as local addresses' */
};

struct snat_rule {
	uint32_t server[SNAT_PROTOCOLS];
	struct snat_pool pool[2]; /* [0]: IPv6, [1]: IPv4 */
};

struct snat_place {
	struct sy_addr first;
	uint8_t bits;  /* of the prefix; 0: an empty place */
	uint16_t rule; /* index */
};

/* NULL instead of it: there are no rules. */
struct snat {
	unsigned lengths;    /* of prefixes, that there are */
	uint8_t length[128]; /* the longest first */
	uint32_t mask;       /* of places − 1; at most half are taken */
	struct snat_place *place;
	struct snat_rule *rule;
	unsigned sources;         /* NAT servers that are inside */
	struct sy_source *source; /* sorted as bytes */
};

/* ---- snat.c: packets ------------------------------------------------------------------------- */

/* The rule of a host inside; NULL: it is not. */
const struct snat_rule *snat_find(const struct snat *snat, const struct sy_addr *addr);
/* Is the packet from a host inside to one that is not? Groups and what is of a link alone are
 * nobody's outside. */
bool snat_takes(const struct snat *snat, const struct sy_tuple *t);
/* Of a NAT server: is the packet its own traffic nonetheless, from a port that is no service's? */
bool snat_is_of_inside(const struct snat *snat, const struct sy_tuple *t);
/* Does an echo look for its session: a request to others, or a reply to the pool? */
bool snat_is_echo(const struct sy_view *v, bool to_pool);
/* Its tuple's ports: the id takes the place of the port that SNAT changes. */
void snat_echo_ports(struct sy_view *v, bool to_pool);

/* session_create() for a packet that no service takes. */
uint32_t snat_create(struct sy_worker *w, struct sy_burst *burst, unsigned i, enum sy_drop *reason);
/* forward_packet()'s work on a packet of a session. */
void snat_rewrite(const struct sy_balance *b, struct sy_burst *burst, unsigned i,
                  const struct session *s);

/* ---- snat_model.c: rules, as configured and as published --------------------------------------
 */

struct model;
struct model_snat {
	unsigned prefixes, pools;
	uint8_t pool[MAX_LOCALS];  /* ids */
	struct sy_source prefix[]; /* as the director takes them */
};

int snat_put(struct sy_balance *b, const Steelyard__Forwarder__V1__Snat *pb, struct sy_error *err);
int snat_delete(struct sy_balance *b, const char *name, struct sy_error *err);
/* What can only be judged at a transaction's end. */
int snat_check(struct sy_balance *b, struct sy_error *err);
/* NULL: of NULL, or no memory. Freed by free(). */
struct model_snat *snat_copy(const struct model_snat *s);
/* The model has these networks once more (sign 1), or not any more (−1). */
void snat_count(struct model *m, const struct model_snat *s, int sign);
/* Makes the rules of the model visible to the workers. */
void snat_publish(struct sy_balance *b);
void snat_free(void *snat);

#endif
