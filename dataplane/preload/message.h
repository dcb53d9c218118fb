// SPDX-License-Identifier: Apache-2.0
/* Messages between the preloaded library and the supervisor: one request, one answer. */
#ifndef PRELOAD_MESSAGE_H
#define PRELOAD_MESSAGE_H

#include <net/if.h>
#include <stdint.h>

#include <sy_base.h>

#define MESSAGE_ENV          "STEELYARD_RUN" /* <supervisor's abstract socket>:<secret, 32 hex digits> */
#define MESSAGE_VERSION      10
#define MESSAGE_SECRET       16
#define MESSAGE_ADDRESSES    16
#define MESSAGE_QUEUES       16 /* of a worker */
#define MESSAGE_PORTS        32
#define MESSAGE_RING_MIN     256
#define MESSAGE_RING_MAX     32768
#define MESSAGE_TX_RING      2048 /* and of its completions */
#define MESSAGE_WORKERS      32
#define MESSAGE_HEARTBEAT_MS 250
#define MESSAGE_UNREAD       65536 /* unread bytes of an exported connection, at most */
/* Descriptors of START: the link, the packets' memory, the queues' sockets; with several workers
 * this worker's inbox and each worker's outbox; the hooks' socket and page (sy_hook_agent.h); if
 * requested, the socket for large segments. */
#define MESSAGE_FDS (2 + MESSAGE_QUEUES + 1 + MESSAGE_WORKERS + 2 + 1)

enum message_type {
	MESSAGE_CONFIG = 1, /* returns the configuration: served addresses and ports */
	MESSAGE_START,      /* allocates queues to a worker: the answer carries their descriptors */
	MESSAGE_BOUND,      /* the rings are filled: steer packets to them */
	MESSAGE_LISTEN,     /* the process listens at this port: carries its socket, as proof */
	MESSAGE_UNLISTEN,
	MESSAGE_YIELD,     /* the program does not accept pending connections */
	MESSAGE_HEARTBEAT, /* the stack runs, every MESSAGE_HEARTBEAT_MS. No answer */
	MESSAGE_MOVE,      /* the sender continues the stack of the connected process */
	MESSAGE_EXPORT, /* Linux's TCP continues a connection that no thread has accepted. Its local
	                   address and port are the request's; struct message_connection and its
	                   bytes follow */
	MESSAGE_REDEEM, /* exchanges the ticket that it carries for its connection */
	MESSAGE_FORGET, /* the process has no more connections at a port that it has closed */
};

/* Which connections children of fork() continue as relays (docs/design/0062-relays.md). */
enum message_fork {
	MESSAGE_FORK_AUTO,  /* those that the parent does not serve in an event loop */
	MESSAGE_FORK_RELAY, /* all */
	MESSAGE_FORK_KEEP,  /* none */
};

struct message_request {
	/* Authorizes the request. The socket's name does not: all users read it in
	 * /proc/net/unix. */
	uint8_t secret[MESSAGE_SECRET];
	uint32_t version, type;
	struct sy_addr addr; /* LISTEN: all zero: all served addresses; ::ffff:0.0.0.0: all served
	                        IPv4 addresses */
	uint16_t port;       /* network order */
	uint16_t v6_only;
	uint32_t serves; /* LISTEN: 1: the process also waits for connections. YIELD: 1: it passes
	                    accepted connections to other processes, and has logged a warning */
};

/* In host order, except ports and addresses. docs/design/0067-reload-without-a-gap.md. */
struct message_connection {
	struct sy_addr peer;
	uint16_t peer_port;
	uint16_t v6; /* 1: an IPv6 socket, also for a peer of IPv4 */
	uint32_t snd_nxt, rcv_nxt, snd_wnd, snd_wnd_max, rcv_wnd;
	uint32_t time;   /* TSval of a segment sent now */
	uint32_t unread; /* bytes that follow, which end at rcv_nxt */
	uint16_t mss;    /* the peer's */
	uint8_t snd_scale, rcv_scale;
	uint8_t sack, timestamps, scale, zero; /* 1: both sides have agreed to use it */
};

struct message_answer {
	int32_t rc; /* negative errno */
	char ifname[IFNAMSIZ];
	int32_t ifindex;
	uint8_t mac[6];
	uint16_t mtu;
	uint32_t addresses;
	struct sy_addr addr[MESSAGE_ADDRESSES];
	uint32_t ports; /* 0: all */
	uint16_t port[MESSAGE_PORTS];
	uint16_t port_first, port_last; /* local ports of opened connections */
	uint32_t memory_mb, connections;
	uint32_t ring;       /* size of a receive ring, a power of 2 */
	uint32_t pacing;     /* 1: all connections pace */
	uint32_t log;        /* enum sy_log_level */
	uint32_t large;      /* 1: the kernel segments large segments */
	uint32_t unfinished; /* 1: packets may arrive with a partial checksum */
	uint32_t toa;        /* a balancer reports the client's address in a TCP option */
	uint32_t fork;       /* enum message_fork */
	uint32_t worker, workers, queues;
	uint32_t bound; /* 1: the sockets are bound to their queues */
	uint32_t queue[MESSAGE_QUEUES];
	uint32_t chunk_bytes;  /* of a packet's buffer */
	uint64_t memory_bytes; /* of packet memory, registered with every socket */
};

/* Returns whether the stack serves the address. */
static inline bool message_has_address(const struct message_answer *c, const struct sy_addr *addr)
{
	for (uint32_t i = 0; i < c->addresses; i++)
		if (sy_addr_equal(&c->addr[i], addr))
			return true;
	return false;
}

#endif
