// SPDX-License-Identifier: Apache-2.0
/* The two ends of test_reconnect.c: models of RFC 9293, with the segments between them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "reconnect.h"

const char *const end_names[] = {"listening",    "old",         "old time-wait", "syn-sent",
                                 "syn-received", "established", "refused"};

const char reconnect_header[] = "\r\n\r\n\0\r\nQUIT\n"
                                "\x21\x11\0\x0c\xc6\x12\0\x01\xc0\0\x02\x0a\x04\x01\0\x50";

/* ---- segments in flight ---------------------------------------------------------------------- */

static void show_message(const struct message *m)
{
	static const char *const places[] = {"client >", "server >", "> client", "> server"};
	printf("    %s %s%s%s%s%s%s seq %u ack %u len %u\n", places[m->place],
	       m->flags & SYN ? "S" : "", m->flags & FIN ? "F" : "", m->flags & RST ? "R" : "",
	       m->flags & ACK ? "A" : "", m->probe ? " probe" : "", m->toa ? " toa" : "", m->seq,
	       m->ack, m->len);
}

static void show_topology(const struct topology *x)
{
	printf("  session %s flags %02x first %u; client %s next %u expects %u; server %s next %u "
	       "expects %u%s\n",
	       x->record.is_there ? session_state_name(x->record.hot.state) : "none",
	       x->record.hot.flags, x->record.cold.fin_seq[SESSION_SERVER],
	       end_names[x->client.state], x->client.next, x->client.expected,
	       end_names[x->server.state], x->server.next, x->server.expected,
	       x->has_address ? " has the address" : "");
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		if (x->flying[i].place != NOWHERE)
			show_message(&x->flying[i]);
}

void complain(const struct check *k, const struct topology *x, const char *what)
{
	printf("%s: %s\n", k->scenario, what);
	for (unsigned i = 0; i < k->depth; i++)
		show_topology(&k->path[i]);
	printf("  at last:\n");
	show_topology(x);
	fail_msg("%s: %s", k->scenario, what);
}

void fly(struct topology *x, const struct message *m)
{
	unsigned capacity = IN_FLIGHT;
	for (unsigned i = IN_FLIGHT; i-- > 0;) {
		if (x->flying[i].place == NOWHERE)
			capacity = i;
		else if (memcmp(&x->flying[i], m, sizeof(*m)) == 0)
			return;
	}
	if (capacity < IN_FLIGHT)
		x->flying[capacity] = *m;
}

struct message land(struct topology *x, unsigned i)
{
	const struct message m = x->flying[i];
	memmove(&x->flying[i], &x->flying[i + 1], (IN_FLIGHT - 1 - i) * sizeof(m));
	memset(&x->flying[IN_FLIGHT - 1], 0, sizeof(m));
	x->flying[IN_FLIGHT - 1].place = NOWHERE;
	return m;
}

void send_segment(struct topology *x, enum place place, uint8_t flags, uint32_t seq, uint32_t ack,
                  uint16_t len)
{
	struct message m;
	memset(&m, 0, sizeof(m));
	m.place = place;
	m.flags = flags;
	m.seq = seq;
	m.ack = ack;
	m.len = len;
	if (place == FROM_SERVER)
		m.tuple = x->tuple;
	memset(m.data, 'D', len);
	fly(x, &m);
}

/* ---- the two ends ---------------------------------------------------------------------------- */

static void client_acks(struct topology *x)
{
	send_segment(x, FROM_CLIENT, ACK, x->client.next, x->client.expected, 0);
}

void client_receives(struct topology *x, const struct message *m)
{
	struct end *e = &x->client;
	if (e->state == SYN_SENT) {
		bool address_set = m->flags & ACK && m->ack == e->next;
		if (m->flags & ACK && !address_set) { /* RFC 9293 3.10.7.3 */
			if (!(m->flags & RST))
				send_segment(x, FROM_CLIENT, RST, m->ack, 0, 0);
		} else if (m->flags & RST) {
			e->state = address_set ? REFUSED : SYN_SENT;
		} else if (m->flags & SYN && address_set) {
			e->state = ESTABLISHED;
			e->expected = m->seq + 1;
			e->unacked = e->next;
			client_acks(x);
			send_segment(x, FROM_CLIENT, ACK, e->next, e->expected, DATA_LEN);
			e->next += DATA_LEN;
		}
		return;
	}
	if (e->state != ESTABLISHED)
		return;
	if (m->flags & RST) {
		if (m->seq == e->expected)
			e->state = REFUSED;
		else if (m->seq - e->expected < WINDOW)
			client_acks(x);
		return;
	}
	bool acceptable = !m->probe && m->seq - e->expected < WINDOW &&
	                  m->ack - e->unacked <= e->next - e->unacked;
	if (m->flags & SYN || !acceptable) {
		client_acks(x);
		return;
	}
	e->unacked = m->ack;
	if (m->seq == e->expected && m->len) {
		e->expected += m->len;
		client_acks(x);
	}
}

static void server_acks(struct topology *x)
{
	send_segment(x, FROM_SERVER, ACK, x->server.next, x->server.expected, 0);
}

static void server_begins(struct topology *x, const struct message *m)
{
	x->tuple = m->tuple;
	x->has_address = false;
	x->server = (struct end){SYN_RECEIVED, SERVER_ISN + 1, m->seq + 1, SERVER_ISN};
	send_segment(x, FROM_SERVER, SYN | ACK, SERVER_ISN, m->seq + 1, 0);
}

/* Answers a segment of an unknown connection with a reset. */
static void server_refuses(struct topology *x, const struct message *m)
{
	if (m->flags & RST || !(m->flags & ACK))
		return;
	struct message r;
	memset(&r, 0, sizeof(r));
	r.place = FROM_SERVER;
	r.flags = RST;
	r.seq = m->ack;
	r.tuple = m->tuple;
	fly(x, &r);
}

static void server_reads(struct check *k, struct topology *x, const struct message *m)
{
	struct end *e = &x->server;
	uint32_t all = CLIENT_ISN + 1 + shift_of(k) + DATA_LEN;
	if (m->len && m->seq + m->len - e->expected - 1 < WINDOW && e->expected - m->seq < WINDOW) {
		for (uint32_t n = e->expected - m->seq; n < m->len; n++) {
			uint32_t at = e->expected++ - CLIENT_ISN - 1;
			uint8_t want = at < shift_of(k) ? (uint8_t)reconnect_header[at] : 'D';
			if (m->data[n] != want || at >= shift_of(k) + DATA_LEN)
				complain(k, x, "the server reads what no client sent");
		}
	}
	if (e->expected == all && e->next == SERVER_ISN + 1) {
		send_segment(x, FROM_SERVER, ACK, e->next, e->expected, REPLY_LEN);
		e->next += REPLY_LEN;
	} else if (m->len) {
		server_acks(x);
	}
}

void server_receives(struct check *k, struct topology *x, const struct message *m)
{
	struct end *e = &x->server;
	if (memcmp(&m->tuple, &x->tuple, sizeof(m->tuple)) != 0) {
		if ((m->flags & (SYN | ACK)) == SYN)
			server_begins(x, m);
		else
			server_refuses(x, m);
		return;
	}
	bool fits = !m->probe &&
	            (m->seq - e->expected < WINDOW || (m->len && e->expected - m->seq < WINDOW));
	switch (e->state) {
	case LISTENING:
		if ((m->flags & (SYN | ACK)) == SYN)
			server_begins(x, m);
		else
			server_refuses(x, m);
		return;
	case OLD_TIME_WAIT:
		if ((m->flags & (SYN | ACK)) == SYN) {
			server_begins(x, m);
			return;
		}
		/* fall through */
	case OLD:
		if (m->flags & RST && m->seq == e->expected)
			e->state = LISTENING;
		else if (!(m->flags & RST) && (!fits || m->flags & SYN))
			server_acks(x);
		return;
	case SYN_RECEIVED:
		if (m->flags & SYN && m->seq + 1 == e->expected) {
			send_segment(x, FROM_SERVER, SYN | ACK, e->unacked, e->expected, 0);
		} else if (m->flags & RST) {
			if (m->seq == e->expected)
				e->state = LISTENING;
		} else if (!fits || m->flags & SYN) {
			server_acks(x);
		} else if (m->ack != e->next) {
			server_refuses(x, m);
		} else {
			e->state = ESTABLISHED;
			e->unacked = m->ack;
			x->has_address = m->toa;
			server_reads(k, x, m);
		}
		return;
	case ESTABLISHED:
		if (m->flags & RST) {
			if (m->seq == e->expected)
				e->state = LISTENING;
		} else if (!fits || m->flags & SYN || m->ack - e->unacked > e->next - e->unacked) {
			server_acks(x);
		} else {
			e->unacked = m->ack;
			server_reads(k, x, m);
		}
		return;
	default:
		return;
	}
}
