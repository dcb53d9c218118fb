// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"
	"fmt"
	"slices"
	"time"

	pb "steelyard/internal/gen/forwarderpb"
)

// Messages about the peers of a forwarder.
type (
	PeerList  = pb.PeerList
	Peer      = pb.Peer
	PeerState = pb.PeerState
	Role      = pb.Role
	// RoleResult is the role before and after a request for another one.
	RoleResult = pb.RoleResult
)

// Roles of nodes that keep each other's sessions.
const (
	RoleMaster = pb.Role_ROLE_MASTER
	RoleBackup = pb.Role_ROLE_BACKUP
	// RoleUnknown is the role in messages of earlier versions.
	RoleUnknown = pb.Role_ROLE_UNSPECIFIED
)

// PeerAlive is the state of a peer with which sessions are synchronised.
const PeerAlive = pb.PeerState_PEER_STATE_ALIVE

// PeerOptions names the options of steelyard-forwarder(8) that configure peers.
const PeerOptions = "--node, --sync, --peer, --sync-secret and --slot-key"

// RoleWord returns the role as commands write it.
func RoleWord(role Role) string {
	switch role {
	case RoleMaster:
		return "master"
	case RoleBackup:
		return "backup"
	}
	return "unknown"
}

// PeerStateWord returns the state as commands write it.
func PeerStateWord(state PeerState) string {
	switch state {
	case PeerAlive:
		return "alive"
	case pb.PeerState_PEER_STATE_SILENT:
		return "silent"
	case pb.PeerState_PEER_STATE_OTHER_KEY:
		return "other-key"
	case pb.PeerState_PEER_STATE_OTHER_VERSION:
		return "other-version"
	}
	return "unknown"
}

// PeerName returns a peer's number and, if it is known, its host name.
func PeerName(peer *Peer) string {
	if peer.GetName() == "" {
		return fmt.Sprint(peer.GetNode())
	}
	return fmt.Sprintf("%d (%s)", peer.GetNode(), peer.GetName())
}

// Peers requests this node's role and its peers. Node 0: none are configured.
func (c *Client) Peers(ctx context.Context) (*PeerList, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListPeers{ListPeers: &pb.ListPeersRequest{}}})
	return response.GetListPeers(), err
}

// SetRole makes this node the master or a backup. Unless now, the change waits while sessions would be lost.
func (c *Client) SetRole(ctx context.Context, role Role, now bool) (*RoleResult, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_SetRole{SetRole: &pb.SetRoleRequest{Role: role, Now: now}}})
	return response.GetSetRole(), err
}

// slots is the number of slots of a forwarder.
const slots = 256

func unverified(n uint32) string { return fmt.Sprintf("%d of %d slots are not verified yet", n, slots) }

// RoleWaits returns until when the role that was set does not apply; empty: it applies.
func RoleWaits(list *PeerList) string {
	if list.GetWanted() == list.GetRole() || list.GetWanted() == RoleUnknown { // an earlier version never waits
		return ""
	}
	for _, peer := range list.GetPeers() {
		switch here, there := peer.GetUnverifiedHere(), peer.GetUnverifiedThere(); {
		case peer.GetState() != PeerAlive:
		case list.GetWanted() == RoleMaster && here > 0:
			return fmt.Sprintf("it becomes master when it has the sessions of node %s: %s", PeerName(peer), unverified(here))
		case list.GetWanted() == RoleBackup && there > 0:
			return fmt.Sprintf("it becomes backup when node %s has its sessions: %s", PeerName(peer), unverified(there))
		}
	}
	return fmt.Sprintf("it becomes %s within a second, unless a peer appears", RoleWord(list.GetWanted()))
}

// Incomplete returns why another node should rather serve: this one is no master, and is not known to have all sessions. Empty: it has.
func Incomplete(list *PeerList) string {
	if list.GetRole() == RoleMaster {
		return ""
	}
	for _, peer := range list.GetPeers() {
		switch {
		case peer.GetState() != PeerAlive:
			return fmt.Sprintf("node %s is not alive, so sessions that it serves may be missing here", PeerName(peer))
		case peer.GetUnverifiedHere() > 0:
			return fmt.Sprintf("sessions of node %s may be missing here: %s", PeerName(peer), unverified(peer.GetUnverifiedHere()))
		}
	}
	return ""
}

// PeerProblem is why sessions would be lost with this node, and the remedy.
type PeerProblem struct {
	Node         uint32 // of the peer; 0: of all
	Text, Remedy string
	Fails        bool // this node should serve, and does not
}

// maxLag is the longest time without an acknowledgement that is no problem.
const maxLag = time.Second

// PeerProblems returns why the peers would not continue all of this node's sessions.
func PeerProblems(list *PeerList) []PeerProblem {
	var problems []PeerProblem
	for _, peer := range list.GetPeers() {
		problems = append(problems, problemsOf(peer)...)
	}
	if list.GetEcmp() {
		return problems
	}
	return append(problems, roleProblems(list)...)
}

func problemsOf(peer *Peer) []PeerProblem {
	var problems []PeerProblem
	note := func(remedy, format string, arguments ...any) {
		problems = append(problems, PeerProblem{Node: peer.GetNode(), Text: fmt.Sprintf(format, arguments...), Remedy: remedy})
	}
	switch peer.GetState() {
	case PeerAlive:
	case pb.PeerState_PEER_STATE_SILENT:
		note("is its forwarder stopped, its host down, or the link to "+peer.GetAddress()+" cut?",
			"it is silent for %s", milliseconds(peer.GetSilentMs()))
		return problems
	case pb.PeerState_PEER_STATE_OTHER_KEY:
		note("give both nodes the same --slot-key", "its slot key differs, so its sessions are in other slots")
		return problems
	case pb.PeerState_PEER_STATE_OTHER_VERSION:
		note("upgrade the older one", "its build has no version of the protocol in common with this one")
		return problems
	default:
		note("does its forwarder run, with this node as a --peer and the same --sync-secret, and does no firewall drop UDP from and to "+
			peer.GetAddress()+"?", "nothing has come from it yet")
		return problems
	}
	if n := peer.GetRefused(); n > 0 {
		note("`steelyard describe peer` at that node says why", "it cannot keep %s", sessionsText(n))
	}
	if n := peer.GetCopying(); n > 0 {
		note("wait until they are copied", "%d of %d slots are being copied to it", n, peer.GetSlots())
	}
	if lag := milliseconds(peer.GetLagMs()); lag > maxLag {
		note("is the link to "+peer.GetAddress()+" overloaded or lossy?", "a change waits for its acknowledgement for %s", lag)
	}
	return problems
}

// roleProblems compares the roles of the living nodes.
func roleProblems(list *PeerList) []PeerProblem {
	const now = "wait until they are copied; `steelyard role %s --now` loses those that are missing"
	master := func(peer *Peer) bool { return peer.GetState() == PeerAlive && peer.GetRole() == RoleMaster }
	backup := func(peer *Peer) bool { return peer.GetState() == PeerAlive && peer.GetRole() == RoleBackup }
	at := slices.IndexFunc(list.GetPeers(), master)
	allBackups := list.GetRole() == RoleBackup && at < 0 && slices.ContainsFunc(list.GetPeers(), backup)
	waits := RoleWaits(list)
	switch {
	case waits != "":
		return []PeerProblem{{Text: "this node waits: " + waits, Remedy: fmt.Sprintf(now, RoleWord(list.GetWanted())), Fails: allBackups}}
	case list.GetRole() == RoleMaster && at >= 0:
		return []PeerProblem{{Node: list.GetPeers()[at].GetNode(), Text: "it is a master, as this node is",
			Remedy: "do VRRP advertisements pass between them? `steelyard role backup` on one of them ends it"}}
	case allBackups:
		return []PeerProblem{{Text: "no node serves: all are backups", Remedy: "`steelyard role master` on one of them, or start keepalived"}}
	case at >= 0 && list.GetPeers()[at].GetUnverifiedHere() > 0:
		peer := list.GetPeers()[at]
		return []PeerProblem{{Node: peer.GetNode(), Text: "sessions of it may be missing here: " + unverified(peer.GetUnverifiedHere()),
			Remedy: fmt.Sprintf(now, "master")}}
	}
	return nil
}

func milliseconds(n uint64) time.Duration {
	d := time.Duration(n) * time.Millisecond
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d
}

func sessionsText(n uint64) string {
	if n == 1 {
		return "1 session"
	}
	return fmt.Sprintf("%d sessions", n)
}
