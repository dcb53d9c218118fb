// SPDX-License-Identifier: Apache-2.0
/* The SYN defence: answers SYNs by cookies, and processes the ACKs that return them
 * (docs/design/0025-syn-defence.md). */
#ifndef DEFENCE_H
#define DEFENCE_H

#include <sy_tcp_segment.h>

#include "balance.h"
#include "session_splice.h"

/* A client that has returned a cookie. */
struct splice_opening {
	struct splice_begin begin;
	uint32_t echo;         /* the timestamp that the client echoed */
	struct rte_mbuf *data; /* the ACK, if it has data or a FIN; otherwise NULL */
};

/* Does the service answer SYNs by cookies or challenges now? */
static inline bool defence_is_on(const struct sy_balance *b, const struct service *service)
{
	return SY_UNLIKELY(service->policy.syn_defence == DEFENCE_ALWAYS) ||
	       (service->policy.syn_defence == DEFENCE_AUTO && SY_READ(b->defends[service->id]));
}
/* May clients still return a cookie, or answer a challenge, that the service sent earlier? Relevant
 * while the defence is off. */
bool defence_has_outstanding_cookies(const struct sy_worker *w, const struct service *service);
/* Notes that the service has sent a cookie or challenge. */
void defence_note(const struct sy_worker *w, const struct service *service);
/* Replaces packet i, a client's SYN that passed create_check(), by a SYN-ACK with a cookie. */
void defence_answer(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                    const struct service *service);

/* Sends an answer back in the buffer of packet i. */
void defence_send(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                  const struct sy_tcp_segment *s);
/* This worker's keys of the current and the previous epoch, indexed by the epochs' lowest bits. */
const struct cookie_keys *defence_keys(struct sy_worker *w);

enum defence_result {
	DEFENCE_PASSES,   /* to be processed as without the defence */
	DEFENCE_CONSUMED, /* answered or dropped */
	DEFENCE_OPENS, /* a valid cookie: the packet is now the client's SYN, and *opening is set */
	DEFENCE_WRONG, /* not a valid cookie */
};
/* The client's SYN to the server; v4: the client's family. */
struct sy_tcp_segment splice_syn(const struct splice_begin *begin, bool v4);
/* Overwrites packet i by that SYN. Returns false if it does not fit. */
bool splice_syn_write_over(struct sy_burst *burst, unsigned i, const struct splice_begin *begin);
/* Returns that SYN in a new buffer, or NULL if no buffer is free. */
struct rte_mbuf *splice_syn_packet(struct sy_worker *w, const struct sy_tuple *t,
                                   const struct splice_begin *begin);
/* Overwrites the packet in a buffer by a segment of this tuple; keeps the MAC addresses. Returns
 * false if it does not fit. */
bool splice_syn_write(struct rte_mbuf *m, const struct sy_tuple *t, const struct sy_tcp_segment *s);

/* Processes packet i of a client, for which there is no session. */
enum defence_result defence_check(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                  struct splice_opening *opening);
/* No session could be created for a validated client: resets the client, within the rate limit, and
 * frees its data. */
void defence_refuse(struct sy_worker *w, const struct sy_burst *burst, unsigned i,
                    const struct service *service, struct splice_opening *opening);

#endif
