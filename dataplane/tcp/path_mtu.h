// SPDX-License-Identifier: Apache-2.0
/*
 * Path MTU of a connection: by ICMP (RFC 1191, RFC 8201), and without it by probes (RFC 4821, RFC
 * 8899). Sizes are of IP packets with headers.
 *
 * A connection starts with the link's MTU (RFC 1191) and accepts reports of routers, which the
 * stack has validated. If full packets are lost repeatedly, the path is a black hole: the size
 * falls to the base, and probes search for a larger one.
 *
 *     floor ≤ passed ≤ size … high ≤ link
 *
 * A probe is a packet larger than `size`; its loss is no sign of congestion. After ten minutes one
 * probe of the next likely size decides whether to search again.
 */
#ifndef TCP_PATH_MTU_H
#define TCP_PATH_MTU_H

#include <stdbool.h>
#include <stdint.h>

/* RFC 8899, 5.1.2: BASE_PLPMTU; IPv6 guarantees more (RFC 8200, 5). */
#define PATH_MTU_BASE_V4 1200
#define PATH_MTU_BASE_V6 1280
/* Lower bound of all sizes: a forged report must not make senders inefficient. IPv4's is what every
 * host accepts (RFC 791 3.1); smaller paths fragment. */
#define PATH_MTU_FLOOR_V4 576
#define PATH_MTU_FLOOR_V6 1280
#define PATH_MTU_TRIES    3      /* RFC 8899, 5.1.2: MAX_PROBES */
#define PATH_MTU_RAISE_MS 600000 /* PMTU_RAISE_TIMER, and RFC 1191, 6.3 */
#define PATH_MTU_NEAR     16     /* end the search within these bytes */

struct path_mtu {
	uint64_t raise_ms; /* when to search again; 0: not scheduled */
	uint16_t link;
	uint16_t size;
	uint16_t high;  /* largest size that may pass */
	uint16_t probe; /* size of the probe in flight; 0: none */
	uint8_t tries;  /* lost probes of this size */
	uint8_t lost;   /* consecutive losses of full packets */
	bool v4 : 1;
	bool searching : 1;
	bool raising : 1;  /* a single probe decides whether to search */
	bool reported : 1; /* a router reported `high`: probe it first */
	bool fell : 1;     /* reduced from `high`, perhaps by an outage: probe it first */
};
_Static_assert(sizeof(struct path_mtu) == 24, "a part of a connection's 512 bytes");

/* link: of the interface. */
void path_mtu_init(struct path_mtu *m, uint16_t link, bool v4);

/* The link's size changed. */
void path_mtu_link(struct path_mtu *m, uint16_t link, uint64_t now_ms);

/* Returns the max. size of a packet. */
static inline uint16_t path_mtu_size(const struct path_mtu *m)
{
	return m->size;
}

/* Returns the largest packet sent recently. */
static inline uint16_t path_mtu_largest(const struct path_mtu *m)
{
	return m->probe > m->size ? m->probe : m->size;
}

/* Returns true if packets need DF: always, except on IPv4 paths that may be below the floor. */
static inline bool path_mtu_needs_df(const struct path_mtu *m)
{
	return !m->v4 || m->size > PATH_MTU_FLOOR_V4;
}

/* A router rejected a packet of `sent` bytes and reported its link's MTU; 0: none (RFC 1191 5).
 * Returns true if the size changed. */
bool path_mtu_too_big(struct path_mtu *m, uint16_t sent, uint16_t reported, uint64_t now_ms);

/* Call passed() when a packet was delivered. Call lost() when a probe was lost, or another packet
 * together with its retransmissions (RTO). Both ignore small packets, and return true if the size
 * changed. */
bool path_mtu_passed(struct path_mtu *m, uint16_t bytes, uint64_t now_ms);
bool path_mtu_lost(struct path_mtu *m, uint16_t bytes, uint64_t now_ms);

/* A loss was spurious: no size was too large. Returns true if the size changed. */
bool path_mtu_late(struct path_mtu *m, uint64_t now_ms);

/* Returns the size of a probe to send now; 0: none. Call path_mtu_probed() after sending it. */
uint16_t path_mtu_probe(struct path_mtu *m, uint64_t now_ms);

/* Fast check whether a probe may be due. */
static inline bool path_mtu_searches(const struct path_mtu *m)
{
	return m->searching || m->raise_ms;
}

/* bytes 0: cancels the probe without a result. */
static inline void path_mtu_probed(struct path_mtu *m, uint16_t bytes)
{
	m->probe = bytes;
}

#endif
