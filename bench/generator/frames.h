// SPDX-License-Identifier: Apache-2.0
/* The generator's frames, as pure functions: UDP of both families, from clients to the VIP and from
 * servers back to the local addresses.
 *
 *     | Ethernet | IPv4 or IPv6 | UDP | flow (4) | stamp (8) | mark (2) | zeros … |
 *
 * A template writes the common part of a direction's frames into their buffers once. The fields
 * that differ between flows, and the checksums, are written before each sending.
 *
 * Sizes are those on a wire, including the four bytes of a checksum that memif does not carry. */
#ifndef GENERATOR_FRAMES_H
#define GENERATOR_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <sy_base.h>

#define FRAME_FCS        4
#define FRAME_MAX        1518
#define FRAME_MIN(six)   ((six) ? 80u : 64u)
#define FRAME_MARK       0x5359
#define FRAME_LOCALS     16
#define FRAME_SERVERS    64
#define PORT_KNOWN       5001 /* the service with long-lasting flows */
#define PORT_FRESH       5002 /* the service whose flows expire soon */
#define PORT_CONNECTIONS 5003 /* the TCP service */
#define PORT_SERVER      9000
#define CLIENT_PORTS     (1u << 14) /* per client address */
#define CLIENT_PORT_MIN  1024

enum frame_way {
	FRAME_IN,  /* from a client to the VIP */
	FRAME_OUT, /* from a server to a local address */
	FRAME_WAYS,
};

/* The common part of a direction's frames. */
struct frame_template {
	uint8_t bytes[FRAME_MAX];
	unsigned length; /* without the final checksum */
	unsigned src, dst, udp;
	bool six;
	uint16_t port;               /* the service's or the server's port */
	uint32_t base_src, base_dst; /* low 32 bits of the first addresses, host order */
	uint32_t ip_sum, udp_sum;    /* with the fields zero */
};

/* The fields that differ between flows. Host order. */
struct frame_fields {
	uint32_t src, dst; /* low 32 bits of the addresses */
	uint16_t sport, dport;
	uint32_t flow;
	uint64_t stamp;
};

/* The first address of each kind, as text; the others follow it in order. */
extern const char *const frame_clients[2], *const frame_vip[2], *const frame_locals[2],
                                                                        *const frame_servers[2];
extern const uint8_t frame_mac[6];        /* the generator's, for frames from clients and servers */
extern const uint8_t frame_server_mac[6]; /* its other one, for frames to servers */
extern const uint8_t frame_forwarder_mac[6];

/* family: 4 or 6; size as on a wire. Returns 0, or -EINVAL if it does not fit. */
int frame_template_make(struct frame_template *t, unsigned family, enum frame_way way,
                        unsigned size, bool fresh);

/* A frame of a client's flow; t: FRAME_IN. */
static inline struct frame_fields frame_of_client(const struct frame_template *t, uint32_t flow)
{
	return (struct frame_fields){.src = t->base_src + flow / CLIENT_PORTS,
	                             .dst = t->base_dst,
	                             .sport = (uint16_t)(CLIENT_PORT_MIN + flow % CLIENT_PORTS),
	                             .dport = t->port,
	                             .flow = flow};
}

/* What a server knows about a flow: itself, and the local address and port to which it answers.
 * Small, because it shares the caches with the program being measured. */
struct frame_reply {
	uint8_t server;
	uint8_t local : 7;
	uint8_t heard : 1; /* its client has received an answer */
	uint16_t port;     /* 0: nothing known yet */
};

/* The server's answer; t: FRAME_OUT. */
static inline struct frame_fields frame_of_server(const struct frame_template *t, uint32_t flow,
                                                  struct frame_reply r)
{
	return (struct frame_fields){.src = t->base_src + r.server,
	                             .dst = t->base_dst + r.local,
	                             .sport = t->port,
	                             .dport = r.port,
	                             .flow = flow};
}

/* Sum of the 16-bit words of a value. */
static inline uint32_t frame_words(uint32_t value)
{
	return (value & 0xffff) + (value >> 16);
}

static inline void frame_put32(uint8_t *at, uint32_t value)
{
	value = __builtin_bswap32(value);
	memcpy(at, &value, sizeof(value));
}

static inline void frame_put16(uint8_t *at, uint16_t value)
{
	value = __builtin_bswap16(value);
	memcpy(at, &value, sizeof(value));
}

/* Writes the fields into a frame made from the template. */
static inline void frame_write(const struct frame_template *t, uint8_t *frame,
                               const struct frame_fields *f)
{
	uint32_t addresses = frame_words(f->src) + frame_words(f->dst);
	uint64_t sum = (uint64_t)t->udp_sum + addresses + f->sport + f->dport +
	               frame_words(f->flow) + frame_words((uint32_t)(f->stamp >> 32)) +
	               frame_words((uint32_t)f->stamp);
	uint16_t csum = (uint16_t)~sy_csum_fold(sum);
	uint8_t *udp = frame + t->udp;
	frame_put32(frame + t->src, f->src);
	frame_put32(frame + t->dst, f->dst);
	frame_put16(udp, f->sport);
	frame_put16(udp + 2, f->dport);
	frame_put16(udp + 6, csum ? csum : 0xffff); /* RFC 768: zero would mean no checksum */
	frame_put32(udp + 8, f->flow);
	frame_put32(udp + 12, (uint32_t)(f->stamp >> 32));
	frame_put32(udp + 16, (uint32_t)f->stamp);
	if (!t->six)
		frame_put16(frame + 14 + 10,
		            (uint16_t)~sy_csum_fold((uint64_t)t->ip_sum + addresses));
}

/* Reads the fields of a frame that came back; false: another program's frame. */
bool frame_read(const uint8_t *frame, unsigned length, struct frame_fields *f);

#endif
