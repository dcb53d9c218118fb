// SPDX-License-Identifier: Apache-2.0
/* Reads and checks parts of messages by themselves: addresses, services' keys, timeouts. */
#include <arpa/inet.h>

#include "model.h"

typedef Steelyard__Forwarder__V1__ServiceKey pb_key;
typedef Steelyard__Forwarder__V1__Timeouts pb_timeouts;

#define TIMEOUT_LIMIT 32767u /* seconds: half of the tick's range */

int read_addr(const ProtobufCBinaryData *bytes, const char *what, struct sy_addr *out,
              struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	if (sy_addr_from_bytes(bytes->data, bytes->len, out) < 0)
		return sy_fail(err, EINVAL, "%s: an address has 4 or 16 bytes, not %zu", what,
		               bytes->len);
	if (sy_addr_is_bogus_source(out))
		return sy_fail(err, EINVAL,
		               "%s: %s is a loopback, multicast, reserved or unspecified address",
		               what, sy_addr_format(out, text));
	return 0;
}

bool read_prefix_addr(const Steelyard__Forwarder__V1__Prefix *p, struct sy_addr *out)
{
	return sy_addr_from_bytes(p->address.data, p->address.len, out) == 0 &&
	       sy_addr_is_v4(out) == (p->address.len == 4) && p->length <= 8 * p->address.len;
}

static int read_ports(const pb_key *pb, struct service_key *key, struct sy_error *err)
{
	if (pb->port > UINT16_MAX || pb->last_port > UINT16_MAX)
		return sy_fail(err, EINVAL, "service: port %u is not within 1–65535",
		               pb->port > UINT16_MAX ? pb->port : pb->last_port);
	if (pb->last_port > 0 && pb->last_port <= pb->port)
		return sy_fail(err, EINVAL, "service: the range %u–%u has less than two ports",
		               pb->port, pb->last_port);
	if (pb->last_port > 0 && pb->port == 0)
		return sy_fail(
		        err, EINVAL,
		        "service: a range begins with port 1 or above; all ports are 0 alone");
	*key = (struct service_key){.vport = htons((uint16_t)pb->port),
	                            .last_port = htons((uint16_t)pb->last_port)};
	return 0;
}

int read_key(const pb_key *pb, struct service_key *key, struct sy_error *err)
{
	if (!pb)
		return sy_fail(err, EINVAL, "the service's key is missing");
	if (pb->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP &&
	    pb->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_UDP)
		return sy_fail(err, EINVAL, "service: protocol %d is neither TCP nor UDP",
		               (int)pb->protocol);
	int rc = read_ports(pb, key, err);
	if (rc < 0)
		return rc;
	key->proto = (uint16_t)pb->protocol;
	return read_addr(&pb->vip, "VIP", &key->vip, err);
}

int read_timeouts(const pb_timeouts *pb, uint16_t out[SESSION_STATES], struct sy_error *err)
{
	memset(out, 0, SESSION_STATES * sizeof(out[0]));
	if (!pb)
		return 0;
	const struct {
		enum session_state state;
		uint32_t seconds;
	} given[] = {
	        {SESSION_SYN_SENT, pb->syn_sent_s},
	        {SESSION_SYN_RECEIVED, pb->syn_received_s},
	        {SESSION_ESTABLISHED, pb->established_s},
	        {SESSION_FIN_WAIT, pb->fin_wait_s},
	        {SESSION_CLOSING, pb->closing_s},
	        {SESSION_TIME_WAIT, pb->time_wait_s},
	        {SESSION_RESET, pb->reset_s},
	        {SESSION_UDP_ONE_WAY, pb->udp_one_way_s},
	        {SESSION_UDP_BOTH_WAYS, pb->udp_s},
	        {SESSION_ECHO, pb->echo_s},
	};
	for (size_t i = 0; i < SY_ARRAY_LEN(given); i++) {
		if (given[i].seconds > TIMEOUT_LIMIT)
			return sy_fail(err, EINVAL, "timeout %s: %u s is above %u s",
			               session_state_name(given[i].state), given[i].seconds,
			               TIMEOUT_LIMIT);
		out[given[i].state] = (uint16_t)given[i].seconds;
	}
	return 0;
}
