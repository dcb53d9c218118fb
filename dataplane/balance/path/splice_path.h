// SPDX-License-Identifier: Apache-2.0
/* Sessions that begin under the SYN defence: opens the server's connection and splices it with the
 * client's (docs/design/0025-syn-defence.md). */
#ifndef SPLICE_PATH_H
#define SPLICE_PATH_H

#include "defence.h"
#include "splice.h"

/* Call after creating session `record` for packet i, the client's SYN, which was forwarded. */
void splice_open(struct sy_worker *w, struct sy_burst *burst, unsigned i, uint32_t record,
                 struct splice_opening *opening);
/* Processes packet i of a session in state SESSION_OPENING. Returns false if it was answered,
 * queued or dropped. */
bool splice_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Processes packet i, a SYN or SYN-ACK of a spliced session. Returns false if it was dropped, or
 * was a retransmission of the server, which was answered. If the server answers a later SYN of the
 * client, ends the splice. */
bool splice_syn_received(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                         struct session_splice *splice);
/* The tuple is reused: both ends get each other's numbers from now on. */
void splice_end(struct session_table *t, uint32_t record, const struct endpoint *e);
/* Converts packet i of a spliced session to the receiver's numbering. */
void splice_convert(struct sy_burst *burst, unsigned i, const struct session *s,
                    const struct session_splice *splice);
/* Retransmits the client's SYN to the server; called once a second. */
void splice_syn_retransmit(struct sy_worker *w, struct session_table *t, uint32_t record);
/* The server did not answer or is gone: resets both ends by exact numbers. */
void splice_abandon(struct sy_worker *w, struct session_table *t, uint32_t record);

#endif
