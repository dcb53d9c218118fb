// SPDX-License-Identifier: Apache-2.0
/* Finds the splice of a session, and the offset between the numberings of its ends. Part of
 * balance.h. */
#ifndef SPLICE_H
#define SPLICE_H

#include "balance.h"
#include "session_splice.h"

/* The splice of a session that began under the SYN defence; NULL: none. */
static inline struct session_splice *session_splice_of(const struct session_table *t,
                                                       uint32_t record, const struct endpoint *e)
{
	return e->mode != MODE_SNAT && session_is_pair(t, record) ? splice_at(t, record) : NULL;
}

/* The offset to add to a number in the client's numbering of the server's stream, to get the
 * server's. */
static inline uint32_t splice_offset(const struct session *s, const struct session_splice *splice)
{
	return splice && splice->spliced ? splice->server_number - splice_begin_of(s)->cookie : 0;
}

/* The same for the slow path. */
static inline uint32_t session_number(const struct session_table *t, uint32_t record,
                                      const struct endpoint *e)
{
	const struct session *s = session_at(t, record);
	return s->flags & SESSION_SHIFTED ? splice_offset(s, session_splice_of(t, record, e)) : 0;
}

#endif
