// SPDX-License-Identifier: Apache-2.0
/* Servers and services as the packet path reads them. Part of balance.h. */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <sy_tx_cache.h>

#include "session.h"

#define MAX_LOCALS 255 /* ids 0–254: a session stores 8 bits */
#define LOCAL_NONE                                                                                 \
	MAX_LOCALS /* id for sessions whose packets reach the server from the client's address */

/* How packets reach a server. The numbers are part of the API and of the session file. */
enum mode {
	MODE_FNAT = 1, /* from a local address */
	MODE_DR = 2,   /* unchanged, to its MAC address; answers bypass the forwarder */
	MODE_NAT = 3,  /* from the client's address; the forwarder is the server's gateway */
	MODE_IPIP = 4, /* in a tunnel from a local address; answers bypass the forwarder */
	MODE_SNAT = 5, /* no server: inside hosts talk to remotes from a pool address */
};

/* How packets are rewritten: addresses and ports in place (FNAT, NAT), not at all (DR), or in a
 * tunnel, each by family of the VIP; translated; or SNAT. */
enum transmit_mode {
	TRANSMIT_V4,
	TRANSMIT_V6,
	TRANSMIT_DIRECT_V4,
	TRANSMIT_DIRECT_V6,
	TRANSMIT_TUNNEL_V4,
	TRANSMIT_TUNNEL_V6,
	TRANSMIT_TRANSLATE,
	TRANSMIT_SNAT
};

static inline bool transmit_mode_is_in_place(unsigned transmit_mode)
{
	return transmit_mode <= TRANSMIT_V6;
}

static inline bool transmit_mode_is_direct(unsigned transmit_mode)
{
	return transmit_mode == TRANSMIT_DIRECT_V4 || transmit_mode == TRANSMIT_DIRECT_V6;
}

static inline bool transmit_mode_is_tunnel(unsigned transmit_mode)
{
	return transmit_mode == TRANSMIT_TUNNEL_V4 || transmit_mode == TRANSMIT_TUNNEL_V6;
}

/* For transmit modes with a family. */
static inline bool transmit_mode_is_v4(unsigned transmit_mode)
{
	return transmit_mode % 2 == TRANSMIT_V4;
}

/* Do packets go to servers from a local address? */
static inline bool mode_is_local(uint8_t mode)
{
	return mode == MODE_FNAT || mode == MODE_IPIP;
}

/*
 * A server as the packet path reads it: one cache line. It is complete before any session or
 * service has its id. Afterwards only `path` and the fields marked like it change. It includes the
 * VIP, so that rewriting a packet needs only the session's record and this line.
 */
struct endpoint {
	struct sy_addr addr; /* the server's */
	struct sy_addr vip;  /* its service's */
	uint16_t port;       /* network order; 0: each session has its own */
	uint16_t vport;      /* of its service; 0: each session has its own */
	uint32_t service;    /* id, or SERVICE_NONE */
	uint32_t created;    /* seconds of balance_now() when the id was allocated */
	uint32_t limit;      /* max sessions; UINT32_MAX: no limit. As path */
	uint16_t path;       /* to the server. Writer: control thread; readers: relaxed */
	uint16_t first_port, last_port; /* of its service, as in struct service_key */
	uint8_t proto;
	uint8_t backup;     /* accepts new sessions only if no other server does. As path */
	int8_t overhead[2]; /* bytes added to packets, by enum session_direction (sender) */
	uint8_t removed;    /* no longer configured. Writer: control thread; readers: relaxed */
	uint8_t eligible;   /* accepts new sessions: up, weight above 0. Likewise */
	union {
		struct {
			uint8_t mode : 4;          /* enum mode */
			uint8_t transmit_mode : 4; /* enum transmit_mode, by mode and families */
			uint8_t limited; /* directions with limits, as limit_chain.sides. As path */
			union {
				struct {
					uint8_t down; /* failed health checks. Likewise */
					uint8_t dead; /* end its sessions: removed, in state KILL,
					                 or down with resets. Likewise */
				};
				uint16_t unwell; /* dead or down */
			};
		};
		uint32_t flags; /* all of the above, for one comparison per packet */
	};
};
_Static_assert(sizeof(struct endpoint) == SY_CACHE_LINE, "one line a server");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as the bits of flags");

/* Bits of endpoint.flags. */
#define ENDPOINT_TRANSMIT_MODE(transmit_mode) ((uint32_t)(transmit_mode) << 4)
#define ENDPOINT_LIMITED(bits)                ((uint32_t)(bits) << 8)
#define ENDPOINT_UNWELL                       0xffff0000u

/* The service id of a server that is no longer configured. */
#define SERVICE_NONE UINT32_MAX

/* How a service distributes new sessions. */
struct policy {
	uint8_t scheduler; /* Steelyard__Forwarder__V1__Scheduler */
	uint8_t hash_on;   /* Steelyard__Forwarder__V1__HashOn */
	bool one_packet;
	bool sloppy_tcp;     /* midstream packets may create a session */
	uint16_t slow_start; /* seconds; 0: none */
	struct {
		uint16_t timeout; /* seconds; 0: none */
		uint8_t prefix4, prefix6;
	} persistence;
	uint32_t max_sessions; /* 0: no limit */
	/* New sessions of each client; 0: no limit. */
	uint32_t client_per_second, client_burst;
	uint32_t client_sessions; /* max sessions of a client; 0: no limit */
	uint8_t client_address;   /* Steelyard__Forwarder__V1__ClientAddress */
	bool keep_client_options; /* do not blank clients' TOA options */
	uint8_t resets;           /* enum policy_resets */
	uint8_t syn_defence;      /* enum policy_defence */
	uint16_t access;          /* id of its access list + 1; 0: none */
	uint8_t mark;             /* DSCP of packets to servers + 1; 0: unchanged */
	uint8_t when_unavailable; /* enum sy_unavailable */
	uint8_t sync;             /* enum policy_sync */
	uint16_t sync_older_than; /* min age of sessions that peers keep, seconds; 0: any */
};

/* From when on peers get replicas of the service's sessions (docs/design/0068-session-sync.md). */
enum policy_sync {
	SYNC_ESTABLISHED, /* TCP's handshake, or the client's second datagram */
	SYNC_OFF,         /* never */
	SYNC_ALL,         /* their creation */
	SYNC_STRICT,      /* likewise, and TCP servers get the SYN afterwards: path/strict.h */
};

/* When SYNs are answered by cookies or challenges (docs/design/0025-syn-defence.md). */
enum policy_defence { DEFENCE_OFF, DEFENCE_ALWAYS, DEFENCE_AUTO };

/* When sessions reset both ends. */
enum policy_resets { RESETS_EXPIRED = 1, RESETS_DOWN = 2, RESETS_UNKNOWN = 4 };

/* A service as the slow path reads it: immutable, swapped under RCU. */
struct service {
	uint32_t id;
	uint16_t timeout[SESSION_STATES]; /* seconds */
	struct policy policy;
	struct pool *pool, *backups;     /* backups may be NULL */
	struct table_cache *table_cache; /* of the pools' tables */
	/* Its key as a client's tuple: dport is vport, sport is last_port, src is empty. */
	struct sy_tuple anyone;
	bool one_way; /* the servers' answers bypass the forwarder */
};

/* Number of buckets that distribute clients over the local addresses. */
#define LOCAL_BUCKETS 2048

/* Local addresses of one family, for choosing a port: immutable, swapped under RCU. */
struct local_set {
	unsigned count;
	uint8_t home[LOCAL_BUCKETS]; /* by local_bucket(): index of the clients' address */
	struct sy_addr addr[MAX_LOCALS];
	uint8_t id[MAX_LOCALS];
};

/* The client's bucket, by a keyed hash: clients cannot choose their bucket. */
static inline unsigned local_bucket(const struct sy_addr *client)
{
	return sy_slot_hash(client) % LOCAL_BUCKETS;
}

/* Packets, bytes and sessions of one server at one worker. bytes: of IP packets before
 * rewriting. */
struct traffic {
	uint64_t packets_in, bytes_in, packets_out, bytes_out;
	uint64_t created, ended;
};

static inline void traffic_count(struct traffic *t, enum session_direction from, uint16_t len)
{
	if (from == SESSION_CLIENT) {
		SY_COUNT(t->packets_in, 1);
		SY_COUNT(t->bytes_in, len);
	} else {
		SY_COUNT(t->packets_out, 1);
		SY_COUNT(t->bytes_out, len);
	}
}

/* A worker's state of a server. Writer: that worker. Readers of traffic: control thread,
 * relaxed. */
struct server_share {
	struct traffic traffic;
	struct sy_tx_cache_link link; /* its neighbour, if the server is on link */
};
_Static_assert(sizeof(struct server_share) == SY_CACHE_LINE, "one line a server");

#endif
