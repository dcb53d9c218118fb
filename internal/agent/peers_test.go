// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	pb "steelyard/internal/gen/agentpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
)

// twoNodes is a backup whose peer is a master.
func twoNodes() *forwarderpb.PeerList {
	return &forwarderpb.PeerList{Node: 2, Role: forwarderpb.Role_ROLE_BACKUP, Address: "10.9.0.2:8849", Peers: []*forwarderpb.Peer{{
		Node: 1, Name: "lb1", Address: "10.9.0.1:8849", State: forwarderpb.PeerState_PEER_STATE_ALIVE, Role: forwarderpb.Role_ROLE_MASTER,
		RttUs: 250, Slots: 256, Offered: 100, Present: 97, Refused: 2, LagMs: 30, Kept: 1200, Verified: 256, Retransmitted: 6}},
		Refusals: []*forwarderpb.Drop{{Name: "unknown-server", Packets: 4}, {Name: "table-full"}},
		Drops:    []*forwarderpb.Drop{{Name: "sync-forged", Packets: 5}, {Name: "sync-replayed"}}, Unsent: 1}
}

func TestMetricsOfPeers(t *testing.T) {
	l, address := metricsLab(t, "none")
	for _, earlier := range []bool{false, true} {
		l.forwarder.Change(func() { l.forwarder.BeforePeers = earlier })
		text := scrape(t, address)
		if strings.Contains(text, "steelyard_role") || strings.Contains(text, "steelyard_peer") || strings.Contains(text, "steelyard_sync") ||
			!strings.Contains(text, `steelyard_scrape_complete{part="peers"} 1`) {
			t.Errorf("a forwarder without peers (earlier version: %t):\n%s", earlier, text)
		}
	}
	l.forwarder.Change(func() { l.forwarder.BeforePeers, l.forwarder.Peers = false, twoNodes() })
	text := scrape(t, address)
	for _, want := range []string{`steelyard_role{role="master"} 0`, `steelyard_role{role="backup"} 1`, `steelyard_role_waits 0`, `steelyard_peer_up{peer="1"} 1`, `steelyard_peer_sessions_offered{peer="1"} 100`,
		`steelyard_peer_sessions_present{peer="1"} 97`, `steelyard_peer_sessions_refused{peer="1"} 2`, `steelyard_peer_sessions_kept{peer="1"} 1200`,
		`steelyard_peer_lag_seconds{peer="1"} 0.03`, `steelyard_peer_rtt_seconds{peer="1"} 0.00025`, `steelyard_sync_retransmitted_total 6`, `steelyard_sync_unsent_total 1`,
		`steelyard_sync_dropped_total{reason="sync-forged"} 5`, `steelyard_sync_dropped_total{reason="sync-replayed"} 0`,
		`steelyard_sync_refused_total{reason="unknown-server"} 4`, `steelyard_sync_refused_total{reason="table-full"} 0`} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	l.forwarder.Change(func() {
		l.forwarder.Peers.Peers[0].State, l.forwarder.Peers.Peers[0].RttUs = forwarderpb.PeerState_PEER_STATE_SILENT, 0
	})
	if text := scrape(t, address); !strings.Contains(text, "\nsteelyard_peer_up{peer=\"1\"} 0\n") || strings.Contains(text, "steelyard_peer_rtt_seconds{") {
		t.Errorf("a silent peer:\n%s", text)
	}
}

// A backup is as healthy as a master. A peer that would not continue all sessions degrades the host, and does not make it fail.
func TestHealthOfPeers(t *testing.T) {
	l := newLab(t, unchecked)
	l.start()
	expect := func(when, want string, reasons ...string) {
		t.Helper()
		response, err := l.client.GetHealth(t.Context(), connect.NewRequest(&pb.GetHealthRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		h := response.Msg
		if levelWord(h.GetLevel()) != want || len(h.GetReasons()) != len(reasons) {
			t.Fatalf("%s: %v", when, h)
		}
		for i, reason := range reasons {
			if !strings.HasPrefix(h.GetReasons()[i].GetText(), reason) {
				t.Errorf("%s: %q, want %q", when, h.GetReasons()[i].GetText(), reason)
			}
		}
	}
	l.forwarder.AwaitCommits(1)
	expect("without peers", "ok")
	l.forwarder.Change(func() { l.forwarder.BeforePeers = true })
	expect("an earlier version", "ok")
	l.forwarder.Change(func() { l.forwarder.BeforePeers, l.forwarder.Peers = false, twoNodes() })
	expect("a backup whose peer cannot keep two sessions", "degraded", "peer 1 (lb1): it cannot keep 2 sessions: ")
	peer := l.forwarder.Peers.Peers[0]
	l.forwarder.Change(func() { peer.Refused = 0 })
	expect("a backup", "ok")
	if f := l.status().GetForwarder(); f.GetPeers().GetRole() != forwarderpb.Role_ROLE_BACKUP || len(f.GetPeers().GetPeers()) != 1 {
		t.Errorf("get status: %v", f.GetPeers())
	}
	l.forwarder.Change(func() { peer.State, peer.SilentMs = forwarderpb.PeerState_PEER_STATE_SILENT, 1500 })
	expect("its peer is silent", "degraded", "peer 1 (lb1): it is silent for 1.5s: ")
	l.forwarder.Change(func() {
		peer.State, peer.Role = forwarderpb.PeerState_PEER_STATE_ALIVE, forwarderpb.Role_ROLE_BACKUP
	})
	expect("both are backups", "degraded", "peers: no node serves: all are backups: ")
	l.forwarder.Change(func() { l.forwarder.Peers.Wanted, peer.UnverifiedHere = forwarderpb.Role_ROLE_MASTER, 3 })
	expect("it should serve, and waits", "failing", "peers: this node waits: it becomes master when it has the sessions of node 1 (lb1): 3 of 256 ")
	l.forwarder.Change(func() { peer.Role = forwarderpb.Role_ROLE_MASTER })
	expect("its peer serves meanwhile", "degraded", "peers: this node waits: it becomes master when it has the sessions of node 1 (lb1): 3 of 256 ")
}
