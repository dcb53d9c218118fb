// SPDX-License-Identifier: Apache-2.0
/*
 * The peer of a harness: a node that keeps what it gets, as entries, and can put it again to
 * another harness, as the node that it came from. Datagrams pass in memory; both have one clock.
 */
#ifndef PEERS_FIXTURE_H
#define PEERS_FIXTURE_H

#include "flows.h"
#include "peers.h"
#include "sync_relay.h"
#include "sync_session.h"

#define MIRROR_SLOT  256 /* sessions of a slot */
#define MIRROR_NAMES 5000

struct mirror {
	struct sync_node *node;
	struct flows *f;
	uint8_t number;    /* this node's; the harness has the other one of 1 and 2 */
	bool offers;       /* mirror_offer(): it puts what it has, and keeps nothing */
	unsigned declined; /* while it offers: puts of the harness */
	bool paused;       /* all datagrams are lost */
	bool lossy;        /* a fourth of the datagrams is lost, in both directions */
	bool wrong_sums;   /* nothing that it puts is ever verified */
	bool only_hellos;  /* all other datagrams are lost, in both directions */
	uint8_t role;      /* mirror_open(): enum sync_role */
	struct mirror_session {
		bool used;
		uint8_t mark;
		uint64_t hash;
		struct sync_session session;
	} * session; /* [SY_SLOTS * MIRROR_SLOT] */
	struct mirror_name {
		bool used;
		uint8_t mark;
		uint8_t entry[SYNC_ENTRY];
	} * name;                    /* [MIRROR_NAMES] by record of the dictionary */
	uint8_t *marks, *name_marks; /* contiguous copies, as logs want them */
	unsigned relays;             /* packets that the harness has relayed to it; the last one: */
	struct sync_relay relay;
	size_t packet_len;
	uint8_t packet[FRAME_MAX];
};

/* The harness has a third peer, which is never heard. */
#define MIRROR_THIRD 3
extern bool mirror_has_third;
/* The options of a harness that is this node, with the other one as its peer. */
struct sy_peers_options mirror_options(uint8_t node);
/* Begins the peer of f's harness, with what m has kept so far. */
void mirror_open(struct mirror *m, struct flows *f, uint8_t number);
void mirror_close(struct mirror *m);
void mirror_free(struct mirror *m);
/* Runs both for this time, in steps of a millisecond; of 50 if it is longer than two seconds. */
void mirror_run(struct mirror *m, unsigned ms);
/* Runs the mirror for a millisecond, in which the harness's workers do nothing. */
void mirror_run_alone(struct mirror *m);
/* Sessions that the mirror has. */
unsigned mirror_count(const struct mirror *m);
/* Have both what the other one offers, or refused it? */
bool mirror_is_complete(const struct mirror *m);
/* It gives all of its sessions to the harness. */
void mirror_give_all(struct mirror *m);
/* Cuts the link between both, or heals it. */
void mirror_pause(struct mirror *m, bool paused);
/* It relays the IP packet of a frame to the harness. */
void mirror_relay(struct mirror *m, const struct sync_relay *relay, const struct frame *frame);
/* One of its sessions ends. */
void mirror_end_one(struct mirror *m);
/* Has the harness acknowledged all changes of the mirror's sessions? */
bool mirror_is_acknowledged(const struct mirror *m);
/* All of its sessions end. */
void mirror_end_all(struct mirror *m);
/* Offers all of its sessions to the harness. */
void mirror_offer(struct mirror *m);

#endif
