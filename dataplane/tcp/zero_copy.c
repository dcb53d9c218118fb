// SPDX-License-Identifier: Apache-2.0
/* Zero-copy reads and writes. */
#include <errno.h>

#include "call.h"
#include "stack.h"

static int64_t packets_look(struct sy_stack *s, sy_stack_id id, struct iovec *v,
                            struct rte_mbuf **held, int count)
{
	const void *first;
	int64_t rc = sy_stack_peek(s, id, &first), total = 0;

	if (rc <= 0)
		return rc;
	for (struct rte_mbuf *m = connection_of(s, id)->received.first; m && count > 0;
	     m = m->next, count--) {
		*v++ = (struct iovec){rte_pktmbuf_mtod(m, void *), m->data_len};
		total += m->data_len;
		if (held) {
			rte_mbuf_refcnt_update(m, 1);
			*held++ = m;
		}
	}
	return total;
}

int64_t sy_stack_peek_vectors(struct sy_stack *s, sy_stack_id id, struct iovec *v, int count)
{
	return packets_look(s, id, v, NULL, count);
}

int64_t sy_stack_peek_referenced(struct sy_stack *s, sy_stack_id id, struct iovec *v,
                                 struct rte_mbuf **held, int count)
{
	return packets_look(s, id, v, held, count);
}

int64_t sy_stack_reserve(struct sy_stack *s, sy_stack_id id, struct iovec *v, int count, size_t len,
                         uint64_t now_ns)
{
	struct connection *c = connection_of(s, id);
	int64_t space;

	stack_time(s, now_ns);
	space = send_check(s, c, len);
	if (space <= 0)
		return space;
	space = (int64_t)send_buffer_reserve(&c->unsent, &s->chunks, v, count, (size_t)space);
	return space > 0 ? space : send_added(s, c, 0, len, 0);
}

int sy_stack_commit(struct sy_stack *s, sy_stack_id id, size_t len, int flags, uint64_t now_ns)
{
	struct connection *c = connection_of(s, id);

	stack_time(s, now_ns);
	if (!c)
		return -EBADF;
	if (len > s->chunks.reserved_len)
		return -EINVAL;
	send_buffer_commit(&c->unsent, &s->chunks, len);
	if (len > 0)
		send_added(s, c, len, len, flags);
	return 0;
}
