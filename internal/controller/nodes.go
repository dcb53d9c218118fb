// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
)

// A node of a group, between the store and an agent.

// nodeStatus is what a forwarder's agent has reported of it as a node.
type nodeStatus struct {
	Group    string     `json:"group,omitempty"`
	Revision int64      `json:"revision"` // that the agent has
	InForce  bool       `json:"in_force"` // the forwarder applies it
	Member   bool       `json:"member"`   // the forwarder is a node of the group, of this revision or another one
	Older    bool       `json:"older,omitempty"`
	Error    string     `json:"error,omitempty"`
	Role     string     `json:"role,omitempty"`
	Peers    []nodePeer `json:"peers,omitempty"`
}

type nodePeer struct {
	Node  uint32 `json:"node"`
	State string `json:"state"`
	Role  string `json:"role,omitempty"`
	Kept  uint64 `json:"kept,omitempty"`
}

// Words of agents about peers and roles.
const (
	peerAlive  = "alive"
	peerSilent = "silent"
	roleMaster = "master"
	roleBackup = "backup"
)

func (n nodeStatus) peer(node uint32) nodePeer {
	for _, peer := range n.Peers {
		if peer.Node == node {
			return peer
		}
	}
	return nodePeer{Node: node}
}

// takeover says which nodes serve the sessions of a node that is gone.
type takeover struct {
	By     string `json:"by"`
	Detail string `json:"detail"`
}

// nodeSession is the state of a session's node.
type nodeSession struct {
	wake    chan struct{}
	sent    int64 // the revision that the agent has
	listens bool
}

// wakeNodes wakes all sessions after a change of a group. The caller holds mu.
func (s *Server) wakeNodes() {
	for _, one := range s.sessions {
		one.node.poke()
	}
}

func (n *nodeSession) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// nodeFor returns a session's part of its group, from the mirror, unless that is older than the session.
func (s *Server) nodeFor(one *session) (*pb.SetNodeRequest, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror.Revision < one.fence {
		return nil, false, nil
	}
	of := s.mirror.Get(keyGroupOf + one.forwarder)
	if of.Revision == 0 {
		return nil, true, nil
	}
	request := &pb.SetNodeRequest{Revision: of.Revision}
	var record groupOf
	if err := decodeRecord(of, &record); err != nil || record.Group == "" {
		return request, true, err
	}
	group, keys := s.mirror.Get(keyGroups+record.Group), s.mirror.Get(keyGroupKeys+record.Group)
	request.Revision = max(of.Revision, group.Revision, keys.Revision)
	var err error
	request.Node, err = nodeMessage(one.forwarder, group, keys)
	return request, true, err
}

// nodeMessage returns a forwarder's part of a group.
func nodeMessage(forwarder string, groupEntry, keysEntry cluster.Entry) (*pb.Node, error) {
	var group config.Group
	var keys groupKeys
	if err := errors.Join(decodeRecord(groupEntry, &group), decodeRecord(keysEntry, &keys)); err != nil {
		return nil, err
	}
	own := group.Of(forwarder)
	if own == nil {
		return nil, fmt.Errorf("%s lacks the node %s", groupEntry.Key, forwarder)
	}
	node := &pb.Node{Group: group.Name, Ecmp: group.ECMP, Node: own.Node, Address: own.Sync.String(), SlotKey: keys.SlotKey}
	for _, other := range group.Nodes {
		if other.Node != own.Node {
			node.Peers = append(node.Peers, &pb.NodeAddress{Node: other.Node, Address: other.Sync.String()})
		}
	}
	for _, secret := range keys.Secrets {
		node.Secrets = append(node.Secrets, &pb.NodeSecret{Id: secret.ID, Secret: []byte(secret.Secret)})
	}
	return node, nil
}

// serveNode sends a session's agent its part of a group whenever that changes.
func (s *Server) serveNode(ctx context.Context, one *session) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-one.node.wake:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		wait, err := s.pushNode(ctx, one)
		if s.over(ctx, one, err) {
			return
		}
		again.Reset(wait)
	}
}

// pushNode sends a node once, and returns when to call again.
func (s *Server) pushNode(ctx context.Context, one *session) (time.Duration, error) {
	const soon, later, idle = time.Second, 10 * time.Second, time.Hour
	request, known, err := s.nodeFor(one)
	if err != nil {
		return later, err
	}
	if !known || request == nil || request.GetRevision() == one.node.sent {
		return idle, nil
	}
	sending, cancel := stall.WithDeadline(ctx, pushTimeout)
	defer cancel()
	response, err := one.member.SetNode(sending, connect.NewRequest(request))
	status := nodeStatus{Group: request.GetNode().GetGroup()}
	switch {
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		status.Error = "the agent is of an older version, without groups: upgrade it"
	case err != nil:
		return soon, err
	case response.Msg.GetOlder():
		status.Older = true
		status.Error = "the agent has a newer group than the store, as after a restore of etcd from a backup, and keeps it: set the group again"
	case response.Msg.GetError() != "":
		status.Error = response.Msg.GetError()
	default:
		one.node.sent = request.GetRevision()
		if !one.node.listens {
			one.node.listens = true
			go s.listenForNode(ctx, one)
		}
		return idle, nil
	}
	return later, s.noteNode(ctx, one, status)
}

// listenForNode stores what the agent reports about its node.
func (s *Server) listenForNode(ctx context.Context, one *session) {
	after := uint64(0)
	for ctx.Err() == nil {
		response, err := one.member.AwaitNode(ctx, connect.NewRequest(&pb.AwaitNodeRequest{After: after}))
		if err == nil {
			err = s.noteNode(ctx, one, nodeStatusOf(response.Msg, s.groupName(one.forwarder)))
		}
		if s.over(ctx, one, err) {
			return
		}
		if err != nil {
			pause(ctx, time.Second)
			continue
		}
		after = response.Msg.GetNumber()
	}
}

func nodeStatusOf(m *pb.AwaitNodeResponse, group string) nodeStatus {
	now := nodeStatus{Group: group, Revision: m.GetRevision(), InForce: m.GetInForce(), Member: m.GetMember(), Error: shortened(m.GetError()), Role: m.GetRole()}
	for _, peer := range m.GetPeers()[:min(len(m.GetPeers()), config.MaxGroupNodes)] {
		now.Peers = append(now.Peers, nodePeer{peer.GetNode(), shortened(peer.GetState()), shortened(peer.GetRole()), peer.GetKept()})
	}
	return now
}

// groupName returns the group of which a forwarder is a node; "": of none.
func (s *Server) groupName(forwarder string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of groupOf
	if entry := s.mirror.Get(keyGroupOf + forwarder); entry.Revision != 0 {
		_ = json.Unmarshal(entry.Value, &of) // if it is unreadable, it is of none
	}
	return of.Group
}

// noteNode stores a node's status, and what it shows to have happened, if this session still owns the forwarder.
func (s *Server) noteNode(ctx context.Context, one *session, now nodeStatus) error {
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		read, err := s.store.Snapshot(ctx, keyNodes+one.forwarder, keyOwners+one.forwarder, keyGroups+now.Group, keyTakeovers+cmp.Or(now.Group, "-")+"/")
		if err != nil {
			return nil, unavailable(err)
		}
		if read.Get(keyOwners+one.forwarder).Revision != one.fence {
			return nil, cluster.ErrConflict // another controller owns it
		}
		before := read.Get(keyNodes + one.forwarder)
		var old nodeStatus
		if before.Revision != 0 && decodeRecord(before, &old) != nil {
			old = nodeStatus{}
		}
		value := encode(now)
		if bytes.Equal(value, before.Value) {
			return nil, nil
		}
		txn := new(cluster.Txn).At(keyOwners+one.forwarder, one.fence).Unchanged(before).Put(before.Key, value, 0)
		var group config.Group
		if entry := read.Get(keyGroups + now.Group); entry.Revision != 0 && old.Group == now.Group && decodeRecord(entry, &group) == nil {
			s.noteTakeovers(txn, read, &group, one.forwarder, old, now)
		}
		return txn, nil
	})
	return err
}

// noteTakeovers adds to a transaction what two statuses of a node in succession show to have happened.
func (s *Server) noteTakeovers(txn *cluster.Txn, read cluster.Snapshot, group *config.Group, reporter string, old, now nodeStatus) {
	var by config.GroupNode
	if own := group.Of(reporter); own != nil {
		by = *own
	}
	for _, node := range group.Nodes {
		if node.Forwarder == reporter {
			continue
		}
		key := keyTakeovers + group.Name + "/" + node.Forwarder
		entry, was, is := read.Get(key), old.peer(node.Node), now.peer(node.Node)
		begin := func(detail string) {
			txn.Unchanged(entry).Put(key, encode(takeover{reporter, detail}), 0)
			s.record(txn, "agent/"+reporter, eventTakeover, node.Forwarder, "", detail)
		}
		switch {
		case !group.ECMP && old.Role == roleBackup && now.Role == roleMaster:
			begin(fmt.Sprintf("group %s: node %d (%s) serves instead of node %d (%s), which is %s", group.Name, by.Node, reporter, node.Node, node.Forwarder, stateText(is)))
		case group.ECMP && was.State == peerAlive && is.State == peerSilent && entry.Revision == 0:
			begin(fmt.Sprintf("group %s: node %d (%s) is silent; node %d (%s) serves the sessions that it kept of it, %d, and the others likewise",
				group.Name, node.Node, node.Forwarder, by.Node, reporter, is.Kept))
		case group.ECMP && is.State == peerAlive && entry.Revision != 0:
			txn.Unchanged(entry).Delete(key)
			s.record(txn, "agent/"+reporter, eventReturn, node.Forwarder, "", fmt.Sprintf("group %s: node %d (%s) is back", group.Name, node.Node, node.Forwarder))
		}
	}
}

func stateText(peer nodePeer) string {
	if peer.State == peerAlive {
		return peer.Role
	}
	return cmp.Or(peer.State, "unknown")
}

// Kinds of audit records that are events.
const (
	eventTakeover = "takeover"
	eventReturn   = "return"
	eventLost     = "lost"
	eventBack     = "back"
	eventRotation = "rotation"
)

var eventKinds = []string{eventTakeover, eventReturn, eventLost, eventBack, eventRotation}

// ---- listing ------------------------------------------------------------------------------------

// ListGroups implements the service.
func (s *Server) ListGroups(ctx context.Context, _ *connect.Request[pb.ListGroupsRequest]) (*connect.Response[pb.ListGroupsResponse], error) {
	if caller := from(ctx); !caller.mayRead() {
		return nil, denied("%s may not read", caller)
	}
	now, err := s.store.Snapshot(ctx, keyGroups, keyGroupOf, keyGroupKeys, keyNodes, keyOwners, keyTakeovers)
	if err != nil {
		return nil, unavailable(err)
	}
	response := &pb.ListGroupsResponse{}
	for _, entry := range now.List(keyGroups) {
		group, err := groupMessage(now, entry)
		if err != nil {
			return nil, err
		}
		response.Groups = append(response.Groups, group)
	}
	return connect.NewResponse(response), nil
}

// groupView is a group with the statuses of its nodes.
type groupView struct {
	config.Group
	keys     groupKeys
	revision int64 // of the last change of group or keys
	status   map[string]nodeStatus
	owned    map[string]bool // a controller has its agent
}

func readGroup(now cluster.Snapshot, entry cluster.Entry) (*groupView, error) {
	v := &groupView{status: map[string]nodeStatus{}, owned: map[string]bool{}}
	keys := now.Get(keyGroupKeys + nameOf(entry.Key, keyGroups))
	if err := errors.Join(decodeRecord(entry, &v.Group), decodeRecord(keys, &v.keys)); err != nil {
		return nil, err
	}
	v.revision = max(entry.Revision, keys.Revision)
	for _, name := range v.Forwarders() {
		v.owned[name] = now.Get(keyOwners+name).Revision != 0
		if status := now.Get(keyNodes + name); status.Revision != 0 {
			var one nodeStatus
			if err := decodeRecord(status, &one); err != nil {
				return nil, err
			}
			v.status[name] = one
		}
	}
	return v, nil
}

// has reports whether a node's forwarder applies the present group and keys.
func (v *groupView) has(name string) bool {
	status := v.status[name]
	return status.InForce && status.Revision >= v.revision && status.Group == v.Name
}

// isMember reports whether a node's forwarder is a node of the group, though perhaps not of its present revision.
func (v *groupView) isMember(name string) bool {
	status := v.status[name]
	return status.Member && status.Group == v.Name
}

// misses reports whether a node, whose agent says so, does not hear another one.
func (v *groupView) misses(node, other config.GroupNode) bool {
	return other.Node != node.Node && v.owned[node.Forwarder] && v.isMember(node.Forwarder) && v.status[node.Forwarder].peer(other.Node).State == peerSilent
}

// isSilent reports whether another node does not hear a node. Two that do not hear each other live, as their agents say: the link between them has failed.
func (v *groupView) isSilent(node config.GroupNode) bool {
	return slices.ContainsFunc(v.Nodes, func(other config.GroupNode) bool { return v.misses(other, node) && !v.misses(node, other) })
}

// apart returns two nodes that do not hear each other.
func (v *groupView) apart() (one, other string, found bool) {
	for i, a := range v.Nodes {
		for _, b := range v.Nodes[i+1:] {
			if v.misses(a, b) && v.misses(b, a) {
				return a.Forwarder, b.Forwarder, true
			}
		}
	}
	return "", "", false
}

// state returns a node's state as one word.
func (v *groupView) state(node config.GroupNode) string {
	switch name := node.Forwarder; {
	case v.isSilent(node):
		return peerSilent
	case !v.owned[name]:
		return "alone"
	case !v.has(name):
		return "behind"
	case v.ECMP:
		return "serves"
	default:
		return cmp.Or(v.status[name].Role, "unknown")
	}
}

// problem returns why sessions would be lost with a node; "": none would.
func (v *groupView) problem() string {
	masters := 0
	for _, node := range v.Nodes {
		switch state := v.state(node); state {
		case "serves", roleBackup:
		case roleMaster:
			masters++
		case "behind":
			return fmt.Sprintf("%s is not a node yet: %s", node.Forwarder, cmp.Or(v.status[node.Forwarder].Error, "its agent has not confirmed it"))
		case "alone":
			return node.Forwarder + " is alone: no controller has its agent"
		default:
			return fmt.Sprintf("%s is %s", node.Forwarder, state)
		}
	}
	if one, other, found := v.apart(); found {
		return fmt.Sprintf("%s and %s do not hear each other: check the network between their addresses for synchronisation", one, other)
	}
	switch {
	case !v.ECMP && masters == 0:
		return "no node serves: all are backups; start keepalived, or `steelyard role master` on one of them"
	case !v.ECMP && masters > 1:
		return "both nodes are masters: VRRP does not pass between them"
	}
	return ""
}

func texts[T fmt.Stringer](list []T) []string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = one.String()
	}
	return words
}

func groupMessage(now cluster.Snapshot, entry cluster.Entry) (*pb.Group, error) {
	v, err := readGroup(now, entry)
	if err != nil {
		return nil, err
	}
	m := &pb.Group{Name: v.Name, Mode: pb.GroupMode_GROUP_MODE_PAIR, NextHops: texts(v.NextHops), LocalAddresses: texts(v.Local), Problem: v.problem(), Rotation: v.rotation()}
	if v.ECMP {
		m.Mode = pb.GroupMode_GROUP_MODE_ECMP
	}
	for _, secret := range v.keys.Secrets {
		m.Secrets = append(m.Secrets, secret.ID)
	}
	for _, node := range v.Nodes {
		status := v.status[node.Forwarder]
		one := &pb.GroupNode{Forwarder: node.Forwarder, Node: node.Node, Sync: node.Sync.String(), NextHops: texts(node.NextHops),
			LocalAddresses: texts(node.Local), State: v.state(node), Error: status.Error}
		for _, peer := range status.Peers {
			one.Peers = append(one.Peers, &pb.NodePeer{Node: peer.Node, State: peer.State, Role: peer.Role, Kept: peer.Kept})
		}
		m.Nodes = append(m.Nodes, one)
	}
	slices.SortFunc(m.Nodes, func(a, b *pb.GroupNode) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
	return m, nil
}
