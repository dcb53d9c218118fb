// SPDX-License-Identifier: Apache-2.0
/*
 * Complete TCP connections, both ends, as pure logic over frames: no sockets, no stack, no DPDK.
 * What one end says next follows from what it hears alone, so millions of connections cost no
 * memory but that of the words that are under way. A connection is ten packets:
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
 *     connections_begin() ─▶ word ─▶ connections_answer() ─▶ frame ─▶ (balancer) ─▶
 * connections_receive() ─▶ 0–2 words …
 *
 * A word is a packet that is still to be said, in 48 bytes. Sequence numbers begin at a number that
 * follows from the tuple, by which each end knows at what point a connection is; whatever fits
 * nowhere (a packet twice, a reset, a wrong number) is counted and answered by nothing. A lost
 * packet ends its connection: nothing is sent again.
 */
#ifndef BENCH_LIVES_H
#define BENCH_LIVES_H

#include <sy_base.h>

#define LIFE_PACKETS   10
#define LIFE_FRAME_MAX 128 /* bytes that connections_answer() may write */
#define LIFE_CLIENTS   17  /* bits: addresses of clients, from the first on */
#define LIFE_PORTS     15  /* bits: ports of each, 32768 to 65535 */

/* The packets of a connection, in their order. */
enum connection_packet {
	LIFE_SYN,
	LIFE_SYN_ACK,
	LIFE_OPEN_ACK,
	LIFE_GET,
	LIFE_ANSWER,
	LIFE_ANSWER_ACK,
	LIFE_CLIENT_FIN,
	LIFE_FIN_ACK,
	LIFE_SERVER_FIN,
	LIFE_LAST_ACK,
};

enum connection_side { LIFE_CLIENT, LIFE_SERVER };

static inline enum connection_side connection_side_of(enum connection_packet p)
{
	return p == LIFE_SYN_ACK || p == LIFE_ANSWER || p == LIFE_FIN_ACK || p == LIFE_SERVER_FIN
	               ? LIFE_SERVER
	               : LIFE_CLIENT;
}

/* All but `packet` in network order. */
struct connection_step {
	struct sy_addr src, dst;
	uint16_t sport, dport;
	uint32_t seq, ack;
	uint32_t packet; /* enum connection_packet */
};
_Static_assert(sizeof(struct connection_step) == 48, "what a connection under way costs");

struct connections_options {
	struct sy_addr client; /* the first; its last LIFE_CLIENTS bits are 0. Says the family */
	struct sy_addr vip;
	uint16_t port; /* of the VIP, host order */
	/* By enum connection_side: the end's own MAC address, and the one that it sends to. */
	uint8_t own_mac[2][6], gate_mac[2][6];
};

/* A packet's bytes, all but what its word says. */
struct connection_template {
	uint8_t bytes[LIFE_FRAME_MAX];
	uint32_t len, payload;
	uint64_t l3_sum, l4_sum; /* of what checksums cover of it */
};

struct connections {
	struct connections_options options;
	bool v4;
	struct connection_template template[LIFE_PACKETS];
	uint64_t begun, completed; /* LIFE_SYN made; LIFE_LAST_ACK heard */
	uint64_t strange, resets;  /* heard and out of place; of these, resets */
};

void connections_init(struct connections *l, const struct connections_options *o);

/* The first word of connection n. Lives have other tuples for 2^(LIFE_CLIENTS + LIFE_PORTS) of
 * them, and neighbours are far from each other. */
void connections_begin(struct connections *l, uint64_t n, struct connection_step *w);

/* Writes the word's frame; returns its length. The checksums are right. */
uint32_t connections_answer(const struct connections *l, const struct connection_step *w,
                            uint8_t frame[static LIFE_FRAME_MAX]);

/* What an end has to say to a frame of len bytes it got: returns how many words. The frame may be
 * written over afterwards. */
unsigned connections_receive(struct connections *l, enum connection_side side, const uint8_t *frame,
                             uint32_t len, struct connection_step out[static 2]);

/* Is the frame well formed, are its checksums right? For warming up; slow. */
bool connections_check(const uint8_t *frame, uint32_t len);

#endif
