// SPDX-License-Identifier: Apache-2.0
/* The SYN defence: SYNs answered by cookies, and the ACKs that return them
 * (docs/design/0025-syn-defence.md). */
#ifndef DEFENCE_H
#define DEFENCE_H

#include "balance.h"
#include "session_splice.h"

/* A client that has returned a cookie. */
struct splice_opening {
	struct splice_begin begin;
	uint32_t echo;         /* the timestamp that it echoed */
	struct rte_mbuf *data; /* its ACK, if it has data or a FIN; NULL */
};

/* Does the service answer SYNs by cookies or challenges? */
static inline bool defence_is_on(const struct sy_balance *b, const struct service *service)
{
	return SY_UNLIKELY(service->policy.syn_defence == DEFENCE_ALWAYS) ||
	       (service->policy.syn_defence == DEFENCE_AUTO && SY_READ(b->defends[service->id]));
}
/* Might a client still return what this service, which is not defended now, has answered? */
bool defence_is_awaited(const struct sy_worker *w, const struct service *service);
/* Notes that the service has answered by a cookie or challenge. */
void defence_note(const struct sy_worker *w, const struct service *service);
/* Answers a client's SYN, packet i, in its place; create_check() has passed it. */
void defence_answer(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                    const struct service *service);

/* The answer takes packet i's place in its buffer, and is sent back. */
void defence_send(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                  const struct sy_tcp_segment *s);
/* This worker's keys: of the current epoch and of the one before, by their lowest bits. */
const struct cookie_keys *defence_keys(struct sy_worker *w);

enum defence_result {
	DEFENCE_PASSES, /* the defence has no part in the packet */
	DEFENCE_GONE,   /* it was answered, or was dropped */
	DEFENCE_OPENS,  /* it returned a cookie: it is the client's SYN now, and *opening is set */
	DEFENCE_WRONG,  /* its number is no cookie */
};
/* The client's SYN towards the server; v4: the client's family. */
struct sy_tcp_segment splice_syn(const struct splice_begin *begin, bool v4);
/* Turns packet i, of that client, into that SYN. False: it does not fit its buffer. */
bool splice_syn_write_over(struct sy_burst *burst, unsigned i, const struct splice_begin *begin);
/* The same SYN in a buffer of its own, NULL: there is none. */
struct rte_mbuf *splice_syn_packet(struct sy_worker *w, const struct sy_tuple *t,
                                   const struct splice_begin *begin);
/* Writes a segment of this tuple over the packet in a buffer, which keeps its MACs. False: no
 * space. */
bool splice_syn_write(struct rte_mbuf *m, const struct sy_tuple *t, const struct sy_tcp_segment *s);

/* A client's packet i without a session. */
enum defence_result defence_meet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                 struct splice_opening *opening);
/* No session could be created for a client that has returned a cookie: resets it, within the limit
 * of resets, and frees its data. */
void defence_refuse(struct sy_worker *w, const struct sy_burst *burst, unsigned i,
                    const struct service *service, struct splice_opening *opening);

#endif
