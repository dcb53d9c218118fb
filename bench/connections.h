// SPDX-License-Identifier: Apache-2.0
/* Both ends of complete TCP connections, as pure logic on frames: no sockets, no stack, no DPDK.
 * What an end sends next follows only from the frame that it received, so millions of connections
 * need no memory except for the steps in flight. A connection is ten packets:
 *
 *      1  client  SYN                      with MSS, SACK permitted, window scale
 *      2  server  SYN-ACK                  likewise
 *      3  client  ACK
 *      4  client  ACK  GET / HTTP/1.1      27 bytes
 *      5  server  ACK  HTTP/1.1 200 OK     39 bytes, of which the page is one
 *      6  client  ACK
 *      7  client  FIN
 *      8  server  ACK
 *      9  server  FIN
 *     10  client  ACK
 *
 *     connections_begin() ─▶ step ─▶ connections_answer() ─▶ frame ─▶ (balancer) ─▶
 *     connections_receive() ─▶ 0–2 steps …
 *
 * A step is a packet still to be sent, in 48 bytes. The first sequence numbers follow from the
 * tuple, so each end knows how far a connection is. A packet that does not fit (a duplicate, a
 * reset, a wrong number) is counted and not answered. A lost packet ends its connection: there are
 * no retransmissions. */
#ifndef BENCH_CONNECTIONS_H
#define BENCH_CONNECTIONS_H

#include <sy_base.h>

#define CONNECTION_PACKETS   10
#define CONNECTION_FRAME_MAX 128 /* bytes that connections_answer() may write */
#define CONNECTION_CLIENTS   17  /* bits: number of client addresses, from the first one up */
#define CONNECTION_PORTS     15  /* bits: ports per client, 32768 to 65535 */

/* The packets of a connection, in order. */
enum connection_packet {
	CONNECTION_SYN,
	CONNECTION_SYN_ACK,
	CONNECTION_OPEN_ACK,
	CONNECTION_GET,
	CONNECTION_ANSWER,
	CONNECTION_ANSWER_ACK,
	CONNECTION_CLIENT_FIN,
	CONNECTION_FIN_ACK,
	CONNECTION_SERVER_FIN,
	CONNECTION_LAST_ACK,
};

enum connection_side { CONNECTION_CLIENT, CONNECTION_SERVER };

static inline enum connection_side connection_side_of(enum connection_packet p)
{
	return p == CONNECTION_SYN_ACK || p == CONNECTION_ANSWER || p == CONNECTION_FIN_ACK ||
	                       p == CONNECTION_SERVER_FIN
	               ? CONNECTION_SERVER
	               : CONNECTION_CLIENT;
}

/* Network order, except for `packet`. */
struct connection_step {
	struct sy_addr src, dst;
	uint16_t sport, dport;
	uint32_t seq, ack;
	uint32_t packet; /* enum connection_packet */
};
_Static_assert(sizeof(struct connection_step) == 48, "what a connection under way costs");

struct connections_options {
	struct sy_addr client; /* the first client; its last CONNECTION_CLIENTS bits are 0. Gives
	                          the family */
	struct sy_addr vip;
	uint16_t port; /* the VIP's port, host order */
	/* By enum connection_side: the end's own MAC address, and its destination MAC address. */
	uint8_t own_mac[2][6], gate_mac[2][6];
};

/* A packet's bytes, except for the fields that a step gives. */
struct connection_template {
	uint8_t bytes[CONNECTION_FRAME_MAX];
	uint32_t len, payload;
	uint64_t l3_sum, l4_sum; /* checksum of its constant part */
};

struct connections {
	struct connections_options options;
	bool v4;
	struct connection_template template[CONNECTION_PACKETS];
	uint64_t begun, completed; /* CONNECTION_SYN sent; CONNECTION_LAST_ACK received */
	uint64_t strange, resets;  /* received out of place; resets among these */
};

void connections_init(struct connections *l, const struct connections_options *o);

/* The first step of connection n. Tuples repeat after 2^(CONNECTION_CLIENTS + CONNECTION_PORTS)
 * connections, and consecutive ones are far apart. */
void connections_begin(struct connections *l, uint64_t n, struct connection_step *w);

/* Writes the step's frame with right checksums; returns its length. */
uint32_t connections_answer(const struct connections *l, const struct connection_step *w,
                            uint8_t frame[static CONNECTION_FRAME_MAX]);

/* An end's answer to a received frame of len bytes: returns the number of steps. The caller may
 * overwrite the frame afterwards. */
unsigned connections_receive(struct connections *l, enum connection_side side, const uint8_t *frame,
                             uint32_t len, struct connection_step out[static 2]);

/* Whether the frame is well formed and its checksums are right. Slow: for warming up. */
bool connections_check(const uint8_t *frame, uint32_t len);

#endif
