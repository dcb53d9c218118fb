// SPDX-License-Identifier: Apache-2.0
/*
 * What the balancer's stages pass on to each other about the packets of a burst, beside struct
 * sy_burst. Each worker has one. Fields name the stage or file that writes them, then those that
 * read them.
 */
#ifndef BURST_STATE_H
#define BURST_STATE_H

#include <sy_balance.h>

#include "address_ranges.h"
#include "session.h"

struct service;
struct service_load;
struct limit_chain;

/* The search for a new session's local port, with what it needs to check whether a port is
 * taken. */
struct port_search {
	struct session_port_search search;
	const struct sy_balance *balance;
	const struct session_table *table;
	const struct service_load *load; /* the worker's, by service id */
	uint32_t server;                 /* of the new session */
};

/* A session that a packet will create, as prepared by create_prepare(). */
struct creation {
	uint32_t server;         /* on which it has a place */
	uint32_t reason;         /* enum sy_drop: NONE, or why there is no server */
	struct port_search port; /* for FNAT: the search so far */
};

/* A packet of the burst for which limits were charged: police.h. */
struct charge {
	const struct limit_chain *chain;
	struct sy_addr client;
	uint32_t limits; /* a bit by place in the chain */
	uint16_t len;    /* bytes of IP packet, as it came */
};

struct burst_state {
	/* One bit per packet, by its number in the burst. burst_state_reset() clears them. */
	uint64_t looked; /* its access list look-up has begun: look up → slow path */
	uint64_t passed; /* of those looked: the filter lets it pass: slow path → access_check.c */
	uint64_t located;  /* service[] has its service: locate.c → slow path */
	uint64_t listed;   /* of those located: the service has an access list: locate.c →
	                      access_check.c */
	uint64_t accepted; /* access lists accept it: access_check.c, defence.c → access_check.c */
	uint64_t prepared; /* creation[] has its server: create.c → create.c, slow path */
	uint64_t charged;  /* limits were charged, as charge[] says: police.c → police.c */
	uint64_t queued;   /* of those charged: it is for the event device: police.c → queued.c */

	const struct service *service[SY_BURST]; /* of those located; NULL: none */
	struct creation creation[SY_BURST];      /* of those prepared */
	struct charge charge[SY_BURST];          /* of those charged */
	struct address_look look[SY_BURST];      /* of those looked, without gaps */
	const struct address_ranges *looked_in;
};

/* The bits of the packets before packet `end`, SY_BURST at most. */
static inline uint64_t burst_bits_before(unsigned end)
{
	return end < SY_BURST ? (UINT64_C(1) << end) - 1 : UINT64_MAX;
}

/* Packets have new numbers: a burst begins, or some were removed from it. */
static inline void burst_state_reset(struct burst_state *s)
{
	s->looked = s->passed = s->located = s->listed = 0;
	s->accepted = s->prepared = s->charged = s->queued = 0;
}

#endif
