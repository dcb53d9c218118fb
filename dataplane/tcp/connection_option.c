// SPDX-License-Identifier: Apache-2.0
/* Options and state of connections. */
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

/* Maps SO_PRIORITY to three bands like pfifo_fast (tc-prio(8)). */
static uint8_t band_of(uint32_t priority)
{
	static const uint8_t band[] = {[1] = BAND_LAST, [2] = BAND_LAST,  [3] = BAND_LAST,
	                               [5] = BAND_LAST, [6] = BAND_FIRST, [7] = BAND_FIRST};

	return priority < SY_ARRAY_LEN(band) ? band[priority] : BAND_USUAL;
}

/* Returns false if the value is invalid. */
static bool listener_option_set(struct listener_options *w, enum sy_stack_option option,
                                uint32_t value)
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
		w->max_pace = value == UINT32_MAX ? 0 : value;
		w->flags |= value == UINT32_MAX ? 0 : C_PACED; /* pacing stays on, as on Linux */
		break;
	default:
		if (!flag_of(option))
			return false;
		w->flags &= ~flag_of(option);
		w->flags |= value ? flag_of(option) : 0;
	}
	return true;
}

static struct listener_options listener_options_of(const struct connection *c)
{
	return (struct listener_options){
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
	        .max_pace = c->max_pace,
	};
}

/* As on Linux: a cork does not delay data that could be sent before it; removing it, or disabling
 * Nagle, sends everything. */
static void flags_set(struct connection *c, uint32_t flags, enum sy_stack_option option,
                      uint32_t value)
{
	if (option == SY_STACK_CORK && value)
		connection_cork(c, c->unsent.end);
	c->flags = flags;
	if (option == SY_STACK_CORK && !value)
		c->flags &= ~(uint32_t)C_MORE;
	if (option == SY_STACK_NO_DELAY && value && connection_is_corked(c))
		c->cork_from = c->unsent.end;
}

int sy_stack_set(struct sy_stack *s, sy_stack_id id, enum sy_stack_option option, uint32_t value,
                 uint64_t now_ns)
{
	struct listener *l = listener_of(s, id);
	struct connection *c = connection_of(s, id);

	stack_time(s, now_ns);
	if (!l && !c)
		return -EBADF;
	struct listener_options w = l ? l->options : listener_options_of(c);
	if (option == SY_STACK_SEND_BYTES && value > s->options.send_max)
		value = s->options.send_max;
	if (option == SY_STACK_RECEIVE_BYTES && value > s->options.receive_max)
		value = s->options.receive_max;
	if (!listener_option_set(&w, option, value))
		return -EINVAL;
	if (l) {
		l->options = w;
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
	c->max_pace = w.max_pace;
	if (option == SY_STACK_MSS)
		connection_update_mss(c);
	if (option == SY_STACK_PRIORITY)
		connection_reschedule(s, c);
	if (option == SY_STACK_KEEPALIVE_S && value && c->state >= SY_STACK_ESTABLISHED)
		timer_set(s, c, TIMER_KEEPALIVE, value * 1000);
	if (c->state != SY_STACK_CLOSED)
		connection_schedule(s, c);
	return 0;
}

/* Excludes SYN and FIN, which occupy sequence numbers. */
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
	        .rtt_min_us = rtt_min_us(&c->rtt),
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

/* Returns false for a free slot. */
static bool place_info(const struct sy_stack *s, uint32_t at, struct sy_stack_info *out)
{
	if (at < s->options.listeners) {
		const struct listener *l = &s->listeners.slot[at];
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

unsigned sy_stack_walk(struct sy_stack *s, uint32_t *at, struct sy_stack_info *out, unsigned max)
{
	uint32_t end = s->options.listeners + s->fresh, from = *at;
	unsigned count = 0;

	if (*at >= s->listeners.fresh && *at < s->options.listeners)
		from = *at = s->options.listeners; /* later slots have never been used */
	while (*at < end && *at - from < SY_STACK_WALK && count < max)
		count += place_info(s, (*at)++, &out[count]);
	if (*at >= end)
		*at = 0;
	return count;
}
