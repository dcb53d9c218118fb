// SPDX-License-Identifier: Apache-2.0
/*
 * The largest packet that a path takes: RFC 1191 and 8201 where routers tell it, RFC 4821 and 8899
 * where they do not. Sizes are of IP packets, headers included.
 *
 * A connection begins with the link's size, as RFC 1191 has it, and believes routers (after the
 * stack has checked that they quote its own packets). If full packets stay lost, the path is a
 * black hole: the size falls to the base, and probes search for what passes.
 *
 *     floor ≤ passed ≤ size … high ≤ link
 *
 * A probe is a packet larger than `size`; its loss is no congestion. After ten minutes the path may
 * be better: one probe of the next likely size decides whether the search begins again.
 */
#ifndef TCP_PATH_MTU_H
#define TCP_PATH_MTU_H

#include <stdbool.h>
#include <stdint.h>

/* RFC 8899, 5.1.2: BASE_PLPMTU; IPv6 guarantees more (RFC 8200, 5). */
#define PATH_MTU_BASE_V4 1200
#define PATH_MTU_BASE_V6 1280
/* No size is below it, whatever is told: who could make it smaller would make a sender work for
 * nothing. IPv4's is what every host receives (RFC 791, 3.1); smaller paths get fragments. */
#define PATH_MTU_FLOOR_V4 576
#define PATH_MTU_FLOOR_V6 1280
#define PATH_MTU_TRIES    3      /* RFC 8899, 5.1.2: MAX_PROBES */
#define PATH_MTU_RAISE_MS 600000 /* PMTU_RAISE_TIMER, and RFC 1191, 6.3 */
#define PATH_MTU_NEAR     16     /* bytes for which no probe is worthwhile */

struct path_mtu {
	uint64_t raise_ms; /* when to search again; 0: not planned */
	uint16_t link;
	uint16_t size;
	uint16_t high;  /* larger ones do not pass */
	uint16_t probe; /* under way; 0: none */
	uint8_t tries;  /* of this probe's size, that were lost */
	uint8_t lost;   /* full packets in a row */
	bool v4 : 1;
	bool searching : 1;
	bool raising : 1; /* one probe, which decides whether to search */
	bool told : 1;    /* a router has told `high`: it is probed first */
	bool fell : 1;    /* from `high`, perhaps for an outage: it is probed first */
};
_Static_assert(sizeof(struct path_mtu) == 24, "a part of a connection's 512 bytes");

/* link: of the interface. */
void path_mtu_init(struct path_mtu *m, uint16_t link, bool v4);

/* The link's size changed. */
void path_mtu_link(struct path_mtu *m, uint16_t link, uint64_t now_ms);

/* A packet has at most so many bytes. */
static inline uint16_t path_mtu_size(const struct path_mtu *m)
{
	return m->size;
}

/* The largest packet that was sent of late. */
static inline uint16_t path_mtu_largest(const struct path_mtu *m)
{
	return m->probe > m->size ? m->probe : m->size;
}

/* Whether routers may not fragment: not if IPv4's path may be smaller than the floor. */
static inline bool path_mtu_whole(const struct path_mtu *m)
{
	return !m->v4 || m->size > PATH_MTU_FLOOR_V4;
}

/* A router refused a packet of `sent` bytes, and said its link's size; 0: it is too old to say
 * (RFC 1191, 5). Returns whether the size changed. */
bool path_mtu_too_big(struct path_mtu *m, uint16_t sent, uint16_t told, uint64_t now_ms);

/* A packet of so many bytes was acknowledged, or lost: a probe, or one whose retransmissions were
 * lost as well (a time-out). Those that are neither full nor larger than the base say nothing.
 * Returns whether the size changed. */
bool path_mtu_passed(struct path_mtu *m, uint16_t bytes, uint64_t now_ms);
bool path_mtu_lost(struct path_mtu *m, uint16_t bytes, uint64_t now_ms);

/* What was taken for lost had only been late: no size was too large. Returns whether the size
 * changed. */
bool path_mtu_late(struct path_mtu *m, uint64_t now_ms);

/* The size of a probe to send now; 0: none. After it was sent, path_mtu_probed(). */
uint16_t path_mtu_probe(struct path_mtu *m, uint64_t now_ms);

/* May there be one? Cheap, and mostly not. */
static inline bool path_mtu_searches(const struct path_mtu *m)
{
	return m->searching || m->raise_ms;
}

/* 0: none is under way any more, and nothing is known of it. */
static inline void path_mtu_probed(struct path_mtu *m, uint16_t bytes)
{
	m->probe = bytes;
}

#endif
