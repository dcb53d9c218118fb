// SPDX-License-Identifier: Apache-2.0
/* Connections that another TCP of this host goes on with, when this stack no longer listens. */
#include <errno.h>

#include "call.h"
#include "listener.h"
#include "stack.h"

int sy_stack_retire(struct sy_stack *s, sy_stack_id listener)
{
	struct listener *l = listener_of(s, listener);

	if (!l)
		return -EBADF;
	l->retired = true;
	return 0;
}

bool sy_stack_has_retired(const struct sy_stack *s, const struct sy_addr *addr, uint16_t port)
{
	return listener_is_retired(s, addr, port);
}

bool sy_stack_uses_port(const struct sy_stack *s, uint16_t port)
{
	return s->port_uses[port] > 0;
}

static void bytes_copy(const struct receive_buffer *b, uint8_t *out)
{
	for (const struct rte_mbuf *m = b->first; m; m = m->next) {
		memcpy(out, rte_pktmbuf_mtod(m, const void *), m->data_len);
		out += m->data_len;
	}
}

int sy_stack_export(struct sy_stack *s, sy_stack_id id, struct sy_stack_export *out, void *bytes,
                    size_t max, uint64_t now_ns)
{
	const struct connection *c = connection_of(s, id);

	stack_time(s, now_ns);
	if (!c)
		return -EBADF;
	if (c->state != SY_STACK_ESTABLISHED)
		return -ENOTCONN;
	if (c->snd_una != c->snd_nxt || c->unsent.end != c->snd_nxt || c->flags & C_PROBED)
		return -EBUSY;
	if (c->received.bytes > max)
		return -EMSGSIZE;
	bytes_copy(&c->received, bytes);
	*out = (struct sy_stack_export){
	        .local = {c->tuple.dst, c->tuple.dport},
	        .peer = {c->tuple.src, c->tuple.sport},
	        .snd_nxt = c->snd_nxt,
	        .rcv_nxt = c->rcv_nxt,
	        .snd_wnd = c->snd_wnd,
	        .snd_wnd_max = c->snd_wnd_max,
	        .rcv_wnd = c->rcv_edge - c->rcv_nxt,
	        .time = s->now_ms + c->ts_offset,
	        .unread = c->received.bytes,
	        .peer_mss = c->peer_mss,
	        .snd_scale = c->snd_scale,
	        .rcv_scale = c->rcv_scale,
	        .sack = c->flags & C_SACK,
	        .timestamps = c->flags & C_TIMESTAMPS,
	        .scale = c->flags & C_SCALE,
	};
	return 0;
}

int sy_stack_forget(struct sy_stack *s, sy_stack_id id)
{
	struct connection *c = connection_of(s, id);

	if (!c)
		return -EBADF;
	s->counters.exported++;
	connection_disown(s, c);
	connection_end(s, c, 0);
	return 0;
}
