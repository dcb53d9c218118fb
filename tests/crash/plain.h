// SPDX-License-Identifier: Apache-2.0
/*
 * The plain model: services, servers and flows as somebody outside the balancer knows them, in
 * arrays that outlive the processes that are killed.
 *
 * A process writes down what it is about to do, does it, and writes down what came of it. So of
 * everything its successor knows whether it is certain or in doubt, at whatever moment it was
 * killed. What came of it is read from the packets that came out, never from the balancer's tables.
 */
#ifndef PLAIN_H
#define PLAIN_H

#include <sy_base.h>

#include "../soak/frame.h"

#define PLAIN_SERVICES 12
#define PLAIN_SERVERS  6 /* of each, at the most */
#define PLAIN_LOCALS   5
#define PLAIN_LOCALS_4 3 /* the first of them are IPv4 */
#define PLAIN_FLOWS    2000

/* Service, server or local address; since: which of those that had this name one after another. */
struct plain_part {
	uint8_t state; /* 0: not configured; server: of the API; else 1 */
	uint8_t weight;
	uint32_t since;
};

struct plain_config {
	uint64_t revision;
	struct plain_part service[PLAIN_SERVICES], server[PLAIN_SERVICES][PLAIN_SERVERS],
	        local[PLAIN_LOCALS];
};

enum plain_side { PLAIN_CLIENT, PLAIN_SERVER };

enum plain_state {
	PLAIN_NONE,
	PLAIN_SYN_SENT,
	PLAIN_SYN_RECEIVED,
	PLAIN_ESTABLISHED,
	PLAIN_FIN_WAIT,
	PLAIN_CLOSING,
	PLAIN_TIME_WAIT,
	PLAIN_RESET,
	PLAIN_UDP_ONE_WAY,
	PLAIN_UDP_BOTH_WAYS,
	PLAIN_RESET_BY_CLIENT,
	PLAIN_RESET_BY_SERVER,
	PLAIN_STATES
};

enum flow_certainty {
	FLOW_NONE,
	FLOW_UNCERTAIN, /* its first packet was under way, and nobody saw it come out */
	FLOW_CERTAIN,
	FLOW_DOOMED, /* its server or local address was taken away: it may linger */
	FLOW_LOOSE,  /* its slot was full: it may have been evicted, and have begun again */
};

struct flow {
	uint8_t certainty;
	uint8_t service;
	struct sy_addr client;
	uint16_t client_port; /* network order, as all ports here */
	/* as seen in the packets that came out */
	uint8_t server, local;
	uint16_t local_port;
	uint32_t server_since, local_since;
	uint8_t state, fins;            /* fins: bit side: sent; bit 2 + side: acknowledged */
	uint32_t seq[2];                /* by side: its next sequence number */
	uint32_t first;                 /* the client's first byte, behind its SYN */
	bool told;                      /* its server has acknowledged data since that SYN */
	uint32_t seen_first, seen_last; /* its last packet was seen between these seconds */
	/* the packet under way; it counts as in doubt until `pending` is cleared, last of all */
	bool pending;
	bool anew; /* ends the session that was, and begins another */
	uint8_t side, flags;
};

/* What parent and children share. */
struct chronicle {
	uint64_t now_ns;   /* the only clock there is; goes on while nobody lives */
	uint32_t since;    /* given out so far */
	uint32_t serial;   /* of bursts */
	uint32_t accepted; /* which config is in force */
	bool committing;   /* the other one may be */
	bool evicting;     /* sessions may be evicted */
	struct plain_config config[2];
	struct flow flow[PLAIN_FLOWS];
	/* for the one who kills */
	volatile uint32_t phase, turns;
	volatile bool failed;       /* something is wrong, and is being said */
	volatile uint64_t ready_ns; /* from creation to the first churn, real time; 0: not yet */
	/* what was done, for the report */
	uint64_t grown;
	uint64_t adopted, uncertain, probed, forwarded, created, commits;
	uint64_t verdict[16];
};

enum plain_phase { PHASE_START, PHASE_CHECK, PHASE_CHURN, PHASE_COMMIT, PHASE_COUNT };

/* ---- names of things ---- */

bool plain_is_v4(unsigned service);
uint8_t plain_proto(unsigned service);
struct sy_addr plain_vip(unsigned service);
struct sy_addr plain_server(unsigned service, unsigned n);
uint16_t plain_server_port(unsigned service);
struct sy_addr plain_local(unsigned n);
struct sy_addr plain_client(unsigned service, unsigned n);
/* How its servers are told the client's address, as in the API. */
unsigned plain_client_address(unsigned service);
/* Bytes that go in front of the client's data for that. */
uint32_t plain_inserted(unsigned service);
#define PLAIN_PORT 80 /* of every service, host order */
const char *plain_state_name(unsigned state);
/* Seconds of silence that a state may last. */
uint32_t plain_timeout(unsigned service, unsigned state);

/* ---- rules ---- */

/* State and FINs once the pending packet has been through. */
void flow_after(const struct flow *f, uint8_t *state, uint8_t *fins);
/* Chooses the flow's next packet; false: it has nothing to say. */
bool flow_plan(struct flow *f, const struct plain_config *c, struct rng *d);
/* The same for a packet from this side that changes as little as can be. */
bool flow_ask(struct flow *f, const struct plain_config *c, enum plain_side side);
/* Is a packet of it certain to find it still, and its server still there? */
bool flow_is_fresh(const struct flow *f, uint32_t now);
/* Whether the flow must be found, and whether it may be, by a process that starts now. */
bool flow_must_live(const struct flow *f, const struct plain_config *c, uint32_t now);
bool flow_may_live(const struct flow *f, const struct plain_config *c, uint32_t now);
/* May its session be in the state of this name? */
bool flow_may_be(const struct flow *f, const char *state_name);
/* Marks flows whose server or local address is no longer what it was. */
void flows_doom(struct chronicle *h, const struct plain_config *c);
/* Sessions were evicted, or may have been: nothing is certain any more of those that may be. */
void flows_loosen(struct chronicle *h);
/* Forgets flows whose time is up. */
void flows_forget(struct chronicle *h);
static inline uint32_t plain_seconds(const struct chronicle *h)
{
	return (uint32_t)(h->now_ns / 1000000000u);
}

#endif
