// SPDX-License-Identifier: Apache-2.0
/*
 * SNAT: inside hosts talk to remotes from the addresses of a pool (docs/design/0013-snat.md). A
 * rule has a service id, for timeouts, and a server id per protocol, for its sessions. Neither has
 * an address. Workers read all rules from one immutable object, swapped under RCU.
 */
#ifndef SNAT_H
#define SNAT_H

#include "address_set.h"
#include "balance.h"

#define SNAT_PREFIXES 4096u /* max prefixes of all rules */

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

struct snat_entry {
	struct sy_addr first;
	uint8_t bits;  /* of the prefix; 0: empty */
	uint16_t rule; /* index */
};

/* NULL pointers to it: no rules. */
struct snat {
	unsigned lengths;    /* number of different prefix lengths */
	uint8_t length[128]; /* longest first */
	uint32_t mask;       /* number of entries − 1; at most half are used */
	struct snat_entry *place;
	struct snat_rule *rule;
	unsigned sources;         /* number of NAT servers that are inside hosts */
	struct sy_source *source; /* sorted as bytes */
};

/* ---- snat.c: which hosts are inside ---------------------------------------------------------- */

/* The rule of an inside host; NULL: not inside. */
const struct snat_rule *snat_find(const struct snat *snat, const struct sy_addr *addr);
/* Is the packet from an inside host to an outside one? Multicast and link-local addresses are not
 * outside. */
bool snat_matches(const struct snat *snat, const struct sy_tuple *t);
/* Is a NAT server's packet its own traffic, from a port without a service? */
bool snat_is_of_inside(const struct snat *snat, const struct sy_tuple *t);
/* Does an echo belong to a session: a request to a remote, or a reply to the pool? */
bool snat_is_echo(const struct sy_view *v, bool to_pool);
/* Sets the ports of an echo's tuple: its id is the port that SNAT changes. */
void snat_echo_ports(struct sy_view *v, bool to_pool);

void snat_free(void *snat);

#endif
