// SPDX-License-Identifier: Apache-2.0
/* The plain model: services, servers and flows as seen from outside the balancer, in arrays that
 * survive the killed processes.
 *
 * A process records what it is about to do, does it, and records the result. So its successor knows
 * for every item whether it is certain or uncertain, at whatever moment the process was killed.
 * Results are read from the packets that came out, never from the balancer's tables. */
#ifndef PLAIN_H
#define PLAIN_H

#include <sy_base.h>

#include "../soak/soak_frame.h"

#define PLAIN_SERVICES 12
#define PLAIN_SERVERS  6 /* maximum per service */
#define PLAIN_LOCALS   5
#define PLAIN_LOCALS_4 3 /* the first of the local addresses, which are IPv4 */
#define PLAIN_FLOWS    2000

/* Service, server or local address; since: counts the objects that had this name one after
 * another. */
struct plain_part {
	uint8_t state; /* 0: not configured; server: the API's state; else 1 */
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
	PLAIN_UDP_ANSWERED,
	PLAIN_UDP_BOTH_WAYS,
	PLAIN_RESET_BY_CLIENT,
	PLAIN_RESET_BY_SERVER,
	PLAIN_STATES
};

enum flow_certainty {
	FLOW_NONE,
	FLOW_UNCERTAIN, /* its first packet was in flight, and was not seen to leave */
	FLOW_CERTAIN,
	FLOW_DOOMED, /* its server or local address was removed: it may still exist */
	FLOW_LOOSE,  /* its slot was full: it may have been evicted and created once more */
};

struct flow {
	uint8_t certainty;
	uint8_t service;
	struct sy_addr client;
	uint16_t client_port; /* network order, as all ports here */
	/* as observed in packets that left */
	uint8_t server, local;
	uint16_t local_port;
	uint32_t server_since, local_since;
	uint8_t state, fins; /* fins: bit side: sent; bit 2 + side: acknowledged */
	uint32_t seq[2];     /* by side: its next sequence number */
	uint32_t first;      /* the client's first byte, after its SYN */
	bool acknowledged;   /* its server has acknowledged data since that SYN */
	uint32_t seen_first,
	        seen_last; /* earliest and latest second at which its last packet was seen */
	/* the packet in flight; uncertain until `pending` is cleared, which is done last */
	bool pending;
	bool reopens; /* ends the existing session and creates another */
	bool pressed; /* its slot may have so many unvalidated sessions that they end early */
	uint8_t side, flags;
};

/* Shared by parent and children. */
struct chronicle {
	uint64_t now_ns;   /* the only clock; it advances while no child runs */
	uint32_t since;    /* last value assigned */
	uint32_t serial;   /* burst number */
	uint32_t accepted; /* config in force */
	bool committing;   /* the other one may be in force */
	bool evicting;     /* sessions may be evicted */
	struct plain_config config[2];
	struct flow flow[PLAIN_FLOWS];
	/* read by the parent to time its kills */
	volatile uint32_t phase, turns;
	volatile bool failed;       /* an error was found, and is being reported */
	volatile uint64_t ready_ns; /* from fork to the first burst, in real time; 0: not yet */
	/* for the report */
	uint64_t grown;
	uint64_t adopted, uncertain, probed, forwarded, created, commits;
	uint64_t result[16];
};

enum plain_phase { PHASE_START, PHASE_CHECK, PHASE_WORKLOAD, PHASE_COMMIT, PHASE_COUNT };

/* ---- names ----------------------------------------------------------------------------------- */

bool plain_is_v4(unsigned service);
uint8_t plain_proto(unsigned service);
struct sy_addr plain_vip(unsigned service);
struct sy_addr plain_server(unsigned service, unsigned n);
uint16_t plain_server_port(unsigned service);
struct sy_addr plain_local(unsigned n);
struct sy_addr plain_client(unsigned service, unsigned n);
/* How its servers get the client's address, as in the API. */
unsigned plain_client_address(unsigned service);
/* Bytes that this inserts before the client's data. */
uint32_t plain_inserted(unsigned service);
#define PLAIN_PORT 80 /* of every service, host order */
const char *plain_state_name(unsigned state);
/* Seconds of silence after which a state expires. */
uint32_t plain_timeout(unsigned service, unsigned state);

/* ---- rules ----------------------------------------------------------------------------------- */

/* State and FINs after the pending packet has passed. */
void flow_after(const struct flow *f, uint8_t *state, uint8_t *fins);
/* Chooses the flow's next packet; false: there is none to send. */
bool flow_plan(struct flow *f, const struct plain_config *c, struct rng *d);
/* The same for a packet from this side that changes as little as possible. */
bool flow_ask(struct flow *f, const struct plain_config *c, enum plain_side side);
/* Whether a packet of it is certain to find it, and its server still configured. */
bool flow_is_fresh(const struct flow *f, uint32_t now);
/* Whether a process that starts now must find the flow, and whether it may. */
bool flow_must_live(const struct flow *f, const struct plain_config *c, uint32_t now);
bool flow_may_live(const struct flow *f, const struct plain_config *c, uint32_t now);
/* Whether its session may be in the state of this name. */
bool flow_may_be(const struct flow *f, const char *state_name);
/* Does a server of the service get new sessions? */
bool plain_accepts(const struct plain_config *c, unsigned service);
/* Marks flows whose server or local address has changed. */
void flows_doom(struct chronicle *h, const struct plain_config *c);
/* An established TCP session is never evicted, nor one whose FINs are all unacknowledged. */
bool flow_may_be_evicted(const struct flow *f);
/* Sessions were or may have been evicted: marks every flow that eviction may hit as uncertain. */
void flows_loosen(struct chronicle *h);
/* Forgets expired flows. */
void flows_forget(struct chronicle *h);
static inline uint32_t plain_seconds(const struct chronicle *h)
{
	return (uint32_t)(h->now_ns / 1000000000u);
}

#endif
