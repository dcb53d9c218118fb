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
		return TCP_RESTART;
	case SESSION_RESET_BY_CLIENT:
	case SESSION_RESET_BY_SERVER:
		return TCP_SERVER_DECIDES;
	default:
		/* Forward it: it is a retransmission, or a server with an open connection answers
		 * it by a challenge ACK (RFC 5961 4). Forged resets and FINs change neither. */
		return TCP_FORWARD;
	}
}

void tcp_state_restart(struct session *s)
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
	/* Unknown: an earlier version created the session. */
	return !pair->syn_seen || ack - pair->syn_ack <= pair->syn_end - pair->syn_ack;
}

/* A reset. On an open connection it may be forged, and is challenged. */
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
		/* From either side: if both sent resets, the answers to two challenges cross. */
		if (validated)
			s->state = SESSION_RESET;
		else if (from != session_challenged_side(s))
			return TCP_CHALLENGE;
		return TCP_FORWARD;
	case SESSION_SYN_SENT:
	case SESSION_SYN_RECEIVED:
		/* A late answer to a probe does not concern a connection that is just beginning. */
		if (!validated)
			s->state = SESSION_RESET;
		return TCP_FORWARD;
	default:
		s->state = SESSION_RESET;
		return TCP_FORWARD;
	}
}

/* Returns true if a packet from this side confirms that the connection is open. After a reset, only
 * a packet from the apparent sender of the reset does. Before the handshake completes, only one
 * from the server does: otherwise a client alone could create long-lived sessions. */
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

/* Does the server get the client's address, by TOA or PROXY? */
static bool session_has_client_address(const struct session_cold *cold)
{
	return session_is_by_proxy(cold) || session_is_by_toa(cold);
}

/*
 * Does a server's SYN-ACK, which acknowledges this number in the client's numbering, begin a new
 * connection? Only if the client has sent a SYN since: otherwise the SYN-ACK may be forged, like
 * the reset or FIN before it. In state RESET, and in states that have nothing to lose: always.
 * Otherwise only if the old connection's end is uncertain or one of its FINs was acknowledged, or
 * if the SYN-ACK acknowledges another first byte; else it may be a retransmission. The first byte
 * is known only where servers get clients' addresses.
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
		/* The number of the server's FIN has overwritten the first byte's. */
		return cold->syn_seen && session_has_client_address(cold) &&
		       (s->flags & SESSION_SERVER_FIN ||
		        ack + cold->inserted != cold->client_first);
	default:
		return false;
	}
}

/* Notes a SYN of the client, unless its answer begins the connection anyway: segment_answer() does
 * not access the cold half, so nothing may be noted then. Where servers get clients' addresses,
 * every answer is processed here. */
static void state_note_syn(const struct session *s, struct session_cold *cold,
                           enum tcp_result result)
{
	bool begins = s->state == SESSION_SYN_SENT || s->state == SESSION_SYN_RECEIVED ||
	              result == TCP_RESTART;
	cold->syn_seen = !begins || session_has_client_address(cold);
}

/* SYN and SYN-ACK. ack: in the client's numbering. */
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
		tcp_state_restart(s);
	if (s->state != SESSION_SYN_SENT && s->state != SESSION_SYN_RECEIVED)
		return TCP_FORWARD;
	s->state = SESSION_SYN_RECEIVED;
	cold->syn_seen = 0;
	if (session_has_client_address(cold)) {
		/* Overrides what earlier SYNs noted. */
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

	/* An ACK completes the handshake, acknowledges the other side's FIN, or shows that the
	 * connection survived a reset. */
	if (!(flags & SY_TCP_ACK))
		return TCP_DROP;
	if (s->state == SESSION_SYN_SENT)
		/* The server may answer from the TIME_WAIT of an older connection. The client must
		 * see that answer: its reset ends TIME_WAIT, and its next SYN succeeds (RFC 9293
		 * 3.10.7.3). */
		return TCP_FORWARD;
	if (s->state == SESSION_SYN_RECEIVED && from == SESSION_SERVER)
		return TCP_FORWARD;
	tcp_note_fins(s, cold, from, flags, seq, ack, len);
	if (state_is_confirmed_by(s, from))
		s->state = tcp_state_of_fins(s);
	return TCP_FORWARD;
}

/* Max bytes before a FIN that may still be retransmitted. */
#define FIN_REPEATED 65535
/* Max distance between the client's first number and a credible end of its stream. Guessing one
 * takes 2^32 / END_NEAR packets. */
#define END_NEAR 65536u

/* Notes whether the number of the client's FIN or reset is credible. */
static void one_way_note_end(struct session *s, struct session_cold *cold, uint32_t seq)
{
	if (seq - cold->client_first <= END_NEAR)
		s->flags |= SESSION_CLIENT_FIN_ACKED;
}

static enum tcp_result one_way_syn(struct session *s, struct session_cold *cold, uint32_t seq)
{
	enum tcp_result result = syn_from_client(s);
	if (s->state == SESSION_FIN_WAIT)
		result = s->flags & SESSION_CLIENT_FIN_ACKED ? TCP_RESTART : TCP_SERVER_DECIDES;
	if (result == TCP_RESTART || s->state == SESSION_SYN_SENT)
		cold->client_first = seq;
	return result;
}

/*
 * Only the client's packets are visible. Its ACK shows that the server answered, its FIN that it
 * has closed; nothing shows that the server has closed. So the session ends by the timeout of
 * FIN_WAIT, and a SYN after the client's FIN goes to the same server, which decides whether the
 * connection is over. Resets and FINs may be forged: only those with a number near the client's
 * first number shorten the idle timeout. An ACK far from a FIN's number shows that the FIN was
 * forged; one slightly below it may mean lost data.
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
