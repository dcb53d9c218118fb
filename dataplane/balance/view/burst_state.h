// SPDX-License-Identifier: Apache-2.0
/*
 * State of a burst's packets that the balancer's stages share, beside struct sy_burst. One per
 * worker. Each field names its writers, then its readers.
 */
#ifndef BURST_STATE_H
#define BURST_STATE_H

#include <sy_balance.h>

#include "address_ranges.h"
#include "session.h"

struct service;
struct service_load;
struct limit_chain;

/* A search for a new session's local port, with the context for port_is_in_use(). */
struct port_search {
	struct session_port_search search;
	const struct sy_balance *balance;
	const struct session_table *table;
	const struct service_load *load; /* the worker's, by service id */
	uint32_t server;                 /* of the new session */
};

/* A session that create_prepare() has prepared. */
struct creation {
	uint32_t server;         /* server, acquired */
	uint32_t reason;         /* enum sy_drop: why there is no server; NONE */
	struct port_search port; /* for FNAT: the search so far */
};

/* The charge of a packet: police.h. */
struct charge {
	const struct limit_chain *chain;
	struct sy_addr client;
	uint32_t limits; /* bitmap of the charged limits, by index in the chain */
	uint16_t len;    /* bytes of IP packet before rewriting */
};

struct burst_state {
	/* Bitmaps by packet number. burst_state_reset() clears them. */
	uint64_t lookup_begun; /* its access list lookup-up has begun: lookup.c → slow path */
	uint64_t passed; /* of those lookup_begun: the filter passes it: slow path → access_check.c
	                  */
	uint64_t located;  /* service[] is set: locate.c → slow path */
	uint64_t listed;   /* of those located: its service has an access list: locate.c →
	                      access_check.c */
	uint64_t accepted; /* accepted by the access lists: access_check.c, defence.c →
	                      access_check.c */
	uint64_t prepared; /* creation[] is set: create.c → create.c, slow path */
	uint64_t charged;  /* charge[] is set: police.c → police.c */
	uint64_t queued;   /* of those charged: for the event device: police.c → queued.c */

	const struct service *service[SY_BURST]; /* of those located; NULL: none */
	struct creation creation[SY_BURST];      /* of those prepared */
	struct charge charge[SY_BURST];          /* of those charged */
	struct address_lookup lookup[SY_BURST];  /* of those lookup_begun, without gaps */
	const struct address_ranges *lookup_ranges;
};

/* The bitmap of packets before packet `end`, at most SY_BURST. */
static inline uint64_t burst_bits_before(unsigned end)
{
	return end < SY_BURST ? (UINT64_C(1) << end) - 1 : UINT64_MAX;
}

/* Call when packet numbers change: a burst begins, or packets were removed from it. */
static inline void burst_state_reset(struct burst_state *s)
{
	s->lookup_begun = s->passed = s->located = s->listed = 0;
	s->accepted = s->prepared = s->charged = s->queued = 0;
}

#endif
