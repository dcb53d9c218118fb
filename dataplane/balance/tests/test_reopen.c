// SPDX-License-Identifier: Apache-2.0
/* A model check: a client connects again from a port that has a session. For every mode and family,
 * every TCP state, every state of the session's server, with and without another server, and with
 * the session on either worker: where the SYN goes, and that no SYN renews a session whose server
 * is dead. The expectations are a table of their own, not the code's. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"
#include "reset.h"
#include "service_dropped.h"

#define UP    STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DOWN  STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN
#define DRAIN STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN
#define KILL  STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_KILL
#define PORT  8080

#define OLD_ISN 1000u
#define NEW_ISN 0x40000000u

static const struct kind {
	const char *name, *vip, *server[2];
	enum mode mode;
} kinds[] = {
        {"fnat v4", "192.0.2.70", {"10.3.0.1", "10.3.0.2"}, MODE_FNAT},
        {"fnat v6", "2001:db8:a::70", {"2001:db8:d::1", "2001:db8:d::2"}, MODE_FNAT},
        {"fnat 6 to 4", "2001:db8:a::71", {"10.3.0.1", "10.3.0.2"}, MODE_FNAT},
        {"fnat 4 to 6", "192.0.2.71", {"2001:db8:d::1", "2001:db8:d::2"}, MODE_FNAT},
        {"nat v4", "192.0.2.72", {"10.3.0.1", "10.3.0.2"}, MODE_NAT},
        {"nat v6", "2001:db8:a::72", {"2001:db8:d::1", "2001:db8:d::2"}, MODE_NAT},
        {"dr v4", "192.0.2.73", {"10.3.0.1", "10.3.0.2"}, MODE_DR},
        {"dr v6", "2001:db8:a::73", {"2001:db8:d::1", "2001:db8:d::2"}, MODE_DR},
        {"ipip v4", "192.0.2.74", {"10.3.0.1", "10.3.0.2"}, MODE_IPIP},
        {"ipip v6 in v4", "2001:db8:a::74", {"10.3.0.1", "10.3.0.2"}, MODE_IPIP},
};

/* States of the session, with its flags, and what is true of it. */
static const struct start {
	enum session_state state;
	uint8_t flags;
	enum { BEGINS, ANSWERED, OPEN, OVER } is;
	bool one_way, two_way; /* occurs in such modes */
} starts[] = {
        {SESSION_SYN_SENT, 0, BEGINS, true, true},
        {SESSION_SYN_RECEIVED, 0, ANSWERED, false, true},
        {SESSION_ESTABLISHED, 0, OPEN, true, true},
        {SESSION_FIN_WAIT, SESSION_CLIENT_FIN, OPEN, true, true},
        {SESSION_FIN_WAIT, SESSION_CLIENT_FIN | SESSION_CLIENT_FIN_ACKED, OPEN, false, true},
        {SESSION_FIN_WAIT, SESSION_CLIENT_FIN | SESSION_CLIENT_FIN_ACKED, OVER, true, false},
        {SESSION_FIN_WAIT, SESSION_SERVER_FIN | SESSION_SERVER_FIRST, OPEN, false, true},
        {SESSION_CLOSING, SESSION_CLIENT_FIN | SESSION_SERVER_FIN, OPEN, false, true},
        {SESSION_TIME_WAIT,
         SESSION_CLIENT_FIN | SESSION_SERVER_FIN | SESSION_CLIENT_FIN_ACKED |
                 SESSION_SERVER_FIN_ACKED,
         OVER, false, true},
        {SESSION_RESET, 0, OVER, true, true},
        {SESSION_RESET_BY_CLIENT, 0, OPEN, true, true},
        {SESSION_RESET_BY_SERVER, 0, OPEN, false, true},
        {SESSION_DYING, 0, OVER, true, true},
};

static const struct fate {
	const char *name;
	int state;
	uint32_t weight;
	bool removed, dead, alive; /* alive: drains or has weight 0 */
} fates[] = {
        {"up", UP, 1, false, false, false},      {"down", DOWN, 1, false, true, false},
        {"drain", DRAIN, 1, false, false, true}, {"weight 0", UP, 0, false, false, true},
        {"removed", UP, 1, true, true, false},   {"killed", KILL, 1, false, true, false},
};

struct check {
	struct flows *f;
	const struct kind *kind;
	const struct start *start;
	const struct fate *fate;
	bool others;
	struct service_key key;
	struct sy_tuple client;
	unsigned old; /* which of the kind's servers */
	uint16_t port;
};

static void complain(const struct check *k, const char *what)
{
	fail_msg("%s, %s (flags %02x), server %s, %s: %s", k->kind->name,
	         session_state_name(k->start->state), k->start->flags, k->fate->name,
	         k->others ? "another one up" : "no other one", what);
}

static void check_that(const struct check *k, bool right, const char *otherwise)
{
	if (!right)
		complain(k, otherwise);
}

static bool is_one_way(const struct check *k)
{
	return k->kind->mode == MODE_DR || k->kind->mode == MODE_IPIP;
}

/* ---- configuration --------------------------------------------------------------------------- */

static void put(struct check *k, unsigned server, int state, uint32_t weight)
{
	struct changes c = {0};
	const struct sy_addr addr = harness_addr(k->kind->server[server]);
	put_server(&c, &k->key, &addr, is_one_way(k) ? 80 : PORT, weight, state);
	flows_commit(k->f, &c);
}

static void put_fate(struct check *k)
{
	struct changes c = {0};
	const struct sy_addr addr = harness_addr(k->kind->server[k->old]);
	if (!k->others)
		put(k, 1 - k->old, DRAIN, 1);
	if (!k->fate->removed) {
		put(k, k->old, k->fate->state, k->fate->weight);
		return;
	}
	delete_server(&c, &k->key, &addr, is_one_way(k) ? 80 : PORT);
	flows_commit(k->f, &c);
}

static void restore(struct check *k)
{
	put(k, 0, UP, 1);
	put(k, 1, UP, 1);
}

/* ---- segments -------------------------------------------------------------------------------- */

/* What left the balancer: the client's packets that were forwarded, and probes to the client. */
struct seen {
	unsigned forwarded, probes;
};

static bool is_own(const uint8_t *frame, uint32_t len)
{
	struct sy_view v;
	return sy_packet_parse(frame, len, &v) == SY_DROP_NONE && v.proto == SY_PROTO_TCP &&
	       sy_view_has_l4(&v) && !sy_packet_tcp(frame, &v)->window;
}

static struct seen send_segment(struct check *k, uint8_t flags, uint32_t seq)
{
	const struct segment s = {flags, seq, 1, flags & SY_TCP_SYN ? 1460 : 0};
	struct seen seen = {0};
	struct rte_mbuf *m;
	struct frame in;
	frame_tcp(&in, &k->f->rng, &k->client, &s, 0);
	assert_true(harness_inject(&k->f->harness, HARNESS_WAN, in.bytes, in.len));
	harness_poll(&k->f->harness);
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		while ((m = harness_collect(&k->f->harness, port))) {
			bool own = is_own(rte_pktmbuf_mtod(m, const uint8_t *),
			                  rte_pktmbuf_data_len(m));
			seen.probes += own && port == HARNESS_WAN;
			seen.forwarded += !own;
			rte_pktmbuf_free(m);
		}
	return seen;
}

static struct session *session_of(const struct check *k)
{
	return flows_find(k->f, &k->client);
}

static bool session_is_on(const struct check *k, unsigned server)
{
	const struct session *s = session_of(k);
	const struct sy_addr addr = harness_addr(k->kind->server[server]);
	return s && sy_addr_equal(&inspect_endpoint(k->f->harness.b, s->server)->addr, &addr);
}

/* ---- one case -------------------------------------------------------------------------------- */

/* A session in the start state, silent for a second. */
static void begin(struct check *k)
{
	k->client.sport = htons(k->port++);
	assert_int_equal(send_segment(k, SY_TCP_SYN, OLD_ISN).forwarded, 1);
	struct session *s = session_of(k);
	assert_non_null(s);
	k->old = session_is_on(k, 1);
	s->state = (uint8_t)k->start->state;
	s->flags = k->start->flags;
	s->seen = (uint16_t)(s->seen - 1);
	put_fate(k);
	memset(&inspect_worker(k->f->harness.b, 0)->originated, 0, sizeof(struct originated_rates));
	memset(&inspect_worker(k->f->harness.b, 1)->originated, 0, sizeof(struct originated_rates));
}

/* The SYN begins a session on the other server, or is refused if there is none. */
static void check_moves(struct check *k)
{
	const uint64_t refused = harness_drops(&k->f->harness, SY_DROP_NO_SERVER);
	const uint64_t of_service = services_dropped(k->f, SY_DROP_NO_SERVER);
	const struct session *s = session_of(k);
	const uint16_t before = s ? s->seen : 0;
	struct seen seen = send_segment(k, SY_TCP_SYN, NEW_ISN);
	s = session_of(k);
	if (!k->others) {
		check_that(k, seen.forwarded == 0, "the SYN was forwarded");
		check_that(k, !s || s->seen == before, "the SYN renewed the session");
		check_that(k, harness_drops(&k->f->harness, SY_DROP_NO_SERVER) == refused + 1,
		           "not dropped as no-server");
		check_that(k, services_dropped(k->f, SY_DROP_NO_SERVER) == of_service + 1,
		           "not counted under its service");
		return;
	}
	check_that(k, seen.forwarded == 1, "the SYN was not forwarded");
	check_that(k, session_is_on(k, 1 - k->old), "no session on the other server");
	check_that(k, s->state == SESSION_SYN_SENT, "the session is no new one");
}

/* The SYN reaches the session's own server. */
static void check_stays(struct check *k)
{
	check_that(k, send_segment(k, SY_TCP_SYN, NEW_ISN).forwarded == 1,
	           "the SYN was not forwarded");
	check_that(k, session_is_on(k, k->old), "the session has another server");
}

/* The client is probed. If it denies the connection, its next SYN moves. */
static void check_probes(struct check *k)
{
	const uint64_t dropped = harness_drops(&k->f->harness, SY_DROP_BAD_TCP_STATE);
	const uint64_t of_service = services_dropped(k->f, SY_DROP_BAD_TCP_STATE);
	const uint8_t before = k->start->state;
	struct seen seen = send_segment(k, SY_TCP_SYN, NEW_ISN);
	check_that(k, seen.forwarded == 0, "the SYN was forwarded");
	check_that(k, seen.probes == 1, "the client was not probed");
	check_that(k, harness_drops(&k->f->harness, SY_DROP_BAD_TCP_STATE) == dropped + 1,
	           "not dropped as bad-tcp-state");
	check_that(k, services_dropped(k->f, SY_DROP_BAD_TCP_STATE) == of_service + 1,
	           "not counted under its service");
	check_that(k, session_is_on(k, k->old), "the session is gone");
	if (before != SESSION_RESET_BY_SERVER) { /* of which only the server's answer is evidence */
		/* A blind attacker sent the SYN: the client's connection goes on. */
		check_that(k, send_segment(k, SY_TCP_ACK, OLD_ISN + 1).forwarded == 1,
		           "the open connection ended");
		check_that(k, session_of(k)->state != SESSION_RESET_BY_CLIENT,
		           "the client's answer does not count");
		seen = send_segment(k, SY_TCP_SYN, NEW_ISN);
		check_that(k, seen.probes == 1, "the client was not probed again");
	}
	send_segment(k, SY_TCP_RST, reset_secret(k->f->harness.b, session_of(k)));
	check_that(k, session_of(k)->state == SESSION_RESET, "the client's denial does not count");
	check_moves(k);
}

static void check_case(struct check *k)
{
	begin(k);
	const bool over = k->start->is == OVER;
	if (k->fate->dead || k->start->state == SESSION_DYING)
		check_moves(k);
	else if (!k->fate->alive && k->start->state != SESSION_TIME_WAIT)
		check_stays(k);
	else if (!k->fate->alive)
		check_that(k, send_segment(k, SY_TCP_SYN, NEW_ISN).forwarded == 1,
		           "the SYN was not forwarded");
	else if (over || (k->start->is == BEGINS && k->others))
		check_moves(k);
	else if (k->start->is == OPEN)
		check_probes(k);
	else
		check_stays(k);
	restore(k);
}

static void check_kind(struct check *k)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(starts); i++)
		for (unsigned n = 0; n < SY_ARRAY_LEN(fates); n++)
			for (unsigned others = 0; others < 2; others++) {
				k->start = &starts[i];
				k->fate = &fates[n];
				k->others = others;
				/* With its server up, a session that is over needs no other. */
				if (!(is_one_way(k) ? k->start->one_way : k->start->two_way) ||
				    (!k->others && k->start->state == SESSION_DYING &&
				     !k->fate->dead && !k->fate->alive))
					continue;
				check_case(k);
			}
}

static void check_all(struct flows *f)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(kinds); i++) {
		const struct kind *kind = &kinds[i];
		struct check k = {.f = f, .kind = kind, .port = 1024};
		struct changes c = {0};
		k.key = harness_key(kind->vip, 80, SY_PROTO_TCP);
		const bool v4 = sy_addr_is_v4(&k.key.vip);
		k.client = (struct sy_tuple){harness_addr(v4 ? "198.18.0.1" : "2001:db8:c::1"),
		                             k.key.vip, 0, k.key.vport, SY_PROTO_TCP};
		flows_put(&c, &k.key, kind->name, kind->mode, kind->server, 2,
		          is_one_way(&k) ? 80 : PORT);
		flows_commit(f, &c);
		check_kind(&k);
	}
}

static void test_one_worker(void **state)
{
	check_all(*state);
}

/* Most sessions belong to the worker that does not receive the packets. */
static void test_two_workers(void **state)
{
	struct flows *f = *state;
	f->options.queues = 2;
	flows_reopen(f, 2, 0, false);
	check_all(f);
	assert_int_not_equal(f->harness.rt->worker[0].counters.steered_out, 0);
}

/* ---- persistence ----------------------------------------------------------------------------- */

/* The client's prefix moves with the SYN, and its next connections follow. */
static void test_persistence(void **state)
{
	struct check k = {.f = *state, .kind = &kinds[0], .start = &starts[2], .port = 1024};
	struct changes c = {0};
	k.key = k.f->service[0];
	k.key.vip = harness_addr("192.0.2.79");
	k.client = (struct sy_tuple){harness_addr("198.18.0.1"), k.key.vip, 0, k.key.vport,
	                             SY_PROTO_TCP};
	set_persistence(&c, put_service(&c, &k.key, "bound", FLOW_RR, NULL), 300, 24, 64);
	for (unsigned i = 0; i < 2; i++) {
		const struct sy_addr addr = harness_addr(k.kind->server[i]);
		put_server(&c, &k.key, &addr, PORT, 1, UP);
	}
	flows_commit(k.f, &c);
	k.others = true;
	for (unsigned n = 1; n < SY_ARRAY_LEN(fates); n++) {
		k.fate = &fates[n];
		begin(&k);
		const unsigned other = 1 - k.old;
		if (k.fate->alive)
			check_probes(&k);
		else
			check_moves(&k);
		k.client.sport = htons(k.port++);
		assert_int_equal(send_segment(&k, SY_TCP_SYN, OLD_ISN).forwarded, 1);
		check_that(&k, session_is_on(&k, other), "the next connection does not follow");
		restore(&k);
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A client repeats its SYN while all servers are down: the session expires, and the first server
 * that returns gets the next SYN. */
static void test_expires_under_syns(void **state)
{
	struct check k = {.f = *state, .kind = &kinds[0], .start = &starts[2], .fate = &fates[1]};
	pb_timeouts timeouts = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	struct changes c = {0};
	k.key = k.f->service[0];
	k.key.vip = harness_addr("192.0.2.79");
	k.port = 1024;
	k.client = (struct sy_tuple){harness_addr("198.18.0.1"), k.key.vip, 0, k.key.vport,
	                             SY_PROTO_TCP};
	timeouts.established_s = 20;
	put_service(&c, &k.key, "short", FLOW_RR, &timeouts);
	for (unsigned i = 0; i < 2; i++) {
		const struct sy_addr addr = harness_addr(k.kind->server[i]);
		put_server(&c, &k.key, &addr, PORT, 1, UP);
	}
	flows_commit(k.f, &c);
	begin(&k);
	put(&k, 1 - k.old, DOWN, 1);
	for (unsigned second = 0; second < 24 + RESET_BOTH_SECONDS; second++) {
		check_that(&k, send_segment(&k, SY_TCP_SYN, NEW_ISN).forwarded == 0,
		           "a dead server got the SYN");
		flows_advance(k.f, 1);
	}
	assert_null(session_of(&k));
	put(&k, 1 - k.old, UP, 1);
	assert_int_equal(send_segment(&k, SY_TCP_SYN, NEW_ISN).forwarded, 1);
	assert_true(session_is_on(&k, 1 - k.old));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, flows_setup, flows_teardown)
	const struct CMUnitTest tests[] = {TEST(one_worker), TEST(two_workers), TEST(persistence),
	                                   TEST(expires_under_syns)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
