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

#include "address_set.h"
#include "balance.h"

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

/* ---- snat.c: who is inside ------------------------------------------------------------------- */

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

void snat_free(void *snat);

#endif
