// SPDX-License-Identifier: Apache-2.0
/*
 * Hellos with a peer (docs/design/0068-session-sync.md): they detect whether the peer is alive and
 * has restarted, and measure the round-trip time. An incarnation is one start of a node.
 *
 *     this node                          the peer
 *        │ ── hello, echo 0 ──────────────▶ │ stores this incarnation; it may be a replay
 *        │ ◀───────────── hello, echo ours │
 *        │   accepts the peer               │
 *        │ ── hello, echo theirs ─────────▶ │ accepts this node
 *
 * These functions neither read clocks nor send. Writer: worker 0. All workers read the fields that
 * are marked so.
 */
#ifndef SYNC_PEER_H
#define SYNC_PEER_H

#include <sy_base.h>

#define SYNC_NODES    32 /* numbers 1 to 31 */
#define SYNC_NAME     32
#define SYNC_HELLO_NS UINT64_C(200000000) /* between hellos */
/* A peer is down if for longer nothing arrives from it, or nothing of this node arrives there. */
#define SYNC_ALIVE_NS UINT64_C(1000000000)

#define SYNC_FRESH_NS UINT64_C(5000000000) /* an older echo may be a replay */
#define SYNC_FORMER   8                    /* number of former incarnations that are remembered */

/* Bounds of the time-out of an acknowledgement. */
#define SYNC_TIMEOUT_MIN_NS UINT64_C(5000000)
#define SYNC_TIMEOUT_MAX_NS UINT64_C(200000000)

/* The contents of a hello. Little endian. Later versions append fields. */
struct __attribute__((packed)) sync_hello {
	uint64_t echo;     /* incarnation in the receiver's last hello; 0: none received */
	uint64_t slot_key; /* hash of the slot key: equal if both nodes have the same key */
	uint64_t sent_ns;  /* the sender's clock */
	uint64_t echo_ns;  /* `sent_ns` of the receiver's last hello; 0: none received */
	uint64_t delay_ns; /* since that hello was received */
	uint64_t sessions; /* that the sender serves */
	uint64_t kept;     /* replicas of the receiver's sessions, in slots whose sums are equal */
	uint64_t refused;  /* the receiver's sessions that the sender cannot store */
	uint8_t version_min, version_max; /* of the protocol */
	uint8_t role;                     /* enum sync_role */
	uint8_t lacking; /* slots of the receiver that are incomplete at the sender; 255: or more */
	char name[SYNC_NAME]; /* of the node; ends with 0 */
};

enum sync_role {
	SYNC_ROLE_UNKNOWN,
	SYNC_ROLE_BACKUP,
	SYNC_ROLE_MASTER,
	SYNC_ROLE_LEAVING, /* only in a hello: its sender stops now, and the rest does not count */
};

/* Why a peer with the right secret is not accepted. */
enum sync_refusal {
	SYNC_ACCEPTED,
	SYNC_NO_HELLO,  /* no hello with this node's incarnation as echo has arrived */
	SYNC_OTHER_KEY, /* its slot key differs */
	SYNC_OTHER_VERSION,
};

struct sync_peer {
	uint8_t node;
	uint64_t incarnation; /* the accepted one; 0: none. Readers: all workers, acquire */
	uint64_t candidate;   /* of the last hello, which may be a replay */
	uint64_t former[SYNC_FORMER];
	uint32_t epoch;  /* number of accepted incarnations; each starts new logs */
	uint8_t refusal; /* enum sync_refusal */
	uint8_t role;
	bool echoed;     /* the last hello went to the accepted incarnation */
	uint8_t lacking; /* of its last hello */
	/* Time of the accepted incarnation's last hello that showed that it receives this node's.
	 */
	uint64_t received_ns;
	uint64_t hello_at_ns; /* when the next hello is due */
	/* Of the last hello of the accepted incarnation, and of another one, which may be a replay:
	 * its sent_ns, and the time of its arrival. */
	struct sync_hello_time {
		uint64_t sent_ns, at_ns;
	} accepted_time, other_time;
	uint64_t srtt_ns, rttvar_ns; /* 0: not measured */
	uint64_t timeout_ns;         /* of an acknowledgement */
	uint64_t sessions;
	uint64_t kept, refused; /* of its last hello */
	char name[SYNC_NAME];
};

/* What this node's hellos contain. */
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

/* Processes an authenticated hello of the incarnation `from`. Returns true if that became the
 * accepted incarnation, then the caller starts new logs in both directions; or if it leaves. */
bool sync_hello_receive(struct sync_peer *peer, const struct sync_self *self, uint64_t from,
                        const struct sync_hello *hello, uint64_t now_ns);

static inline bool sync_peer_is_alive(const struct sync_peer *peer, uint64_t now_ns)
{
	/* Worker 0's time may be a little ahead of another worker's. */
	return peer->incarnation && (int64_t)(now_ns - peer->received_ns) < (int64_t)SYNC_ALIVE_NS;
}

#endif
