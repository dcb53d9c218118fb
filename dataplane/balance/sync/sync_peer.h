// SPDX-License-Identifier: Apache-2.0
/*
 * A peer, as this node's hellos find it (docs/design/0068-session-sync.md): which incarnation of it
 * lives, and how far it is.
 *
 *     this node                          the peer
 *        │ ── hello, echo 0 ──────────────▶ │ knows this incarnation; it may be a recording
 *        │ ◀───────────── hello, echo ours │
 *        │   accepts the peer               │
 *        │ ── hello, echo theirs ─────────▶ │ accepts this node
 *
 * Neither reads clocks nor sends. Writer: worker 0. Readers: all workers, of what says so.
 */
#ifndef SYNC_PEER_H
#define SYNC_PEER_H

#include <sy_base.h>

#define SYNC_NODES    32 /* numbers 1 to 31 */
#define SYNC_NAME     32
#define SYNC_HELLO_NS UINT64_C(200000000)  /* between hellos */
#define SYNC_ALIVE_NS UINT64_C(1000000000) /* a peer that is silent for longer is away */

#define SYNC_FRESH_NS UINT64_C(5000000000) /* an older echo proves nothing */
#define SYNC_FORMER   8                    /* incarnations that were replaced */

/* Least and greatest time-outs of an acknowledgement. */
#define SYNC_TIMEOUT_MIN_NS UINT64_C(5000000)
#define SYNC_TIMEOUT_MAX_NS UINT64_C(200000000)

/* The contents of a hello. Little endian. Later versions append fields. */
struct __attribute__((packed)) sync_hello {
	uint64_t echo;     /* the receiver's incarnation as the sender knows it; 0: it does not */
	uint64_t slot_key; /* a keyed hash that equal slot keys have in common */
	uint64_t sent_ns;  /* the sender's clock */
	uint64_t echo_ns;  /* the receiver's `sent_ns`, as last seen; 0: none */
	uint64_t delay_ns; /* how long ago that was */
	uint64_t sessions; /* that the sender serves */
	uint64_t kept; /* the receiver's sessions that the sender keeps, in slots with equal sums */
	uint64_t refused;                 /* and those that it cannot keep */
	uint8_t version_min, version_max; /* of the protocol */
	uint8_t role;                     /* enum sync_role */
	uint8_t spare;
	char name[SYNC_NAME]; /* of the node; ends with 0 */
};

enum sync_role { SYNC_ROLE_UNKNOWN, SYNC_ROLE_BACKUP, SYNC_ROLE_MASTER };

/* Why a peer with the right secret is not accepted. */
enum sync_refusal {
	SYNC_ACCEPTED,
	SYNC_NO_HELLO,  /* none has come, or it does not know this incarnation yet */
	SYNC_OTHER_KEY, /* its slot key differs */
	SYNC_OTHER_VERSION,
};

struct sync_peer {
	uint8_t node;
	uint64_t incarnation; /* the accepted one; 0: none. Readers: all workers, acquire */
	uint64_t candidate;   /* of the last hello, which may be a recording */
	uint64_t former[SYNC_FORMER];
	uint32_t epoch;  /* counts accepted incarnations; their logs begin anew */
	uint8_t refusal; /* enum sync_refusal */
	uint8_t role;
	bool echoed;          /* the last hello went to the accepted incarnation */
	uint64_t received_ns; /* the last hello of the accepted incarnation */
	uint64_t hello_at_ns; /* when the next hello is due */
	uint64_t peer_sent_ns, peer_sent_at_ns; /* its clock in its last hello; when that came */
	uint64_t srtt_ns, rttvar_ns;            /* 0: not measured */
	uint64_t timeout_ns;                    /* of an acknowledgement */
	uint64_t sessions;
	uint64_t kept, refused; /* of this node's sessions: as in its last hello */
	char name[SYNC_NAME];
};

/* This node, as its hellos describe it. */
struct sync_self {
	uint64_t incarnation;
	uint64_t slot_key;
	uint64_t sessions;
	uint8_t node, role;
	char name[SYNC_NAME];
};

void sync_peer_begin(struct sync_peer *peer, uint8_t node);

/* Returns whether a hello is due, and fills it. */
bool sync_hello_make(struct sync_peer *peer, const struct sync_self *self, uint64_t now_ns,
                     struct sync_hello *out);

/* Handles a hello of the incarnation `from`, whose seal was right. Returns true if that became the
 * accepted incarnation: the logs in both directions begin anew. */
bool sync_hello_receive(struct sync_peer *peer, const struct sync_self *self, uint64_t from,
                        const struct sync_hello *hello, uint64_t now_ns);

static inline bool sync_peer_is_alive(const struct sync_peer *peer, uint64_t now_ns)
{
	/* Worker 0's time may be a little ahead of another worker's. */
	return peer->incarnation && (int64_t)(now_ns - peer->received_ns) < (int64_t)SYNC_ALIVE_NS;
}

#endif
