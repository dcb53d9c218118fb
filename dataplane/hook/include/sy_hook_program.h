/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context of a hook, and the functions that it may call: docs/hooks.md. A program includes this
 * header alone, is compiled by `clang -O2 -target bpf -c`, and has one function in one of these
 * sections:
 *
 *     SY_PACKET_HOOK    runs once per received packet, before any other processing
 *     SY_SEGMENT_HOOK   runs once per segment with payload, after the lookup of its connection
 *
 * The function returns a priority, 0 (highest) to 7 (lowest), or SY_KEEP. Hooks in C that are
 * linked with the application get the same structures.
 */
#ifndef SY_HOOK_PROGRAM_H
#define SY_HOOK_PROGRAM_H

#ifdef __bpf__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#else
#include <stdint.h>
#endif

#define SY_PRIORITIES  8   /* 0: highest, 7: lowest */
#define SY_KEEP        255 /* keep the current priority, which is SY_USUAL for a new packet */
#define SY_USUAL       4
#define SY_HOOK_HEAD   64 /* bytes */
#define SY_HOOK_PARAMS 8

/* A packet. All numbers are in host byte order. */
struct sy_hook_packet {
	uint16_t frame_len;   /* bytes, with the Ethernet header */
	uint16_t payload_len; /* bytes after the TCP header; after the IP header for other protocols
	                       */
	uint16_t sport, dport; /* 0 unless TCP */
	uint8_t version;       /* of IP: 4 or 6 */
	uint8_t proto;         /* IP protocol number; 6: TCP */
	uint8_t dscp;          /* RFC 2474 */
	uint8_t flags;         /* TCP flags: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 32 URG */
	uint8_t priority;      /* assigned so far */
	uint8_t unused[3];
	uint8_t head[SY_HOOK_HEAD]; /* first bytes of the payload, padded with 0 */
};

/* A segment with payload, and the state of its connection before it. */
struct sy_hook_segment {
	struct sy_hook_packet packet; /* its priority is the packet hook's result, or SY_USUAL */
	uint64_t received;            /* bytes received in order before this segment */
	uint64_t sent;                /* acknowledged bytes */
	uint64_t offset;              /* stream offset of the payload's first byte */
	uint32_t srtt_us, rttvar_us;  /* RFC 6298; 0: no measurement yet */
	uint32_t resent;              /* retransmitted segments */
	uint32_t lost;                /* loss events */
	uint32_t age_ms;              /* since the handshake */
	uint16_t become; /* the hook switches its connection to this hook number; 0: no change */
	uint16_t unused;
	uint8_t own[64]; /* per-connection area: hook and application read and write it */
};

#ifdef __bpf__
#define SY_PACKET_HOOK  __attribute__((section("packet"), used))
#define SY_SEGMENT_HOOK __attribute__((section("segment"), used))

/* Read an integer in network byte order at a payload offset; bytes beyond the payload are 0. */
extern uint64_t sy_u8(uint64_t offset);
extern uint64_t sy_u16(uint64_t offset);
extern uint64_t sy_u32(uint64_t offset);
extern uint64_t sy_u64(uint64_t offset);

/* Returns the offset of the first `byte` in [offset, offset + max), or SY_NOWHERE. `max` is limited
 * to 1500. */
extern uint64_t sy_find(uint64_t offset, uint64_t byte, uint64_t max);
#define SY_NOWHERE (~0ul)

/* Set by the operator, at load or later; 0 by default. */
extern const volatile uint64_t sy_param[SY_HOOK_PARAMS];
#endif

#endif
