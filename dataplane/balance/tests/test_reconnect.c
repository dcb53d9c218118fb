// SPDX-License-Identifier: Apache-2.0
/* A model check: a client connects again from the port that it just used. For every session state,
 * for everything that the server may still remember, and with any other segment in flight, a SYN
 * arrives. Then all segments of client, server and balancer arrive in every order up to DEPTH. From
 * each point reached, the connection must finish once no more segments are lost. Either its server
 * has the client's address, once and before the data, and has answered, or the client was refused.
 * It never hangs.
 *
 * The balancer is the real one; both ends are models of RFC 9293. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reconnect.h"
#include "reset.h"

static const char toa[] = "\xfe\x08\x04\x01\xc6\x12\0\x01";

/* A session state, and its FIN flags. */
static const struct start {
	enum session_state state;
	uint8_t flags;
} starts[] = {
        {SESSION_SYN_SENT, 0},
        {SESSION_SYN_RECEIVED, 0},
        {SESSION_ESTABLISHED, 0},
        {SESSION_ESTABLISHED, SESSION_ADDRESS_PENDING},
        {SESSION_FIN_WAIT, SESSION_CLIENT_FIN},
        {SESSION_FIN_WAIT, SESSION_CLIENT_FIN | SESSION_CLIENT_FIN_ACKED},
        {SESSION_FIN_WAIT, SESSION_SERVER_FIN | SESSION_SERVER_FIRST},
        {SESSION_FIN_WAIT, SESSION_SERVER_FIN | SESSION_SERVER_FIN_ACKED | SESSION_SERVER_FIRST},
        {SESSION_CLOSING, SESSION_CLIENT_FIN | SESSION_SERVER_FIN},
        {SESSION_TIME_WAIT, SESSION_CLIENT_FIN | SESSION_SERVER_FIN | SESSION_CLIENT_FIN_ACKED |
                                    SESSION_SERVER_FIN_ACKED},
        {SESSION_TIME_WAIT, SESSION_CLIENT_FIN | SESSION_SERVER_FIN | SESSION_CLIENT_FIN_ACKED |
                                    SESSION_SERVER_FIN_ACKED | SESSION_SERVER_FIRST},
        {SESSION_RESET, 0},
        {SESSION_RESET_BY_CLIENT, 0},
        {SESSION_RESET_BY_SERVER, 0},
        {SESSION_DYING, 0},
};

/* Segments of the old connection that are still in flight from the client. */
static const struct {
	const char *name;
	uint8_t flags;
} stales[] = {{"nothing", 0}, {"a reset", RST}, {"a FIN", FIN | ACK}, {"an ACK", ACK}};

/* ---- the record, which topologies share in turn ---------------------------------------------- */

static struct session *session_now(const struct check *k, uint32_t *record)
{
	uint32_t cursor = 0;
	*record = session_next(k->t, &cursor);
	return *record == SESSION_NONE ? NULL : session_at(k->t, *record);
}

static void hashes_of(const struct check *k, const struct session *s,
                      const struct session_cold *cold, uint64_t hash[2])
{
	const struct sy_balance *b = k->f->harness.b;
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_tuple client = session_client_tuple(s, cold, e);
	const struct sy_tuple server = session_server_tuple(b, s, cold, e);
	hash[SESSION_CLIENT] = sy_hash_tuple(&b->key, &client);
	hash[SESSION_SERVER] = sy_hash_tuple(&b->key, &server);
}

static struct record record_read(const struct check *k)
{
	uint32_t n;
	const struct session *s = session_now(k, &n);
	struct record r;
	memset(&r, 0, sizeof(r)); /* compared as bytes */
	if (!s)
		return r;
	r.is_there = true;
	r.hot = *s;
	r.cold = *session_cold_at(k->t, n);
	r.hot.seen = 0;
	r.cold.commit = 0;
	r.cold.created = 0;
	return r;
}

static void record_set(struct check *k, const struct record *r)
{
	uint32_t n;
	uint64_t hash[2];
	struct session *s = session_now(k, &n);
	struct session hot = r->hot;
	hot.seen = (uint16_t)balance_seconds(&k->f->harness.rt->worker[0]);
	if (s) {
		hashes_of(k, s, session_cold_at(k->t, n), hash);
		session_remove(k->t, n, hash[SESSION_CLIENT], hash[SESSION_SERVER]);
	}
	if (!r->is_there)
		return;
	hashes_of(k, &hot, &r->cold, hash);
	assert_int_not_equal(
	        session_insert(k->t, &hot, &r->cold, hash[SESSION_CLIENT], hash[SESSION_SERVER]),
	        SESSION_NONE);
}

/* ---- the balancer between the two ends ------------------------------------------------------- */

static void balancer_said(struct check *k, struct topology *x, unsigned port, const uint8_t *bytes,
                          uint32_t len)
{
	struct sy_view v;
	struct message m;
	memset(&m, 0, sizeof(m));
	assert_int_equal(sy_packet_parse(bytes, len, &v), 0);
	assert_int_equal(sy_packet_check_l4(bytes, &v), SY_CSUM_OK);
	const struct sy_tcp *tcp = sy_packet_tcp(bytes, &v);
	unsigned head = tcp->offset / 16 * 4u;
	m.place = port == HARNESS_WAN ? TO_CLIENT : TO_SERVER;
	m.flags = tcp->flags & (SYN | ACK | RST | FIN);
	m.probe = m.flags == ACK && tcp->window == 0;
	m.seq = m.probe ? 0 : ntohl(tcp->seq);
	m.ack = ntohl(tcp->ack);
	m.len = (uint16_t)(v.l4_len - head);
	m.toa = head > 20 && memcmp(bytes + v.l4 + 20, toa, sizeof(toa) - 1) == 0;
	if (m.len > sizeof(m.data))
		complain(k, x, "more data than either side sends");
	memcpy(m.data, bytes + v.l4 + head, m.len);
	if (m.place == TO_SERVER)
		m.tuple = (struct sy_tuple){v.tuple.dst, v.tuple.src, v.tuple.dport, v.tuple.sport,
		                            SY_PROTO_TCP};
	fly(x, &m);
}

static void balancer_collect(struct check *k, struct topology *x)
{
	struct rte_mbuf *m;
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		while ((m = harness_collect(&k->f->harness, port))) {
			balancer_said(k, x, port, rte_pktmbuf_mtod(m, const uint8_t *),
			              rte_pktmbuf_data_len(m));
			rte_pktmbuf_free(m);
		}
	x->record = record_read(k);
}

static void balancer_receives(struct check *k, struct topology *x, const struct message *m)
{
	struct balance_worker *bw = inspect_worker(k->f->harness.b, 0);
	const bool client = m->place == FROM_CLIENT;
	const struct segment s = {m->flags, m->seq, m->ack, 0};
	struct frame in;
	frame_tcp(&in, &k->f->rng, client ? &k->client : &m->tuple, &s, m->len);
	memcpy(in.bytes + in.len - m->len, m->data, m->len);
	frame_fix_l4(&in);
	memset(&bw->originated, 0, sizeof(bw->originated));
	assert_true(harness_inject(&k->f->harness, client ? HARNESS_WAN : HARNESS_LAN, in.bytes,
	                           in.len));
	harness_poll(&k->f->harness);
	balancer_collect(k, x);
}

static void deliver(struct check *k, struct topology *x, unsigned i)
{
	const struct message m = land(x, i);
	switch (m.place) {
	case TO_CLIENT:
		client_receives(x, &m);
		break;
	case TO_SERVER:
		server_receives(k, x, &m);
		break;
	default:
		balancer_receives(k, x, &m);
	}
}

/* ---- end of a connection --------------------------------------------------------------------- */

/* Whether the connection reached an end that both sides see. */
static bool is_over(struct check *k, const struct topology *x)
{
	if (x->client.state == REFUSED)
		return true;
	if (x->client.state != ESTABLISHED || x->client.expected != SERVER_ISN + 1 + REPLY_LEN)
		return false;
	if (k->how == STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA &&
	    !x->has_address)
		complain(k, x, "connected, and the server did not get the client's address");
	return true;
}

static void retransmit(struct topology *x)
{
	struct end *c = &x->client, *s = &x->server;
	if (c->state == SYN_SENT)
		send_segment(x, FROM_CLIENT, SYN, CLIENT_ISN, 0, 0);
	if (c->state == ESTABLISHED && c->unacked != c->next)
		send_segment(x, FROM_CLIENT, ACK, CLIENT_ISN + 1, c->expected, DATA_LEN);
	if (s->state == SYN_RECEIVED)
		send_segment(x, FROM_SERVER, SYN | ACK, s->unacked, s->expected, 0);
	if (s->state == ESTABLISHED && s->unacked != s->next)
		send_segment(x, FROM_SERVER, ACK, SERVER_ISN + 1, s->expected, REPLY_LEN);
}

/* From here on no segment is lost, and all arrive in order. */
static void check_ends(struct check *k, const struct topology *from)
{
	struct topology x = *from;
	record_set(k, &x.record);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned n = 0; n < 100 && x.flying[0].place != NOWHERE; n++) {
			deliver(k, &x, 0);
			if (is_over(k, &x))
				return;
		}
		harness_advance(&k->f->harness, UINT64_C(1000000000));
		balancer_collect(k, &x);
		retransmit(&x);
	}
	complain(k, &x, "the connection hangs");
}

/* ---- all orders ------------------------------------------------------------------------------ */

/* Whether this topology was reached before with as many steps left. */
static bool was_met(struct check *k, const struct topology *x, unsigned left)
{
	struct topology y = *x;
	uint64_t h = 0, word;
	y.record.hot.delta = 0; /* follows from the port */
	y.record.hot.path = 0;
	for (size_t at = 0; at + 8 <= sizeof(y); at += 8) {
		memcpy(&word, (const uint8_t *)&y + at, 8);
		h = sy_hash_mix(h ^ word, 0x9fb21c651e98df25u + at);
	}
	h = (h & ~UINT64_C(15)) | 16; /* never empty */
	for (uint64_t i = (h >> 4) % SEEN;; i = (i + 1) % SEEN) {
		if (k->seen[i] && (k->seen[i] & ~UINT64_C(15)) != h)
			continue;
		if (k->seen[i] && (k->seen[i] & 15) >= left)
			return true;
		k->topologies += !k->seen[i];
		assert_true(k->topologies < SEEN / 2);
		k->seen[i] = h | left;
		return false;
	}
}

static void explore(struct check *k, const struct topology *x, unsigned left)
{
	if (was_met(k, x, left))
		return;
	check_ends(k, x);
	if (left == 0 || is_over(k, x))
		return;
	k->path[k->depth++] = *x;
	for (unsigned i = 0; i < IN_FLIGHT && x->flying[i].place != NOWHERE; i++) {
		struct topology y = *x;
		record_set(k, &y.record);
		deliver(k, &y, i);
		explore(k, &y, left - 1);
	}
	if (x->syns && x->client.state == SYN_SENT) {
		struct topology y = *x;
		y.syns--;
		send_segment(&y, FROM_CLIENT, SYN, CLIENT_ISN, 0, 0);
		explore(k, &y, left - 1);
	}
	if (x->probes && x->record.is_there && session_is_challenged(&x->record.hot)) {
		struct topology y = *x;
		uint32_t n;
		y.probes--;
		record_set(k, &y.record);
		challenge_repeat(&k->f->harness.rt->worker[0], session_now(k, &n));
		harness_poll(&k->f->harness);
		balancer_collect(k, &y);
		explore(k, &y, left - 1);
	}
	k->depth--;
}

/* ---- start states ---------------------------------------------------------------------------- */

/* The record of an old connection. */
static struct record old_record(struct check *k)
{
	struct topology x;
	memset(&x, 0, sizeof(x));
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		x.flying[i].place = NOWHERE;
	const struct record none = {.is_there = false};
	record_set(k, &none);
	send_segment(&x, FROM_CLIENT, SYN, OLD_CLIENT - 100, 0, 0);
	deliver(k, &x, 0);
	assert_int_equal(x.flying[0].place, TO_SERVER);
	assert_true(x.record.is_there);
	return x.record;
}

static void check_start(struct check *k, const struct start *start, enum end_state server,
                        unsigned stale)
{
	struct topology x;
	memset(&x, 0, sizeof(x));
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		x.flying[i].place = NOWHERE;
	x.record = old_record(k);
	x.record.hot.state = (uint8_t)start->state;
	if (start->state != SESSION_SYN_SENT && start->state != SESSION_SYN_RECEIVED) {
		/* The address was delivered, unless the start state excludes it. */
		uint8_t flags = start->flags;
		flags &= k->how ? 0xff : (uint8_t)~SESSION_ADDRESS_PENDING;
		x.record.hot.flags = (uint8_t)(flags | (is_proxy(k) ? SESSION_SHIFTED : 0));
		x.record.cold.fin_seq[SESSION_CLIENT] = OLD_CLIENT;
		if (!(flags & SESSION_ADDRESS_PENDING))
			x.record.cold.fin_seq[SESSION_SERVER] = OLD_SERVER;
	}
	uint64_t hash[2];
	hashes_of(k, &x.record.hot, &x.record.cold, hash);
	x.tuple = session_server_tuple(k->f->harness.b, &x.record.hot, &x.record.cold,
	                               inspect_endpoint(k->f->harness.b, x.record.hot.server));
	x.client = (struct end){SYN_SENT, CLIENT_ISN + 1, 0, CLIENT_ISN};
	x.server = (struct end){server, OLD_SERVER, OLD_CLIENT + shift_of(k), OLD_SERVER};
	x.syns = x.probes = 1;
	if (stales[stale].flags)
		send_segment(&x, FROM_CLIENT, stales[stale].flags, OLD_CLIENT,
		             stales[stale].flags & ACK ? OLD_SERVER : 0, 0);
	send_segment(&x, FROM_CLIENT, SYN, CLIENT_ISN, 0, 0);
	snprintf(k->scenario, sizeof(k->scenario),
	         "session %s flags %02x, client_address %d, server %s, %s under way",
	         session_state_name(start->state), x.record.hot.flags, k->how, end_names[server],
	         stales[stale].name);
	explore(k, &x, DEPTH);
}

static void check_all(void **state, int how)
{
	struct check k = {.f = *state, .how = how};
	const struct service_key *key = &k.f->service[0];
	struct changes c = {0};
	uint64_t topologies = 0;
	put_service(&c, key, "service", FLOW_RR, NULL)->client_address =
	        (Steelyard__Forwarder__V1__ClientAddress)how;
	flows_commit(k.f, &c);
	k.client = (struct sy_tuple){harness_addr("198.18.0.1"), key->vip, htons(1025), key->vport,
	                             SY_PROTO_TCP};
	k.t = inspect_table(k.f->harness.b, sy_slot_of(&k.client.src, k.client.sport));
	k.seen = malloc(SEEN * sizeof(*k.seen));
	assert_non_null(k.seen);
	for (unsigned i = 0; i < SY_ARRAY_LEN(starts); i++)
		for (enum end_state server = LISTENING; server <= OLD_TIME_WAIT; server++)
			for (unsigned stale = 0; stale < SY_ARRAY_LEN(stales); stale++) {
				memset(k.seen, 0, SEEN * sizeof(*k.seen));
				k.topologies = 0;
				check_start(&k, &starts[i], server, stale);
				topologies += k.topologies;
			}
	printf("client_address %d: %lu topologies\n", how, topologies);
	free(k.seen);
}

static void test_plain(void **state)
{
	check_all(state, 0);
}

static void test_toa(void **state)
{
	check_all(state, STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA);
}

static void test_proxy(void **state)
{
	check_all(state, STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_plain, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_toa, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_proxy, flows_setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
