// SPDX-License-Identifier: Apache-2.0
/* A connection: its state, creation and end (RFC 9293 3.3). */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <sy_tcp_segment.h>

#include "ack_delay.h"
#include "arrived.h"
#include "buffer.h"
#include "congestion.h"
#include "list.h"
#include "path_mtu.h"
#include "rtt.h"
#include "sy_stack.h"

/* Flags of a connection. */
enum {
	C_OWNED = 1 << 0,   /* the application has its id */
	C_PASSIVE = 1 << 1, /* opened by the peer */
	C_SACK = 1 << 2,    /* negotiated, as are the next three */
	C_TIMESTAMPS = 1 << 3,
	C_SCALE = 1 << 4,
	C_ECN = 1 << 5,
	C_ACK_NOW = 1 << 6,     /* an ACK is due now */
	C_ACK_LATER = 1 << 7,   /* an ACK is due when the delayed-ACK timer fires */
	C_ECHO_CE = 1 << 8,     /* ECN: send ECE until the peer sends CWR */
	C_SEND_CWR = 1 << 9,    /* ECN: send CWR with the next new segment */
	C_FIN_WANTED = 1 << 10, /* the application closed the sending side */
	C_FIN_ARRIVED = 1 << 11,
	C_NO_DELAY = 1 << 12,
	C_CORK = 1 << 13,
	C_QUICK_ACK = 1 << 14,
	C_LINGER_ABORT = 1 << 15,
	C_WANTS_SPACE = 1 << 16, /* send returned -EAGAIN */
	C_MORE = 1 << 17,        /* MSG_MORE, until the peer acknowledges */
	C_URGENT_IN = 1 << 18,   /* urgent_in is unread */
	C_URGENT_OUT = 1 << 19,  /* urgent_out is unacknowledged */
	C_ORPHAN = 1 << 21,      /* closed by the application with unacknowledged data */
	C_PACED = 1 << 22,       /* pace.h */
	C_PROBED = 1 << 20, /* a zero-window probe byte was sent, which is not in the scoreboard */
	C_TAIL_TIMER = 1 << 23,    /* TIMER_RETRANSMIT is the tail loss probe timer */
	C_HASHED = 1 << 24,        /* in the hash table */
	C_RECEIVE_FIXED = 1 << 25, /* the application set the buffer's limit */
	C_SEND_FIXED = 1 << 26,
	C_SOFT_ERROR =
	        1 << 27,  /* `error` is a soft ICMP error, reported if the connection times out */
	C_UNDO = 1 << 28, /* the last reduction may still be undone */
	C_CORK_OVER = 1 << 29,   /* the override timer released a short segment */
	C_ESTABLISHED = 1 << 30, /* handshake complete */
	C_FIN_AHEAD = 1u << 31,  /* FIN received after a gap */
};

#define EVENT_SPACE                                                                                \
	128 /* in `events`: the connection was notified that a chunk is free; no other connection  \
	       was notified of the same chunk */

#define LISTENER_NONE      UINT16_MAX
#define TCP_TIMESTAMPS_LEN 12

enum recovery { RECOVERY_NONE, RECOVERY_ECN, RECOVERY_FAST, RECOVERY_TIMEOUT };

/* Deadlines; the earliest is set in the wheel. */
enum timer {
	TIMER_RETRANSMIT, /* or tail loss probe; or persist timer while nothing is in flight */
	TIMER_REORDER,    /* RACK reordering; or pacing; or retry after a failed allocation */
	TIMER_ACK,        /* delayed ACK */
	TIMER_KEEPALIVE,
	TIMER_END, /* TIME-WAIT; orphans: FIN-WAIT-2, and a peer that acknowledges nothing */
	TIMERS
};

/* SO_PRIORITY, mapped to three bands like Linux's pfifo_fast. */
enum band { BAND_USUAL, BAND_FIRST, BAND_LAST };

/*
 * An in-order segment touches bytes 0 to 127. Sequence numbers are in host order; times are
 * milliseconds of the stack's clock modulo 2^32.
 */
struct connection {
	struct sy_tuple tuple; /* as in the peer's segments: src is the peer */
	uint32_t bucket_next;  /* in the hash table */
	uint32_t flags;
	uint32_t rcv_nxt, snd_una, snd_nxt;
	uint8_t state; /* enum sy_stack_state */
	uint8_t armed; /* bit n: enum timer n is set */
	uint16_t generation;

	uint32_t snd_wnd, snd_wl1, snd_wl2; /* RFC 9293 3.3.1; bytes */
	uint32_t rcv_edge;                  /* advertised right edge */
	uint32_t rcv_acked;                 /* RCV.NXT in the last segment sent */
	union {
		struct { /* RFC 7323 4.3, 5.4 */
			uint32_t ts_recent, ts_recent_ms, ts_offset;
		};
		struct { /* without timestamps: receiver RTT estimation (window.c) */
			uint32_t rtt_edge, rtt_ms;
		};
	};
	struct receive_buffer received; /* 24 bytes */
	uint16_t mss;                   /* payload of a full segment, without timestamps */
	uint8_t snd_scale, rcv_scale;
	uint32_t alive_ms; /* time of the last acceptable segment */

	struct list_place place[LIST_KINDS];
	uint32_t due_ms[TIMERS];
	uint32_t wheel_ms; /* deadline in the wheel */
	bool in_wheel : 1;
	uint8_t band : 2;    /* enum band */
	uint8_t sending : 3; /* level of its LIST_SEND */
	uint8_t recovery;    /* enum recovery */
	uint8_t retries;     /* consecutive time-outs or zero-window probes */
	uint8_t probes;      /* unanswered keepalive or zero-window probes */
	uint32_t retry_ms;   /* time of the first of these time-outs or probes */

	uint32_t snd_wnd_max;      /* largest window the peer has advertised */
	uint32_t small_end;        /* Minshall: end of the last partial segment */
	uint32_t recover;          /* RFC 6675 4.1: RecoveryPoint */
	uint32_t allowance;        /* bytes that recovery may send */
	struct send_buffer unsent; /* from SND.UNA */
	uint32_t flight;           /* cell of the stack's pool; 0: nothing in flight */
	struct arrived arrived;
	struct congestion congestion;
	struct rtt rtt;
	struct path_mtu path_mtu;

	uint16_t peer_mss; /* announced by the peer */
	uint16_t rcv_mss;  /* largest segment received */
	uint16_t user_mss; /* set by the application; 0: not set */
	uint16_t error;    /* errno */
	uint8_t tos;
	uint8_t events;    /* pending SY_STACK_*, and EVENT_SPACE */
	uint16_t listener; /* listener index until accepted; else LISTENER_NONE */
	uint32_t max_pace; /* SO_MAX_PACING_RATE, bytes per second; 0: none */
	uint64_t cookie;   /* the application's */
	uint32_t urgent_in;
	union {
		uint32_t urgent_out; /* C_URGENT_OUT */
		uint32_t cork_from;  /* with C_CORK, C_MORE: bytes before it are not delayed */
	};
	uint32_t peer_fin; /* sequence number of a FIN after a gap */
	uint16_t keepalive_s, keepalive_interval_s;
	uint32_t user_timeout_ms;
	uint8_t keepalive_probes;
	uint8_t duplicates; /* consecutive duplicate ACKs without SACK */
	uint8_t challenges; /* challenge ACKs in second challenge_s, modulo 256 */
	uint8_t challenge_s;

	/* Buffer autotuning (window.c). A round lasts at least receive_rtt_us. */
	uint32_t receive_limit;  /* of the receive buffer, bytes */
	uint32_t send_limit;     /* of the send buffer, bytes */
	uint32_t read_seq;       /* first unread byte when this round began */
	uint32_t read_ms;        /* start of this round */
	uint32_t read_round;     /* most bytes read in an earlier round */
	uint32_t receive_rtt_us; /* RTT as estimated by the receiver; 0: unknown */

	uint64_t bytes_acked, bytes_received;
	uint32_t retransmitted;

	/* Path MTU probe in flight (path_probe.c); 0: none. */
	uint32_t probe_from;
	uint16_t probe_len;
	uint8_t streak; /* consecutive full segments in order (ack_coalesce.h) */
	struct delay delay;
	uint32_t pace_us; /* pace.h */
} __attribute__((aligned(SY_CACHE_LINE)));

_Static_assert(sizeof(struct connection) <= 512, "eight cache lines");
_Static_assert(offsetof(struct connection, place) <= 128, "an in-order segment touches two");

struct sy_stack;

/* ---- table and ids --------------------------------------------------------------------------- */

struct connection *connection_find(struct sy_stack *s, const struct sy_tuple *from_peer);
/* Two-step lookup, for prefetching. A bucket has the index of its first connection plus one; 0:
 * empty. */
uint32_t *bucket_of(struct sy_stack *s, const struct sy_tuple *from_peer);
struct connection *bucket_find(struct sy_stack *s, const uint32_t *bucket,
                               const struct sy_tuple *from_peer);
/* Prefetches a connection. */
void connection_prefetch(const struct sy_stack *s, uint32_t index);
/* Returns the connection of an application's id, or NULL. */
struct connection *connection_of(struct sy_stack *s, sy_stack_id id);
uint32_t connection_index(const struct sy_stack *s, const struct connection *c);
sy_stack_id connection_id(const struct sy_stack *s, const struct connection *c);

/* ---- creation and end ------------------------------------------------------------------------ */

/* Creates a connection and inserts it into the table; evicts the oldest in TIME-WAIT if all slots
 * are used. NULL: no slot. */
struct connection *connection_make(struct sy_stack *s, const struct sy_tuple *from_peer);
/* Ends the protocol state: removes the connection from the table and frees unsent data. As on
 * Linux, received data stays readable, then error (0: none); also in the accept queue. Frees a
 * connection without an application. */
void connection_end(struct sy_stack *s, struct connection *c, int error);
/* Frees the slot; the application has closed it, too. */
void connection_free(struct sy_stack *s, struct connection *c);
void connection_time_wait(struct sy_stack *s, struct connection *c);
/* The application closed the connection with unacknowledged data. A peer with a closed window must
 * not pin memory (RFC 6429 5): without progress, the orphan ends after ORPHAN_MS, and immediately
 * if there are too many. May free it. */
void connection_orphan(struct sy_stack *s, struct connection *c);
/* The peer acknowledged some of an orphan's bytes. */
void connection_orphan_progress(struct sy_stack *s, struct connection *c);
/* The peer acknowledged all of them, or the connection ends. */
void connection_orphan_over(struct sy_stack *s, struct connection *c);

/* Sets SND.NXT and all state derived from the initial sequence number. */
void connection_begin(struct sy_stack *s, struct connection *c, uint32_t iss);
/* Applies the negotiated options (RFC 9293 3.7.1, RFC 7323, RFC 2018). */
void connection_apply_options(struct sy_stack *s, struct connection *c,
                              const struct sy_tcp_options *o);
/* The handshake is complete. */
void connection_established(struct sy_stack *s, struct connection *c);
/* Frees sent data. This and the next two: range_pool.c. */
void connection_drop_sent(struct sy_stack *s, struct connection *c);
/* Frees out-of-order data. */
void connection_drop_later(struct sy_stack *s, struct connection *c);
/* Frees all data, including received data. */
void connection_drop_buffers(struct sy_stack *s, struct connection *c);
/* Recomputes the MSS from path, peer and options. */
void connection_update_mss(struct connection *c);
/* Returns the MSS to announce to the peer. */
uint16_t connection_local_mss(const struct sy_stack *s, const struct connection *c);

/* Adds events for the application, if it has the connection. */
void connection_notify(struct sy_stack *s, struct connection *c, unsigned events);
/* Puts the connection on the send list. */
void connection_schedule(struct sy_stack *s, struct connection *c);
/* Its level rose: moves it on the send list. */
void connection_reschedule(struct sy_stack *s, struct connection *c);
/* Removes it from the send list. */
void connection_unschedule(struct sy_stack *s, struct connection *c);

/* Returns the initial sequence number (RFC 6528); the timestamp offset (RFC 7323 5.4). */
uint32_t connection_iss(const struct sy_stack *s, const struct sy_tuple *from_peer);
uint32_t connection_ts_offset(const struct sy_stack *s, const struct sy_tuple *from_peer);

/* ---- predicates ------------------------------------------------------------------------------ */

static inline bool connection_v4(const struct connection *c)
{
	return sy_addr_is_v4(&c->tuple.src);
}

/* Header bytes of a frame, without SACK blocks. */
static inline uint32_t connection_headers(const struct connection *c)
{
	return (uint32_t)(SY_ETH_LEN +
	                  (connection_v4(c) ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6)) +
	                  sizeof(struct sy_tcp) +
	                  (c->flags & C_TIMESTAMPS ? TCP_TIMESTAMPS_LEN : 0));
}

/* In the accept queue. */
static inline bool connection_is_ready(const struct connection *c)
{
	return c->listener != LISTENER_NONE && c->flags & C_ESTABLISHED;
}

static inline bool connection_fin_sent(const struct connection *c)
{
	return c->flags & C_FIN_WANTED && sy_seq_before(c->unsent.end, c->snd_nxt);
}

/* May receive further data. */
static inline bool connection_receives(const struct connection *c)
{
	return c->state == SY_STACK_ESTABLISHED || c->state == SY_STACK_FIN_WAIT_1 ||
	       c->state == SY_STACK_FIN_WAIT_2;
}

/* May accept data from the application. */
static inline bool connection_sends(const struct connection *c)
{
	return (c->state == SY_STACK_ESTABLISHED || c->state == SY_STACK_CLOSE_WAIT) &&
	       !(c->flags & C_FIN_WANTED);
}

static inline bool seq_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* Nagle's algorithm as modified by Minshall: at most one partial segment in flight. */
static inline bool connection_may_short(const struct connection *c)
{
	return c->flags & C_NO_DELAY || !seq_after(c->small_end, c->snd_una);
}

/* Bytes after cork_from wait for further data; urgent data does not. */
static inline bool connection_is_corked(const struct connection *c)
{
	return c->flags & (C_CORK | C_MORE) && !(c->flags & C_URGENT_OUT);
}

/* Call before setting C_CORK or C_MORE: data up to `end` that could be sent now is not delayed.
 * Data that Nagle's algorithm delays is, as on Linux. */
static inline void connection_cork(struct connection *c, uint32_t end)
{
	if (!(c->flags & (C_CORK | C_MORE | C_URGENT_OUT)))
		c->cork_from = connection_may_short(c) ? end : c->snd_nxt;
}

#endif
