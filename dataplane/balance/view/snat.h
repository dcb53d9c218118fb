// SPDX-License-Identifier: Apache-2.0
/*
 * SNAT: inside hosts talk to remotes from the addresses of a pool. See docs/design/0013-snat.md. A
 * rule has a service's id, for its timeouts, and one server id per protocol, which its sessions
 * name. Neither has an address. The workers read all rules from one immutable object, swapped under
 * RCU.
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
	uint8_t id[MAX_LOCALS]; /* like the ids of local addresses */
};

struct snat_rule {
	uint32_t server[SNAT_PROTOCOLS];
	struct snat_pool pool[2]; /* [0]: IPv6, [1]: IPv4 */
};

struct snat_place {
	struct sy_addr first;
	uint8_t bits;  /* of the prefix; 0: empty */
	uint16_t rule; /* index */
};

/* A NULL pointer instead: there are no rules. */
struct snat {
	unsigned lengths;    /* how many prefix lengths there are */
	uint8_t length[128]; /* the longest first */
	uint32_t mask;       /* places − 1; at most half are taken */
	struct snat_place *place;
	struct snat_rule *rule;
	unsigned sources;         /* NAT servers that are inside hosts */
	struct sy_source *source; /* sorted as bytes */
};

/* ---- snat.c: which hosts are inside ---------------------------------------------------------- */

/* The rule of an inside host; NULL: not inside. */
const struct snat_rule *snat_find(const struct snat *snat, const struct sy_addr *addr);
/* Is the packet from an inside host to one that is not? Multicast and link-local addresses do not
 * count as outside. */
bool snat_matches(const struct snat *snat, const struct sy_tuple *t);
/* Is a NAT server's packet its own traffic, from a port that is no service's? */
bool snat_is_of_inside(const struct snat *snat, const struct sy_tuple *t);
/* Does an echo belong to a session: a request to a remote, or a reply to the pool? */
bool snat_is_echo(const struct sy_view *v, bool to_pool);
/* Sets the tuple's ports of an echo: the id takes the place of the port that SNAT changes. */
void snat_echo_ports(struct sy_view *v, bool to_pool);

void snat_free(void *snat);

#endif
