// SPDX-License-Identifier: Apache-2.0
/* Frames of the soak test: valid ones, and ways to damage them. */
#ifndef SOAK_FRAME_H
#define SOAK_FRAME_H

#include <sy_packet.h>

#define FRAME_MAX 1900

struct frame {
	uint16_t len;
	uint8_t port; /* arrival port */
	uint8_t bytes[FRAME_MAX];
};

/* A private generator: a seed gives the same soak test on every machine. */
struct rng {
	uint64_t state;
};
uint32_t rng_below(struct rng *d, uint32_t below);
static inline bool rng_percent(struct rng *d, uint32_t percent)
{
	return rng_below(d, 100) < percent;
}
void rng_fill(struct rng *d, void *out, size_t len);

struct segment {
	uint8_t flags;
	uint32_t seq, ack; /* host order */
	uint16_t mss;      /* MSS option of a SYN; 0: none */
};

/* Each fills in all fields, checksums included; `payload` bytes are random. */
void frame_tcp(struct frame *f, struct rng *d, const struct sy_tuple *t, const struct segment *s,
               unsigned payload);
void frame_udp(struct frame *f, struct rng *d, const struct sy_tuple *t, unsigned payload);
void frame_icmp(struct frame *f, struct rng *d, const struct sy_tuple *t, uint8_t type,
                uint8_t code, unsigned payload);
/* An error of this type, code and fourth header word from src to the sender of the packet in
 * `about`, quoting this many bytes of IP. */
void frame_error(struct frame *f, struct rng *d, const struct sy_addr *src, const uint8_t type[2],
                 uint32_t rest, const uint8_t *about, unsigned quoted);

/* Cuts a valid frame into fragments of `piece` bytes (a multiple of 8) with an id, at most
 * `capacity`. Returns their number; the last one may be short. */
unsigned frame_cut(const struct frame *f, uint32_t id, unsigned piece, struct frame *out,
                   unsigned capacity);

/* Corrects the checksums as far as the frame can be parsed. */
void frame_fix_ip(struct frame *f);
void frame_fix_l4(struct frame *f);
/* Sets TTL or hop limit and updates the checksum. */
void frame_set_ttl(struct frame *f, uint8_t ttl);
/* Allows routers to fragment the frame, if it is IPv4. */
void frame_let_fragment(struct frame *f);
/* Leaves the checksum to hardware, as a sender does: only the pseudo header's sum is in it. */
void frame_unfinish(struct frame *f);
/* Damages the frame in one to three ways. */
void frame_mutate(struct frame *f, struct rng *d);

#endif
