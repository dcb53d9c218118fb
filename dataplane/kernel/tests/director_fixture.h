// SPDX-License-Identifier: Apache-2.0
/* Fixture: a flow director on one end of a veth, packets from the other, and receiving sockets. */
#ifndef DIRECTOR_FIXTURE_H
#define DIRECTOR_FIXTURE_H

#include "netns.h"

#include <xdp/xsk.h>

#define VIP4 "203.0.113.5"
#define VIP6 "2001:db8:f::5"

/* near0 is in near_ns, where the test runs; far0 in far_ns. */
extern int near_ns, far_ns;
extern struct sy_director *director;

int direct_setup(void **state);
int direct_teardown(void **state);
void director_start(enum sy_director_mode mode);
void director_stop(void);
struct sy_director_stats stats(void);
void steer(const char *text, bool on);
/* Steers VIP4 and settles: only its packets are steered, to no socket, and those of VIP6 pass. */
void director_settle(void);
/* Id of the link that is pinned for near0; 0: none. */
uint32_t pinned_link_id(void);
/* Id of its program. */
uint32_t pinned_program_id(void);

/* Sends a datagram from the far side. The veth delivers it during the call or soon after. */
void far_send(const char *dst);
/* The same from a source port (host order; 0: any). */
void far_send_from(const char *dst, uint16_t port);
/* The same with this many bytes; in fragments if there are more than 1472. */
void far_send_bytes(const char *dst, uint16_t port, size_t bytes);
/* Sends an ICMP message of this type (ICMPv6 if dst is IPv6) from the far side. It quotes a
 * datagram from dst to a port (host order) of `quoted`, with `extra` bytes of options or extension
 * headers between its headers. */
void far_send_error(const char *dst, uint8_t type, const char *quoted, uint16_t port,
                    unsigned extra);
/* Waits until the counter at this offset is above `from`. */
void await_counter(size_t offset, uint64_t from);
#define await_more(field, before)                                                                  \
	await_counter(offsetof(struct sy_director_stats, field), (before).field)

struct receiver {
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons done, rx;
	char *frames;
};

void receiver_open(struct receiver *r, unsigned queue);
void receiver_close(struct receiver *r);
/* Waits for a frame on either of two receivers; it must have this EtherType. */
void receivers_expect(struct receiver r[2], uint16_t ethertype);

#endif
