// SPDX-License-Identifier: Apache-2.0
/* Kinds of sessions by mode and families, each with a service and a server of its own. */
#ifndef WAYS_H
#define WAYS_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

/* A kind of session; its server is on link, or behind a router or in a tunnel. */
struct way {
	enum mode mode;
	bool client6, server6;
	uint8_t vip; /* last byte */
	const char *server;
};

/* Of each mode, with each pair of families that it allows. */
#define WAYS_OF_MODES                                                                              \
	{                                                                                          \
		{MODE_FNAT, false, false, 60, "10.3.0.1"},                                         \
		        {MODE_NAT, false, false, 61, "10.3.0.1"},                                  \
		        {MODE_DR, false, false, 62, "10.3.0.1"},                                   \
		        {MODE_IPIP, false, false, 63, "10.0.0.91"},                                \
		        {MODE_IPIP, false, true, 64, "2001:db8:b::91"},                            \
		        {MODE_FNAT, false, true, 65, "2001:db8:d::1"},                             \
		        {MODE_FNAT, true, false, 66, "10.3.0.1"},                                  \
		        {MODE_FNAT, true, true, 67, "2001:db8:d::1"},                              \
	}

/* A client and a router on the way to it, by whether they are of IPv6. */
static const char *const client_text[2] = {"198.18.0.1", "2001:db8:c::1"};
static const char *const router_text[2] = {"203.0.113.9", "2001:db8:99::9"};

static inline struct service_key key_of(const struct way *way, uint8_t proto)
{
	struct service_key key =
	        harness_key(way->client6 ? "2001:db8:a::" : "192.0.2.0", 80, proto);
	key.vip.b[15] = way->vip;
	return key;
}

/* flows_setup(), with a TCP and a UDP service for each kind. */
static inline int ways_setup(void **state, const struct way ways[], unsigned count)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned n = 0; n < 2 * count; n++) {
		const struct way *way = &ways[n / 2];
		struct service_key key = key_of(way, n % 2 ? SY_PROTO_UDP : SY_PROTO_TCP);
		struct sy_addr server = harness_addr(way->server);
		bool moves = way->mode == MODE_FNAT || way->mode == MODE_NAT;
		put_service(&c, &key, "way", FLOW_RR, NULL);
		set_mode(&c, way->mode);
		put_server(&c, &key, &server, moves ? 8080 + way->vip : 80, 1, FLOW_UP);
	}
	flows_commit(*state, &c);
	return rc;
}

/* The tuple of a client's packets. */
static inline struct sy_tuple client_of(const struct way *way, uint8_t proto, uint16_t port)
{
	const struct service_key key = key_of(way, proto);
	return (struct sy_tuple){harness_addr(client_text[way->client6]), key.vip, htons(port),
	                         key.vport, proto};
}

static inline struct sy_tuple reversed(const struct sy_tuple *t)
{
	return (struct sy_tuple){t->dst, t->src, t->dport, t->sport, t->proto};
}

#endif
