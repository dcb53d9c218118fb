// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/store"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Node keeps this agent's part of a group of forwarders (docs/design/0072-groups.md), and has the forwarder apply it. The zero value's exported fields
// must be set before Open.
type Node struct {
	Path string // of the file: it has secrets
	Dial func(context.Context) (*dpclient.Client, error)
	Log  *slog.Logger

	mu      sync.Mutex
	wanted  *pb.SetNodeRequest
	state   *pb.AwaitNodeResponse
	changed chan struct{} // closed when state changes
	wake    chan struct{}

	// Of Run alone.
	kept      map[uint32]uint64 // by peer, while it is alive
	failing   time.Time         // since when the forwarder does not answer
	attempted time.Time         // the last request to apply
	asked     string            // the version of that request
	refusal   string
}

const (
	nodeLook     = 250 * time.Millisecond // a takeover is reported after this time
	nodeIdle     = 5 * time.Second        // without a group
	nodeRetry    = 5 * time.Second        // after a refusal
	nodePatience = 2 * time.Second        // the forwarder may be between two processes
)

// Open reads the part of a group that was stored before.
func (n *Node) Open() error {
	n.wanted, n.state = &pb.SetNodeRequest{}, &pb.AwaitNodeResponse{Number: 1}
	n.changed, n.wake, n.kept = make(chan struct{}), make(chan struct{}, 1), map[uint32]uint64{}
	data, err := os.ReadFile(n.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, n.wanted)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: remove it, and the controller sends it again", n.Path, err)
	}
	return nil
}

// set stores a node. Returns false if it has a newer one.
func (n *Node) set(wanted *pb.SetNodeRequest) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if wanted.GetRevision() < n.wanted.GetRevision() {
		return false, nil
	}
	if !proto.Equal(wanted, n.wanted) {
		data, err := protojson.Marshal(wanted)
		if err == nil {
			err = store.WriteFile(n.Path, data, 0o600)
		}
		if err != nil {
			return true, err
		}
		n.wanted = proto.CloneOf(wanted)
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
	return true, nil
}

// SetNode implements the service.
func (d *Desired) SetNode(_ context.Context, request *connect.Request[pb.SetNodeRequest]) (*connect.Response[pb.SetNodeResponse], error) {
	accepted, err := d.Node.set(request.Msg)
	answer := &pb.SetNodeResponse{Older: !accepted}
	if err != nil {
		answer.Error = err.Error()
	}
	return connect.NewResponse(answer), nil
}

// AwaitNode implements the service.
func (d *Desired) AwaitNode(ctx context.Context, request *connect.Request[pb.AwaitNodeRequest]) (*connect.Response[pb.AwaitNodeResponse], error) {
	for {
		d.Node.mu.Lock()
		state, changed := d.Node.state, d.Node.changed
		d.Node.mu.Unlock()
		if state.GetNumber() != request.Msg.GetAfter() {
			return connect.NewResponse(state), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Run has the forwarder apply the node, and watches its peers, until ctx ends.
func (n *Node) Run(ctx context.Context) {
	for ctx.Err() == nil {
		n.mu.Lock()
		wanted := n.wanted
		n.mu.Unlock()
		n.look(ctx, wanted)
		pause := nodeLook
		if wanted.GetNode() == nil && n.state.GetInForce() {
			pause = nodeIdle
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-n.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// look reads the forwarder's peers once, and has it apply the node if it has another one.
func (n *Node) look(ctx context.Context, wanted *pb.SetNodeRequest) {
	now := &pb.AwaitNodeResponse{Revision: wanted.GetRevision()}
	if wanted.GetRevision() == 0 { // of no group so far: a group by options is not the controllers' concern
		now.InForce = true
		n.publish(now)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	list, err := n.ask(ctx, wanted, now)
	if err != nil {
		if n.failing.IsZero() {
			n.failing = time.Now()
		}
		if time.Since(n.failing) < nodePatience {
			return
		}
		now.Error = "the forwarder does not answer: " + err.Error()
		n.publish(now)
		return
	}
	n.failing = time.Time{}
	group := wanted.GetNode().GetGroup()
	now.Member = group != "" && strings.HasPrefix(list.GetGroup(), versionOf(group))
	if now.Member && !list.GetEcmp() {
		now.Role = dpclient.RoleWord(list.GetRole())
	}
	for _, peer := range list.GetPeers() {
		if peer.GetState() == dpclient.PeerAlive {
			n.kept[peer.GetNode()] = peer.GetKept()
		}
		now.Peers = append(now.Peers, &pb.NodePeer{Node: peer.GetNode(), State: dpclient.PeerStateWord(peer.GetState()),
			Role: dpclient.RoleWord(peer.GetRole()), Kept: n.kept[peer.GetNode()]})
	}
	n.publish(now)
}

// ask returns the forwarder's peers, and says in now whether it applies the wanted node.
func (n *Node) ask(ctx context.Context, wanted *pb.SetNodeRequest, now *pb.AwaitNodeResponse) (*dpclient.PeerList, error) {
	client, err := n.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	list, err := client.Peers(ctx)
	if err != nil {
		return nil, err
	}
	group, err := groupOf(wanted.GetNode())
	if err != nil {
		now.Error = err.Error()
		return list, nil
	}
	if now.InForce = list.GetGroup() == group.GetVersion(); now.InForce {
		n.asked, n.refusal = "", ""
		return list, nil
	}
	if n.asked == group.GetVersion() && time.Since(n.attempted) < nodeRetry {
		now.Error = n.refusal
		return list, nil
	}
	again := n.asked == group.GetVersion()
	n.asked, n.attempted, n.refusal = group.GetVersion(), time.Now(), "the forwarder is applying it"
	result, err := client.SetGroup(ctx, group)
	switch {
	case err != nil:
		n.refusal = err.Error()
		n.Log.Warn("the forwarder does not become a node", "group", wanted.GetNode().GetGroup(), "error", err)
	case again && result.GetChanged():
		n.refusal = "the forwarder has accepted it before, but its new process has failed: see the forwarder's log"
	case result.GetRestarts():
		n.Log.Info("the forwarder restarts as a node, as the slot key differs: its sessions end", "group", wanted.GetNode().GetGroup())
	case result.GetChanged():
		n.Log.Info("the forwarder applies its group by an upgrade", "group", wanted.GetNode().GetGroup())
	}
	now.Error = n.refusal
	return list, nil
}

// versionOf returns how the versions of a group begin.
func versionOf(group string) string { return fmt.Sprintf("%.40s@", group) }

// groupOf returns a node as the forwarder's message; without a node the forwarder leaves its group.
func groupOf(node *pb.Node) (*dpclient.Group, error) {
	if node == nil {
		return &dpclient.Group{}, nil
	}
	own, err := netip.ParseAddrPort(node.GetAddress())
	if err != nil {
		return nil, fmt.Errorf("address of node %d: %w", node.GetNode(), err)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(node)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(data)
	group := &dpclient.Group{
		Version: versionOf(node.GetGroup()) + hex.EncodeToString(digest[:8]), Ecmp: node.GetEcmp(), Node: node.GetNode(),
		Address: own.Addr().AsSlice(), Port: uint32(own.Port()), SlotKey: node.GetSlotKey(),
	}
	for _, peer := range node.GetPeers() {
		to, err := netip.ParseAddrPort(peer.GetAddress())
		if err != nil {
			return nil, fmt.Errorf("address of node %d: %w", peer.GetNode(), err)
		}
		group.Peers = append(group.Peers, &dpclient.GroupPeer{Node: peer.GetNode(), Address: to.Addr().AsSlice(), Port: uint32(to.Port())})
	}
	for _, secret := range node.GetSecrets() {
		group.Secrets = append(group.Secrets, &dpclient.GroupSecret{Id: secret.GetId(), Secret: secret.GetSecret()})
	}
	return group, nil
}

// publish makes a state the present one, and wakes waiting calls. A changed number of sessions alone is no change.
func (n *Node) publish(now *pb.AwaitNodeResponse) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if sameState(now, n.state) {
		return
	}
	now.Number = n.state.GetNumber() + 1
	n.state = now
	close(n.changed)
	n.changed = make(chan struct{})
}

func sameState(a, b *pb.AwaitNodeResponse) bool {
	bare := func(m *pb.AwaitNodeResponse) *pb.AwaitNodeResponse {
		m = proto.CloneOf(m)
		m.Number = 0
		for _, peer := range m.GetPeers() {
			peer.Kept = 0
		}
		return m
	}
	return proto.Equal(bare(a), bare(b))
}

// Warnings returns why the forwarder is not a node as the controllers want it.
func (n *Node) Warnings() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state.GetInForce() || n.state.GetError() == "" || n.wanted.GetRevision() == 0 {
		return nil
	}
	if group := n.wanted.GetNode().GetGroup(); group != "" {
		return []string{"this forwarder is not a node of the group " + group + ": " + n.state.GetError()}
	}
	return []string{"this forwarder has not left its group: " + n.state.GetError()}
}
