// SPDX-License-Identifier: Apache-2.0
/* The role, and reports about peers. Workers write what these read; a report may be a moment late.
 */
#include "control.h"
#include "model_message.h"
#include "peers.h"
#include "sync_relay.h"

typedef Steelyard__Forwarder__V1__Peer pb_peer;
typedef Steelyard__Forwarder__V1__PeerList pb_peer_list;

static Steelyard__Forwarder__V1__Role role_of(uint8_t role)
{
	switch (role) {
	case SYNC_ROLE_MASTER:
		return STEELYARD__FORWARDER__V1__ROLE__ROLE_MASTER;
	case SYNC_ROLE_BACKUP:
		return STEELYARD__FORWARDER__V1__ROLE__ROLE_BACKUP;
	default:
		return STEELYARD__FORWARDER__V1__ROLE__ROLE_UNSPECIFIED;
	}
}

int control_set_role(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                     struct sy_error *err)
{
	Steelyard__Forwarder__V1__RoleResult *result;
	MESSAGE_NEW(a, result, steelyard__forwarder__v1__role_result__init);
	if (!b->peers)
		return sy_fail(err, EINVAL,
		               "this forwarder has no peers, so it has no role: it always serves; "
		               "start it with --node, --sync and --peer");
	if (b->peers->options.is_ecmp)
		return sy_fail(err, EINVAL,
		               "--sync-mode ecmp: all nodes serve, so there is no role to set; "
		               "to take a node out, withdraw its routes");
	result->before = role_of(SY_READ(b->peers->role));
	switch (q->set_role->role) {
	case STEELYARD__FORWARDER__V1__ROLE__ROLE_MASTER:
		peers_set_role(b, SYNC_ROLE_MASTER, q->set_role->now);
		break;
	case STEELYARD__FORWARDER__V1__ROLE__ROLE_BACKUP:
		peers_set_role(b, SYNC_ROLE_BACKUP, q->set_role->now);
		break;
	default:
		return sy_fail(err, EINVAL, "unknown role %d; known: master, backup",
		               (int)q->set_role->role);
	}
	result->role = role_of(SY_READ(b->peers->role));
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_SET_ROLE;
	out->set_role = result;
	return 0;
}

/* ---- reports --------------------------------------------------------------------------------- */

static int reply_socket(struct arena *a, const struct sy_addr *addr, uint16_t port, char **out,
                        struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	const char *form = sy_addr_is_v4(addr) ? "%s:%u" : "[%s]:%u";
	MESSAGE_NEW_LIST(a, *out, SY_ADDR_TEXT + 9);
	snprintf(*out, SY_ADDR_TEXT + 9, form, sy_addr_format(addr, text), port);
	return 0;
}

static Steelyard__Forwarder__V1__PeerState state_of(const struct sync_peer *peer, uint64_t now_ns)
{
	switch (SY_READ(peer->refusal)) {
	case SYNC_OTHER_KEY:
		return STEELYARD__FORWARDER__V1__PEER_STATE__PEER_STATE_OTHER_KEY;
	case SYNC_OTHER_VERSION:
		return STEELYARD__FORWARDER__V1__PEER_STATE__PEER_STATE_OTHER_VERSION;
	default:
		if (!SY_READ(peer->incarnation))
			return STEELYARD__FORWARDER__V1__PEER_STATE__PEER_STATE_UNKNOWN;
		return sync_peer_is_alive(peer, now_ns)
		               ? STEELYARD__FORWARDER__V1__PEER_STATE__PEER_STATE_ALIVE
		               : STEELYARD__FORWARDER__V1__PEER_STATE__PEER_STATE_SILENT;
	}
}

/* This node's sessions in the slots that the peer keeps. */
static void report_logs(const struct sync_node *n, uint8_t node, uint64_t now_ns, pb_peer *pb)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct sync_log *log = sync_node_log(n, slot);
		if (sync_node_target(n, slot) != node)
			continue;
		uint64_t sent_ns = SY_READ(log->sent_ns);
		uint64_t lag_ms =
		        SY_READ(log->window.first) == SY_READ(log->window.next) || now_ns < sent_ns
		                ? 0
		                : (now_ns - sent_ns) / 1000000;
		pb->slots++;
		pb->offered += SY_READ(log->sum.count);
		pb->waiting += sync_log_waiting(log);
		pb->lag_ms = lag_ms > pb->lag_ms ? lag_ms : pb->lag_ms;
		pb->copying += SY_READ(log->copy) != SYNC_COPY_NONE;
		pb->copied += SY_READ(log->copied);
		pb->retransmitted += SY_READ(log->retransmitted);
	}
}

static void report_replicas(const struct sync_node *n, uint8_t node, pb_peer *pb)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct sync_replica *r = sync_node_replica(n, node, slot);
		pb->kept += SY_READ(r->stored.count);
		pb->verified += SY_READ(r->verified);
		pb->faults += SY_READ(r->mismatches);
	}
}

static int report_refusals(const struct peers *p, struct arena *a, pb_peer_list *l,
                           struct sy_error *err)
{
	int rc = 0;
	MESSAGE_NEW_LIST(a, l->refusals, PEERS_REFUSAL_COUNT);
	for (unsigned reason = 0; reason < PEERS_REFUSAL_COUNT && rc == 0; reason++) {
		uint64_t sum = 0;
		for (unsigned w = 0; w < p->b->workers; w++)
			sum += SY_READ(p->worker[w].refused[reason]);
		rc = reply_drop(a, peers_refusal_name(reason), peers_refusal_help(reason), sum,
		                &l->refusals[l->n_refusals++], err);
	}
	return rc;
}

static int report_peer(const struct peers *p, uint8_t node, struct arena *a, pb_peer **out,
                       struct sy_error *err)
{
	const struct sync_peer *peer = sync_node_peer(p->node, node);
	/* its times are the workers' */
	const uint64_t now_ns = sy_worker_at(p->b->rt, 0)->now_ns;
	const uint64_t received_ns = SY_READ(peer->received_ns);
	pb_peer *pb;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__peer__init);
	MESSAGE_NEW_LIST(a, pb->name, SYNC_NAME);
	snprintf(pb->name, SYNC_NAME, "%s", peer->name);
	pb->node = node;
	pb->state = state_of(peer, now_ns);
	pb->role = role_of(SY_READ(peer->role));
	pb->silent_ms = received_ns && now_ns > received_ns ? (now_ns - received_ns) / 1000000 : 0;
	pb->rtt_us = SY_READ(peer->srtt_ns) / 1000;
	pb->present = SY_READ(peer->kept);
	pb->refused = SY_READ(peer->refused);
	pb->unverified_there = SY_READ(peer->lacking);
	pb->unverified_here = sync_node_lacking(p->node, node);
	report_logs(p->node, node, now_ns, pb);
	report_replicas(p->node, node, pb);
	const struct sync_relayed relayed = sync_node_relayed(p->node, node);
	pb->relayed_out = relayed.out;
	pb->relayed_in = relayed.in;
	*out = pb;
	return reply_socket(a, &p->options.peer[node].addr, p->options.peer[node].port,
	                    &pb->address, err);
}

static int report_self(const struct peers *p, struct arena *a, pb_peer_list *l,
                       struct sy_error *err)
{
	int rc = reply_socket(a, &p->options.address, p->options.port, &l->address, err);
	l->node = p->options.node;
	l->role = role_of(SY_READ(p->role));
	l->wanted = role_of(p->wanted);
	l->ecmp = p->options.is_ecmp;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		l->offered += SY_READ(sync_node_log(p->node, slot)->sum.count);
	for (unsigned w = 0; w < p->b->workers; w++)
		l->unsent += SY_READ(p->worker[w].unsent);
	MESSAGE_NEW_LIST(a, l->drops, SYNC_DROP_COUNT);
	for (unsigned reason = 0; reason < SYNC_DROP_COUNT && rc == 0; reason++)
		rc = reply_drop(a, sync_drop_name(reason), sync_drop_help(reason),
		                sync_node_drops(p->node, reason), &l->drops[l->n_drops++], err);
	return rc == 0 ? report_refusals(p, a, l, err) : rc;
}

int list_peers(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
               struct sy_error *err)
{
	const struct peers *p = b->peers;
	pb_peer_list *l;
	(void)q;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__peer_list__init);
	MESSAGE_NEW_LIST(a, l->peers, SYNC_NODES);
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_PEERS;
	out->list_peers = l;
	l->group = b->ctl->group;
	if (!p)
		return 0;
	for (uint8_t node = 1; node < SYNC_NODES; node++)
		if (p->options.peer[node].port &&
		    report_peer(p, node, a, &l->peers[l->n_peers++], err) < 0)
			return -ENOMEM;
	return report_self(p, a, l, err);
}
