// SPDX-License-Identifier: Apache-2.0
#include "client_sessions.h"

#include <arpa/inet.h>

#include "client_count.h"
#include "end.h"
#include "reset.h"
#include "reset_both.h"
#include "service_drop.h"
#include "splice.h"

uint64_t client_sessions_key(const struct sy_balance *b, uint32_t service,
                             const struct sy_addr *client)
{
	const uint64_t low = sy_addr_is_v4(client) ? client->d[1] : 0;
	uint64_t h = sy_hash_mix(client->d[0] ^ b->key.k[0], low ^ b->key.k[1]);
	return sy_hash_mix(h ^ b->key.k[2], service ^ b->key.k[3]);
}

bool client_sessions_has_place(const struct sy_balance *b, const struct service *service,
                               const struct sy_addr *client)
{
	return client_count_read(b->client_counts, client_sessions_key(b, service->id, client)) <
	       service->policy.client_sessions;
}

/* Does the service limit sessions per client, so that the client must validate its address? Not for
 * one-way services: the forwarder cannot see it. */
static bool client_is_limited(const struct sy_balance *b, const struct session *s)
{
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	return service && service->policy.client_sessions && !endpoint_is_one_way(e);
}

void client_sessions_expect(struct sy_worker *w, const struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	const struct session *s = session_at(t, burst->session[i]);
	if (s->state == SESSION_SYN_RECEIVED && client_is_limited(b, s))
		session_cold_at(t, burst->session[i])->client_fin =
		        ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), &burst->view[i])->seq) + 1;
}

bool client_sessions_shows_nothing(struct sy_worker *w, const struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	const uint32_t record = burst->session[i];
	const struct session *s = session_at(t, record);
	struct session_cold *cold = session_cold_at(t, record);
	const uint8_t *frame = sy_frame(burst->mbuf[i]);
	const struct sy_view *v = &burst->view[i];
	const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
	bool shown;
	if ((s->state != SESSION_SYN_RECEIVED && s->state != SESSION_RESET) ||
	    s->flags & SESSION_CLIENT_FIN || !cold->client_fin || !client_is_limited(b, s))
		return false;
	if (burst->direction[i] == SESSION_CLIENT)
		shown = v->tcp_flags & SY_TCP_ACK &&
		        ntohl(tcp->ack) + session_number(t, record, &b->endpoint[s->server]) ==
		                cold->client_fin &&
		        sy_packet_check_l4(frame, v) == SY_CSUM_OK;
	else /* it sends data or a FIN after it has accepted such an ACK or a Fast Open cookie */
		shown = v->tcp_flags & SY_TCP_FIN || v->l4_len > (tcp->offset >> 4) * 4u;
	if (shown)
		cold->client_fin = 0;
	return !shown;
}

/* The byte with the session's bit, and the bit's mask. */
static uint8_t *bit_of(const struct sy_balance *b, const struct session_table *t, uint32_t record,
                       uint8_t *mask)
{
	*mask = (uint8_t)(1u << record % 8);
	return &client_counts_bits(b->client_counts, t->slot)[record / 8];
}

bool client_sessions_change(struct sy_worker *w, const struct session_table *t, uint32_t record,
                            bool began)
{
	const struct sy_balance *b = w->app;
	const struct session *s = session_at(t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	const uint32_t limit = service ? service->policy.client_sessions : 0;
	uint8_t mask, *bits = bit_of(b, t, record, &mask);
	if (!limit || !session_is_had(s, e)) {
		client_sessions_end(w, t, record);
		return true;
	}
	if (*bits & mask)
		return true;
	/* Sessions that the sweep counts began before the limit. */
	switch (client_count_acquire(b->client_counts,
	                             client_sessions_key(b, e->service, &s->client),
	                             began ? limit : UINT32_MAX)) {
	case CLIENT_COUNTED:
		*bits |= mask;
		return true;
	case CLIENT_UNCOUNTED:
		return true;
	case CLIENT_OVER:
	default:
		return false;
	}
}

void client_sessions_end(struct sy_worker *w, const struct session_table *t, uint32_t record)
{
	const struct sy_balance *b = w->app;
	const struct session *s = session_at(t, record);
	uint8_t mask, *bits = bit_of(b, t, record, &mask);
	if (!(*bits & mask))
		return;
	*bits &= (uint8_t)~mask;
	client_count_release(b->client_counts,
	                     client_sessions_key(b, b->endpoint[s->server].service, &s->client));
}

void client_sessions_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i, bool gone)
{
	struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	uint32_t record = burst->session[i];
	struct session *s = session_at(t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	const bool resets = reset_both_is_due(e, s);
	SY_COUNT(balance_worker_of(w)->load[e->service].client_refused, 1);
	if (resets && !gone) {
		reset_both_refuse(w, burst, i, SY_DROP_CLIENT_SESSIONS);
		if (s->state == SESSION_DYING)
			return;
	}
	if (resets) { /* the packet has a wrong checksum, or was sent already */
		reset_both_begin(w, s, SESSION_NEITHER);
		return;
	}
	const uint32_t service = e->service;
	session_end(w, t, record);
	burst->session[i] = SESSION_NONE;
	if (gone)
		return;
	service_count_drop(w, service, SY_DROP_CLIENT_SESSIONS);
	sy_burst_drop(w, burst, i, SY_DROP_CLIENT_SESSIONS);
}
