// SPDX-License-Identifier: Apache-2.0
/*
 * The SYN defence of DR and IPIP (docs/design/0025-syn-defence.md).
 *
 *     SYN of an unknown client    challenge_passes()   answered by an ACK with a cookie
 *     reset with that number      challenge_reset()    validates the client
 *     SYN of a validated client   challenge_passes()   consumes a credit, begins a session
 *
 * The cookie: │ epoch 1 │ check 31 │. A client in SYN-SENT answers an unacceptable ACK by a reset
 * with the ACK's number, and stays in SYN-SENT (RFC 9293 3.10.7.3).
 */
#include "challenge.h"

#include <arpa/inet.h>

#include <sy_tcp_segment.h>

#include "service_drop.h"
#include "validated.h"

#define EPOCH_SHIFT 31
#define CHECK_MASK  ((UINT32_C(1) << EPOCH_SHIFT) - 1)
/* The window that a server with an old connection might announce. */
#define WINDOW 65535

uint64_t challenge_client(const struct sy_balance *b, const struct service *service,
                          const struct sy_addr *client)
{
	struct sy_tuple t = service->anyone;
	t.src = *client;
	if (!sy_addr_is_v4(client))
		t.src.d[1] = 0; /* a /64 */
	return sy_hash_tuple(&b->key, &t);
}

/* ---- cookies --------------------------------------------------------------------------------- */

/* The 31 check bits for this tuple and a client with this number of proofs. */
static uint32_t check_of(const struct sy_siphash_key *key, const struct sy_tuple *t,
                         unsigned proofs)
{
	return (uint32_t)sy_cookie_hash(key, t, proofs) & CHECK_MASK;
}

static bool number_is_cookie(struct sy_worker *w, const struct sy_tuple *t, uint32_t number,
                             unsigned proofs)
{
	const struct sy_balance *b = w->app;
	const struct cookie_keys *keys = defence_keys(w);
	for (unsigned i = 0; i < b->secrets; i++)
		if ((number & CHECK_MASK) ==
		    check_of(&keys->key[i][number >> EPOCH_SHIFT], t, proofs & VALIDATED_PROOFS))
			return true;
	return false;
}

/* ---- SYNs ------------------------------------------------------------------------------------ */

static void challenge_answer(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                             const struct service *service, uint64_t client)
{
	const struct sy_balance *b = w->app;
	const struct cookie_keys *keys = defence_keys(w);
	const struct sy_view *v = &burst->view[i];
	unsigned epoch = keys->epoch & 1;
	unsigned proofs = validated_proofs(b->validated, client, balance_seconds(w));
	const struct sy_tcp_segment answer = {
	        .seq = (uint32_t)(client >> 16) ^ (uint32_t)w->tsc, /* any number will do */
	        .ack = (uint32_t)epoch << EPOCH_SHIFT |
	               check_of(&keys->key[0][epoch], &v->tuple, proofs),
	        .flags = SY_TCP_ACK,
	        .window = WINDOW,
	        .options = {.scale = SY_TCP_NO_SCALE},
	};
	SY_COUNT(balance_worker_of(w)->counts[service->id].answered, 1);
	defence_note(w, service);
	defence_send(w, burst, i, &answer);
}

bool challenge_passes(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                      const struct service *service, uint64_t client)
{
	const struct sy_balance *b = w->app;
	if (validated_consume(b->validated, client, balance_seconds(w)))
		return true;
	challenge_answer(w, burst, i, service, client);
	return false;
}

/* ---- resets ---------------------------------------------------------------------------------- */

static uint32_t reset_number(const struct sy_burst *burst, unsigned i)
{
	return ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), &burst->view[i])->seq);
}

enum defence_result challenge_reset(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                    const struct service *service)
{
	const struct sy_balance *b = w->app;
	const struct sy_tuple *t = &burst->view[i].tuple;
	struct service_counts *counts = &balance_worker_of(w)->counts[service->id];
	uint64_t client = challenge_client(b, service, &t->src);
	uint32_t now = balance_seconds(w), number = reset_number(burst, i);
	unsigned proofs = validated_proofs(b->validated, client, now);

	if (number_is_cookie(w, t, number, proofs)) {
		validated_add(b->validated, client, now);
	} else if (!number_is_cookie(w, t, number, proofs - 1)) {
		if (defence_is_on(b, service))
			SY_COUNT(counts->wrong, 1);
		return DEFENCE_PASSES;
	} /* otherwise another reset has validated the client meanwhile */
	SY_COUNT(counts->right, 1);
	service_packet_drop(w, burst, i, service, SY_DROP_SYN_PROOF);
	return DEFENCE_CONSUMED;
}

bool challenge_is_late_proof(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                             const struct session *s)
{
	const struct sy_balance *b = w->app;
	const struct service *service = endpoint_service(b, &b->endpoint[s->server]);
	const struct sy_tuple *t = &burst->view[i].tuple;
	if (!service || !service->one_way ||
	    !(defence_is_on(b, service) || defence_has_outstanding_cookies(w, service)))
		return false;
	uint64_t client = challenge_client(b, service, &t->src);
	uint32_t number = reset_number(burst, i);
	unsigned proofs = validated_proofs(b->validated, client, balance_seconds(w));
	if (!number_is_cookie(w, t, number, proofs) && !number_is_cookie(w, t, number, proofs - 1))
		return false;
	SY_COUNT(balance_worker_of(w)->counts[service->id].right, 1);
	service_packet_drop(w, burst, i, service, SY_DROP_SYN_PROOF);
	return true;
}

/* ---- sessions -------------------------------------------------------------------------------- */

void challenge_note_session(struct sy_worker *w, const struct session *s)
{
	const struct sy_balance *b = w->app;
	const struct service *service = endpoint_service(b, &b->endpoint[s->server]);
	if (service && !defence_is_on(b, service))
		validated_add_seen(b->validated, challenge_client(b, service, &s->client),
		                   SEEN_CREDITS, balance_seconds(w));
}
