// SPDX-License-Identifier: Apache-2.0
/* Twenty thousand connections a second to one server over one local address, from independent
 * clients. The server closes first and remembers each tuple for a minute. Like the kernel's TCP
 * (RFC 9293 3.6.1), it refuses a SYN whose number is not above the one that it remembers. No SYN
 * may be refused, although every port is reused within four seconds. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../../tests/soak/soak_frame.h"
#include "routed.h"

#define MS_NS     UINT64_C(1000000)
#define RATE      20 /* connections per millisecond */
#define TIME_WAIT (60000 * MS_NS)
#define REQUEST   10 /* bytes */
#ifdef __SANITIZE_ADDRESS__
#define CONNECTIONS 100000u
#else
#define CONNECTIONS 160000u
#endif

/* What the server remembers about a peer's port. */
struct memory {
	uint64_t until; /* 0: no connection */
	uint32_t next;  /* the sequence number that it expects */
	bool used;
};

struct fixture {
	struct harness harness;
	struct rng rng;
	struct service_key key;
	struct memory memory[UINT16_MAX + 1];
	unsigned refused, forgotten, reused, done, reset;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct sy_addr local = harness_addr("10.0.1.1"), server = harness_addr("10.0.0.1");
	struct changes c = {0};
	routed_open(&f->harness, (struct harness_options){.sessions = SY_SLOTS * 512});
	f->rng.state = 1;
	f->key = harness_key("192.0.2.10", 80, SY_PROTO_TCP);
	put_local(&c, &local);
	put_service(&c, &f->key, "rate", STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR, NULL);
	put_server(&c, &f->key, &server, 8080, 1,
	           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP);
	routed_commit(&f->harness, &c);
	*state = f;
	return 0;
}

static void segment_send(struct fixture *f, unsigned port, const struct sy_tuple *t, uint8_t flags,
                         uint32_t seq, uint32_t ack, unsigned payload)
{
	const struct segment s = {flags, seq, ack, 0};
	struct frame frame;
	frame_tcp(&frame, &f->rng, t, &s, payload);
	assert_true(harness_inject(&f->harness, port, frame.bytes, frame.len));
}

/* Both ends act only on the segments that they receive. */
static void server_receives(struct fixture *f, const struct sy_tuple *back, uint8_t flags,
                            uint32_t seq, uint32_t ack, unsigned payload)
{
	struct memory *m = &f->memory[ntohs(back->dport)];
	bool remembers = m->until > f->harness.now_ns;
	if (flags & SY_TCP_SYN) {
		f->reused += m->used;
		f->refused += remembers && (int32_t)(seq - m->next) <= 0;
		*m = (struct memory){.used = true};
		segment_send(f, HARNESS_LAN, back, SY_TCP_SYN | SY_TCP_ACK, 1, seq + 1, 0);
	} else if (flags & SY_TCP_RST) {
		if (remembers && seq == m->next) {
			m->until = 0;
			f->forgotten++;
		}
	} else if (flags & SY_TCP_FIN) {
		m->until = f->harness.now_ns + TIME_WAIT;
		m->next = seq + 1;
		segment_send(f, HARNESS_LAN, back, SY_TCP_ACK, ack, seq + 1, 0);
	} else if (payload) {
		segment_send(f, HARNESS_LAN, back, SY_TCP_FIN | SY_TCP_ACK, ack, seq + payload, 0);
	}
}

static void client_receives(struct fixture *f, const struct sy_tuple *back, uint8_t flags,
                            uint32_t seq, uint32_t ack)
{
	if (flags & SY_TCP_RST)
		f->reset++;
	else if (flags & SY_TCP_SYN)
		segment_send(f, HARNESS_WAN, back, SY_TCP_ACK, ack, seq + 1, REQUEST);
	else if (flags & SY_TCP_FIN)
		segment_send(f, HARNESS_WAN, back, SY_TCP_FIN | SY_TCP_ACK, ack, seq + 1, 0);
	else
		f->done++;
}

static void answer(struct fixture *f, unsigned port, const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	struct sy_view v;
	assert_int_equal(sy_packet_parse(frame, rte_pktmbuf_data_len(m), &v), SY_DROP_NONE);
	assert_int_equal(sy_packet_check_l4(frame, &v), SY_CSUM_OK);
	const struct sy_tcp *tcp = sy_packet_tcp(frame, &v);
	const struct sy_tuple back = {v.tuple.dst, v.tuple.src, v.tuple.dport, v.tuple.sport,
	                              SY_PROTO_TCP};
	if (port == HARNESS_LAN)
		server_receives(f, &back, v.tcp_flags, ntohl(tcp->seq), ntohl(tcp->ack),
		                v.l4_len - (tcp->offset >> 4) * 4u);
	else
		client_receives(f, &back, v.tcp_flags, ntohl(tcp->seq), ntohl(tcp->ack));
}

/* Runs until no side has anything to send. */
static void converse(struct fixture *f)
{
	bool said = true;
	while (said) {
		said = false;
		harness_poll(&f->harness);
		for (unsigned port = 0; port < HARNESS_PORTS; port++)
			for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port));
			     said = true) {
				answer(f, port, m);
				rte_pktmbuf_free(m);
			}
	}
}

static void test_no_connection_meets_a_time_wait(void **state)
{
	struct fixture *f = *state;
	for (unsigned n = 0; n < CONNECTIONS; n++) {
		struct sy_tuple t = {harness_addr("198.18.0.0"), f->key.vip,
		                     htons((uint16_t)(1024 + rng_below(&f->rng, 60000))),
		                     f->key.vport, SY_PROTO_TCP};
		uint16_t host = htons((uint16_t)(1 + rng_below(&f->rng, UINT16_MAX)));
		memcpy(t.src.b + 14, &host, sizeof(host));
		segment_send(f, HARNESS_WAN, &t, SY_TCP_SYN, rng_below(&f->rng, UINT32_MAX), 0, 0);
		if (n % RATE == RATE - 1) {
			converse(f);
			harness_advance(&f->harness, MS_NS);
		}
	}
	converse(f);
	assert_int_equal(f->done, CONNECTIONS);
	assert_int_equal(f->refused, 0);
	assert_int_equal(f->reset, 0);
	assert_true(f->reused > CONNECTIONS - 65536); /* of 64 512 ports */
	assert_true(f->forgotten >= f->reused);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_LOCAL_PORT), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
	        test_no_connection_meets_a_time_wait, setup, routed_teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
