// SPDX-License-Identifier: Apache-2.0
/* TCP's states as somebody in the middle sees them (RFC 9293 3.3.2). */
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
		/* A retransmission, or one that a server whose connection lives will challenge
		 * (RFC 5961 section 4), whatever resets and FINs of others came before. */
		return TCP_FORWARD;
	}
}

void tcp_state_again(struct session *s)
{
	s->state = SESSION_SYN_SENT;
	s->flags &= (uint8_t) ~(SESSION_CLIENT_FIN | SESSION_SERVER_FIN | SESSION_CLIENT_FIN_ACKED |
	                        SESSION_SERVER_FIN_ACKED | SESSION_SERVER_FIRST);
}

/* A reset. Of a connection that lived it may be forged: it is asked about. */
static enum tcp_result state_of_reset(struct session *s, enum session_direction from, bool proven)
{
	switch (s->state) {
	case SESSION_ESTABLISHED:
	case SESSION_FIN_WAIT:
	case SESSION_CLOSING:
		return TCP_CHALLENGE;
	case SESSION_RESET_BY_CLIENT:
	case SESSION_RESET_BY_SERVER:
		/* Whichever end: if both reset, answers to two questions cross. */
		if (proven)
			s->state = SESSION_RESET;
		else if (from != session_challenged_side(s))
			return TCP_CHALLENGE;
		return TCP_FORWARD;
	case SESSION_SYN_SENT:
	case SESSION_SYN_RECEIVED:
		/* The late answer to a probe says nothing of a connection that begins. */
		if (!proven)
			s->state = SESSION_RESET;
		return TCP_FORWARD;
	default:
		s->state = SESSION_RESET;
		return TCP_FORWARD;
	}
}

/* Whose packet shows that the connection lives: of one that was reset, who is said to have done it;
 * before the handshake is over the server, as a client alone could make long-lived sessions. */
static bool state_is_proven_by(const struct session *s, enum session_direction from)
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

/* Is its server told the client's address, by whatever way? */
static bool state_is_told(const struct session *s, const struct session_cold *cold)
{
	return s->flags & SESSION_SHIFTED || session_is_by_toa(cold);
}

/*
 * Does a server's SYN-ACK, which acknowledges this number as the client counts, begin a new
 * connection? In doubt about the old one, and after it was reset or a FIN was acknowledged, it
 * does. Else it may be a repetition: but not if the session's first byte, which is known where
 * servers are told clients' addresses, is another one.
 */
static bool state_begins_again(const struct session *s, const struct session_cold *cold,
                               uint32_t ack)
{
	switch (s->state) {
	case SESSION_CLOSING:
	case SESSION_RESET:
	case SESSION_RESET_BY_CLIENT:
	case SESSION_RESET_BY_SERVER:
		return true;
	case SESSION_FIN_WAIT:
		if (s->flags & (SESSION_CLIENT_FIN_ACKED | SESSION_SERVER_FIN_ACKED))
			return true;
		/* fall through */
	case SESSION_ESTABLISHED:
		/* The number of the server's FIN has taken the place of the first byte's. */
		return state_is_told(s, cold) &&
		       (s->flags & SESSION_SERVER_FIN ||
		        ack + cold->inserted != cold->fin_seq[SESSION_SERVER]);
	default:
		return false;
	}
}

/* SYN and SYN-ACK. ack: as the client counts. */
static enum tcp_result state_of_syn(struct session *s, struct session_cold *cold,
                                    enum session_direction from, bool answer, uint32_t ack)
{
	if (from == SESSION_CLIENT)
		return answer ? TCP_DROP : syn_from_client(s);
	if (!answer)
		return TCP_DROP;
	if (state_begins_again(s, cold, ack))
		tcp_state_again(s);
	if (s->state != SESSION_SYN_SENT && s->state != SESSION_SYN_RECEIVED)
		return TCP_FORWARD;
	s->state = SESSION_SYN_RECEIVED;
	if (state_is_told(s, cold)) { /* of this connection, whatever SYNs came before */
		s->flags |= SESSION_ADDRESS_PENDING;
		cold->fin_seq[SESSION_SERVER] = ack + cold->inserted;
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
	 * connection outlived a reset. */
	if (!(flags & SY_TCP_ACK))
		return TCP_DROP;
	if (s->state == SESSION_SYN_SENT)
		/* A server may answer from an older connection's TIME_WAIT. The client must see it:
		 * its reset clears that one away, and its next SYN succeeds (RFC 9293 3.10.7.3). */
		return TCP_FORWARD;
	if (s->state == SESSION_SYN_RECEIVED && from == SESSION_SERVER)
		return TCP_FORWARD;
	tcp_note_fins(s, cold, from, flags, seq, ack, len);
	if (state_is_proven_by(s, from))
		s->state = tcp_state_of_fins(s);
	return TCP_FORWARD;
}

/* Bytes before a FIN that may still have to be sent again. */
#define FIN_REPEATED 65535
/* How far from where the client began an end of its stream is believed. Who guesses has to send as
 * many packets as there are such ranges. */
#define END_NEAR 65536u

/* Of a one-way session, whose server's numbers nobody sees: where its client's begin. */
static uint32_t *cold_begin(struct session_cold *cold)
{
	return &cold->fin_seq[SESSION_SERVER];
}

/* Notes whether the client's FIN or reset may be its own, by its number. */
static void one_way_note_end(struct session *s, struct session_cold *cold, uint32_t seq)
{
	if (seq - *cold_begin(cold) <= END_NEAR)
		s->flags |= SESSION_CLIENT_FIN_ACKED;
}

static enum tcp_result one_way_syn(struct session *s, struct session_cold *cold, uint32_t seq)
{
	enum tcp_result result = syn_from_client(s);
	if (s->state == SESSION_FIN_WAIT)
		result = s->flags & SESSION_CLIENT_FIN_ACKED ? TCP_AGAIN : TCP_ASK;
	if (result == TCP_AGAIN || s->state == SESSION_SYN_SENT)
		*cold_begin(cold) = seq;
	return result;
}

/*
 * The client's packets alone tell less: its ACK says that the server answered, its FIN that it has
 * closed, and nothing when the server has. So a session ends by the timeout of FIN_WAIT, and a SYN
 * after the client's FIN goes to the same server once more, which knows better if the connection is
 * over. Resets and FINs may be forged. Only one whose number is near to where the client began
 * shortens the time that the session may be idle; and an ACK shows that they were, of a FIN that it
 * is far from: what is a little before one may be data that was lost.
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
