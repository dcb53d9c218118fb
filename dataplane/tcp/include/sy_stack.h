// SPDX-License-Identifier: Apache-2.0
/*
 * tcp: a TCP stack without clock, device or thread (docs/design/0036-tcp-stack.md).
 *
 * The caller passes in packets, the time and the application's calls, and fetches packets and
 * events. A stack and everything in it belong to one thread.
 *
 *     sy_stack_receive()  ──▶ segments ──▶ connections ──▶ sy_stack_events()
 *     sy_stack_advance()  ──▶ timers ──────────▶ │   ◀── listen, accept, connect, send, …
 *     sy_stack_transmit() ◀── segments ◀─────────┘
 *
 * Times are nanoseconds of CLOCK_MONOTONIC and never decrease from call to call. Calls return a
 * negative errno on failure, and -EAGAIN where a blocking call would wait; an event says when to
 * retry.
 *
 * Packets are Ethernet frames. Received ones may be chains of buffers, and joined by the port
 * (RTE_MBUF_F_RX_LRO). Transmitted ones have one buffer, except with options.tso; their MAC
 * addresses are zero, the driver sets them. The caller passes in only packets for this host: the
 * stack answers a segment to a port without listener by a reset.
 */
#ifndef SY_STACK_H
#define SY_STACK_H

#include <sys/uio.h>

#include <rte_mbuf.h>

#include <sy_base.h>
#include <sy_hook.h>
#include <sy_packet.h>

struct sy_stack;

/* A connection or a listener. Ids have a generation: a stale one fails with -EBADF. */
typedef uint32_t sy_stack_id;
#define SY_STACK_NONE 0

/* ---- one core's stack (stack.c) -------------------------------------------------------------- */

/* TCP segmentation offload (TSO). A transmitted packet may be a chain of buffers with
 * RTE_MBUF_F_TX_TCP_SEG and the fields that DPDK requires, of at most 64 segments of tso_segsz
 * bytes. */
struct sy_stack_tso {
	bool ipv4, ipv6; /* supported by all ports */
	/* Largest frame after segmentation, with the Ethernet header; 0: the MTU's. */
	uint16_t frame;
	uint16_t buffers; /* max. buffers per packet; 0: unlimited */
};

struct sy_stack_options {
	struct rte_mempool *pool; /* for transmitted packets */
	uint32_t connections;     /* max., in all states; up to 4 million */
	uint32_t listeners;       /* max.; 0: 64 */
	uint16_t mtu;             /* link MTU; 0: 1500 */
	uint32_t send_max;        /* max. send buffer of a connection, bytes; 0: 4 MiB */
	uint32_t receive_max;     /* max. receive window, bytes; 0: 6 MiB */
	uint64_t send_all;        /* send buffers of all connections, bytes; 0: 256 MiB */
	uint64_t receive_all;     /* packets queued for the application, bytes; 0: 256 MiB */
	const char *congestion;   /* "cubic", "newreno"; NULL: cubic */
	uint8_t secret[16]; /* key of initial sequence numbers, timestamps, cookies and hashes */
	uint16_t port_first, port_last;        /* ephemeral ports (RFC 6335 6); 0: 49152 to 65535 */
	uint32_t time_wait_ms;                 /* 0: 60 s, twice Linux's MSL */
	bool no_sack, no_timestamps, no_scale; /* TCP options not to offer */
	bool ecn;                              /* request ECN on connect; it is always accepted */
	/* Returns true if the NIC steers the peer's segments of this tuple to this stack.
	 * Connections get a local port for which it does. NULL: all are. */
	bool (*owns)(void *owner, const struct sy_tuple *from_peer);
	void *owner;
	/* Keep the client address from a load balancer's TCP option (TOA) for sy_stack_client(): 20
	 * bytes per connection. */
	bool toa;
	bool trust_checksum; /* the driver has verified TCP checksums */
	/* Accept TCP packets whose checksum covers only the pseudo-header: a sender on this host
	 * left the rest to checksum offload, and no device computed it (veth). On a wire such a
	 * packet is corrupt. */
	bool unfinished;
	/* Max. orphans: connections that the application closed with unacknowledged data; further
	 * ones are reset. 0: 7/8 of `connections`. An orphan ends when its peer acknowledges
	 * nothing for 100 s. */
	uint32_t orphans;
	/* While less than 1/4 of `pool` is free, unread data is copied into this pool, so that slow
	 * readers do not exhaust the driver's buffers. NULL: no copies. */
	struct rte_mempool *copies;
	bool pacing; /* default of SY_STACK_PACING */
	/* All ports compute TCP checksums: segments carry RTE_MBUF_F_TX_TCP_CKSUM and the
	 * pseudo-header's sum. */
	bool offload_checksum;
	struct sy_stack_tso tso;
	/* Acknowledge every eighth full segment of a stream, instead of every second, if they
	 * arrive within 30 µs. Requires a caller that polls at least that often or sleeps no longer
	 * than sy_stack_advance() returns. */
	bool coalesce_acks;
	/* Exclude send buffers, the bulk of its address space, from children of fork()
	 * (MADV_DONTFORK): some programs limit their children's address space (vsftpd). */
	bool not_inherited;
};

int sy_stack_create(const struct sy_stack_options *options, uint64_t now_ns, struct sy_stack **out,
                    struct sy_error *err);
/* Sets whether children of fork() inherit the send buffers. */
void sy_stack_set_inherited(struct sy_stack *s, bool on);
/* Frees the stack and its packets. Sends nothing to peers. */
void sy_stack_destroy(struct sy_stack *s);

/* Processes packets and takes ownership of them. Buffers return to their pools when
 * sy_stack_transmit() has nothing more to send. With a packet hook, only assigns levels and queues
 * the packets for sy_stack_process(). */
void sy_stack_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count,
                      uint64_t now_ns);
/* Parses a packet of one or more buffers (LRO), like sy_packet_parse(); moves all headers to the
 * first buffer. Returns false if it is malformed. */
bool sy_stack_parse(struct rte_mbuf *m, struct sy_view *v);
/* Returns true if a connection, even a half-open one, has this tuple. */
bool sy_stack_has_connection(struct sy_stack *s, const struct sy_tuple *from_peer);
/* The same for a segment with this acknowledgement number (host order): a half-open connection must
 * match its own. With another number, the segment belongs to another stack that answered the same
 * SYN. */
bool sy_stack_expects_ack(struct sy_stack *s, const struct sy_tuple *from_peer, uint32_t ack);
/* All packets received by seen_ns have been passed in. Retransmission timers count up to this time:
 * packets may still lie in a ring, and a delayed worker must not take them for lost. Default: the
 * time of each call. */
void sy_stack_mark_seen(struct sy_stack *s, uint64_t seen_ns);
/* The neighbour of this transmitted packet did not resolve. Treated like an ICMP error: a
 * connection being opened ends with EHOSTUNREACH. The packet stays the caller's. */
void sy_stack_unreachable(struct sy_stack *s, const struct rte_mbuf *packet, uint64_t now_ns);
/* Runs due timers. Returns a lower bound of the next deadline. */
uint64_t sy_stack_advance(struct sy_stack *s, uint64_t now_ns);
/* Returns up to `max` packets to transmit now. hash.usr is a hash of the flow. */
unsigned sy_stack_transmit(struct sy_stack *s, struct rte_mbuf **packet, unsigned max,
                           uint64_t now_ns);
/* The same, bounded by *pieces: a large segment counts as the packets it is cut into. Stops after
 * the connection that exhausts it. Further packets may be pending if *pieces is 0 or `max` were
 * returned. */
unsigned sy_stack_transmit_pieces(struct sy_stack *s, struct rte_mbuf **packet, unsigned max,
                                  uint32_t *pieces, uint64_t now_ns);

/* ---- events ---------------------------------------------------------------------------------- */

enum {
	SY_STACK_READABLE = 1,  /* data or EOF; on a listener: connections to accept */
	SY_STACK_WRITABLE = 2,  /* connected, or send space after -EAGAIN */
	SY_STACK_PEER_DONE = 4, /* FIN received */
	SY_STACK_HANG_UP = 8,   /* closed in both directions */
	SY_STACK_ERROR = 16,    /* see sy_stack_error() */
	SY_STACK_URGENT = 32,   /* urgent data (RFC 6093), inline */
};

struct sy_stack_event {
	sy_stack_id id;
	uint32_t what;   /* SY_STACK_*, accumulated since the last event */
	uint64_t cookie; /* the application's */
	uint8_t level;   /* sy_stack_level() now */
};

/* Fetches up to `max` events, at most one per connection: later conditions are merged until it is
 * fetched. */
unsigned sy_stack_events(struct sy_stack *s, struct sy_stack_event *event, unsigned max);
/* The same for these levels only; bit n: level n. The most urgent first, subject to
 * sy_stack_shares(). */
#define SY_STACK_LEVELS ((1u << SY_PRIORITIES) - 1)
unsigned sy_stack_events_of(struct sy_stack *s, unsigned levels, struct sy_stack_event *event,
                            unsigned max);
/* Returns the present conditions, whether or not an event reported them. If it is not writable, an
 * event follows when it is. */
uint32_t sy_stack_ready(struct sy_stack *s, sy_stack_id id);

/* ---- socket-like calls of the application (call.c) ------------------------------------------- */

struct sy_stack_endpoint {
	struct sy_addr addr; /* all zero, or ::ffff:0.0.0.0: wildcard */
	uint16_t port;       /* network order; 0: any */
};

/* Opens a listener. backlog limits both the accept queue and the half-open connections. Fails with
 * -EADDRINUSE. */
int sy_stack_listen(struct sy_stack *s, const struct sy_stack_endpoint *local, unsigned backlog,
                    uint64_t cookie, sy_stack_id *out);
/* The same, beside others that were opened by this call at the same endpoint, as Linux's
 * SO_REUSEPORT allows: a hash of its source assigns each connection to one of them. */
int sy_stack_listen_shared(struct sy_stack *s, const struct sy_stack_endpoint *local,
                           unsigned backlog, uint64_t cookie, sy_stack_id *out);
/* Changes the backlog, and whether a dual-stack wildcard accepts only IPv6 (RFC 3493 5.3). */
int sy_stack_listener_set(struct sy_stack *s, sy_stack_id id, unsigned backlog, bool only_v6);
/* Accepts a connection; peer may be NULL. Fails with -EAGAIN if the queue is empty. */
int sy_stack_accept(struct sy_stack *s, sy_stack_id listener, uint64_t cookie,
                    struct sy_stack_endpoint *peer, sy_stack_id *out);
/* Opens a connection from local->addr; an event reports the result. Fails with -EADDRINUSE if the
 * tuple is in use, -EADDRNOTAVAIL if all ephemeral ports are, or the given port is steered to
 * another stack. */
int sy_stack_connect(struct sy_stack *s, const struct sy_stack_endpoint *local,
                     const struct sy_stack_endpoint *peer, uint64_t cookie, uint64_t now_ns,
                     sy_stack_id *out);

/* Prefetches a connection, for callers that know the next ones among many. */
void sy_stack_prefetch(const struct sy_stack *s, sy_stack_id id);

/* MSG_MORE: a partial segment of these bytes waits for further data, until the peer acknowledges
 * something or 200 ms (a longer RTO) pass. Earlier data does not wait. */
#define SY_STACK_MORE 1
#define SY_STACK_OOB  2 /* MSG_OOB: the last byte is urgent (deprecated by RFC 6093) */

/* Copies bytes into the send buffer. Returns their number, or -EAGAIN, -EPIPE (the sending side is
 * closed), -ENOTCONN, or the connection's error. */
int64_t sy_stack_send(struct sy_stack *s, sy_stack_id id, const void *bytes, size_t len, int flags,
                      uint64_t now_ns);
/* Copies received bytes. Returns their number, 0 at EOF, or an error as above. After a reset or
 * time-out, buffered data remains readable: then one call returns the error, then EOF. */
int64_t sy_stack_receive_bytes(struct sy_stack *s, sy_stack_id id, void *bytes, size_t len,
                               uint64_t now_ns);
/* The same without a copy: points to the first received bytes, valid until consumed. Returns their
 * number, 0 at EOF, or a negative errno. */
int64_t sy_stack_peek(struct sy_stack *s, sy_stack_id id, const void **bytes);
void sy_stack_consume(struct sy_stack *s, sy_stack_id id, size_t len, uint64_t now_ns);
/* sockatmark(): returns 1 if the next byte is the urgent one (RFC 6093), 0 or -EBADF. Urgent data
 * is inline, as with SO_OOBINLINE; a read ends before it. */
int sy_stack_at_mark(struct sy_stack *s, sy_stack_id id);

/* Returns the number of unread bytes. A caller that has read some and finds no more returns these:
 * a further call would consume the connection's error, which belongs to the application's next
 * call. */
uint32_t sy_stack_unread(struct sy_stack *s, sy_stack_id id);
/* Like sy_stack_peek(), with up to `count` vectors. */
int64_t sy_stack_peek_vectors(struct sy_stack *s, sy_stack_id id, struct iovec *v, int count);
/* The same, with a reference on each packet: the data stays valid until the caller frees held[i] by
 * rte_pktmbuf_free_seg() on the stack's thread, even if the connection ends. */
int64_t sy_stack_peek_referenced(struct sy_stack *s, sy_stack_id id, struct iovec *v,
                                 struct rte_mbuf **held, int count);
/* Reserves up to len bytes of the send buffer in up to `count` vectors. Returns the number of
 * bytes, or an error like sy_stack_send(). sy_stack_commit() sends the first len of them. Until
 * then, the caller must not send on any connection, pass in packets or advance the time. */
int64_t sy_stack_reserve(struct sy_stack *s, sy_stack_id id, struct iovec *v, int count, size_t len,
                         uint64_t now_ns);
int sy_stack_commit(struct sy_stack *s, sy_stack_id id, size_t len, int flags, uint64_t now_ns);

/* Closes the sending side after all queued data. */
int sy_stack_shutdown(struct sy_stack *s, sy_stack_id id, uint64_t now_ns);
/* Closes the id. Queued data is still delivered; but if unread data is left, the peer gets a reset
 * (RFC 2525 2.17). Closing a listener resets the connections in its accept queue. */
int sy_stack_close(struct sy_stack *s, sy_stack_id id, uint64_t now_ns);
/* Resets the connection and closes the id. */
int sy_stack_abort(struct sy_stack *s, sy_stack_id id, uint64_t now_ns);
/* Returns the connection's error as a positive errno, and clears it like SO_ERROR; 0: none. */
int sy_stack_error(struct sy_stack *s, sy_stack_id id);
void sy_stack_set_cookie(struct sy_stack *s, sy_stack_id id, uint64_t cookie);

/* ---- connections continued by another TCP (export.c) ----------------------------------------- */

/* State to export, in host order. Requires that all sent data is acknowledged. */
struct sy_stack_export {
	struct sy_stack_endpoint local, peer;
	uint32_t snd_nxt, rcv_nxt; /* RFC 9293 3.3.1 */
	uint32_t snd_wnd, snd_wnd_max, rcv_wnd;
	uint32_t time;     /* TSval of a segment sent now */
	uint32_t unread;   /* unread bytes before rcv_nxt */
	uint16_t peer_mss; /* as offered by the peer */
	uint8_t snd_scale, rcv_scale;
	bool sack, timestamps, scale;
};

/* Retires a listener: it accepts no SYNs, and sy_stack_accept() returns connections that complete
 * their handshake until sy_stack_close(). Until then, the stack drops segments to this address and
 * port without a connection instead of sending resets: they may be for another TCP of this host. */
int sy_stack_retire(struct sy_stack *s, sy_stack_id listener);
/* Returns true if a retired listener of this address and port is not closed yet. */
bool sy_stack_has_retired(const struct sy_stack *s, const struct sy_addr *addr, uint16_t port);
/* Returns whether a connection has this local port (network order), in any state but CLOSED:
 * segments for it may arrive. */
bool sy_stack_uses_port(const struct sy_stack *s, uint16_t port);
/* Copies unread data to `bytes` and changes nothing. Fails with -ENOTCONN if an end has sent FIN,
 * -EBUSY if sent data is unacknowledged, -EMSGSIZE if more than `max` bytes are unread.
 * Out-of-order data is omitted: the peer retransmits it. */
int sy_stack_export(struct sy_stack *s, sy_stack_id id, struct sy_stack_export *out, void *bytes,
                    size_t max, uint64_t now_ns);
/* Frees a connection that another TCP has taken over, without sending a segment. */
int sy_stack_forget(struct sy_stack *s, sy_stack_id id);

/* ---- options and state ----------------------------------------------------------------------- */

enum sy_stack_option {
	SY_STACK_NO_DELAY,    /* 1: disable Nagle's algorithm (RFC 896) */
	SY_STACK_CORK,        /* 1: send only full segments until set to 0 */
	SY_STACK_QUICK_ACK,   /* 1: acknowledge immediately */
	SY_STACK_KEEPALIVE_S, /* idle time before the first probe; 0: off */
	SY_STACK_KEEPALIVE_INTERVAL_S,
	SY_STACK_KEEPALIVE_PROBES,
	/* RFC 9293 3.9.1: end with -ETIMEDOUT if data is unacknowledged for so long; 0: 15
	 * minutes. */
	SY_STACK_USER_TIMEOUT_MS,
	SY_STACK_LINGER_ABORT,  /* 1: close sends a reset */
	SY_STACK_SEND_BYTES,    /* fixed limit of the send buffer; disables autotuning */
	SY_STACK_RECEIVE_BYTES, /* likewise for the receive window */
	SY_STACK_TOS,           /* DSCP in the upper 6 bits */
	SY_STACK_MSS,           /* upper bound; before connect also offered */
	SY_STACK_PACING,        /* 1: spread segments over the round trip */
	/* Bytes per second, with headers; implies pacing. At least one segment per second;
	   UINT32_MAX, 0: no bound. */
	SY_STACK_PACING_RATE,
	/* As SO_PRIORITY: 6, 7 transmit first; 1, 2, 3, 5 last; others by level. */
	SY_STACK_PRIORITY,
};

/* On a listener: inherited by its connections. Fails with -EINVAL for an invalid value. */
int sy_stack_set(struct sy_stack *s, sy_stack_id id, enum sy_stack_option option, uint32_t value,
                 uint64_t now_ns);

/* RFC 9293 3.3.2. Half-open connections of a listener have no id yet. */
#define SY_STACK_STATES(X)                                                                         \
	X(CLOSED, "closed")                                                                        \
	X(LISTEN, "listen")                                                                        \
	X(SYN_SENT, "syn-sent")                                                                    \
	X(SYN_RECEIVED, "syn-received")                                                            \
	X(ESTABLISHED, "established")                                                              \
	X(FIN_WAIT_1, "fin-wait-1")                                                                \
	X(FIN_WAIT_2, "fin-wait-2")                                                                \
	X(CLOSE_WAIT, "close-wait")                                                                \
	X(CLOSING, "closing")                                                                      \
	X(LAST_ACK, "last-ack")                                                                    \
	X(TIME_WAIT, "time-wait")

enum sy_stack_state {
#define X(id, name) SY_STACK_##id,
	SY_STACK_STATES(X)
#undef X
	        SY_STACK_STATE_COUNT
};
const char *sy_stack_state_name(enum sy_stack_state state);

/* As TCP_INFO. Bytes and microseconds. */
struct sy_stack_info {
	enum sy_stack_state state;
	struct sy_stack_endpoint local, peer;
	uint32_t rtt_us, rtt_var_us, rto_ms;
	uint32_t rtt_min_us; /* minimum of the last 5 to 10 s that had samples */
	/* Congestion window; ssthresh; bytes in flight without lost ones. */
	uint32_t window, threshold, in_flight;
	uint32_t unacked; /* sequence space from SND.UNA to SND.NXT */
	uint32_t mss, peer_window, receive_window;
	uint32_t path_mtu;       /* with IP and TCP headers */
	uint32_t unsent, unread; /* bytes; unsent: all that is not acknowledged */
	/* Unread bytes up to the urgent mark; 0: none. */
	uint32_t urgent;
	uint64_t sent, received; /* payload acknowledged; payload received in order */
	uint32_t retransmitted;  /* segments */
	uint8_t retries;         /* consecutive time-outs */
	bool sack, timestamps, scale, ecn;
	bool receive_closed; /* the advertised window is 0 */
	bool only_v6;        /* wildcard listener that accepts no IPv4 */
};
int sy_stack_info(struct sy_stack *s, sy_stack_id id, struct sy_stack_info *out);
/* Lists listeners, then connections in all states, also those not yet accepted. For a listener,
 * `unread` is the length of the accept queue and `unsent` the backlog. *at is the cursor: 0 at the
 * start and after the last one; entries may be missed if they come or go between calls. Visits up
 * to SY_STACK_WALK slots. Returns the number filled. */
#define SY_STACK_WALK 1024
unsigned sy_stack_walk(struct sy_stack *s, uint32_t *at, struct sy_stack_info *out, unsigned max);

/* Returns the client address from the load balancer's option. Fails with -ENOENT if there is none
 * or options.toa is off. */
int sy_stack_client(struct sy_stack *s, sy_stack_id id, struct sy_stack_endpoint *out);

/* ---- priorities (priority.c, docs/design/0045-priorities.md) ------------------------------------
 */

/*
 * Levels are priorities of hooks: 0 highest, SY_USUAL, 7 lowest. Without a call of sy_stack_hooks()
 * there are no priorities: all connections have SY_USUAL.
 */

/* Returns the stack's table of hooks, for sy_hooks_*() on the stack's thread at any time. NULL: no
 * memory. */
struct sy_hooks *sy_stack_hooks(struct sy_stack *s);

/* Sets the hook that runs for each received packet, or SY_HOOK_NONE. With a hook, packets are
 * queued until sy_stack_process(). Fails with -ENOMEM. */
int sy_stack_packet_hook(struct sy_stack *s, unsigned hook);
/* Processes up to `max` queued packets by level, less if more urgent data is unread. Packets of a
 * connection stay in order. Returns how many remain queued. Call it after sy_stack_receive(), when
 * the driver's ring is empty. */
unsigned sy_stack_process(struct sy_stack *s, unsigned max, uint64_t now_ns);
/* The number of queued packets; whether a packet hook makes them queue. */
unsigned sy_stack_queued(const struct sy_stack *s);
bool sy_stack_has_packet_hook(const struct sy_stack *s);

/* Sets the hook that runs for segments with payload, in stream order, for a connection, a listener
 * (inherited), or SY_STACK_NONE (the default). SY_HOOK_NONE: use the default; SY_STACK_HOOK_OFF:
 * run none. A hook may replace itself (`become`). Fails with -EBADF, -EINVAL, -ENOMEM. */
#define SY_STACK_HOOK_OFF 255
int sy_stack_segment_hook(struct sy_stack *s, sy_stack_id id, unsigned hook);

/* Returns the connection's private area of 64 bytes, which its segment hook sees as `own`: zero at
 * first, valid until the id is closed. NULL: no such connection, or no memory. */
void *sy_stack_private_area(struct sy_stack *s, sy_stack_id id);

/* Returns the highest level of the unread data, or else of the data read last. With hooks, a
 * listener has level 0, since the level of its connections is unknown. */
unsigned sy_stack_level(struct sy_stack *s, sy_stack_id id);
/* Guarantees levels a minimum share of events, in percent, while they have events. Fails with
 * -EINVAL if the sum exceeds 100. 0: strictly by level. */
int sy_stack_shares(struct sy_stack *s, const uint8_t percent[SY_PRIORITIES]);

struct sy_stack_levels {
	uint32_t waiting[SY_PRIORITIES]; /* packets queued now */
	uint64_t taken[SY_PRIORITIES];   /* packets dequeued and processed */
	uint64_t dropped[SY_PRIORITIES]; /* packets dropped from a full queue */
	uint64_t events[SY_PRIORITIES];  /* fetched events */
	uint32_t unread[SY_PRIORITIES];  /* connections with unread data now */
	uint64_t risen; /* queued packets raised to the level of a later one of their flow */
	uint32_t own;   /* private areas in use */
	uint32_t max;   /* max. queued buffers */
};
void sy_stack_levels(const struct sy_stack *s, struct sy_stack_levels *out);

/* Adds an IP fragment to reassembly, for a caller that steers packets before sy_stack_receive().
 * Returns the whole packet after the last missing fragment, else NULL. */
struct rte_mbuf *sy_stack_reassemble(struct sy_stack *s, struct rte_mbuf *m, uint64_t now_ns);

/* ---- counters of a stack --------------------------------------------------------------------- */

#define SY_STACK_COUNTERS(X)                                                                       \
	X(packets_in, "packets received")                                                          \
	X(packets_out, "packets sent")                                                             \
	X(bytes_in, "bytes of packets received, from the Ethernet header on")                      \
	X(bytes_out, "bytes of packets sent; a large segment has its headers once")                \
	X(malformed, "packets that are malformed, or fragments of other protocols")                \
	X(fragments, "IP fragments received")                                                      \
	X(reassembled, "segments put together from fragments")                                     \
	X(fragments_overlap, "fragments that overlap others, and later ones (RFC 5722)")           \
	X(fragments_duplicate, "fragments that have come before")                                  \
	X(fragments_timeout, "datagrams given up after 2 s: fragments are missing")                \
	X(fragments_evicted, "datagrams given up for newer ones: too many wait")                   \
	X(fragments_too_long, "fragments of datagrams that are longer than the MTU")               \
	X(not_ours, "other frames that any host gets: ARP, neighbour discovery, multicast")        \
	X(bad_checksums, "packets with a wrong checksum of TCP or ICMP")                           \
	X(unfinished, "packets taken though their sender has left the checksum unfinished")        \
	X(unfinished_dropped, "packets dropped for such a checksum")                               \
	X(fast, "segments in order that took the short way")                                       \
	X(opened, "connections begun by this side")                                                \
	X(accepted, "connections begun by a peer")                                                 \
	X(refused_backlog, "SYNs and ACKs left out: too many connections wait for accept")         \
	X(refused_memory, "connections or packets left out: no memory")                            \
	X(no_buffer, "times that nothing could be sent for want of a buffer, and was later")       \
	X(cookies_sent, "SYNs answered by a cookie")                                               \
	X(cookies_right, "connections made from a cookie")                                         \
	X(cookies_wrong, "ACKs without a connection and without a right cookie")                   \
	X(resets_in, "resets accepted")                                                            \
	X(resets_out, "resets sent")                                                               \
	X(challenges, "challenge ACKs sent (RFC 5961)")                                            \
	X(challenges_limited, "challenge ACKs not sent for their limit")                           \
	X(paws, "segments refused for their timestamp (RFC 7323 5)")                               \
	X(out_of_window, "segments outside the window")                                            \
	X(out_of_order, "segments kept for later")                                                 \
	X(out_of_order_dropped, "segments out of order that found no place")                       \
	X(duplicates, "segments without a new byte")                                               \
	X(retransmitted, "segments sent again")                                                    \
	X(timeouts, "retransmission time-outs")                                                    \
	X(tail_probes, "tail loss probes (RFC 8985 7)")                                            \
	X(recoveries, "fast recoveries begun")                                                     \
	X(undone, "reductions of the window undone: nothing was lost")                             \
	X(ecn_reduced, "reductions of the window for ECN (RFC 3168)")                              \
	X(window_probes, "probes of a closed window")                                              \
	X(keepalives, "keepalive probes")                                                          \
	X(timed_out, "connections given up: the peer does not answer")                             \
	X(time_wait_reused, "connections in TIME-WAIT that gave way to a new one")                 \
	X(icmp_accepted, "ICMP errors about a connection")                                         \
	X(icmp_ignored, "ICMP errors about nothing that is under way")                             \
	X(too_big, "path MTUs learned")                                                            \
	X(copied, "packets copied, because the driver's buffers are scarce")                       \
	X(path_probes, "probes for a larger path MTU (RFC 4821)")                                  \
	X(path_raised, "path MTUs raised by a probe")                                              \
	X(held, "acknowledgements that waited for more of a stream")                               \
	X(offloaded, "segments whose checksum the port computes")                                  \
	X(tso_segments, "large segments, which the port cuts (TSO)")                               \
	X(tso_pieces, "packets that the port makes of them")                                       \
	X(lro_packets, "packets that the port has joined from several (LRO)")                      \
	X(orphans_ended, "closed connections ended: the peer takes nothing, or they are too many") \
	X(level_full, "packets of the lowest level dropped: too many wait for being taken")        \
	X(exported, "connections that another TCP of this host goes on with")                      \
	X(retired_dropped, "segments dropped: their listener has just ended, and another TCP of "  \
	                   "this host may have their connections")

struct sy_stack_counters {
#define X(name, help) uint64_t name;
	SY_STACK_COUNTERS(X)
#undef X
};

/* Memory use, for limits and reports. */
struct sy_stack_usage {
	uint32_t connections, half_open, time_wait, listeners;
	uint64_t send_bytes, receive_bytes; /* size of buffers, not of data */
	uint32_t ranges;                    /* of sent and out-of-order data */
	size_t fixed;                       /* tables allocated at creation, bytes */
	uint32_t orphans;                   /* closed connections with unacknowledged data */
	uint64_t orphans_taken;             /* bytes acknowledged on orphans so far */
};
const struct sy_stack_counters *sy_stack_counters(const struct sy_stack *s);
void sy_stack_usage(const struct sy_stack *s, struct sy_stack_usage *out);

#endif
