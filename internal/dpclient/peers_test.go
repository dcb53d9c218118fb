// SPDX-License-Identifier: Apache-2.0

package dpclient_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/forwarderpb"
)

func TestPeersAndRole(t *testing.T) {
	f := dptest.New(t)
	c := dial(t, f)
	if list, err := c.Peers(t.Context()); err != nil || list.GetNode() != 0 {
		t.Errorf("without peers: %v, %v", list, err)
	}
	var refusal *dpclient.Error
	if _, err := c.SetRole(t.Context(), dpclient.RoleMaster, false); !errors.As(err, &refusal) || refusal.Unknown() {
		t.Errorf("a role without peers: %v", err)
	}
	f.Change(func() { f.Peers = &pb.PeerList{Node: 1, Role: dpclient.RoleBackup, Peers: []*pb.Peer{{Node: 2}}} })
	if result, err := c.SetRole(t.Context(), dpclient.RoleMaster, false); err != nil || result.GetBefore() != dpclient.RoleBackup || result.GetRole() != dpclient.RoleMaster {
		t.Errorf("%s, %v", result, err)
	}
	f.Change(func() { f.RoleWaits = true })
	if result, err := c.SetRole(t.Context(), dpclient.RoleBackup, false); err != nil || result.GetRole() != dpclient.RoleMaster {
		t.Errorf("a change that waits: %s, %v", result, err)
	}
	if result, err := c.SetRole(t.Context(), dpclient.RoleBackup, true); err != nil || result.GetRole() != dpclient.RoleBackup {
		t.Errorf("at once: %s, %v", result, err)
	}
	list, err := c.Peers(t.Context())
	if err != nil || list.GetRole() != dpclient.RoleBackup || len(list.GetPeers()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	f.Change(func() { f.BeforePeers = true })
	if _, err := c.Peers(t.Context()); !errors.As(err, &refusal) || !refusal.Unknown() {
		t.Errorf("an earlier version: %v", err)
	}
}

// Each state has its words; a peer that is alive and has all sessions has no problem.
func TestPeerProblems(t *testing.T) {
	const alive, silent, master, backup = dpclient.PeerAlive, pb.PeerState_PEER_STATE_SILENT, dpclient.RoleMaster, dpclient.RoleBackup
	for want, list := range map[string]*pb.PeerList{
		"[]":                               {Node: 1, Role: master, Peers: []*pb.Peer{{Node: 2, State: alive, Role: backup, Offered: 9, Present: 8, LagMs: 900, Waiting: 3}}},
		"[2 it is silent for 1.5s]":        {Node: 1, Role: backup, Peers: []*pb.Peer{{Node: 2, State: silent, Role: backup, SilentMs: 1500}}},
		"[2 it is silent for 1h0m2s]":      {Node: 1, Role: master, Peers: []*pb.Peer{{Node: 2, State: silent, Role: master, SilentMs: 3_602_345}}},
		"[2 nothing has come from it yet]": {Node: 1, Role: master, Peers: []*pb.Peer{{Node: 2, State: pb.PeerState_PEER_STATE_UNKNOWN}}},
		"[2 its slot key differs, so its sessions are in other slots]": {Node: 1, Role: master,
			Peers: []*pb.Peer{{Node: 2, State: pb.PeerState_PEER_STATE_OTHER_KEY}}},
		"[2 its build has no version of the protocol in common with this one]": {Node: 1, Role: master,
			Peers: []*pb.Peer{{Node: 2, State: pb.PeerState_PEER_STATE_OTHER_VERSION}}},
		"[2 it cannot keep 1 session 2 3 of 256 slots are being copied to it 2 a change waits for its acknowledgement for 1.2s]": {Node: 1, Role: master,
			Peers: []*pb.Peer{{Node: 2, State: alive, Role: backup, Refused: 1, Copying: 3, Slots: 256, LagMs: 1200}}},
		"[3 it is a master, as this node is]": {Node: 1, Role: master,
			Peers: []*pb.Peer{{Node: 2, State: alive, Role: backup}, {Node: 3, State: alive, Role: master}}},
		"[1 sessions of it may be missing here: 3 of 256 slots are not verified yet]": {Node: 2, Role: backup, Wanted: backup,
			Peers: []*pb.Peer{{Node: 1, State: alive, Role: master, UnverifiedHere: 3}}},
		"[0 this node waits: it becomes master when it has the sessions of node 1: 3 of 256 slots are not verified yet]": {Node: 2, Role: backup, Wanted: master,
			Peers: []*pb.Peer{{Node: 1, State: alive, Role: master, UnverifiedHere: 3}}},
		"[0 this node waits: it becomes backup when node 2 has its sessions: 255 of 256 slots are not verified yet]": {Node: 1, Role: master, Wanted: backup,
			Peers: []*pb.Peer{{Node: 2, State: alive, Role: backup, UnverifiedThere: 255}}},
		"[1 it is silent for 1.1s 0 this node waits: it becomes master within a second, unless a peer appears]": {Node: 2, Role: backup, Wanted: master,
			Peers: []*pb.Peer{{Node: 1, State: silent, SilentMs: 1100, UnverifiedHere: 256}}},
		"[0 no node serves: all are backups]": {Node: 1, Role: backup, Peers: []*pb.Peer{{Node: 2, State: alive, Role: backup}}},
	} {
		var got []string
		for _, problem := range dpclient.PeerProblems(list) {
			got = append(got, fmt.Sprint(problem.Node, " ", problem.Text))
			if problem.Remedy == "" {
				t.Errorf("%s: no remedy", problem.Text)
			}
		}
		if fmt.Sprint(slices.Clip(got)) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

// A node should rather not serve unless it is known to have all sessions. It fails only if no node serves and this one should.
func TestIncomplete(t *testing.T) {
	const alive, silent, master, backup = dpclient.PeerAlive, pb.PeerState_PEER_STATE_SILENT, dpclient.RoleMaster, dpclient.RoleBackup
	peer := &pb.Peer{Node: 1, Name: "lb1", State: alive, Role: backup, UnverifiedHere: 7}
	list := &pb.PeerList{Node: 2, Role: backup, Wanted: master, Peers: []*pb.Peer{peer}}
	expect := func(when, incomplete string, fails bool) {
		t.Helper()
		if got := dpclient.Incomplete(list); got != incomplete {
			t.Errorf("%s: %q", when, got)
		}
		if got := slices.ContainsFunc(dpclient.PeerProblems(list), func(p dpclient.PeerProblem) bool { return p.Fails }); got != fails {
			t.Errorf("%s: fails: %t", when, got)
		}
	}
	const missing = "sessions of node 1 (lb1) may be missing here: 7 of 256 slots are not verified yet"
	expect("no node serves", missing, true)
	peer.Role = master
	expect("the peer serves", missing, false)
	peer.State = silent
	expect("it is silent", "node 1 (lb1) is not alive, so sessions that it serves may be missing here", false)
	peer.State, peer.UnverifiedHere = alive, 0
	expect("complete", "", false)
	list.Role, peer.State = master, silent
	expect("a master", "", false)
}

// Callers that wait for a forwarder tell its absence from a refusal.
func TestAbsence(t *testing.T) {
	f := dptest.New(t)
	c := dial(t, f)
	f.Stop()
	if _, err := c.Peers(t.Context()); !errors.Is(err, dpclient.ErrAbsent) {
		t.Errorf("a connection that ended: %v", err)
	}
	if _, err := dpclient.Dial(t.Context(), f.Socket); !errors.Is(err, dpclient.ErrAbsent) {
		t.Errorf("a socket without a listener: %v", err)
	}
}
