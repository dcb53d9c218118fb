// SPDX-License-Identifier: Apache-2.0
/* Services in direct routing mode, with two servers each, for tests of that mode. */
#ifndef DIRECT_FIXTURE_H
#define DIRECT_FIXTURE_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define SERVICES 4 /* as in flows.h: TCP and UDP over IPv4, then over IPv6 */

static const char *const client_text[2] = {"198.18.0.1", "2001:db8:c::1"};
static const char *const vip_text[2] = {"192.0.2.20", "2001:db8:a::20"};
static const char *const server_text[2][2] = {{"10.3.0.1", "10.3.0.2"},
                                              {"2001:db8:d::1", "2001:db8:d::2"}};

static inline struct service_key key_of(unsigned service)
{
	const char *vip = vip_text[service / 2];
	return service % 2 ? harness_key(vip, 53, SY_PROTO_UDP)
	                   : harness_key(vip, 80, SY_PROTO_TCP);
}

static inline void put_direct(struct changes *c, unsigned service, const char *server)
{
	struct service_key key = key_of(service);
	flows_put(c, &key, "direct", MODE_DR, &server, 1, ntohs(key.vport));
}

static inline int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned s = 0; s < SERVICES; s++)
		for (unsigned i = 0; i < 2; i++)
			put_direct(&c, s, server_text[s / 2][i]);
	flows_commit(*state, &c);
	return rc;
}

static inline struct sy_tuple client_of(unsigned service, uint16_t port)
{
	const struct service_key key = key_of(service);
	return (struct sy_tuple){harness_addr(client_text[service / 2]), key.vip, htons(port),
	                         key.vport, key.proto};
}

/* Sends a frame and checks the frame that leaves, byte by byte; returns the server that it goes
 * to. */
static inline unsigned pass_at(struct flows *f, const struct sy_tuple *t, uint8_t flags,
                               unsigned payload, uint32_t seq)
{
	struct frame in, out, want;
	struct sy_view v;
	flows_frame(f, &in, t, flags, seq, payload);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	want = in;
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
	frame_set_ttl(&want, (uint8_t)(sy_packet_ttl(in.bytes, &v) - 1));
	/* the fixture's neighbours 4 to 7: host 1 of each family, then host 2 of each */
	memcpy(want.bytes, (uint8_t[6]){2, 0, 0, 0, 1, out.bytes[5]}, 6);
	memcpy(want.bytes + 6, harness_mac[HARNESS_LAN], 6);
	assert_int_equal(out.len, want.len);
	assert_memory_equal(out.bytes, want.bytes, want.len);
	assert_int_equal(out.bytes[5] % 2, !sy_addr_is_v4(&t->src));
	struct session *s = flows_find(f, t);
	assert_non_null(s);
	const struct sy_addr *server = &inspect_endpoint(f->harness.b, s->server)->addr;
	assert_int_equal(server->b[15], out.bytes[5] / 2 - 1);
	return server->b[15];
}

static inline unsigned pass(struct flows *f, const struct sy_tuple *t, uint8_t flags,
                            unsigned payload)
{
	return pass_at(f, t, flags, payload, 1);
}

#endif
