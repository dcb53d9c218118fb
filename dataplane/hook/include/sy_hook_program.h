/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hook sees, and what it may call: docs/hooks.md. A program includes this header alone, is
 * compiled by `clang -O2 -target bpf -c`, and has one function in one of these sections:
 *
 *     SY_PACKET_HOOK    asked once for each packet that arrives, before anything else is done to it
 *     SY_SEGMENT_HOOK   asked once for each segment with payload, by the connection that it is of
 *
 * The function returns a priority, 0 (first) to 7 (last), or SY_KEEP. Hooks in C that are linked
 * with the application get the same structures.
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

#define SY_PRIORITIES  8   /* 0: first, … 7: last */
#define SY_KEEP        255 /* the priority stays what it was; of a packet that has none: SY_USUAL */
#define SY_USUAL       4
#define SY_HOOK_HEAD   64 /* bytes */
#define SY_HOOK_PARAMS 8

/* A packet. All numbers are in the host's byte order. */
struct sy_hook_packet {
	uint16_t frame_len;    /* bytes, from the Ethernet header on */
	uint16_t payload_len;  /* bytes behind the TCP header; of other protocols, behind IP's */
	uint16_t sport, dport; /* 0: it is no TCP */
	uint8_t version;       /* of IP: 4, 6 */
	uint8_t proto;         /* IP's number of the protocol; 6: TCP */
	uint8_t dscp;          /* RFC 2474 */
	uint8_t flags;    /* of TCP, as on the wire: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 32 URG */
	uint8_t priority; /* so far */
	uint8_t unused[3];
	uint8_t head[SY_HOOK_HEAD]; /* the payload's first bytes; 0 behind its end */
};

/* A segment with payload, and its connection before it. */
struct sy_hook_segment {
	struct sy_hook_packet packet; /* its priority is the packet hook's, SY_USUAL without one */
	uint64_t received;            /* bytes in order, from the client before this segment */
	uint64_t sent;                /* bytes, acknowledged ones only */
	uint64_t offset;              /* of the payload's first byte in all that is received */
	uint32_t srtt_us, rttvar_us;  /* RFC 6298; 0: not measured yet */
	uint32_t resent;              /* segments that were sent again */
	uint32_t lost;                /* times that a loss was found */
	uint32_t age_ms;              /* since the handshake */
	uint16_t become;              /* number of the hook that this connection gets; 0: stays */
	uint16_t unused;
	uint8_t own[64]; /* the connection's private area: hook and application read and write it */
};

#ifdef __bpf__
#define SY_PACKET_HOOK  __attribute__((section("packet"), used))
#define SY_SEGMENT_HOOK __attribute__((section("segment"), used))

/* Bytes of the payload from `offset` on, as one number in network order; what is behind the
 * payload's end counts as 0. */
extern uint64_t sy_u8(uint64_t offset);
extern uint64_t sy_u16(uint64_t offset);
extern uint64_t sy_u32(uint64_t offset);
extern uint64_t sy_u64(uint64_t offset);

/* Where `byte` is in the payload: the first offset in [offset, offset + most) that has it. None:
 * SY_NOWHERE. `most` counts as 1500 at most. */
extern uint64_t sy_find(uint64_t offset, uint64_t byte, uint64_t most);
#define SY_NOWHERE (~0ul)

/* Numbers that the operator sets when the hook is loaded, or later; 0 without. */
extern const volatile uint64_t sy_param[SY_HOOK_PARAMS];
#endif

#endif
