/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of the six scenarios. Each provides a hook and, optionally, updates of a connection's
 * private area.
 *
 * A request is four bytes of length in network order, which exclude these four; a byte with its
 * label or type; and more. The response is a sequence number in four bytes: how many requests were
 * served before.
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
	/* Called at the start of a connection and after each request with its private area. May be
	 * NULL. */
	void (*write)(void *own);
	/* A request of this type took this CPU time. */
	void (*served)(uint8_t type, uint64_t us);
};

int server_main(int argc, char **argv, const struct scenario *scenario);

#endif
