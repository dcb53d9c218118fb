// SPDX-License-Identifier: Apache-2.0
#include "loss.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "delay.h"

/* Per worker. */
struct losses {
	uint64_t began_ns; /* when the last session was added */
	struct loss_place {
		uint64_t session; /* slot << 32 | record, + 1; 0: ended */
		uint64_t name;    /* hash of that session's client and server, or the last one's */
		uint64_t began_ns;
		uint32_t left;  /* segments left to watch */
		uint32_t acked; /* acknowledged by the server, if acks */
		bool acks;
		uint8_t lost; /* segments counted as lost */
		struct loss_side side[2];
	} place[LOSS_WATCHED];
};

struct losses *losses_create(void)
{
	return calloc(1, sizeof(struct losses));
}

void losses_destroy(struct losses *l)
{
	free(l);
}

static uint64_t session_name(uint8_t slot, uint32_t record)
{
	return ((uint64_t)slot << 32 | record) + 1;
}

/* Hash of a client and a server. For IPv6 of the client's /64. */
static uint64_t pair_name(const struct session *s)
{
	uint64_t client = sy_addr_is_v4(&s->client) ? s->client.d[1] : s->client.d[0];
	return sy_hash_mix(client ^ UINT64_C(0x9e3779b97f4a7c15),
	                   s->server ^ UINT64_C(0xbf58476d1ce4e5b9));
}

/* All sessions of a client and a server share one entry. */
static struct loss_place *place_of(struct sy_worker *w, const struct session *s)
{
	return &balance_worker_of(w)->losses->place[pair_name(s) % LOSS_WATCHED];
}

void loss_begin(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s)
{
	struct losses *l = balance_worker_of(w)->losses;
	if (w->now_ns - l->began_ns < LOSS_GAP_NS)
		return;
	uint64_t session = session_name(slot, record), name = pair_name(s);
	struct loss_place *p = place_of(w, s);
	bool recent = w->now_ns - p->began_ns < LOSS_OLD_NS;
	bool taken = p->session && p->session != session && recent;
	bool repeats = p->name == name && p->lost == LOSS_MAX && recent;
	if (taken || repeats ||
	    s->flags & SESSION_SHIFTED) /* without SHIFTED, both ends use one numbering */
		return;
	if (!SY_READ(((const struct sy_balance *)w->app)->server_delay[s->server]))
		return; /* late and lost segments cannot be distinguished */
	l->began_ns = w->now_ns;
	*p = (struct loss_place){
	        .session = session, .name = name, .began_ns = w->now_ns, .left = LOSS_SEGMENTS};
	s->flags |= SESSION_WATCHED;
}

/* Fills the missing bytes in [from, to). Returns whether any was missing; *since: since when. */
static bool holes_fill(struct loss_side *s, uint32_t from, uint32_t to, uint64_t *since)
{
	bool any = false;
	for (unsigned i = 0; i < LOSS_HOLES; i++) {
		struct loss_hole *h = &s->hole[i];
		if (h->from == h->to || (int32_t)(to - h->from) <= 0 ||
		    (int32_t)(h->to - from) <= 0)
			continue;
		any = true;
		*since = h->at_ns;
		/* Filled in the middle: keep the upper part. */
		if ((int32_t)(h->to - to) > 0)
			h->from = to;
		else if ((int32_t)(from - h->from) > 0)
			h->to = from;
		else
			h->from = h->to;
	}
	return any;
}

/* Adds a hole, in place of the oldest if all entries are used. */
static void holes_add(struct loss_side *s, uint32_t from, uint32_t to, uint64_t now_ns)
{
	struct loss_hole *at = &s->hole[0];
	for (unsigned i = 1; i < LOSS_HOLES && at->from != at->to; i++) {
		struct loss_hole *h = &s->hole[i];
		if (h->from == h->to || h->at_ns < at->at_ns)
			at = h;
	}
	*at = (struct loss_hole){from, to, now_ns};
}

enum loss_sign loss_note(struct loss_side *s, uint32_t seq, uint32_t len, uint64_t now_ns,
                         uint64_t round_trip_ns)
{
	uint32_t end = seq + len;
	uint64_t since = 0;
	if (!s->known) {
		s->known = true;
		s->next = seq;
	}
	if ((int32_t)(end - s->next) > 0) {
		if ((int32_t)(seq - s->next) > 0)
			holes_add(s, s->next, seq, now_ns);
		s->next = end;
		s->newest_ns = now_ns;
		return LOSS_NOTHING;
	}
	if (holes_fill(s, seq, end, &since))
		return now_ns - since >= round_trip_ns ? LOSS_FILLS : LOSS_NOTHING;
	bool copied = end == s->next && now_ns - s->newest_ns < round_trip_ns;
	return copied ? LOSS_NOTHING : LOSS_REPEATS;
}

static void place_leave(struct loss_place *p, struct session *s)
{
	p->session = 0;
	s->flags &= (uint8_t)~SESSION_WATCHED;
}

void loss_count(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s,
                enum session_direction from, const struct sy_tcp *tcp, uint32_t payload)
{
	const struct sy_balance *b = w->app;
	uint64_t session = session_name(slot, record);
	struct loss_place *p = place_of(w, s);
	struct loss_side *server = &p->side[SESSION_SERVER];
	if (p->session != session) { /* reused, or of an earlier process */
		s->flags &= (uint8_t)~SESSION_WATCHED;
		return;
	}
	if (tcp->flags & (SY_TCP_SYN | SY_TCP_RST)) {
		if (from == SESSION_CLIENT ||
		    tcp->flags & SY_TCP_RST) /* not a retransmitted SYN-ACK */
			place_leave(p, s);
		return;
	}
	if (from == SESSION_CLIENT && !server->known) { /* the ACK of the server's SYN */
		server->known = true;
		server->next = ntohl(tcp->ack);
	}
	if (from == SESSION_SERVER && tcp->flags & SY_TCP_ACK &&
	    (!p->acks || (int32_t)(ntohl(tcp->ack) - p->acked) > 0)) {
		p->acked = ntohl(tcp->ack);
		p->acks = true;
	}
	if (payload > 1) { /* a single byte may be a probe of the window or a keep-alive */
		struct delay_share *share = &balance_worker_of(w)->delays->share[s->server];
		enum loss_sign sign = loss_note(&p->side[from], ntohl(tcp->seq), payload, w->now_ns,
		                                SY_READ(b->server_delay[s->server]));
		/* The server has it: only its acknowledgement was lost towards the client. */
		bool got = from == SESSION_CLIENT && p->acks &&
		           (int32_t)(ntohl(tcp->seq) + payload - p->acked) <= 0;
		SY_COUNT(share->segments, 1);
		if (sign == (from == SESSION_CLIENT ? LOSS_REPEATS : LOSS_FILLS) && !got) {
			p->lost++;
			SY_COUNT(share->lost, 1);
		}
		p->left--;
	}
	if (p->left == 0 || p->lost == LOSS_MAX || tcp->flags & SY_TCP_FIN)
		place_leave(p, s);
}

void loss_forget(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s)
{
	uint64_t session = session_name(slot, record);
	struct loss_place *p = place_of(w, s);
	if (p->session == session)
		p->session = 0;
	s->flags &= (uint8_t)~SESSION_WATCHED;
}

void loss_stop(struct sy_balance *b)
{
	for (unsigned w = 0; w < b->workers; w++)
		for (unsigned i = 0; i < LOSS_WATCHED; i++) {
			struct loss_place *p = &b->worker[w].losses->place[i];
			if (!p->session)
				continue;
			struct session_table *t = b->table[(p->session - 1) >> 32];
			struct session *s = session_at(t, (uint32_t)(p->session - 1));
			if (!session_is_one_packet(s))
				s->flags &= (uint8_t)~SESSION_WATCHED;
			p->session = 0;
		}
}
