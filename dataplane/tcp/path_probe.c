// SPDX-License-Identifier: Apache-2.0
#include "path_probe.h"
#include "recovery.h"
#include "stack.h"

/* Full segments sent after a probe, so that duplicate ACKs reveal its loss before an RTO. */
#define FOLLOWERS 4

static uint32_t headers_of(const struct connection *c)
{
	return connection_headers(c) - SY_ETH_LEN;
}

/* Returns the IP packet size of a segment, or of the first of several, with this payload. */
static uint16_t packet_size_of(const struct connection *c, uint32_t bytes)
{
	return (uint16_t)((bytes < c->mss ? bytes : c->mss) + headers_of(c));
}

/* ---- sending probes -------------------------------------------------------------------------- */

/* There is enough data, and both windows permit the probe and its followers. */
static bool probe_fits(const struct sy_stack *s, const struct connection *c, uint32_t payload)
{
	uint32_t need = payload + FOLLOWERS * c->mss, edge = c->snd_una + c->snd_wnd;

	return seq_after(c->unsent.end, c->snd_nxt) && c->unsent.end - c->snd_nxt >= need &&
	       seq_after(edge, c->snd_nxt) && edge - c->snd_nxt >= need &&
	       recovery_sendable(s, c) >= need;
}

uint32_t path_probe_payload(const struct sy_stack *s, struct connection *c)
{
	uint32_t size, payload;

	if (!path_mtu_searches(&c->path_mtu) || c->probe_len || c->recovery != RECOVERY_NONE ||
	    c->state < SY_STACK_ESTABLISHED)
		return 0;
	size = path_mtu_probe(&c->path_mtu, time_ms64(s));
	if (size <= packet_size_of(c, c->mss)) /* limited by the application's MSS */
		return 0;
	payload = size - headers_of(c);
	if (c->user_mss && payload > c->user_mss)
		return 0;
	return probe_fits(s, c, payload) ? payload : 0;
}

void path_probe_sent(struct connection *c, uint32_t from, uint32_t payload, uint32_t len)
{
	c->probe_from = from;
	c->probe_len = (uint16_t)len;
	path_mtu_probed(&c->path_mtu, (uint16_t)(payload + headers_of(c)));
}

void path_probe_forget(struct connection *c)
{
	c->probe_len = 0;
	path_mtu_probed(&c->path_mtu, 0);
}

void path_probe_acked(struct sy_stack *s, struct connection *c, uint32_t bytes)
{
	bool grew = false;

	if (c->probe_len && !sy_seq_before(c->snd_una, c->probe_from + c->probe_len)) {
		uint16_t size = c->path_mtu.probe;
		c->probe_len = 0;
		grew = size && path_mtu_passed(&c->path_mtu, size, time_ms64(s));
		s->counters.path_raised += grew;
	} else {
		grew = path_mtu_passed(&c->path_mtu, packet_size_of(c, bytes), time_ms64(s));
	}
	if (grew)
		connection_update_mss(c);
}

bool path_probe_lost(struct sy_stack *s, struct connection *c)
{
	const struct sent *sent = &flight_of(s, c)->sent;
	uint16_t size = c->path_mtu.probe;
	uint32_t from, to;

	if (!c->probe_len)
		return false;
	bool alone = sent->lost == c->probe_len &&
	             sent_next_lost(&flight_of(s, c)->sent, &s->sent, &from, &to) &&
	             from == c->probe_from;
	path_probe_forget(c);
	if (!alone) /* congestion, too: RFC 4821 7.6.4 */
		return false;
	path_mtu_probed(&c->path_mtu, size);
	if (size && path_mtu_lost(&c->path_mtu, size, time_ms64(s)))
		connection_update_mss(c);
	return true;
}

/* ---- other segments -------------------------------------------------------------------------- */

void path_late(struct sy_stack *s, struct connection *c)
{
	if (path_mtu_late(&c->path_mtu, time_ms64(s)))
		connection_update_mss(c);
}

void path_black_hole(struct sy_stack *s, struct connection *c)
{
	path_probe_forget(c);
	if (path_mtu_lost(&c->path_mtu, packet_size_of(c, c->snd_nxt - c->snd_una), time_ms64(s)))
		connection_update_mss(c);
}
