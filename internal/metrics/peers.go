// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"strconv"

	"steelyard/internal/dpclient"
)

var (
	role = desc("role", "1 for the role of this node among its peers, 0 for the other one.", "role")

	roleWaits    = desc("role_waits", "1 while the role that was set waits for sessions, at this node or at the peer.")
	peerUp       = desc("peer_up", "1 while the peer is alive.", "peer")
	peerOffered  = desc("peer_sessions_offered", "Sessions of this node that the peer is to keep.", "peer")
	peerPresent  = desc("peer_sessions_present", "Of these, sessions that the peer has, verified by equal digests.", "peer")
	peerRefused  = desc("peer_sessions_refused", "Of these, sessions that the peer cannot keep; its steelyard_sync_refused_total has the reason.", "peer")
	peerKept     = desc("peer_sessions_kept", "Sessions of the peer that this node keeps.", "peer")
	peerLag      = desc("peer_lag_seconds", "How long the oldest change has waited for the peer's acknowledgement.", "peer")
	peerRTT      = desc("peer_rtt_seconds", "Round-trip time to the peer, smoothed; absent until it is measured.", "peer")
	peerRelayed  = desc("peer_relayed_packets_total", "Packets that nodes of an ECMP group passed on, by direction: out to the peer, in from it.", "peer", "direction")
	syncResent   = desc("sync_retransmitted_total", "Changes of sessions that were sent to peers again.")
	syncDropped  = desc("sync_dropped_total", "Received datagrams of session synchronisation that were dropped, by reason.", "reason")
	syncUnsent   = desc("sync_unsent_total", "Datagrams of session synchronisation that the kernel of this host did not accept.")
	syncRejected = desc("sync_refused_total", "Sessions of peers that this node could not keep, by reason.", "reason")
)

// collectPeers has nothing for a forwarder without peers, or of a version without them.
func collectPeers(ctx context.Context, s scrape, client *dpclient.Client) error {
	list, err := client.Peers(ctx)
	if refusal := (*dpclient.Error)(nil); errors.As(err, &refusal) && refusal.Unknown() {
		return nil
	}
	if err != nil || list.GetNode() == 0 {
		return err
	}
	if !list.GetEcmp() {
		collectRole(s, list)
	}
	s.flag(roleWaits, dpclient.RoleWaits(list) != "")
	var resent uint64
	for _, peer := range list.GetPeers() {
		resent += collectPeer(s, list, peer)
	}
	s.counter(syncResent, resent)
	s.counter(syncUnsent, list.GetUnsent())
	for _, drop := range list.GetDrops() {
		s.counter(syncDropped, drop.GetPackets(), drop.GetName())
	}
	for _, refusal := range list.GetRefusals() {
		s.counter(syncRejected, refusal.GetPackets(), refusal.GetName())
	}
	return nil
}

func collectRole(s scrape, list *dpclient.PeerList) {
	for _, one := range []dpclient.Role{dpclient.RoleMaster, dpclient.RoleBackup} {
		s.flag(role, list.GetRole() == one, dpclient.RoleWord(one))
	}
}

// collectPeer returns the number of changes that were sent to the peer again.
func collectPeer(s scrape, list *dpclient.PeerList, peer *dpclient.Peer) uint64 {
	node := strconv.Itoa(int(peer.GetNode()))
	s.flag(peerUp, peer.GetState() == dpclient.PeerAlive, node)
	s.gauge(peerOffered, float64(peer.GetOffered()), node)
	s.gauge(peerPresent, float64(peer.GetPresent()), node)
	s.gauge(peerRefused, float64(peer.GetRefused()), node)
	s.gauge(peerKept, float64(peer.GetKept()), node)
	s.gauge(peerLag, float64(peer.GetLagMs())/1e3, node)
	if peer.GetRttUs() > 0 {
		s.gauge(peerRTT, float64(peer.GetRttUs())/1e6, node)
	}
	if list.GetEcmp() {
		s.counter(peerRelayed, peer.GetRelayedOut(), node, "out")
		s.counter(peerRelayed, peer.GetRelayedIn(), node, "in")
	}
	return peer.GetRetransmitted()
}
