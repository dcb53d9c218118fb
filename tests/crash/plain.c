// SPDX-License-Identifier: Apache-2.0
#include "plain.h"

#include <arpa/inet.h>
#include <forwarder.pb-c.h>

#define UP   STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DOWN STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN

/* Seconds by which two idle times may differ, and by which a sweep may be late. */
#define ROUNDING 2
#define LATE     3
#define PRESSED  3   /* shortest timeout of an unvalidated session under pressure */
#define LONGEST  120 /* longest silence of any session, in seconds */
/* Seconds for which a session whose server or local address was removed resets both ends. If the
 * local address is configured again meanwhile, a process that starts then keeps the session. */
#define DYING 5

/* ---- names ----------------------------------------------------------------------------------- */

bool plain_is_v4(unsigned service)
{
	return service % 4 < 2;
}

uint8_t plain_proto(unsigned service)
{
	return service % 2 ? SY_PROTO_UDP : SY_PROTO_TCP;
}

static struct sy_addr addr_v6(uint16_t net, unsigned host)
{
	struct sy_addr a = {.b = {0x20, 0x01, 0x0d, 0xb8}};
	a.h[2] = htons(net);
	a.h[7] = htons((uint16_t)host);
	return a;
}

struct sy_addr plain_vip(unsigned service)
{
	unsigned n = 100 + service / 4; /* each VIP has a TCP and a UDP service */
	return plain_is_v4(service) ? sy_addr_v4(htonl(0xc0000200 + n)) : addr_v6(1, n);
}

/* Services share servers: several services need the same local port towards one server. */
struct sy_addr plain_server(unsigned service, unsigned n)
{
	unsigned host = 1 + (n + 2 * (service / 4)) % 8;
	return plain_is_v4(service) ? sy_addr_v4(htonl(0x0a000000 + host)) : addr_v6(2, host);
}

uint16_t plain_server_port(unsigned service)
{
	return htons((uint16_t)(8000 + service % 4));
}

struct sy_addr plain_local(unsigned n)
{
	return n < PLAIN_LOCALS_4 ? sy_addr_v4(htonl(0x0a00ff01 + n)) : addr_v6(2, 0xff01 + n);
}

struct sy_addr plain_client(unsigned service, unsigned n)
{
	return plain_is_v4(service) ? sy_addr_v4(htonl(0xc6120001 + n)) : addr_v6(0xc, 1 + n);
}

unsigned plain_client_address(unsigned service)
{
	static const unsigned how[] = {
	        STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_UNSPECIFIED,
	        STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2,
	        STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA,
	};
	return plain_proto(service) == SY_PROTO_TCP ? how[service / 4 % SY_ARRAY_LEN(how)] : 0;
}

uint32_t plain_inserted(unsigned service)
{
	if (plain_client_address(service) !=
	    STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2)
		return 0;
	return plain_is_v4(service) ? 28 : 52; /* signature and head, addresses, ports */
}

const char *plain_state_name(unsigned state)
{
	static const char *const name[PLAIN_STATES] = {
	        "none",    "syn-sent",        "syn-received",    "established", "fin-wait",
	        "closing", "time-wait",       "reset",           "udp-one-way", "udp-answered",
	        "udp",     "reset-by-client", "reset-by-server",
	};
	return name[state];
}

uint32_t plain_timeout(unsigned service, unsigned state)
{
	static const uint8_t seconds[PLAIN_STATES] = {0, 8, 9, 40, 14, 11, 10, 7, 9, 9, 30, 7, 7};
	return seconds[state] + service % 3;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static bool flow_is_udp(const struct flow *f)
{
	return plain_proto(f->service) == SY_PROTO_UDP;
}

static uint8_t state_of_fins(uint8_t fins)
{
	if ((fins & 12) == 12)
		return PLAIN_TIME_WAIT;
	if ((fins & 3) == 3)
		return PLAIN_CLOSING;
	return fins & 3 ? PLAIN_FIN_WAIT : PLAIN_ESTABLISHED;
}

void flow_after(const struct flow *f, uint8_t *state, uint8_t *fins)
{
	unsigned side = f->side, other = !side;
	*state = f->state;
	*fins = f->fins;
	if (f->reopens || f->certainty == FLOW_UNCERTAIN) {
		*state = flow_is_udp(f) ? PLAIN_UDP_ONE_WAY : PLAIN_SYN_SENT;
		*fins = 0;
	} else if (flow_is_udp(f)) {
		if (side == PLAIN_SERVER && f->state == PLAIN_UDP_ONE_WAY)
			*state = PLAIN_UDP_ANSWERED;
		else if (side == PLAIN_CLIENT && f->state == PLAIN_UDP_ANSWERED)
			*state = PLAIN_UDP_BOTH_WAYS;
	} else if (f->flags & SY_TCP_SYN) {
		if (side == PLAIN_SERVER && f->state == PLAIN_SYN_SENT)
			*state = PLAIN_SYN_RECEIVED;
	} else if (f->flags & SY_TCP_RST) {
		*state = side == PLAIN_CLIENT ? PLAIN_RESET_BY_CLIENT : PLAIN_RESET_BY_SERVER;
	} else if (f->state != PLAIN_SYN_SENT &&
	           (f->state != PLAIN_SYN_RECEIVED || side == PLAIN_CLIENT)) {
		if (f->fins & 1 << other)
			*fins |= (uint8_t)(4 << other);
		if (f->flags & SY_TCP_FIN)
			*fins |= (uint8_t)(1 << side);
		/* A reset is cancelled by the end that supposedly sent it. */
		if (f->state !=
		    (side == PLAIN_CLIENT ? PLAIN_RESET_BY_SERVER : PLAIN_RESET_BY_CLIENT))
			*state = state_of_fins(*fins);
	}
}

static bool plan(struct flow *f, enum plain_side side, uint8_t flags)
{
	f->side = side;
	f->flags = flags;
	return true;
}

static bool plan_tcp(struct flow *f, struct rng *d)
{
	enum plain_side side = rng_percent(d, 50) ? PLAIN_CLIENT : PLAIN_SERVER;
	uint32_t choice = rng_below(d, 100);
	switch (f->state) {
	case PLAIN_SYN_SENT:
		return choice < 80 ? plan(f, PLAIN_SERVER, SY_TCP_SYN | SY_TCP_ACK)
		                   : plan(f, PLAIN_CLIENT, SY_TCP_SYN);
	case PLAIN_SYN_RECEIVED:
		return choice < 80 ? plan(f, PLAIN_CLIENT, SY_TCP_ACK)
		                   : plan(f, PLAIN_SERVER, SY_TCP_SYN | SY_TCP_ACK);
	case PLAIN_ESTABLISHED:
		return plan(f, side,
		            choice < 78   ? SY_TCP_ACK | SY_TCP_PSH
		            : choice < 95 ? SY_TCP_ACK | SY_TCP_FIN
		                          : SY_TCP_RST);
	case PLAIN_FIN_WAIT:
		side = f->fins & 1 << PLAIN_CLIENT ? PLAIN_SERVER : PLAIN_CLIENT;
		return plan(f, side, choice < 50 ? SY_TCP_ACK : SY_TCP_ACK | SY_TCP_FIN);
	case PLAIN_CLOSING:
		side = f->fins & 4 << PLAIN_CLIENT ? PLAIN_CLIENT : PLAIN_SERVER;
		return plan(f, side, SY_TCP_ACK);
	case PLAIN_RESET_BY_CLIENT:
	case PLAIN_RESET_BY_SERVER:
		return plan(f, side, side == PLAIN_CLIENT && choice < 30 ? SY_TCP_SYN : SY_TCP_ACK);
	default: /* the client reuses its port for another connection */
		f->reopens = true;
		return choice < 30 && plan(f, PLAIN_CLIENT, SY_TCP_SYN);
	}
}

/* Does it get new sessions? */
static bool server_accepts(const struct plain_part *server)
{
	return server->state == UP && server->weight > 0;
}

bool plain_accepts(const struct plain_config *c, unsigned service)
{
	for (unsigned i = 0; i < PLAIN_SERVERS; i++)
		if (server_accepts(&c->server[service][i]))
			return true;
	return false;
}

static bool flow_was_reset(const struct flow *f)
{
	return f->state == PLAIN_RESET_BY_CLIENT || f->state == PLAIN_RESET_BY_SERVER;
}

/* Without an answer from its server a client moves to another server, also after a reset. So does
 * every UDP client. A server that drains has no SYN answered either, unless there is no other one.
 */
static bool flow_leaves(const struct flow *f, const struct plain_config *c)
{
	const struct plain_part *server = &c->server[f->service][f->server];
	if (f->side != PLAIN_CLIENT)
		return false;
	if (flow_is_udp(f))
		return server->state == DOWN;
	if (!(f->flags & SY_TCP_SYN))
		return false;
	if (f->state == PLAIN_SYN_SENT && !server_accepts(server))
		return server->state == DOWN || plain_accepts(c, f->service);
	return flow_was_reset(f) && server->state == DOWN;
}

/* A SYN to a draining server waits until a probe has confirmed that the connection is over. */
static bool flow_is_probed(const struct flow *f, const struct plain_config *c)
{
	const struct plain_part *server = &c->server[f->service][f->server];
	return f->side == PLAIN_CLIENT && f->flags & SY_TCP_SYN && flow_was_reset(f) &&
	       !server_accepts(server) && server->state != DOWN;
}

bool flow_ask(struct flow *f, const struct plain_config *c, enum plain_side side)
{
	bool opening = f->state == PLAIN_SYN_SENT ||
	               (f->state == PLAIN_SYN_RECEIVED && side == PLAIN_SERVER);
	uint8_t flags = SY_TCP_ACK;
	if (flow_is_udp(f))
		flags = 0;
	else if (opening)
		flags = side == PLAIN_CLIENT ? SY_TCP_SYN : SY_TCP_SYN | SY_TCP_ACK;
	f->reopens = false;
	return plan(f, side, flags) && !flow_leaves(f, c);
}

bool flow_plan(struct flow *f, const struct plain_config *c, struct rng *d)
{
	f->reopens = false;
	bool talks = flow_is_udp(f) ? plan(f, rng_percent(d, 50) ? PLAIN_CLIENT : PLAIN_SERVER, 0)
	                            : plan_tcp(f, d);
	f->reopens |= flow_leaves(f, c);
	return talks && !(!flow_is_udp(f) && flow_is_probed(f, c));
}

/* A FIN without an acknowledgement shortens no timeout. */
static uint32_t state_timeout(const struct flow *f, uint8_t state, uint8_t fins)
{
	bool closing = state == PLAIN_FIN_WAIT || state == PLAIN_CLOSING;
	return plain_timeout(f->service, closing && !(fins & 12) ? PLAIN_ESTABLISHED : state);
}

/* Its port may be reassigned: no test may rely on it. */
static bool flow_lingers(const struct flow *f, uint32_t now)
{
	return f->state == PLAIN_TIME_WAIT && now != f->seen_first;
}

/* Returns the minimum timeout: that of an unvalidated session falls under pressure. */
static uint32_t state_least(const struct flow *f, uint8_t state, uint8_t fins)
{
	uint32_t whole = state_timeout(f, state, fins);
	bool unvalidated = state == PLAIN_SYN_SENT || state == PLAIN_SYN_RECEIVED ||
	                   state == PLAIN_UDP_ONE_WAY || state == PLAIN_UDP_ANSWERED;
	return f->pressed && unvalidated && whole > PRESSED ? PRESSED : whole;
}

bool flow_is_fresh(const struct flow *f, uint32_t now)
{
	return f->certainty == FLOW_CERTAIN && !f->pending && !flow_lingers(f, now) &&
	       now - f->seen_first + ROUNDING < state_least(f, f->state, f->fins);
}

/* If the client that supposedly sent a reset is silent, its server is probed, for the same time. */
static uint32_t state_longest(const struct flow *f, uint8_t state, uint8_t fins)
{
	uint32_t own = state_timeout(f, state, fins);
	return state == PLAIN_RESET_BY_CLIENT
	               ? own + LATE + plain_timeout(f->service, PLAIN_RESET_BY_SERVER)
	               : own;
}

/* The shortest and the longest timeout of the states that the flow may be in. */
static void flow_timeouts(const struct flow *f, uint32_t *min, uint32_t *max)
{
	uint8_t state, fins;
	*min = state_least(f, f->state, f->fins);
	*max = state_longest(f, f->state, f->fins);
	if (!f->pending)
		return;
	flow_after(f, &state, &fins);
	uint32_t soon = state_least(f, state, fins), late = state_longest(f, state, fins);
	*min = soon < *min ? soon : *min;
	*max = late > *max ? late : *max;
}

/* The longest silence of the flow's session. */
static uint32_t flow_longest(const struct flow *f)
{
	uint32_t min, max;
	if (f->certainty == FLOW_LOOSE)
		return LONGEST;
	flow_timeouts(f, &min, &max);
	return max + LATE + (f->certainty == FLOW_DOOMED && !flow_is_udp(f) ? LATE + DYING : 0);
}

bool flow_may_be(const struct flow *f, const char *state_name)
{
	uint8_t state = f->state, fins;
	if (f->pending)
		flow_after(f, &state, &fins);
	bool asked = f->state == PLAIN_RESET_BY_CLIENT || state == PLAIN_RESET_BY_CLIENT;
	return !strcmp(state_name, plain_state_name(f->state)) ||
	       !strcmp(state_name, plain_state_name(state)) ||
	       (asked && !strcmp(state_name, plain_state_name(PLAIN_RESET_BY_SERVER)));
}

static bool flow_is_served(const struct flow *f, const struct plain_config *c)
{
	const struct plain_part *server = &c->server[f->service][f->server];
	const struct plain_part *local = &c->local[f->local];
	return server->state && server->since == f->server_since && local->state &&
	       local->since == f->local_since;
}

bool flow_must_live(const struct flow *f, const struct plain_config *c, uint32_t now)
{
	uint32_t min, max;
	if (f->certainty != FLOW_CERTAIN || (f->pending && f->reopens) || flow_lingers(f, now))
		return false;
	flow_timeouts(f, &min, &max);
	return now - f->seen_first + ROUNDING <= min && flow_is_served(f, c);
}

bool flow_may_live(const struct flow *f, const struct plain_config *c, uint32_t now)
{
	if (f->certainty == FLOW_NONE || now - f->seen_last > flow_longest(f))
		return false;
	if (f->certainty == FLOW_LOOSE)
		return c->service[f->service].state;
	if (f->certainty == FLOW_UNCERTAIN || (f->pending && f->reopens))
		return c->service[f->service].state;
	return c->server[f->service][f->server].state && c->local[f->local].state;
}

void flows_doom(struct chronicle *h, const struct plain_config *c)
{
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		struct flow *f = &h->flow[i];
		if (f->certainty == FLOW_CERTAIN && !flow_is_served(f, c))
			f->certainty = FLOW_DOOMED;
	}
}

bool flow_may_be_evicted(const struct flow *f)
{
	switch (f->state) {
	case PLAIN_ESTABLISHED:
	case PLAIN_RESET_BY_CLIENT:
	case PLAIN_RESET_BY_SERVER:
		return false;
	case PLAIN_FIN_WAIT:
	case PLAIN_CLOSING:
		return f->fins & 12;
	default:
		return true;
	}
}

void flows_loosen(struct chronicle *h)
{
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		struct flow *f = &h->flow[i];
		if (f->certainty == FLOW_CERTAIN && !(f->pending && f->reopens) &&
		    flow_may_be_evicted(f))
			f->certainty = FLOW_LOOSE;
	}
}

void flows_forget(struct chronicle *h)
{
	uint32_t now = plain_seconds(h);
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		struct flow *f = &h->flow[i];
		if (f->certainty != FLOW_NONE && now - f->seen_last > flow_longest(f))
			f->certainty = FLOW_NONE;
	}
}
