// SPDX-License-Identifier: Apache-2.0
/*
 * tcp: a TCP stack for the core that calls it (docs/design/0036-tcp-stack.md).
 *
 * A stack has no clock, no device and no thread. Packets, the time and the application's calls go
 * in; packets and events are fetched. A stack and everything in it belong to one thread.
 *
 *     sy_stack_receive()  ──▶ segments arrive ──▶ connections ──▶ sy_stack_events()
 *     sy_stack_advance()  ──▶ timers ────────────▶    │      ◀── listen, accept, connect, …
 *     sy_stack_transmit() ◀── segments made ◀─────────┘
 *
 * Times are nanoseconds of CLOCK_MONOTONIC; a call's time is never before that of the call before
 * it. Calls that fail return a negative errno, and -EAGAIN where a blocking call would wait; an
 * event tells when to try again.
 *
 * Packets have an Ethernet frame. Those that go out are in one buffer but for options.tso; those
 * that come may be chains, and joined from several by the port (RTE_MBUF_F_RX_LRO). The driver sets
 * the MAC addresses of those that it fetches. It has told the caller which packets are for this
 * host: the stack answers a segment to a port without a listener by a reset.
 */
#ifndef SY_STACK_H
#define SY_STACK_H

#include <sys/uio.h>

#include <rte_mbuf.h>

#include <sy_base.h>
#include <sy_hook.h>
#include <sy_packet.h>

struct sy_stack;

/* A connection or a listener. Ids of ended ones are recognised, and refused with -EBADF. */
typedef uint32_t sy_stack_id;
#define SY_STACK_NONE 0

/* ---- one core's stack (stack.c) -------------------------------------------------------------- */

/* Segmentation by the port. Then a packet may be a chain of buffers with RTE_MBUF_F_TX_TCP_SEG and
 * all that DPDK asks for with it; its pieces of tso_segsz bytes are at most 64. */
struct sy_stack_tso {
	bool ipv4, ipv6;  /* all ports cut segments of this family */
	uint16_t frame;   /* the largest that they make, Ethernet header included; 0: the MTU's */
	uint16_t buffers; /* of a packet, at most; 0: any number */
};

struct sy_stack_options {
	struct rte_mempool *pool; /* of packets that are sent */
	uint32_t connections;     /* at most, in all states; up to 4 million */
	uint32_t listeners;       /* at most; 0: 64 */
	uint16_t mtu;             /* of the link; 0: 1500 */
	uint32_t send_max;        /* bytes of a connection that are not acknowledged; 0: 4 MiB */
	uint32_t receive_max;     /* the largest window; 0: 6 MiB */
	uint64_t send_all;        /* bytes of all connections' send buffers; 0: 256 MiB */
	uint64_t receive_all;     /* bytes of packets that wait for being read; 0: 256 MiB */
	const char *congestion;   /* "cubic", "newreno"; NULL: cubic */
	uint8_t secret[16];       /* of sequence numbers, timestamps, cookies and hashes */
	uint16_t port_first, port_last;        /* ephemeral ports (RFC 6335 6); 0: 49152 to 65535 */
	uint32_t time_wait_ms;                 /* 0: 60 s, twice Linux's MSL */
	bool no_sack, no_timestamps, no_scale; /* options that connections are not offered */
	bool ecn;                              /* asks for ECN; it is accepted in any case */
	/* Are the peer's segments of this tuple brought to this stack? Connections get a local port
	 * for which they are. NULL: all are. */
	bool (*owns)(void *owner, const struct sy_tuple *from_peer);
	void *owner;
	/* A balancer in front tells the client of a connection in an option (TOA), which is kept
	 * for sy_stack_client(). 20 bytes for each connection. */
	bool toa;
	bool trust_checksum; /* packets' transport checksums have been verified */
	/* Takes packets of TCP whose checksum is that of the pseudo-header alone: their sender is
	 * on this machine and has left the rest to a device, which is none (a veth). On a wire such
	 * a packet is a wrong one. */
	bool unfinished;
	/* Closed connections whose peer has not taken all, at most; more are reset. 0: seven
	 * eighths of `connections`. Each ends when the peer takes nothing for 100 s. */
	uint32_t orphans;
	/* Where what waits for being read is copied while less than a quarter of `pool` is free, so
	 * that slow readers do not take the driver's buffers. NULL: it stays in these. */
	struct rte_mempool *copies;
	bool pacing; /* of all connections: SY_STACK_PACING */
	/* All ports compute the checksums of segments, which carry RTE_MBUF_F_TX_TCP_CKSUM and that
	 * of the pseudo-header. */
	bool offload_checksum;
	struct sy_stack_tso tso;
	/* Of a stream of full segments, every eighth is acknowledged and not every second, if they
	 * come within 30 µs: for who asks for packets as often, or sleeps no longer than
	 * sy_stack_advance() says. */
	bool hold_acks;
	/* Children of fork() do not inherit its send buffers, by far most of its address space,
	 * which programs limit for their children (vsftpd). */
	bool unforked;
};

int sy_stack_create(const struct sy_stack_options *options, uint64_t now_ns, struct sy_stack **out,
                    struct sy_error *err);
/* Children of fork() inherit its send buffers from here on, or no longer. */
void sy_stack_bequeath(struct sy_stack *s, bool on);
/* Frees it with all packets that it holds. Peers are told nothing. */
void sy_stack_destroy(struct sy_stack *s);

/* Takes packets; they are the stack's from then on. Those that nobody needs any more go back to
 * their pools when sy_stack_transmit() has no more to give. With a packet hook packets only wait,
 * each in the level that the hook says, until sy_stack_take(). */
void sy_stack_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count,
                      uint64_t now_ns);
/* Parses a packet of one or more buffers (LRO), as sy_packet_parse(); its headers then lie in the
 * first one. False: it is malformed. */
bool sy_stack_parse(struct rte_mbuf *m, struct sy_view *v);
/* Is there a connection for the peer's segments of this tuple, also a half-open one? */
bool sy_stack_knows(struct sy_stack *s, const struct sy_tuple *from_peer);
/* The same of a segment with this acknowledgement number (host order): a half-open connection
 * expects its own number. With another one the peer means a connection of another stack, which has
 * answered the same SYN. */
bool sy_stack_expects(struct sy_stack *s, const struct sy_tuple *from_peer, uint32_t ack);
/* All packets that had come by this time have been given: a connection that waits for an answer has
 * waited until then. Later ones may still lie in a ring, and a worker that was held up must not
 * take them for lost. Without this call: until the time of each call. */
void sy_stack_seen(struct sy_stack *s, uint64_t seen_ns);
/* No neighbour was found for this packet, which the stack has made; it stays the caller's. Counts
 * as an ICMP error: a connection that is being opened ends with EHOSTUNREACH. */
void sy_stack_unreachable(struct sy_stack *s, const struct rte_mbuf *packet, uint64_t now_ns);
/* Does what is due. Returns a time before which nothing else will be. */
uint64_t sy_stack_advance(struct sy_stack *s, uint64_t now_ns);
/* Gives up to `most` packets that are to be sent now. Their MAC addresses are zero; hash.usr is a
 * hash of the flow. */
unsigned sy_stack_transmit(struct sy_stack *s, struct rte_mbuf **packet, unsigned most,
                           uint64_t now_ns);
/* The same, and ends behind the turn of a connection that uses up *pieces: what a large segment is
 * cut into counts. *pieces: what is left. There may be more, if it is 0, or `most` were given. */
unsigned sy_stack_transmit_pieces(struct sy_stack *s, struct rte_mbuf **packet, unsigned most,
                                  uint32_t *pieces, uint64_t now_ns);

/* ---- events ---------------------------------------------------------------------------------- */

enum {
	SY_STACK_READABLE = 1,  /* bytes, or the end of them; a listener: connections to accept */
	SY_STACK_WRITABLE = 2,  /* connected, or space again after -EAGAIN */
	SY_STACK_PEER_DONE = 4, /* the peer has sent its last byte */
	SY_STACK_HANG_UP = 8,   /* closed in both directions */
	SY_STACK_ERROR = 16,    /* sy_stack_error() says what */
	SY_STACK_URGENT = 32, /* the peer has urgent data (RFC 6093), which lies among the others */
};

struct sy_stack_event {
	sy_stack_id id;
	uint32_t what;   /* SY_STACK_*: what has happened since the last event */
	uint64_t cookie; /* the application's */
	uint8_t level;   /* sy_stack_level() now */
};

/* Fetches up to `most` events. A connection has one at a time: what happens until it is fetched is
 * added to it. */
unsigned sy_stack_events(struct sy_stack *s, struct sy_stack_event *event, unsigned most);
/* The same, of these levels only: bit 0 is level 0. What is most urgent comes first, but for
 * sy_stack_shares(). */
#define SY_STACK_LEVELS ((1u << SY_PRIORITIES) - 1)
unsigned sy_stack_events_of(struct sy_stack *s, unsigned levels, struct sy_stack_event *event,
                            unsigned most);
/* What holds now, whether or not an event has told of it. If it is not writable, an event tells
 * when it is. */
uint32_t sy_stack_ready(struct sy_stack *s, sy_stack_id id);

/* ---- calls of the application (call.c), in the style of sockets ------------------------------ */

struct sy_stack_endpoint {
	struct sy_addr addr; /* all zero, or ::ffff:0.0.0.0: any of the family */
	uint16_t port;       /* network order; 0: any */
};

/* Opens a listener. backlog: connections that wait for being accepted, and half-open ones, at most
 * so many of each. -EADDRINUSE: there is one. */
int sy_stack_listen(struct sy_stack *s, const struct sy_stack_endpoint *local, unsigned backlog,
                    uint64_t cookie, sy_stack_id *out);
/* Another backlog; and whether a wildcard of both families takes IPv6 alone (RFC 3493 5.3). */
int sy_stack_listener_set(struct sy_stack *s, sy_stack_id id, unsigned backlog, bool only_v6);
/* Takes a connection; peer may be NULL. -EAGAIN: there is none. */
int sy_stack_accept(struct sy_stack *s, sy_stack_id listener, uint64_t cookie,
                    struct sy_stack_endpoint *peer, sy_stack_id *out);
/* Begins a connection; local->addr is the source. An event says how it ends. -EADDRINUSE: the
 * tuple is in use; -EADDRNOTAVAIL: all ephemeral ports are, or the given one is another stack's. */
int sy_stack_connect(struct sy_stack *s, const struct sy_stack_endpoint *local,
                     const struct sy_stack_endpoint *peer, uint64_t cookie, uint64_t now_ns,
                     sy_stack_id *out);

/* A connection is going to be used: asks for its memory and does not wait for it. For whoever has
 * many connections, and knows several of the next ones. */
void sy_stack_prefetch(const struct sy_stack *s, sy_stack_id id);

/* More follows at once: these bytes wait for it where they do not fill a segment, until the peer
 * acknowledges something, or 200 ms; or a retransmission time-out, where that is longer. What was
 * sent before does not. */
#define SY_STACK_MORE 1
#define SY_STACK_OOB  2 /* the last byte is urgent (RFC 6093: better not) */

/* Copies bytes to be sent. Returns how many, or -EAGAIN, -EPIPE (the sending side is closed),
 * -ENOTCONN, or the connection's error. */
int64_t sy_stack_send(struct sy_stack *s, sy_stack_id id, const void *bytes, size_t len, int flags,
                      uint64_t now_ns);
/* Copies bytes that have arrived. Returns how many, 0 at their end, or as above. A reset or
 * time-out discards none of them: its error comes behind them, once; then the end. */
int64_t sy_stack_receive_bytes(struct sy_stack *s, sy_stack_id id, void *bytes, size_t len,
                               uint64_t now_ns);
/* The same without copying: points to the first bytes that have arrived, which stay valid until
 * they are consumed. Returns their number, 0 at the end, or a negative errno. */
int64_t sy_stack_peek(struct sy_stack *s, sy_stack_id id, const void **bytes);
void sy_stack_consume(struct sy_stack *s, sy_stack_id id, size_t len, uint64_t now_ns);
/* Is the next byte the urgent one (RFC 6093; sockatmark())? Urgent data always lies among the
 * others, as with SO_OOBINLINE; what is read in one call ends before it. 1, 0 or -EBADF. */
int sy_stack_at_mark(struct sy_stack *s, sy_stack_id id);

/* How many bytes have arrived and are not read. A caller that has received some, and finds no more,
 * returns these: another call could take the connection's error, which belongs to the next one. */
uint32_t sy_stack_unread(struct sy_stack *s, sy_stack_id id);
/* Points up to `count` vectors to the first bytes that have arrived; else as sy_stack_peek(). */
int64_t sy_stack_look(struct sy_stack *s, sy_stack_id id, struct iovec *v, int count);
/* The same, and refers to each packet: what was pointed to stays as it is until the caller frees
 * held[i] by rte_pktmbuf_free_seg(), on the stack's thread, whatever becomes of the connection. */
int64_t sy_stack_hold(struct sy_stack *s, sy_stack_id id, struct iovec *v, struct rte_mbuf **held,
                      int count);
/* Points up to `count` vectors to room for at most len bytes in the send buffer. Returns for how
 * many, or as sy_stack_send(). sy_stack_room_done() sends the first len of them; until then, no
 * other call that sends, with any connection, nor one that gives the stack packets or the time. */
int64_t sy_stack_room(struct sy_stack *s, sy_stack_id id, struct iovec *v, int count, size_t len,
                      uint64_t now_ns);
int sy_stack_room_done(struct sy_stack *s, sy_stack_id id, size_t len, int flags, uint64_t now_ns);

/* Ends the sending side; the peer gets what is still to be sent. */
int sy_stack_shutdown(struct sy_stack *s, sy_stack_id id, uint64_t now_ns);
/* The application is done: what it has sent will still be delivered, unless bytes are left that it
 * has not read, which the peer learns by a reset (RFC 2525 2.17). The id ends. Also of listeners:
 * connections that nobody has accepted are reset. */
int sy_stack_close(struct sy_stack *s, sy_stack_id id, uint64_t now_ns);
/* Ends the connection by a reset. The id ends. */
int sy_stack_abort(struct sy_stack *s, sy_stack_id id, uint64_t now_ns);
/* The error of a connection, a positive errno; 0: none. Reading it clears it, as SO_ERROR. */
int sy_stack_error(struct sy_stack *s, sy_stack_id id);
void sy_stack_set_cookie(struct sy_stack *s, sy_stack_id id, uint64_t cookie);

/* ---- connections that another TCP goes on with (export.c) ------------------------------------ */

/* What that needs, in host order. All that was sent is acknowledged. */
struct sy_stack_export {
	struct sy_stack_endpoint local, peer;
	uint32_t snd_nxt, rcv_nxt; /* RFC 9293 3.3.1 */
	uint32_t snd_wnd, snd_wnd_max, rcv_wnd;
	uint32_t time;     /* TSval of a segment that is sent now */
	uint32_t unread;   /* bytes before rcv_nxt that have arrived and are not read */
	uint16_t peer_mss; /* as the peer has offered it */
	uint8_t snd_scale, rcv_scale;
	bool sack, timestamps, scale;
};

/* The listener accepts no more SYNs, and sy_stack_accept() returns what completes the handshake
 * until sy_stack_close(). Until then the stack drops segments to this address and port that belong
 * to no connection: it sends no reset, as they may be for another TCP of this host. */
int sy_stack_retire(struct sy_stack *s, sy_stack_id listener);
/* Has a listener of this address and port been retired, and not been closed yet? */
bool sy_stack_has_retired(const struct sy_stack *s, const struct sy_addr *addr, uint16_t port);
/* Copies what has arrived to `bytes`, and changes nothing. Fails with -ENOTCONN if an end has sent
 * its last byte, with -EBUSY if this one has sent data that are not acknowledged, with -EMSGSIZE if
 * more than `max` bytes have arrived. Data that came out of order are left to the peer, which sends
 * them again. */
int sy_stack_export(struct sy_stack *s, sy_stack_id id, struct sy_stack_export *out, void *bytes,
                    size_t max, uint64_t now_ns);
/* Another TCP has it: it ends here, and no segment is sent. The id ends. */
int sy_stack_forget(struct sy_stack *s, sy_stack_id id);

/* ---- options and facts ----------------------------------------------------------------------- */

enum sy_stack_option {
	SY_STACK_NO_DELAY,    /* 1: no Nagle (RFC 896) */
	SY_STACK_CORK,        /* 1: only full segments, until it is 0 again */
	SY_STACK_QUICK_ACK,   /* 1: acknowledges at once */
	SY_STACK_KEEPALIVE_S, /* idle seconds before the first probe; 0: none */
	SY_STACK_KEEPALIVE_INTERVAL_S,
	SY_STACK_KEEPALIVE_PROBES,
	SY_STACK_USER_TIMEOUT_MS, /* unacknowledged for so long: -ETIMEDOUT (RFC 9293 3.9.1); 0:
	                             15 minutes */
	SY_STACK_LINGER_ABORT,    /* 1: close resets */
	SY_STACK_SEND_BYTES,      /* the send buffer's limit instead of its own growth */
	SY_STACK_RECEIVE_BYTES,   /* the receive window's limit, likewise */
	SY_STACK_TOS,             /* DSCP in the upper 6 bits */
	SY_STACK_MSS,             /* the largest segment, at most; before connect: also offered */
	SY_STACK_PACING,          /* 1: segments leave evenly over a round trip, not in bursts */
	SY_STACK_PACING_RATE,     /* bytes a second at most, evenly; headers count. Turns pacing on.
	                             No less than a segment a second; UINT32_MAX, 0: no bound */
	SY_STACK_PRIORITY, /* as SO_PRIORITY: what it sends leaves first (6, 7) or last (1, 2, 3,
	                      5); others: by its level */
};

/* Of a listener: for the connections that it will have. -EINVAL: no such value. */
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

/* What TCP_INFO tells. Bytes and microseconds. */
struct sy_stack_info {
	enum sy_stack_state state;
	struct sy_stack_endpoint local, peer;
	uint32_t rtt_us, rtt_var_us, rto_ms;
	uint32_t rtt_least_us; /* of the last 5 to 10 s in which there were samples */
	uint32_t window, threshold, in_flight; /* of congestion; under way: what is lost is not */
	uint32_t unacked;                      /* sent, also what is lost; SYN and FIN count */
	uint32_t mss, peer_window, receive_window;
	uint32_t path_mtu;       /* with its headers of IP and TCP */
	uint32_t unsent, unread; /* bytes; unsent: not acknowledged */
	uint32_t urgent; /* of the unread ones, up to the last urgent one; 0: none is urgent */
	uint64_t sent, received; /* payload that is acknowledged, or was in order */
	uint32_t retransmitted;  /* segments */
	uint8_t retries;         /* time-outs in a row */
	bool sack, timestamps, scale, ecn;
	bool receive_closed; /* the peer sees a receive window of 0 */
	bool only_v6;        /* of a listener at all addresses: not of IPv4 */
};
int sy_stack_info(struct sy_stack *s, sy_stack_id id, struct sy_stack_info *out);
/* Listeners, then connections in all states, also those that nobody has accepted. Of a listener,
 * `unread` counts connections that wait for accept, `unsent` is its backlog. *at begins at 0, and
 * is 0 again when all have been seen; what comes and goes between two calls may be missing. Looks
 * at SY_STACK_WALK places at most. Returns how many it has filled, `most` at most. */
#define SY_STACK_WALK 1024
unsigned sy_stack_walk(struct sy_stack *s, uint32_t *at, struct sy_stack_info *out, unsigned most);

/* The client that a balancer has named. -ENOENT: none, or options.toa is off. */
int sy_stack_client(struct sy_stack *s, sy_stack_id id, struct sy_stack_endpoint *out);

/* ---- priorities (priority.c, docs/design/0045-priorities.md) ------------------------------------
 */

/*
 * Levels are those of hooks: 0 first, SY_USUAL, 7 last. A stack that nobody has asked for its hooks
 * has none of this, and all connections are of SY_USUAL.
 */

/* The stack's table of hooks, which is loaded, changed and listed by sy_hooks_*() on the stack's
 * thread, at any time. NULL: no memory. */
struct sy_hooks *sy_stack_hooks(struct sy_stack *s);

/* Who is asked for each packet that arrives; SY_HOOK_NONE: nobody. From then on, packets wait until
 * sy_stack_take(). Returns 0, -ENOMEM. */
int sy_stack_packet_hook(struct sy_stack *s, unsigned hook);
/* Processes up to `most` packets that wait, of higher levels first, or fewer: where something more
 * urgent is unread. Each connection's are taken in the order in which they came. Returns how many
 * still wait. Call it after sy_stack_receive(), once the driver has given all that it has. */
unsigned sy_stack_take(struct sy_stack *s, unsigned most, uint64_t now_ns);
/* How many packets wait; whether they do: a packet hook is asked. */
unsigned sy_stack_waiting(const struct sy_stack *s);
bool sy_stack_levels_used(const struct sy_stack *s);

/* Who is asked for segments with payload, in the order of their bytes. id: a connection; a
 * listener, for those that it will have; SY_STACK_NONE, for all that have no other. SY_HOOK_NONE:
 * as the stack's; SY_STACK_HOOK_OFF: nobody. A hook may replace itself (`become`). Returns 0,
 * -EBADF, -EINVAL, -ENOMEM. */
#define SY_STACK_HOOK_OFF 255
int sy_stack_segment_hook(struct sy_stack *s, sy_stack_id id, unsigned hook);

/* 64 bytes of a connection, a cache line, which its segment hook sees as `own`: zeros at first,
 * valid until the id ends. NULL: no such connection, or no memory. */
void *sy_stack_own(struct sy_stack *s, sy_stack_id id);

/* The level of what is unread, the most urgent of it; if nothing is, of what was read last. A
 * listener's is 0, once there are hooks: nobody knows what waits behind it. */
unsigned sy_stack_level(struct sy_stack *s, sy_stack_id id);
/* Levels that shall get at least so many percent of all events while they have some, whatever is
 * more urgent; all together at most 100, else -EINVAL. 0: when nothing else is. */
int sy_stack_shares(struct sy_stack *s, const uint8_t percent[SY_PRIORITIES]);

struct sy_stack_levels {
	uint32_t waiting[SY_PRIORITIES]; /* packets, now */
	uint64_t taken[SY_PRIORITIES];   /* packets that waited, and were processed */
	uint64_t dropped[SY_PRIORITIES]; /* packets that found no place */
	uint64_t events[SY_PRIORITIES];  /* that were fetched */
	uint32_t unread[SY_PRIORITIES];  /* connections with unread bytes, now */
	uint64_t risen;                  /* packets that waited, and got the level of one behind */
	uint32_t own;                    /* private areas in use */
	uint32_t most;                   /* buffers of packets that may wait */
};
void sy_stack_levels(const struct sy_stack *s, struct sy_stack_levels *out);

/* Takes a fragment before sy_stack_receive() does, for a caller that looks for the connection's
 * owner. Returns the whole packet if this was the last one missing, else NULL. */
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

/* Use of memory, for limits and reports. */
struct sy_stack_usage {
	uint32_t connections, half_open, time_wait, listeners;
	uint64_t send_bytes, receive_bytes; /* of buffers, not of data in them */
	uint32_t ranges;                    /* of sent and of out-of-order data */
	size_t fixed;                       /* bytes of tables, made at the start */
	uint32_t orphans;                   /* closed connections whose peer has not taken all */
	uint64_t orphans_taken;             /* bytes that peers of such have taken so far */
};
const struct sy_stack_counters *sy_stack_counters(const struct sy_stack *s);
void sy_stack_usage(const struct sy_stack *s, struct sy_stack_usage *out);

#endif
