// SPDX-License-Identifier: Apache-2.0
/* Sessions that begin under the SYN defence: the server's connection is opened, and spliced with
 * the client's (docs/design/0025-syn-defence.md). */
#ifndef SPLICE_PATH_H
#define SPLICE_PATH_H

#include "defence.h"
#include "splice.h"

/* Session `record` has just been created for packet i, the client's SYN, which was forwarded. */
void splice_open(struct sy_worker *w, struct sy_burst *burst, unsigned i, uint32_t record,
                 struct splice_opening *opening);
/* Packet i of a session in state SESSION_OPENING. False: it was answered, held or dropped. */
bool splice_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Packet i, a SYN or SYN-ACK of a session that was spliced. False: it was the server's repetition,
 * and was answered, or was dropped. If it is the server's answer to a later SYN of the client, the
 * session is spliced no longer. */
bool splice_syn_received(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                         struct session_splice *splice);
/* The tuple begins again: client and server see each other's numbers from now on. */
void splice_end(struct session_table *t, uint32_t record, const struct endpoint *e);
/* Converts packet i of a spliced session to the receiver's count. */
void splice_convert(struct sy_burst *burst, unsigned i, const struct session *s,
                    const struct session_splice *splice);
/* Each second: repeats the client's SYN to the server. */
void splice_syn_retransmit(struct sy_worker *w, struct session_table *t, uint32_t record);
/* The server has not answered, or is gone: resets both ends by exact numbers. */
void splice_abandon(struct sy_worker *w, struct session_table *t, uint32_t record);

#endif
