// SPDX-License-Identifier: Apache-2.0
/* What the model check of a client that connects again (test_reconnect.c) consists of: segments in
 * flight, and the models of the two ends. */
#ifndef RECONNECT_H
#define RECONNECT_H

#include "flows.h"

#define DEPTH     6
#define IN_FLIGHT 8
#define ROUNDS    14 /* seconds in which a connection must finish */
#define WINDOW    65535u

#define SYN SY_TCP_SYN
#define ACK SY_TCP_ACK
#define RST SY_TCP_RST
#define FIN SY_TCP_FIN

/* The old connection's next numbers as its two ends count them; the new connection's first
 * numbers. */
#define OLD_CLIENT 1000u
#define OLD_SERVER 5000u
#define CLIENT_ISN 0x100000u
#define SERVER_ISN 0x900000u
#define DATA_LEN   10u
#define REPLY_LEN  5u

#define HEADER_LEN 28u

enum place { FROM_CLIENT, FROM_SERVER, TO_CLIENT, TO_SERVER, NOWHERE };

struct message {
	uint8_t place, flags;
	bool toa, probe;
	uint16_t len;
	uint32_t seq, ack;
	struct sy_tuple tuple; /* as the server sends it */
	uint8_t data[HEADER_LEN + DATA_LEN];
};

enum end_state { LISTENING, OLD, OLD_TIME_WAIT, SYN_SENT, SYN_RECEIVED, ESTABLISHED, REFUSED };
extern const char *const end_names[]; /* by enum end_state */

struct end {
	enum end_state state;
	uint32_t next, expected; /* SND.NXT, RCV.NXT */
	uint32_t unacked;        /* SND.UNA */
};

struct record {
	bool is_there;
	struct session hot;
	struct session_cold cold;
};

struct topology {
	struct end client, server;
	struct sy_tuple tuple; /* of the server's connection, as the server sends it */
	bool has_address;      /* true: by the segment that completed the handshake */
	uint8_t syns, probes;  /* remaining retransmissions */
	struct record record;
	struct message flying[IN_FLIGHT];
};

struct check {
	struct flows *f;
	int how; /* the service's client_address setting */
	struct sy_tuple client;
	struct session_table *t;
	struct topology path[DEPTH + 1]; /* how the present state was reached */
	unsigned depth;
	uint64_t *seen; /* hashes of topologies, with the remaining depth */
	uint64_t topologies;
	char scenario[160];
};
#define SEEN (UINT64_C(1) << 20)

/* The PROXY header that the server has to get. */
extern const char reconnect_header[];

static inline bool is_proxy(const struct check *k)
{
	return k->how == STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2;
}

static inline uint32_t shift_of(const struct check *k)
{
	return is_proxy(k) ? HEADER_LEN : 0;
}

/* Fails the test: says what happened, and how. */
void complain(const struct check *k, const struct topology *x, const char *what);

/* Puts a segment in flight. Duplicates count once; a segment that finds the list full is lost. */
void fly(struct topology *x, const struct message *m);
/* Removes the segment at this position; the rest keep their order. */
struct message land(struct topology *x, unsigned i);
void send_segment(struct topology *x, enum place place, uint8_t flags, uint32_t seq, uint32_t ack,
                  uint16_t len);

/* An end receives a segment, and answers by RFC 9293. */
void client_receives(struct topology *x, const struct message *m);
void server_receives(struct check *k, struct topology *x, const struct message *m);

#endif
