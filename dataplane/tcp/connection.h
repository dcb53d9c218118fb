// SPDX-License-Identifier: Apache-2.0
/* One connection: its state, birth and death (RFC 9293 3.3). */
#ifndef CONNECTION_H
#define CONNECTION_H

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
	C_PASSIVE = 1 << 1, /* began by a listener */
	C_SACK = 1 << 2,    /* both sides may: SACK, timestamps, window scales, ECN */
	C_TIMESTAMPS = 1 << 3,
	C_SCALE = 1 << 4,
	C_ECN = 1 << 5,
	C_ACK_NOW = 1 << 6, /* an acknowledgement is due: at once, with the timer */
	C_ACK_LATER = 1 << 7,
	C_ECHO_CE = 1 << 8,     /* ECN: tell of congestion until the peer has answered */
	C_TELL_CWR = 1 << 9,    /* ECN: tell that the window is reduced */
	C_FIN_WANTED = 1 << 10, /* the application has sent its last byte: FIN follows */
	C_FIN_ARRIVED = 1 << 11,
	C_NO_DELAY = 1 << 12,
	C_CORK = 1 << 13,
	C_QUICK_ACK = 1 << 14,
	C_LINGER_ABORT = 1 << 15,
	C_WANTS_SPACE = 1 << 16,   /* the application got -EAGAIN from send */
	C_MORE = 1 << 17,          /* more will be sent at once; until the peer acknowledges */
	C_URGENT_IN = 1 << 18,     /* urgent_in is beyond what was read */
	C_URGENT_OUT = 1 << 19,    /* urgent_out is not acknowledged */
	C_ORPHAN = 1 << 21,        /* closed by the application; the peer has not taken all */
	C_PACED = 1 << 22,         /* segments leave evenly (pace.h) */
	C_PROBED = 1 << 20,        /* a byte beyond the window was sent, which is in no range */
	C_TAIL_TIMER = 1 << 23,    /* the retransmission timer stands for the tail probe */
	C_HASHED = 1 << 24,        /* in the table */
	C_RECEIVE_FIXED = 1 << 25, /* limits that the application has set */
	C_SEND_FIXED = 1 << 26,
	C_SOFT_ERROR = 1 << 27, /* `error` is a hint of ICMP, which counts if it is given up */
	C_UNDO = 1 << 28,       /* the last reduction may still prove needless */
	C_CORK_OVER = 1 << 29,  /* the persist timer let a short segment go */
	C_TALKED = 1 << 30,     /* the handshake is complete */
	C_FIN_AHEAD = 1u << 31, /* a FIN has come, before which bytes are missing */
};

#define EVENT_SPACE                                                                                \
	128 /* in `events`: it is told of a free chunk, which others may not be told of */

#define LISTENER_NONE      UINT16_MAX
#define TCP_TIMESTAMPS_LEN 12

enum recovery { RECOVERY_NONE, RECOVERY_ECN, RECOVERY_FAST, RECOVERY_TIMEOUT };

/* Deadlines; the earliest one has the place in the wheel. */
enum timer {
	TIMER_RETRANSMIT, /* or the tail probe; or, while nothing is under way, the persist timer */
	TIMER_REORDER,    /* RACK looks again; or the next segment may leave (pace.h) */
	TIMER_ACK,        /* delayed acknowledgement */
	TIMER_KEEPALIVE,
	TIMER_END, /* TIME-WAIT; without an application FIN-WAIT-2, and a peer that takes nothing */
	TIMERS
};

/* SO_PRIORITY, as Linux's queues of three bands take it. */
enum band { BAND_USUAL, BAND_FIRST, BAND_LAST };

/*
 * Bytes 0 to 127 are what an in-order segment touches. Sequence numbers are in host order, times in
 * milliseconds of the stack's clock modulo 2^32.
 */
struct connection {
	struct sy_tuple tuple; /* as in the peer's segments: src is the peer */
	uint32_t bucket_next;  /* in the table */
	uint32_t flags;
	uint32_t rcv_nxt, snd_una, snd_nxt;
	uint8_t state; /* enum sy_stack_state */
	uint8_t armed; /* bits of enum timer */
	uint16_t generation;

	uint32_t snd_wnd, snd_wl1, snd_wl2; /* RFC 9293 3.3.1; bytes */
	uint32_t rcv_edge;                  /* the right edge that was offered */
	uint32_t rcv_acked;                 /* RCV.NXT in the last segment sent */
	union {
		struct { /* RFC 7323 4.3, 5.4 */
			uint32_t ts_recent, ts_recent_ms, ts_offset;
		};
		struct { /* without timestamps, once established: a round trip is being timed */
			uint32_t rtt_edge, rtt_ms;
		};
	};
	struct receive_buffer received; /* 24 bytes */
	uint16_t mss;                   /* payload of a full segment, timestamps taken off */
	uint8_t snd_scale, rcv_scale;
	uint32_t heard_ms; /* the last segment */

	struct list_place place[LIST_KINDS];
	uint32_t due_ms[TIMERS];
	uint32_t wheel_ms; /* the place in the wheel */
	bool in_wheel : 1;
	uint8_t band : 2;    /* enum band */
	uint8_t sending : 3; /* the level of the list LIST_SEND that it is in */
	uint8_t recovery;    /* enum recovery */
	uint8_t retries;     /* time-outs in a row, or probes of a closed window */
	uint8_t probes;      /* of a silent peer or a closed window, unanswered */
	uint32_t retry_ms;   /* the first of them */

	uint32_t snd_wnd_max;      /* the largest window that the peer has offered */
	uint32_t small_end;        /* Minshall: the end of the last segment that was not full */
	uint32_t recover;          /* RFC 6675 4.1: recovery ends when this is acknowledged */
	uint32_t allowance;        /* bytes that recovery lets go */
	struct send_buffer unsent; /* from SND.UNA on */
	uint32_t flight;           /* a cell of the stack's pool; 0: nothing is under way */
	struct arrived arrived;
	struct congestion congestion;
	struct rtt rtt;
	struct path_mtu path_mtu;

	uint16_t peer_mss; /* as offered */
	uint16_t rcv_mss;  /* the largest segment that has come */
	uint16_t user_mss; /* as the application wants it; 0: no wish */
	uint16_t error;    /* errno */
	uint8_t tos;
	uint8_t events;     /* SY_STACK_* that are to be told, and EVENT_SPACE */
	uint16_t listener;  /* its number, while half-open or ready; else LISTENER_NONE */
	uint32_t pace_most; /* bytes a second; 0: no bound */
	uint64_t cookie;    /* the application's */
	uint32_t urgent_in;
	union {
		uint32_t urgent_out; /* C_URGENT_OUT */
		uint32_t held_from;  /* else of C_CORK, C_MORE: what is before was pushed */
	};
	uint32_t peer_fin; /* the sequence number of a FIN that came too early */
	uint16_t keepalive_s, keepalive_interval_s;
	uint32_t user_timeout_ms;
	uint8_t keepalive_probes;
	uint8_t duplicates; /* acknowledgements in a row, of a peer without SACK */
	uint8_t challenges; /* in the second challenge_s, modulo 256 */
	uint8_t challenge_s;

	/* Receive window: how much the application reads in a round trip (window.c). */
	uint32_t receive_limit, send_limit;
	uint32_t read_seq, read_ms,
	        read_round; /* of the round: first byte, begin; bytes of the last */
	uint32_t receive_rtt_us;

	uint64_t bytes_acked, bytes_received;
	uint32_t retransmitted;

	/* A probe of the path's MTU is under way (path_probe.c); 0: none is. */
	uint32_t probe_from;
	uint16_t probe_len;
	uint8_t streak; /* full segments in order in a row (hold.h) */
	struct delay delay;
	uint32_t pace_us; /* pace.h */
} __attribute__((aligned(SY_CACHE_LINE)));

_Static_assert(sizeof(struct connection) <= 512, "eight cache lines");
_Static_assert(offsetof(struct connection, place) <= 128, "an in-order segment touches two");

struct sy_stack;

/* ---- table and ids --------------------------------------------------------------------------- */

struct connection *connection_find(struct sy_stack *s, const struct sy_tuple *from_peer);
/* The same in two steps. A bucket holds the index of its first connection plus one; 0: it is empty.
 */
uint32_t *bucket_of(struct sy_stack *s, const struct sy_tuple *from_peer);
struct connection *bucket_find(struct sy_stack *s, const uint32_t *bucket,
                               const struct sy_tuple *from_peer);
/* Asks for its memory, and does not wait for it. */
void connection_ask(const struct sy_stack *s, uint32_t index);
/* The connection of an id that the application holds, or NULL. */
struct connection *connection_of(struct sy_stack *s, sy_stack_id id);
uint32_t connection_index(const struct sy_stack *s, const struct connection *c);
sy_stack_id connection_id(const struct sy_stack *s, const struct connection *c);

/* ---- birth and death ------------------------------------------------------------------------- */

/* A connection with this tuple in the table; the longest in TIME-WAIT gives way if there is no
 * other place. NULL: all are in use. */
struct connection *connection_make(struct sy_stack *s, const struct sy_tuple *from_peer);
/* The protocol is done with it: it leaves the table, what was to be sent is freed. What has arrived
 * in order stays for the application, then error (0: none), as on Linux; also where the connection
 * waits for accept(). Without an application it is gone. */
void connection_end(struct sy_stack *s, struct connection *c, int error);
/* The application is done with it as well. */
void connection_free(struct sy_stack *s, struct connection *c);
void connection_time_wait(struct sy_stack *s, struct connection *c);
/* The application has closed it, and the peer has not taken all. A peer that keeps its window
 * closed must not keep the memory (RFC 6429 5): without progress it has ORPHAN_MS, and if there are
 * too many of them, none. Afterwards it may be gone. */
void connection_orphan(struct sy_stack *s, struct connection *c);
/* The peer has taken some bytes, or all. */
void connection_orphan_progress(struct sy_stack *s, struct connection *c);
void connection_orphan_over(struct sy_stack *s, struct connection *c);

/* Sets SND.NXT and all else that follows from the first sequence number. */
void connection_begin(struct sy_stack *s, struct connection *c, uint32_t iss);
/* What both sides have agreed upon by options (RFC 9293 3.7.1, RFC 7323, RFC 2018). */
void connection_agree(struct sy_stack *s, struct connection *c, const struct sy_tcp_options *o);
/* The handshake is done. */
void connection_established(struct sy_stack *s, struct connection *c);
/* What it holds: sent data; data out of order; all, with received data (range.c). */
void connection_drop_sent(struct sy_stack *s, struct connection *c);
void connection_drop_later(struct sy_stack *s, struct connection *c);
void connection_drop_buffers(struct sy_stack *s, struct connection *c);
/* The largest segment for the path, the peer and the options. */
void connection_resize(struct connection *c);
/* The largest segment that we can take, to be offered. */
uint16_t connection_offer(const struct sy_stack *s, const struct connection *c);

/* Tells the application, once it has the connection. */
void connection_tell(struct sy_stack *s, struct connection *c, unsigned events);
/* There may be something to send. */
void connection_wants(struct sy_stack *s, struct connection *c);
/* It is more urgent than before, and so is what it has to send. */
void connection_rises(struct sy_stack *s, struct connection *c);
/* There is nothing any more. */
void connection_wants_not(struct sy_stack *s, struct connection *c);

/* The first sequence number (RFC 6528), and the offset of timestamps (RFC 7323 5.4). */
uint32_t connection_iss(const struct sy_stack *s, const struct sy_tuple *from_peer);
uint32_t connection_ts_offset(const struct sy_stack *s, const struct sy_tuple *from_peer);

/* ---- facts ----------------------------------------------------------------------------------- */

static inline bool connection_v4(const struct connection *c)
{
	return sy_addr_is_v4(&c->tuple.src);
}

/* Of a segment's packet, with Ethernet's, but without SACK blocks. */
static inline uint32_t connection_headers(const struct connection *c)
{
	return (uint32_t)(SY_ETH_LEN +
	                  (connection_v4(c) ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6)) +
	                  sizeof(struct sy_tcp) +
	                  (c->flags & C_TIMESTAMPS ? TCP_TIMESTAMPS_LEN : 0));
}

/* Does it wait for accept()? */
static inline bool connection_is_ready(const struct connection *c)
{
	return c->listener != LISTENER_NONE && c->flags & C_TALKED;
}

static inline bool connection_fin_sent(const struct connection *c)
{
	return c->flags & C_FIN_WANTED && sy_seq_before(c->unsent.end, c->snd_nxt);
}

/* May bytes of the peer still arrive? */
static inline bool connection_receives(const struct connection *c)
{
	return c->state == SY_STACK_ESTABLISHED || c->state == SY_STACK_FIN_WAIT_1 ||
	       c->state == SY_STACK_FIN_WAIT_2;
}

/* May the application send? */
static inline bool connection_sends(const struct connection *c)
{
	return (c->state == SY_STACK_ESTABLISHED || c->state == SY_STACK_CLOSE_WAIT) &&
	       !(c->flags & C_FIN_WANTED);
}

static inline bool seq_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* Nagle's rule in Minshall's form: one segment that is not full is under way at most. */
static inline bool connection_may_short(const struct connection *c)
{
	return c->flags & C_NO_DELAY || !seq_after(c->small_end, c->snd_una);
}

/* What is behind held_from waits for more. Urgent data does not. */
static inline bool connection_holds(const struct connection *c)
{
	return c->flags & (C_CORK | C_MORE) && !(c->flags & C_URGENT_OUT);
}

/* Before C_CORK or C_MORE is set: what is there up to `end`, and might leave now, does not wait for
 * what follows. What Nagle's rule keeps back so far does, as on Linux. */
static inline void connection_hold(struct connection *c, uint32_t end)
{
	if (!(c->flags & (C_CORK | C_MORE | C_URGENT_OUT)))
		c->held_from = connection_may_short(c) ? end : c->snd_nxt;
}

#endif
