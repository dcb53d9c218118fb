// SPDX-License-Identifier: Apache-2.0
/* Which sessions are joined, and by how much their ends' numbers differ. Part of balance.h's
 * room. */
#ifndef JOIN_H
#define JOIN_H

#include "balance.h"
#include "session_join.h"

/* The join of a session that began under the SYN defence; NULL: there is none. */
static inline struct session_join *session_join_of(const struct session_table *t, uint32_t record,
                                                   const struct endpoint *e)
{
	return e->mode != MODE_SNAT && session_is_pair(t, record) ? join_at(t, record) : NULL;
}

/* What is added to a number of the server's stream as its client counts it, to get it as the server
 * counts. */
static inline uint32_t join_number(const struct session *s, const struct session_join *join)
{
	return join && join->joined ? join->server_number - join_begin_of(s)->cookie : 0;
}

/* Likewise, for packets of the slow path. */
static inline uint32_t session_number(const struct session_table *t, uint32_t record,
                                      const struct endpoint *e)
{
	const struct session *s = session_at(t, record);
	return s->flags & SESSION_SHIFTED ? join_number(s, session_join_of(t, record, e)) : 0;
}

#endif
