// SPDX-License-Identifier: Apache-2.0
/* An interface: frames arrive by a ring that the kernel fills, and leave by a socket. */
#ifndef LINK_PORT_H
#define LINK_PORT_H

#include <stdbool.h>
#include <stdint.h>

#define PORT_ERROR 200

struct port {
	const char *name;
	int in, out, index;
	uint32_t mtu;
	uint8_t *ring;
	uint32_t frames, frame, frames_a_block, block;
	uint32_t next;   /* frame to look at */
	uint64_t lost;   /* as the ring was full: port_lost() */
	uint64_t waited; /* sends that the kernel refused for lack of space */
};

/* A frame in the ring. */
struct port_frame {
	const uint8_t *bytes;
	uint32_t length, wire; /* here, and as it was sent */
	uint64_t time;         /* ns of CLOCK_REALTIME */
	uint32_t tag;    /* a VLAN tag that was cut out, to be put behind the addresses; or 0 */
	bool unfinished; /* its checksum */
};

int port_open(struct port *p, const char *name, uint32_t frames, char error[static PORT_ERROR]);
void port_close(struct port *p);

/* Returns the next received frame; false: none. Call port_release() after use. */
bool port_receive(struct port *p, struct port_frame *f);
void port_release(struct port *p);

/* Forgets an error of its socket `in`, which would wake us for ever: the interface went down. */
void port_forgive(int in);

/* Returns how many frames the full ring has lost since the last call. */
uint64_t port_lost(struct port *p);

/* Is it up, and its peer? */
bool port_is_running(const struct port *p);

#define PORT_BURST 64u

struct port_bytes {
	uint8_t *bytes;
	uint32_t length;
};

/* Sends the first frames. Returns their number; -EAGAIN if the kernel has no space for the first
 * one; another error if it cannot be sent. */
int port_send(struct port *p, const struct port_bytes *frames, unsigned count);

#endif
