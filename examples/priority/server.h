/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server that the six scenarios share. Each brings a hook, and, if it wants, what it writes
 * into a connection's private area.
 *
 * A request is four bytes of length in network order, which count what is behind them; a byte that
 * is its label or type; and more. Each is answered by its number, in four bytes: how many were
 * served before it.
 */
#ifndef PRIORITY_SERVER_H
#define PRIORITY_SERVER_H

#include <sy_tcp.h>

#define REQUEST_HEADER 5

struct scenario {
	const char *name;
	/* One of these. */
	sy_tcp_packet_hook packet;
	sy_tcp_segment_hook segment;
	/* A connection begins, and after each of its requests: own are its 64 bytes. NULL: nothing
	 * is written. */
	void (*write)(void *own);
	/* A request of this type took so long on the processor. */
	void (*served)(uint8_t type, uint64_t us);
};

int server_main(int argc, char **argv, const struct scenario *scenario);

#endif
