// SPDX-License-Identifier: Apache-2.0
/* What applications set, and are told. */
#include <errno.h>

#include "stack.h"
#include "timer.h"

static uint32_t flag_of(enum sy_stack_option option)
{
	switch (option) {
	case SY_STACK_NO_DELAY:
		return C_NO_DELAY;
	case SY_STACK_CORK:
		return C_CORK;
	case SY_STACK_QUICK_ACK:
		return C_QUICK_ACK;
	case SY_STACK_LINGER_ABORT:
		return C_LINGER_ABORT;
	case SY_STACK_PACING:
		return C_PACED;
	default:
		return 0;
	}
}

/* As the three bands of pfifo_fast, tc-prio(8). */
static uint8_t band_of(uint32_t priority)
{
	static const uint8_t band[] = {[1] = BAND_LAST, [2] = BAND_LAST,  [3] = BAND_LAST,
	                               [5] = BAND_LAST, [6] = BAND_FIRST, [7] = BAND_FIRST};

	return priority < SY_ARRAY_LEN(band) ? band[priority] : BAND_USUAL;
}

/* False: the value is impossible. */
static bool wish_set(struct connection_wishes *w, enum sy_stack_option option, uint32_t value)
{
	switch (option) {
	case SY_STACK_KEEPALIVE_S:
		w->keepalive_s = (uint16_t)value;
		return value <= UINT16_MAX;
	case SY_STACK_KEEPALIVE_INTERVAL_S:
		w->keepalive_interval_s = (uint16_t)value;
		return value > 0 && value <= UINT16_MAX;
	case SY_STACK_KEEPALIVE_PROBES:
		w->keepalive_probes = (uint8_t)value;
		return value > 0 && value <= UINT8_MAX;
	case SY_STACK_USER_TIMEOUT_MS:
		w->user_timeout_ms = value;
		break;
	case SY_STACK_SEND_BYTES:
		w->send_limit = value;
		w->flags |= C_SEND_FIXED;
		return value > 0;
	case SY_STACK_RECEIVE_BYTES:
		w->receive_limit = value;
		w->flags |= C_RECEIVE_FIXED;
		return value > 0;
	case SY_STACK_TOS:
		w->tos = (uint8_t)value;
		return value <= UINT8_MAX;
	case SY_STACK_MSS:
		w->mss = (uint16_t)value;
		return value <= UINT16_MAX;
	case SY_STACK_PRIORITY:
		w->band = band_of(value);
		break;
	case SY_STACK_PACING_RATE:
		w->pace_most = value == UINT32_MAX ? 0 : value;
		w->flags |= value == UINT32_MAX ? 0 : C_PACED; /* it stays on, as on Linux */
		break;
	default:
		if (!flag_of(option))
			return false;
		w->flags &= ~flag_of(option);
		w->flags |= value ? flag_of(option) : 0;
	}
	return true;
}

static struct connection_wishes wishes_of(const struct connection *c)
{
	return (struct connection_wishes){
	        .keepalive_s = c->keepalive_s,
	        .keepalive_interval_s = c->keepalive_interval_s,
	        .user_timeout_ms = c->user_timeout_ms,
	        .send_limit = c->send_limit,
	        .receive_limit = c->receive_limit,
	        .flags = c->flags,
	        .mss = c->user_mss,
	        .keepalive_probes = c->keepalive_probes,
	        .tos = c->tos,
	        .band = c->band,
	        .pace_most = c->pace_most,
	};
}

/* As on Linux: what was there before a cork, and might leave, does not wait for it. When there is
 * none any more, or Nagle's rule is turned off, all that waits leaves. */
static void flags_set(struct connection *c, uint32_t flags, enum sy_stack_option option,
                      uint32_t value)
{
	if (option == SY_STACK_CORK && value)
		connection_hold(c, c->unsent.end);
	c->flags = flags;
	if (option == SY_STACK_CORK && !value)
		c->flags &= ~(uint32_t)C_MORE;
	if (option == SY_STACK_NO_DELAY && value && connection_holds(c))
		c->held_from = c->unsent.end;
}

int sy_stack_set(struct sy_stack *s, sy_stack_id id, enum sy_stack_option option, uint32_t value,
                 uint64_t now_ns)
{
	struct listener *l = listener_of(s, id);
	struct connection *c = connection_of(s, id);

	stack_time(s, now_ns);
	if (!l && !c)
		return -EBADF;
	struct connection_wishes w = l ? l->wishes : wishes_of(c);
	if (option == SY_STACK_SEND_BYTES && value > s->options.send_max)
		value = s->options.send_max;
	if (option == SY_STACK_RECEIVE_BYTES && value > s->options.receive_max)
		value = s->options.receive_max;
	if (!wish_set(&w, option, value))
		return -EINVAL;
	if (l) {
		l->wishes = w;
		return 0;
	}
	c->keepalive_s = w.keepalive_s;
	c->keepalive_interval_s = w.keepalive_interval_s;
	c->user_timeout_ms = w.user_timeout_ms;
	c->send_limit = w.send_limit;
	c->receive_limit = w.receive_limit;
	flags_set(c, w.flags, option, value);
	c->user_mss = w.mss;
	c->keepalive_probes = w.keepalive_probes;
	c->tos = w.tos;
	c->band = w.band & 3;
	c->pace_most = w.pace_most;
	if (option == SY_STACK_MSS)
		connection_resize(c);
	if (option == SY_STACK_PRIORITY)
		connection_rises(s, c);
	if (option == SY_STACK_KEEPALIVE_S && value && c->state >= SY_STACK_ESTABLISHED)
		timer_set(s, c, TIMER_KEEPALIVE, value * 1000);
	if (c->state != SY_STACK_CLOSED)
		connection_wants(s, c);
	return 0;
}

/* SYN and FIN are numbers, and no bytes. */
static uint32_t bytes_unsent(const struct connection *c)
{
	if (c->state == SY_STACK_SYN_SENT || c->state == SY_STACK_SYN_RECEIVED ||
	    seq_after(c->snd_una, c->unsent.end))
		return 0;
	return c->unsent.end - c->snd_una;
}

static uint32_t urgent_left(const struct connection *c)
{
	uint32_t read = c->rcv_nxt - !!(c->flags & C_FIN_ARRIVED) - c->received.bytes;

	return c->flags & C_URGENT_IN && seq_after(c->urgent_in, read) ? c->urgent_in - read : 0;
}

static void connection_info(const struct sy_stack *s, const struct connection *c,
                            struct sy_stack_info *out)
{
	*out = (struct sy_stack_info){
	        .state = (enum sy_stack_state)c->state,
	        .local = {c->tuple.dst, c->tuple.dport},
	        .peer = {c->tuple.src, c->tuple.sport},
	        .rtt_us = rtt_smoothed_us(&c->rtt),
	        .rtt_least_us = rtt_least_us(&c->rtt),
	        .rtt_var_us = rtt_variation_us(&c->rtt),
	        .rto_ms = rtt_timeout_ms(&c->rtt),
	        .window = c->congestion.window,
	        .threshold = c->congestion.ssthresh,
	        .in_flight = flight_bytes(s, c),
	        .unacked = c->snd_nxt - c->snd_una,
	        .mss = c->mss,
	        .path_mtu = path_mtu_size(&c->path_mtu),
	        .peer_window = c->snd_wnd,
	        .receive_window = c->rcv_edge - c->rcv_nxt,
	        .unsent = bytes_unsent(c),
	        .unread = c->received.bytes,
	        .urgent = urgent_left(c),
	        .sent = c->bytes_acked,
	        .received = c->bytes_received,
	        .retransmitted = c->retransmitted,
	        .sack = c->flags & C_SACK,
	        .timestamps = c->flags & C_TIMESTAMPS,
	        .scale = c->flags & C_SCALE,
	        .receive_closed = (c->rcv_edge - c->rcv_nxt) >> c->rcv_scale == 0,
	        .ecn = c->flags & C_ECN,
	        .retries = c->retries,
	};
}

int sy_stack_info(struct sy_stack *s, sy_stack_id id, struct sy_stack_info *out)
{
	const struct connection *c = connection_of(s, id);

	if (!c)
		return -EBADF;
	connection_info(s, c, out);
	return 0;
}

/* False: there is nothing. */
static bool place_info(const struct sy_stack *s, uint32_t at, struct sy_stack_info *out)
{
	if (at < s->options.listeners) {
		const struct listener *l = &s->listener[at];
		*out = (struct sy_stack_info){.state = SY_STACK_LISTEN,
		                              .local = l->local,
		                              .unread = l->ready.count,
		                              .unsent = l->backlog,
		                              .only_v6 = l->only_v6};
		return l->used && !l->retired;
	}
	const struct connection *c = &s->connection[at - s->options.listeners];
	if (c->state == SY_STACK_CLOSED && !(c->flags & C_OWNED))
		return false;
	connection_info(s, c, out);
	return true;
}

unsigned sy_stack_walk(struct sy_stack *s, uint32_t *at, struct sy_stack_info *out, unsigned most)
{
	uint32_t end = s->options.listeners + s->fresh, from = *at;
	unsigned count = 0;

	while (*at < end && *at - from < SY_STACK_WALK && count < most)
		count += place_info(s, (*at)++, &out[count]);
	if (*at >= end)
		*at = 0;
	return count;
}
