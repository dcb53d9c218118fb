// SPDX-License-Identifier: Apache-2.0
/* Sessions that begin under the SYN defence: the server's connection is opened, and joined with the
 * client's (docs/design/0025-syn-defence.md). */
#ifndef JOIN_PATH_H
#define JOIN_PATH_H

#include "defence.h"
#include "join.h"

/* Session `record` has just been created for packet i, the client's SYN, which was forwarded. */
void join_open(struct sy_worker *w, struct sy_burst *burst, unsigned i, uint32_t record,
               struct join_opening *opening);
/* Packet i of a session in state SESSION_OPENING. False: it was answered, held or dropped. */
bool join_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Packet i, a SYN or SYN-ACK of a session that was joined. False: it was the server's repetition,
 * and was answered, or was dropped. If it is the server's answer to a later SYN of the client, the
 * session is joined no longer. */
bool join_syn_seen(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                   struct session_join *join);
/* The tuple begins again: client and server see each other's numbers from now on. */
void join_end(struct session_table *t, uint32_t record, const struct endpoint *e);
/* Converts packet i of a joined session to the receiver's count. */
void join_convert(struct sy_burst *burst, unsigned i, const struct session *s,
                  const struct session_join *join);
/* Each second: repeats the client's SYN to the server. */
void join_repeat_syn(struct sy_worker *w, struct session_table *t, uint32_t record);
/* The server has not answered, or is gone: resets both ends by exact numbers. */
void join_abandon(struct sy_worker *w, struct session_table *t, uint32_t record);

#endif
