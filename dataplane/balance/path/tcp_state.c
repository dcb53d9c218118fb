// SPDX-License-Identifier: Apache-2.0
/* TCP's states as seen from between the two ends (RFC 9293 3.3.2), for the packets of the slow
 * path. tcp_step.h has what the fast path needs too. */
#include "tcp_step.h"

/* A SYN without ACK from the client. */
static enum tcp_result syn_from_client(const struct session *s)
{
	switch (s->state) {
	case SESSION_TIME_WAIT:
		return TCP_REOPEN;
	case SESSION_RESET:
		return TCP_AGAIN;
	case SESSION_RESET_BY_CLIENT:
	case SESSION_RESET_BY_SERVER:
		return TCP_ASK;
	default:
		/* A retransmission; or a server whose connection is open will challenge it (RFC
		 * 5961 section 4), whatever forged resets and FINs came before. */
		return TCP_FORWARD;
	}
}

void tcp_state_recheck(struct session *s)
{
	s->state = SESSION_SYN_SENT;
	s->flags &= (uint8_t) ~(SESSION_CLIENT_FIN | SESSION_SERVER_FIN | SESSION_CLIENT_FIN_ACKED |
	                        SESSION_SERVER_FIN_ACKED | SESSION_SERVER_FIRST);
}

void tcp_state_note_snat_syn(struct session_cold *pair, uint32_t seq, uint32_t len)
{
	uint32_t end = seq + 1 + len;
	bool again = pair->syn_seen && pair->syn_ack == seq + 1;
	if (!again || (int32_t)(end - pair->syn_end) > 0)
		pair->syn_end = end;
	pair->syn_ack = seq + 1;
	pair->syn_seen = 1;
}

bool tcp_state_is_snat_answer(const struct session_cold *pair, uint32_t ack)
{
	/* Not known: the session is that of an earlier version. */
	return !pair->syn_seen || ack - pair->syn_ack <= pair->syn_end - pair->syn_ack;
}

/* A reset. On a connection that was open it may be forged and is challenged. */
static enum tcp_result state_of_reset(struct session *s, enum session_direction from,
                                      bool validated)
{
	switch (s->state) {
	case SESSION_ESTABLISHED:
	case SESSION_FIN_WAIT:
	case SESSION_CLOSING:
		return TCP_CHALLENGE;
	case SESSION_RESET_BY_CLIENT:
	case SESSION_RESET_BY_SERVER:
		/* From either side: if both sent resets, answers to two challenges cross. */
		if (validated)
			s->state = SESSION_RESET;
		else if (from != session_challenged_side(s))
			return TCP_CHALLENGE;
		return TCP_FORWARD;
	case SESSION_SYN_SENT:
	case SESSION_SYN_RECEIVED:
		/* The late answer to a probe says nothing about a connection that is just
		 * beginning. */
		if (!validated)
			s->state = SESSION_RESET;
		return TCP_FORWARD;
	default:
		s->state = SESSION_RESET;
		return TCP_FORWARD;
	}
}

/* Does a packet from this side show that the connection is open? After a reset: only from the side
 * that is said to have sent it. Before the handshake completes: only from the server, as a client
 * alone could otherwise make long-lived sessions. */
static bool state_is_confirmed_by(const struct session *s, enum session_direction from)
{
	switch (s->state) {
	case SESSION_RESET:
		return from == SESSION_SERVER;
	case SESSION_RESET_BY_CLIENT:
	case SESSION_RESET_BY_SERVER:
		return from == session_challenged_side(s);
	default:
		return true;
	}
}

/* Does its server get the client's address, by TOA or PROXY? */
static bool session_has_client_address(const struct session_cold *cold)
{
	return session_is_by_proxy(cold) || session_is_by_toa(cold);
}

/*
 * Does a server's SYN-ACK, which acknowledges this number as the client counts, begin a new
 * connection? Never if the client has not asked for one since: the SYN-ACK may be forged, as may
 * the reset or the FIN before it. RESET alone is certain, or nothing that could be lost. If it has:
 * yes if the old one is uncertain, or one of its FINs was acknowledged. Otherwise the SYN-ACK may
 * be a repetition, unless it acknowledges another first byte. The first byte is known only where
 * servers get clients' addresses.
 */
static bool state_is_new_connection(const struct session *s, const struct session_cold *cold,
                                    uint32_t ack)
{
	switch (s->state) {
	case SESSION_RESET:
		return true;
	case SESSION_CLOSING:
	case SESSION_RESET_BY_CLIENT:
	case SESSION_RESET_BY_SERVER:
		return cold->syn_seen;
	case SESSION_FIN_WAIT:
		if (s->flags & (SESSION_CLIENT_FIN_ACKED | SESSION_SERVER_FIN_ACKED))
			return cold->syn_seen;
		/* fall through */
	case SESSION_ESTABLISHED:
		/* The number of the server's FIN has replaced that of the first byte. */
		return cold->syn_seen && session_has_client_address(cold) &&
		       (s->flags & SESSION_SERVER_FIN ||
		        ack + cold->inserted != cold->client_first);
	default:
		return false;
	}
}

/* Notes a SYN of the client, unless its answer begins the connection anyway: segment_answer() does
 * not touch the cold half, so nothing may be noted then. Where servers get clients' addresses,
 * every answer comes here. */
static void state_note_syn(const struct session *s, struct session_cold *cold,
                           enum tcp_result result)
{
	bool begins = s->state == SESSION_SYN_SENT || s->state == SESSION_SYN_RECEIVED ||
	              result == TCP_AGAIN;
	cold->syn_seen = !begins || session_has_client_address(cold);
}

/* SYN and SYN-ACK. ack: as the client counts. */
static enum tcp_result state_of_syn(struct session *s, struct session_cold *cold,
                                    enum session_direction from, bool answer, uint32_t ack)
{
	if (from == SESSION_CLIENT) {
		enum tcp_result result = answer ? TCP_DROP : syn_from_client(s);
		if (!answer)
			state_note_syn(s, cold, result);
		return result;
	}
	if (!answer)
		return TCP_DROP;
	if (state_is_new_connection(s, cold, ack))
		tcp_state_recheck(s);
	if (s->state != SESSION_SYN_SENT && s->state != SESSION_SYN_RECEIVED)
		return TCP_FORWARD;
	s->state = SESSION_SYN_RECEIVED;
	cold->syn_seen = 0;
	if (session_has_client_address(cold)) {
		/* The first byte of this connection, whatever earlier SYNs said. */
		s->flags |= SESSION_ADDRESS_PENDING;
		cold->client_first = ack + cold->inserted;
	}
	return TCP_FORWARD;
}

enum tcp_result tcp_state_advance(struct session *s, struct session_cold *cold,
                                  enum session_direction from, uint8_t flags, uint32_t seq,
                                  uint32_t ack, uint32_t len, uint32_t secret)
{
	if (flags & SY_TCP_SYN)
		return state_of_syn(s, cold, from, flags & SY_TCP_ACK, ack);
	if (flags & SY_TCP_RST)
		return state_of_reset(s, from, seq == secret);

	/* ACK: completes the handshake, acknowledges the other side's FIN, or shows that the
	 * connection survived a reset. */
	if (!(flags & SY_TCP_ACK))
		return TCP_DROP;
	if (s->state == SESSION_SYN_SENT)
		/* A server may answer from an older connection's TIME_WAIT. The client must see
		 * that answer: its reset clears TIME_WAIT, and its next SYN succeeds (RFC 9293
		 * 3.10.7.3). */
		return TCP_FORWARD;
	if (s->state == SESSION_SYN_RECEIVED && from == SESSION_SERVER)
		return TCP_FORWARD;
	tcp_note_fins(s, cold, from, flags, seq, ack, len);
	if (state_is_confirmed_by(s, from))
		s->state = tcp_state_of_fins(s);
	return TCP_FORWARD;
}

/* Bytes before a FIN that may still be retransmitted. */
#define FIN_REPEATED 65535
/* The largest distance from the client's first number at which an end of its stream is believed. To
 * guess it takes as many packets as there are ranges of this size. */
#define END_NEAR 65536u

/* Notes whether the client's FIN or reset may be genuine, by its number. */
static void one_way_note_end(struct session *s, struct session_cold *cold, uint32_t seq)
{
	if (seq - cold->client_first <= END_NEAR)
		s->flags |= SESSION_CLIENT_FIN_ACKED;
}

static enum tcp_result one_way_syn(struct session *s, struct session_cold *cold, uint32_t seq)
{
	enum tcp_result result = syn_from_client(s);
	if (s->state == SESSION_FIN_WAIT)
		result = s->flags & SESSION_CLIENT_FIN_ACKED ? TCP_AGAIN : TCP_ASK;
	if (result == TCP_AGAIN || s->state == SESSION_SYN_SENT)
		cold->client_first = seq;
	return result;
}

/*
 * Sees only the client's packets. The client's ACK shows that the server answered; its FIN that the
 * client has closed; nothing shows that the server has. So the session ends by the timeout of
 * FIN_WAIT, and a SYN after the client's FIN goes to the same server, which knows better whether
 * the connection is over. Resets and FINs may be forged. Only one whose number is near the client's
 * first number shortens the idle timeout. An ACK far from a FIN's number shows that the FIN was
 * forged; one slightly before it may be lost data.
 */
enum tcp_result tcp_state_one_way(struct session *s, struct session_cold *cold, uint8_t flags,
                                  uint32_t seq, uint32_t len, uint32_t secret)
{
	if (flags & SY_TCP_SYN)
		return flags & SY_TCP_ACK ? TCP_DROP : one_way_syn(s, cold, seq);
	if (flags & SY_TCP_RST) {
		one_way_note_end(s, cold, seq);
		return state_of_reset(s, SESSION_CLIENT, seq == secret);
	}
	if (!(flags & SY_TCP_ACK))
		return TCP_DROP;
	if (flags & SY_TCP_FIN) {
		s->flags |= SESSION_CLIENT_FIN;
		cold->fin_seq[SESSION_CLIENT] = seq + len + 1;
		one_way_note_end(s, cold, seq + len);
	} else if (!(s->flags & SESSION_CLIENT_FIN) ||
	           cold->fin_seq[SESSION_CLIENT] - seq > FIN_REPEATED) {
		s->flags &= (uint8_t) ~(SESSION_CLIENT_FIN | SESSION_CLIENT_FIN_ACKED);
	}
	s->state = tcp_state_of_fins(s);
	return TCP_FORWARD;
}
