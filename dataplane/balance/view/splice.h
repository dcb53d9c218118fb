// SPDX-License-Identifier: Apache-2.0
/* Which sessions are spliced, and by how much their ends' numbers differ. Part of balance.h's
 * room. */
#ifndef SPLICE_H
#define SPLICE_H

#include "balance.h"
#include "session_splice.h"

/* The splice of a session that began under the SYN defence; NULL: there is none. */
static inline struct session_splice *session_splice_of(const struct session_table *t,
                                                       uint32_t record, const struct endpoint *e)
{
	return e->mode != MODE_SNAT && session_is_pair(t, record) ? splice_at(t, record) : NULL;
}

/* What is added to a number of the server's stream as its client counts it, to get it as the server
 * counts. */
static inline uint32_t splice_offset(const struct session *s, const struct session_splice *splice)
{
	return splice && splice->spliced ? splice->server_number - splice_begin_of(s)->cookie : 0;
}

/* Likewise, for packets of the slow path. */
static inline uint32_t session_number(const struct session_table *t, uint32_t record,
                                      const struct endpoint *e)
{
	const struct session *s = session_at(t, record);
	return s->flags & SESSION_SHIFTED ? splice_offset(s, session_splice_of(t, record, e)) : 0;
}

#endif
