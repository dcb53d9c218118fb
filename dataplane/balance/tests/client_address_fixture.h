// SPDX-License-Identifier: Apache-2.0
/* A connection whose server gets the client's address, and each packet as it leaves the balancer:
 * for test_client_address.c. */
#ifndef CLIENT_ADDRESS_FIXTURE_H
#define CLIENT_ADDRESS_FIXTURE_H

#include "flows.h"

#define TOA      STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA
#define PROXY_V1 STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V1
#define PROXY_V2 STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2
#define ISN      0xfffffff0u /* the client's: its numbers wrap inside the header */
#define FIRST    (ISN + 1)
#define SERVER   900u /* its ISN */
#define ACK      SY_TCP_ACK
#define CLIENT   SESSION_CLIENT
#define BACK     SESSION_SERVER

/* The ways to send a client's address, and the header before its data, or the option. */
struct way {
	int how;
	unsigned v6;
	const char *header;
	unsigned len;
};
#define WAYS    6
#define PROXIES 4 /* the first of them are PROXY headers; the others options */
extern const struct way ways[WAYS];

/* A connection, and what its last packet became on the other side. */
struct talk {
	struct flows *f;
	unsigned way;
	struct sy_tuple tuple[2]; /* tuples of arriving packets, by enum session_direction */
	unsigned count;           /* packets that left */
	struct part {
		uint8_t flags;
		uint32_t seq, ack;
		struct sy_view v;
		struct frame frame;
	} out[2];
};

/* Sets the client_address of both services. */
void set_how(struct flows *f, int how);
/* Sends a frame, and collects what leaves on the other side. */
void send_frame(struct talk *k, enum session_direction from, const struct frame *in);
void send_segment(struct talk *k, enum session_direction from, uint8_t flags, uint32_t seq,
                  uint32_t ack, unsigned payload);
/* Like send_segment(), with a SACK block. */
void send_sack(struct talk *k, enum session_direction from, uint32_t seq, uint32_t ack,
               uint32_t left, uint32_t right);
/* Bytes of a packet's TCP header. */
unsigned header_of(const struct part *p);
/* Packet n left with these numbers. */
void check_left(const struct talk *k, unsigned n, uint32_t seq, uint32_t ack, unsigned payload);
/* Bytes by which the server's numbers are ahead. */
unsigned inserted(const struct talk *k);
/* Packet n carries the client's address, and then this many bytes of data. */
void check_address(const struct talk *k, unsigned n, unsigned data);
struct session *find(const struct talk *k);
void check_state(const struct talk *k, enum session_state state, unsigned flags);
/* SESSION_SHIFTED, if this way shifts numbers. */
unsigned shift_flag(const struct talk *k);
/* SYN and SYN-ACK. */
void talk_begin(struct flows *f, struct talk *k, unsigned way);
void talk_end(struct talk *k);

#endif
