// SPDX-License-Identifier: Apache-2.0
/* The TCP state machine: every state × flags × direction, then whole connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tcp_state.h"

#define SECRET 4711 /* acknowledged by probes */

#define C SESSION_CLIENT
#define S SESSION_SERVER

enum {
	NONE = 0,
	SYN = SY_TCP_SYN,
	SYN_ACK = SY_TCP_SYN | SY_TCP_ACK,
	ACK = SY_TCP_ACK,
	DATA = SY_TCP_ACK | SY_TCP_PSH,
	FIN = SY_TCP_FIN | SY_TCP_ACK,
	RST = SY_TCP_RST,
	RST_ACK = SY_TCP_RST | SY_TCP_ACK,
	FIN_ALONE = SY_TCP_FIN,
	PSH_ALONE = SY_TCP_PSH,
};

/* The FINs seen and acknowledged that each state implies. */
static const uint8_t flags_of[SESSION_STATES] = {
        [SESSION_FIN_WAIT] = SESSION_CLIENT_FIN,
        [SESSION_CLOSING] = SESSION_CLIENT_FIN | SESSION_SERVER_FIN,
        [SESSION_TIME_WAIT] = SESSION_CLIENT_FIN | SESSION_SERVER_FIN | SESSION_CLIENT_FIN_ACKED |
                              SESSION_SERVER_FIN_ACKED,
};

static const enum session_state tcp_states[] = {
        SESSION_SYN_SENT, SESSION_SYN_RECEIVED,    SESSION_ESTABLISHED,
        SESSION_FIN_WAIT, SESSION_CLOSING,         SESSION_TIME_WAIT,
        SESSION_RESET,    SESSION_RESET_BY_CLIENT, SESSION_RESET_BY_SERVER,
};

#define STATES SY_ARRAY_LEN(tcp_states)

/* The result for each of tcp_states, as one letter: the new state, or the action instead. */
struct rule {
	enum session_direction from;
	uint8_t flags;
	char after[STATES + 1];
};

static const struct rule rules[] = {
        /* sSe fctr CV: SYN_SENT, SYN_RECEIVED, ESTABLISHED, FIN_WAIT, CLOSING, TIME_WAIT, RESET,
         * RESET_BY_CLIENT, RESET_BY_SERVER. x: dropped, n: a new connection, a: the same session
         * again, q: the server is probed, d: forwarded with a challenge. ACKs here acknowledge no
         * FIN. */
        {C, SYN, "sSefcnaqq"},       {S, SYN, "xxxxxxxxx"},       {C, SYN_ACK, "xxxxxxxxx"},
        {S, SYN_ACK, "SSefctSCV"},   {C, ACK, "seefctreV"},       {S, ACK, "sSefcteCe"},
        {C, DATA, "seefctreV"},      {S, DATA, "sSefcteCe"},      {C, FIN, "sfffctrfV"},
        {S, FIN, "sSfcctfCf"},       {C, RST, "rrdddrrCd"},       {S, RST, "rrdddrrdV"},
        {C, RST_ACK, "rrdddrrCd"},   {S, RST_ACK, "rrdddrrdV"},   {C, FIN_ALONE, "xxxxxxxxx"},
        {S, FIN_ALONE, "xxxxxxxxx"}, {C, PSH_ALONE, "xxxxxxxxx"}, {S, PSH_ALONE, "xxxxxxxxx"},
        {C, NONE, "xxxxxxxxx"},      {S, NONE, "xxxxxxxxx"},
};

/* After a SYN of the client. */
static const struct rule expected_rules[] = {{S, SYN_ACK, "SSefStSSS"}};

static struct session_cold cold;

static char letter_of(enum session_state state)
{
	for (unsigned i = 0; i < STATES; i++)
		if (tcp_states[i] == state)
			return "sSefctrCV"[i];
	return '?';
}

static void check_rule(const struct rule *rule, bool asked)
{
	for (unsigned i = 0; i < STATES; i++) {
		const struct session before = {.state = (uint8_t)tcp_states[i],
		                               .flags = flags_of[tcp_states[i]]};
		struct session s = before;
		cold = (struct session_cold){.fin_seq = {1000, 2000}, .syn_seen = asked};
		char want = rule->after[i];
		enum tcp_result result =
		        tcp_state_advance(&s, &cold, rule->from, rule->flags, 500, 500, 0, SECRET);
		char got = result == TCP_DROP             ? 'x'
		           : result == TCP_REOPEN         ? 'n'
		           : result == TCP_RESTART        ? 'a'
		           : result == TCP_SERVER_DECIDES ? 'q'
		           : result == TCP_CHALLENGE      ? 'd'
		                                          : letter_of(s.state);
		if (got != want)
			fail_msg("%s, flags %02x from %s: %c, not %c",
			         session_state_name(tcp_states[i]), rule->flags,
			         rule->from == C ? "client" : "server", got, want);
		if (result != TCP_FORWARD)
			assert_memory_equal(&s, &before, sizeof(s));
	}
}

static void test_rules(void **state)
{
	for (unsigned r = 0; r < SY_ARRAY_LEN(rules); r++)
		check_rule(&rules[r], false);
	for (unsigned r = 0; r < SY_ARRAY_LEN(expected_rules); r++)
		check_rule(&expected_rules[r], true);
}

/* ---- connections ----------------------------------------------------------------------------- */

struct step {
	enum session_direction from;
	uint8_t flags;
	uint32_t seq, ack, len;
	enum session_state after;
};

static void live_from(struct session *s, const struct step *step, unsigned count)
{
	cold = (struct session_cold){0};
	for (unsigned i = 0; i < count; i++) {
		const struct step *p = &step[i];
		enum tcp_result v = tcp_state_advance(s, &cold, p->from, p->flags, p->seq, p->ack,
		                                      p->len, SECRET);
		if (v ==
		    TCP_CHALLENGE) { /* like challenge_send(), unless it may not send a probe */
			s->state = p->from == C ? SESSION_RESET_BY_CLIENT : SESSION_RESET_BY_SERVER;
			v = TCP_FORWARD;
		}
		if (v == TCP_SERVER_DECIDES) /* its server is up */
			v = TCP_FORWARD;
		if (v != TCP_FORWARD || s->state != p->after)
			fail_msg("step %u: result %d, state %s, not %s", i, (int)v,
			         session_state_name(s->state), session_state_name(p->after));
	}
}

/* server_first: whether the server is in TIME_WAIT at the end. */
#define LIVE_FIRST(server_first, ...)                                                              \
	do {                                                                                       \
		static const struct step steps[] = {__VA_ARGS__};                                  \
		struct session s = {.state = SESSION_SYN_SENT};                                    \
		live_from(&s, steps, SY_ARRAY_LEN(steps));                                         \
		assert_int_equal(!!(s.flags & SESSION_SERVER_FIRST), server_first);                \
	} while (0)
#define LIVE(...) LIVE_FIRST(false, __VA_ARGS__)

/* Client numbers start at 100, server numbers at 900. */
#define HANDSHAKE                                                                                  \
	{C, SYN, 100, 0, 0, SESSION_SYN_SENT}, {S, SYN_ACK, 900, 101, 0, SESSION_SYN_RECEIVED},    \
	{                                                                                          \
		C, ACK, 101, 901, 0, SESSION_ESTABLISHED                                           \
	}

static void test_client_closes_first(void **state)
{
	LIVE(HANDSHAKE, {C, DATA, 101, 901, 50, SESSION_ESTABLISHED},
	     {S, DATA, 901, 151, 70, SESSION_ESTABLISHED}, {C, FIN, 151, 971, 0, SESSION_FIN_WAIT},
	     {S, ACK, 971, 152, 0, SESSION_FIN_WAIT}, {S, DATA, 971, 152, 10, SESSION_FIN_WAIT},
	     {C, ACK, 152, 981, 0, SESSION_FIN_WAIT}, {S, FIN, 981, 152, 0, SESSION_CLOSING},
	     {C, ACK, 152, 982, 0, SESSION_TIME_WAIT});
}

static void test_server_closes_first(void **state)
{
	LIVE_FIRST(true, HANDSHAKE, {S, FIN, 901, 101, 20, SESSION_FIN_WAIT},
	           {C, ACK, 101, 922, 0, SESSION_FIN_WAIT},
	           {C, DATA, 101, 922, 5, SESSION_FIN_WAIT}, {C, FIN, 106, 922, 0, SESSION_CLOSING},
	           {S, ACK, 922, 107, 0, SESSION_TIME_WAIT});
	assert_int_equal(cold.fin_seq[C], 107); /* the next number that the server expects */
}

/* Neither FIN acknowledges the other: both ends hold TIME_WAIT. */
static void test_simultaneous_close(void **state)
{
	LIVE_FIRST(true, HANDSHAKE, {C, FIN, 101, 901, 0, SESSION_FIN_WAIT},
	           {S, FIN, 901, 101, 0, SESSION_CLOSING}, {C, ACK, 102, 902, 0, SESSION_CLOSING},
	           {S, ACK, 902, 102, 0, SESSION_TIME_WAIT});
}

/* Acknowledging any number but the FIN's does not close, not even a higher one. */
static void test_forged_fin(void **state)
{
	LIVE_FIRST(true, HANDSHAKE, {C, FIN, 5000, 901, 0, SESSION_FIN_WAIT},
	           {C, FIN, 50, 901, 0, SESSION_FIN_WAIT}, {S, DATA, 901, 101, 9, SESSION_FIN_WAIT},
	           {S, FIN, 3, 101, 0, SESSION_CLOSING}, {C, DATA, 101, 910, 9, SESSION_CLOSING},
	           {S, DATA, 910, 110, 9, SESSION_CLOSING});
}

/* The session is as new, with the same server. */
static void test_again(void **state)
{
	struct session s = {.state = SESSION_RESET,
	                    .flags = SESSION_CLIENT_FIN | SESSION_SERVER_FIN |
	                             SESSION_CLIENT_FIN_ACKED | SESSION_SERVER_FIN_ACKED |
	                             SESSION_SERVER_FIRST,
	                    .server = 77};
	tcp_state_restart(&s);
	assert_int_equal(s.state, SESSION_SYN_SENT);
	assert_int_equal(s.flags, 0);
	assert_int_equal(s.server, 77);
}

/* FIN and its acknowledgement in one segment in each direction: three segments close. */
static void test_short_close(void **state)
{
	LIVE(HANDSHAKE, {C, FIN, 101, 901, 0, SESSION_FIN_WAIT},
	     {S, FIN, 901, 102, 0, SESSION_CLOSING}, {C, ACK, 102, 902, 0, SESSION_TIME_WAIT});
}

static void test_retransmissions(void **state)
{
	/* the server sends its FIN before it has the client's */
	LIVE_FIRST(
	        true, {C, SYN, 100, 0, 0, SESSION_SYN_SENT}, {C, SYN, 100, 0, 0, SESSION_SYN_SENT},
	        {S, SYN_ACK, 900, 101, 0, SESSION_SYN_RECEIVED},
	        {S, SYN_ACK, 900, 101, 0, SESSION_SYN_RECEIVED},
	        {C, SYN, 100, 0, 0, SESSION_SYN_RECEIVED},
	        {C, ACK, 101, 901, 0, SESSION_ESTABLISHED},
	        {S, SYN_ACK, 900, 101, 0, SESSION_ESTABLISHED},
	        {C, FIN, 101, 901, 30, SESSION_FIN_WAIT}, {C, FIN, 101, 901, 30, SESSION_FIN_WAIT},
	        {S, ACK, 901, 101, 0, SESSION_FIN_WAIT}, /* does not acknowledge the FIN */
	        {S, FIN, 901, 131, 0, SESSION_CLOSING},  /* acknowledges all but the FIN itself */
	        {C, ACK, 132, 902, 0, SESSION_CLOSING}, {S, FIN, 901, 132, 0, SESSION_TIME_WAIT},
	        {C, ACK, 132, 902, 0, SESSION_TIME_WAIT});
}

/* Sequence numbers wrap at 2^32 between FIN and acknowledgement. */
static void test_wrap(void **state)
{
	LIVE({C, SYN, UINT32_MAX - 10, 0, 0, SESSION_SYN_SENT},
	     {S, SYN_ACK, UINT32_MAX, UINT32_MAX - 9, 0, SESSION_SYN_RECEIVED},
	     {C, ACK, UINT32_MAX - 9, 0, 0, SESSION_ESTABLISHED},
	     {C, FIN, UINT32_MAX - 9, 0, 9, SESSION_FIN_WAIT}, /* its end: 2^32, which wraps to 0 */
	     {S, ACK, 0, UINT32_MAX, 0, SESSION_FIN_WAIT}, {S, FIN, 0, 0, 0, SESSION_CLOSING},
	     {C, ACK, 0, 0, 0, SESSION_CLOSING}, {C, ACK, 0, 1, 0, SESSION_TIME_WAIT});
}

/* On an established connection, the end in whose name a reset came cancels it by answering, and the
 * session is as before. */
static void test_reset(void **state)
{
	LIVE(HANDSHAKE, {C, RST, 1, 0, 0, SESSION_RESET_BY_CLIENT},
	     {S, DATA, 901, 106, 5, SESSION_RESET_BY_CLIENT},
	     {C, RST, 2, 0, 0, SESSION_RESET_BY_CLIENT}, {C, ACK, 101, 906, 0, SESSION_ESTABLISHED},
	     {C, FIN, 101, 906, 0, SESSION_FIN_WAIT}, {S, RST, 77, 0, 0, SESSION_RESET_BY_SERVER},
	     {C, ACK, 102, 906, 0, SESSION_RESET_BY_SERVER},
	     {S, ACK, 906, 102, 0, SESSION_FIN_WAIT}, {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER},
	     {S, FIN, 906, 102, 0, SESSION_CLOSING}, {C, ACK, 102, 907, 0, SESSION_TIME_WAIT},
	     {S, RST, 1, 0, 0, SESSION_RESET});
	/* Forged for both sides: each side is probed. */
	LIVE(HANDSHAKE, {C, RST, 1, 0, 0, SESSION_RESET_BY_CLIENT},
	     {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER},
	     {C, ACK, 101, 901, 0, SESSION_RESET_BY_SERVER},
	     {S, ACK, 901, 101, 0, SESSION_ESTABLISHED});
	/* Both ends are gone, and their answers cross. */
	LIVE(HANDSHAKE, {C, RST, 1, 0, 0, SESSION_RESET_BY_CLIENT},
	     {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER}, {C, RST, SECRET, 0, 0, SESSION_RESET},
	     {S, RST, SECRET, 0, 0, SESSION_RESET});
	/* The answer to a probe, from an end that is gone. */
	LIVE(HANDSHAKE, {C, RST, 101, 0, 0, SESSION_RESET_BY_CLIENT},
	     {C, RST, SECRET, 0, 0, SESSION_RESET});
	/* Three packets from a client alone do not create a long-lived session. */
	LIVE({C, SYN, 100, 0, 0, SESSION_SYN_SENT}, {C, RST, 101, 0, 0, SESSION_RESET},
	     {C, ACK, 101, 1, 0, SESSION_RESET}, {C, DATA, 101, 1, 9, SESSION_RESET});
}

/* A SYN arrived meanwhile: a challenge ACK continues as before, and a SYN-ACK begins a new
 * connection. */
static void test_syn_after_reset(void **state)
{
	LIVE(HANDSHAKE, {C, RST, 1, 0, 0, SESSION_RESET_BY_CLIENT},
	     {S, ACK, 901, 101, 0, SESSION_RESET_BY_CLIENT},
	     {C, ACK, 101, 901, 0, SESSION_ESTABLISHED});
	LIVE(HANDSHAKE, {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER},
	     {C, SYN, 9, 0, 0, SESSION_RESET_BY_SERVER},
	     {S, SYN_ACK, 7000, 10, 0, SESSION_SYN_RECEIVED},
	     {C, ACK, 10, 7001, 0, SESSION_ESTABLISHED});
}

/* Forged in the server's name with the known tuple: without a SYN of the client in between no
 * SYN-ACK begins a connection, which the next reset would end. */
static void test_forged_answer(void **state)
{
	LIVE(HANDSHAKE, {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER},
	     {S, SYN_ACK, 7000, 10, 0, SESSION_RESET_BY_SERVER},
	     {S, RST, 2, 0, 0, SESSION_RESET_BY_SERVER},
	     {S, ACK, 901, 101, 0, SESSION_ESTABLISHED});
	/* While the client has closed its side, and forged FINs come. */
	LIVE(HANDSHAKE, {C, FIN, 101, 901, 0, SESSION_FIN_WAIT},
	     {S, ACK, 901, 102, 0, SESSION_FIN_WAIT}, {S, SYN_ACK, 7000, 10, 0, SESSION_FIN_WAIT},
	     {S, FIN, 7000, 10, 0, SESSION_CLOSING}, {S, SYN_ACK, 7000, 10, 0, SESSION_CLOSING},
	     {S, DATA, 901, 102, 5, SESSION_CLOSING});
	/* An answer is used up. */
	LIVE(HANDSHAKE, {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER},
	     {C, SYN, 500, 0, 0, SESSION_RESET_BY_SERVER},
	     {S, SYN_ACK, 7000, 501, 0, SESSION_SYN_RECEIVED},
	     {C, ACK, 501, 7001, 0, SESSION_ESTABLISHED},
	     {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER},
	     {S, SYN_ACK, 7000, 501, 0, SESSION_RESET_BY_SERVER});
}

/* A SYN that was sent twice before its answer came leaves nothing behind. */
static void test_repeated_syn(void **state)
{
	LIVE({C, SYN, 100, 0, 0, SESSION_SYN_SENT}, {S, SYN_ACK, 900, 101, 0, SESSION_SYN_RECEIVED},
	     {C, SYN, 100, 0, 0, SESSION_SYN_RECEIVED}, {C, ACK, 101, 901, 0, SESSION_ESTABLISHED},
	     {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER},
	     {S, SYN_ACK, 7000, 501, 0, SESSION_RESET_BY_SERVER});
}

/* Under SNAT an answer must acknowledge the last SYN. */
static void test_snat_answer(void **state)
{
	struct session_cold pair = {0};
	assert_true(tcp_state_is_snat_answer(&pair, 4));
	tcp_state_note_snat_syn(&pair, UINT32_MAX, 0);
	assert_true(tcp_state_is_snat_answer(&pair, 0));
	assert_false(tcp_state_is_snat_answer(&pair, 1));
	tcp_state_note_snat_syn(&pair, 700, 0);
	assert_true(tcp_state_is_snat_answer(&pair, 701));
	assert_false(tcp_state_is_snat_answer(&pair, 0));
	/* With data, and again without: a server may have taken them from the first. */
	tcp_state_note_snat_syn(&pair, UINT32_MAX - 2, 10);
	tcp_state_note_snat_syn(&pair, UINT32_MAX - 2, 0);
	assert_true(tcp_state_is_snat_answer(&pair, UINT32_MAX - 1));
	assert_true(tcp_state_is_snat_answer(&pair, 8));
	assert_false(tcp_state_is_snat_answer(&pair, 9));
	assert_false(tcp_state_is_snat_answer(&pair, UINT32_MAX - 2));
	tcp_state_note_snat_syn(&pair, 5, 0);
	assert_false(tcp_state_is_snat_answer(&pair, 8));
}

/* The answer to a probe of the previous connection comes late: the new connection continues. */
static void test_late_answer(void **state)
{
	LIVE({C, SYN, 500, 0, 0, SESSION_SYN_SENT}, {C, RST, SECRET, 0, 0, SESSION_SYN_SENT},
	     {S, SYN_ACK, 7000, 501, 0, SESSION_SYN_RECEIVED},
	     {C, RST, SECRET, 0, 0, SESSION_SYN_RECEIVED},
	     {C, ACK, 501, 7001, 0, SESSION_ESTABLISHED});
	/* It arrives before the server's answer to the SYN. */
	LIVE(HANDSHAKE, {C, RST, 101, 0, 0, SESSION_RESET_BY_CLIENT},
	     {C, RST, SECRET, 0, 0, SESSION_RESET},
	     {S, SYN_ACK, 7000, 501, 0, SESSION_SYN_RECEIVED},
	     {C, ACK, 501, 7001, 0, SESSION_ESTABLISHED});
}

/* The server has rebooted and does not know the connection: its reset is accepted. */
static void test_half_open(void **state)
{
	LIVE(HANDSHAKE, {C, DATA, 101, 901, 5, SESSION_ESTABLISHED},
	     {S, RST, 901, 0, 0, SESSION_RESET_BY_SERVER}, {S, RST, SECRET, 0, 0, SESSION_RESET});
}

/* The server has rebooted when only one side had closed: its SYN-ACK begins a new connection once a
 * FIN was acknowledged. Before that, the SYN-ACK may be an old one. */
static void test_begins_again(void **state)
{
	LIVE(HANDSHAKE, {C, FIN, 101, 901, 0, SESSION_FIN_WAIT},
	     {S, SYN_ACK, 900, 101, 0, SESSION_FIN_WAIT}, {S, ACK, 901, 102, 0, SESSION_FIN_WAIT},
	     {C, SYN, 500, 0, 0, SESSION_FIN_WAIT},
	     {S, SYN_ACK, 7000, 501, 0, SESSION_SYN_RECEIVED},
	     {C, ACK, 501, 7001, 0, SESSION_ESTABLISHED});
	LIVE(HANDSHAKE, {S, FIN, 901, 101, 0, SESSION_FIN_WAIT},
	     {C, ACK, 101, 902, 0, SESSION_FIN_WAIT}, {C, SYN, 500, 0, 0, SESSION_FIN_WAIT},
	     {S, SYN_ACK, 7000, 501, 0, SESSION_SYN_RECEIVED},
	     {C, ACK, 501, 7001, 0, SESSION_ESTABLISHED});
}

/* A server that gets the client's address also gets it for the new connection. */
static void test_begins_again_and_tells(void **state)
{
	for (unsigned how = 0; how < 3; how++) { /* not at all, by TOA, by a header */
		struct session s = {.state = SESSION_CLOSING};
		cold = (struct session_cold){
		        .text = how == 1, .inserted = how == 2 ? 28 : 0, .syn_seen = 1};
		s.flags = how == 2 ? SESSION_SHIFTED : 0;
		assert_int_equal(tcp_state_advance(&s, &cold, S, SYN_ACK, 7000, 501, 0, SECRET),
		                 TCP_FORWARD);
		assert_int_equal(s.state, SESSION_SYN_RECEIVED);
		assert_int_equal(!!(s.flags & SESSION_ADDRESS_PENDING), how != 0);
		if (how)
			assert_int_equal(cold.fin_seq[S], 501 + cold.inserted);
	}
}

/* A SYN-ACK for a live session is either a duplicate or belongs to another connection. If the
 * server gets the client's address, its number distinguishes the two. */
static void test_begins_again_by_number(void **state)
{
	for (unsigned how = 0; how < 3; how++) {
		struct session s = {.state = SESSION_ESTABLISHED,
		                    .flags = how == 2 ? SESSION_SHIFTED : 0};
		cold = (struct session_cold){.text = how == 1, .inserted = how == 2 ? 28 : 0};
		cold.fin_seq[S] = 101;
		cold.syn_seen = 1;
		assert_int_equal(tcp_state_advance(&s, &cold, S, SYN_ACK, 900, 101 - cold.inserted,
		                                   0, SECRET),
		                 TCP_FORWARD);
		assert_int_equal(s.state, SESSION_ESTABLISHED);
		assert_false(s.flags & SESSION_ADDRESS_PENDING);
		cold.syn_seen = 0; /* the client has sent no SYN since */
		tcp_state_advance(&s, &cold, S, SYN_ACK, 7000, 501 - cold.inserted, 0, SECRET);
		assert_int_equal(s.state, SESSION_ESTABLISHED);
		cold.syn_seen = 1;
		assert_int_equal(tcp_state_advance(&s, &cold, S, SYN_ACK, 7000, 501 - cold.inserted,
		                                   0, SECRET),
		                 TCP_FORWARD);
		assert_int_equal(s.state, how ? SESSION_SYN_RECEIVED : SESSION_ESTABLISHED);
		assert_int_equal(!!(s.flags & SESSION_ADDRESS_PENDING), how != 0);
		assert_int_equal(cold.fin_seq[S], how ? 501 : 101);
	}
}

/* A FIN that arrives during a reset challenge is still recorded. */
static void test_fin_during_reset(void **state)
{
	LIVE(HANDSHAKE, {S, RST, 1, 0, 0, SESSION_RESET_BY_SERVER},
	     {C, FIN, 101, 901, 0, SESSION_RESET_BY_SERVER},
	     {S, ACK, 901, 102, 0, SESSION_FIN_WAIT}, {S, FIN, 901, 102, 0, SESSION_CLOSING},
	     {C, ACK, 102, 902, 0, SESSION_TIME_WAIT});
}

static void test_names(void **state)
{
	for (unsigned i = 0; i < SESSION_STATES; i++)
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(session_state_name(i), session_state_name(k));
	assert_string_equal(session_state_name(SESSION_STATES), "?");
}

/* With the client's packets alone: s SYN_SENT, e ESTABLISHED, f FIN_WAIT, r RESET. */
static void test_one_way(void **state)
{
	static const enum session_state states[] = {SESSION_SYN_SENT, SESSION_ESTABLISHED,
	                                            SESSION_FIN_WAIT, SESSION_RESET,
	                                            SESSION_RESET_BY_CLIENT};
	static const struct {
		uint8_t flags;
		char after[SY_ARRAY_LEN(states) + 1];
	} one_way[] = {
	        {SYN, "seqaq"},       {SYN_ACK, "xxxxx"}, {ACK, "eefee"},     {DATA, "eefee"},
	        {FIN, "fffff"},       {RST, "rddrC"},     {RST_ACK, "rddrC"}, {FIN_ALONE, "xxxxx"},
	        {PSH_ALONE, "xxxxx"}, {NONE, "xxxxx"},
	};
	for (unsigned r = 0; r < SY_ARRAY_LEN(one_way); r++) {
		for (unsigned i = 0; i < SY_ARRAY_LEN(states); i++) {
			const struct session before = {.state = (uint8_t)states[i],
			                               .flags = flags_of[states[i]]};
			struct session s = before;
			char want = one_way[r].after[i];
			cold = (struct session_cold){.fin_seq = {500, 1u << 30}};
			enum tcp_result result =
			        tcp_state_one_way(&s, &cold, one_way[r].flags, 500, 0, SECRET);
			if (strchr("xaqd", want)) {
				assert_int_equal(result, want == 'x'   ? TCP_DROP
				                         : want == 'q' ? TCP_SERVER_DECIDES
				                         : want == 'd' ? TCP_CHALLENGE
				                                       : TCP_RESTART);
				assert_memory_equal(&s, &before, sizeof(s));
			} else {
				assert_int_equal(result, TCP_FORWARD);
				assert_int_equal(letter_of(s.state), want);
			}
		}
	}
	/* a forged reset does not hide the client's FIN */
	struct session s = {.state = SESSION_RESET_BY_CLIENT, .flags = SESSION_CLIENT_FIN};
	cold = (struct session_cold){.fin_seq = {700}};
	tcp_state_one_way(&s, &cold, ACK, 700, 0, SECRET);
	assert_int_equal(s.state, SESSION_FIN_WAIT);
}

/* Data with numbers far from the FIN's shows that the FIN was not the client's. */
static void test_one_way_forged_fin(void **state)
{
	for (unsigned at = 0; at < 2; at++) {
		struct session s = {.state = SESSION_ESTABLISHED};
		cold = (struct session_cold){0};
		tcp_state_one_way(&s, &cold, FIN, at ? UINT32_MAX : 9000, 3, SECRET);
		assert_int_equal(s.state, SESSION_FIN_WAIT);
		assert_int_equal(cold.fin_seq[C], at ? 3 : 9004);
		assert_int_equal(tcp_state_one_way(&s, &cold, SYN, 7, 0, SECRET), TCP_RESTART);
		tcp_state_one_way(&s, &cold, ACK, at ? 3 : 9004, 0, SECRET);
		assert_int_equal(s.state, SESSION_FIN_WAIT);
		/* earlier data that was lost is sent again */
		tcp_state_one_way(&s, &cold, DATA, cold.fin_seq[C] - 60000, 5, SECRET);
		assert_int_equal(s.state, SESSION_FIN_WAIT);
		tcp_state_one_way(&s, &cold, DATA, cold.fin_seq[C] - 70000, 5, SECRET);
		assert_int_equal(s.state, SESSION_ESTABLISHED);
		assert_int_equal(s.flags, 0);
	}
}

/* The client's FIN or reset counts by the distance of its number from the stream's start. */
static void test_one_way_ends_by_number(void **state)
{
	static const struct {
		uint32_t begin, end;
		bool near;
	} ends[] = {{100, 101, true},
	            {100, 65636, true},
	            {100, 65637, false},
	            {100, 99, false},
	            {UINT32_MAX - 5, 900, true},
	            {100, 1u << 30, false},
	            {UINT32_MAX - 5, 1u << 31, false}};
	for (unsigned i = 0; i < SY_ARRAY_LEN(ends); i++)
		for (unsigned reset = 0; reset < 2; reset++) {
			struct session s = {.state = SESSION_SYN_SENT};
			cold = (struct session_cold){0};
			tcp_state_one_way(&s, &cold, SYN, ends[i].begin, 0, SECRET);
			tcp_state_one_way(&s, &cold, ACK, ends[i].begin + 1, 0, SECRET);
			tcp_state_one_way(&s, &cold, reset ? RST : FIN, ends[i].end, 0, SECRET);
			assert_int_equal(!!(s.flags & SESSION_CLIENT_FIN_ACKED), ends[i].near);
			if (reset)
				continue;
			assert_int_equal(s.state, SESSION_FIN_WAIT);
			assert_int_equal(tcp_state_one_way(&s, &cold, SYN, 7, 0, SECRET),
			                 ends[i].near ? TCP_RESTART : TCP_SERVER_DECIDES);
			assert_int_equal(cold.fin_seq[S], ends[i].near ? 7 : ends[i].begin);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_one_way_ends_by_number),
	        cmocka_unit_test(test_rules),
	        cmocka_unit_test(test_one_way),
	        cmocka_unit_test(test_one_way_forged_fin),
	        cmocka_unit_test(test_client_closes_first),
	        cmocka_unit_test(test_server_closes_first),
	        cmocka_unit_test(test_simultaneous_close),
	        cmocka_unit_test(test_forged_fin),
	        cmocka_unit_test(test_again),
	        cmocka_unit_test(test_short_close),
	        cmocka_unit_test(test_retransmissions),
	        cmocka_unit_test(test_wrap),
	        cmocka_unit_test(test_reset),
	        cmocka_unit_test(test_syn_after_reset),
	        cmocka_unit_test(test_forged_answer),
	        cmocka_unit_test(test_repeated_syn),
	        cmocka_unit_test(test_snat_answer),
	        cmocka_unit_test(test_late_answer),
	        cmocka_unit_test(test_half_open),
	        cmocka_unit_test(test_begins_again),
	        cmocka_unit_test(test_begins_again_and_tells),
	        cmocka_unit_test(test_begins_again_by_number),
	        cmocka_unit_test(test_fin_during_reset),
	        cmocka_unit_test(test_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
