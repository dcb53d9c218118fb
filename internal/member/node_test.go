// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/controllerpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
)

func nodeOf(t *testing.T, path string, f *dptest.Forwarder) *Desired {
	n := &Node{Path: path, Log: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context) (*dpclient.Client, error) { return dpclient.Dial(ctx, f.Socket) }}
	if err := n.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return &Desired{Node: n}
}

func request(revision int64, secret string) *pb.SetNodeRequest {
	return &pb.SetNodeRequest{Revision: revision, Node: &pb.Node{
		Group: "edge", Node: 1, Address: "10.9.0.1:8849", Peers: []*pb.NodeAddress{{Node: 2, Address: "[fd00::2]:8849"}},
		SlotKey: "0123456789abcdef0123456789abcdef", Secrets: []*pb.NodeSecret{{Id: 1, Secret: []byte(secret)}}}}
}

func set(t *testing.T, d *Desired, m *pb.SetNodeRequest) *pb.SetNodeResponse {
	t.Helper()
	response, err := d.SetNode(t.Context(), connect.NewRequest(m))
	if err != nil {
		t.Fatal(err)
	}
	return response.Msg
}

// await waits until a reported state is as wanted.
func await(t *testing.T, d *Desired, is func(*pb.AwaitNodeResponse) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // far beyond any stall
	defer cancel()
	for after := uint64(0); ; {
		response, err := d.AwaitNode(ctx, connect.NewRequest(&pb.AwaitNodeRequest{After: after}))
		if err != nil {
			t.Fatal(err)
		}
		if is(response.Msg) {
			return
		}
		after = response.Msg.GetNumber()
	}
}

func TestNodeIsAppliedAndKept(t *testing.T) {
	f, path := dptest.New(t), filepath.Join(t.TempDir(), "node.json")
	d := nodeOf(t, path, f)
	if answer := set(t, d, request(7, strings.Repeat("a", 32))); answer.GetOlder() || answer.GetError() != "" {
		t.Errorf("%v", answer)
	}
	await(t, d, func(now *pb.AwaitNodeResponse) bool {
		return now.GetInForce() && now.GetRevision() == 7 && now.GetRole() == "backup"
	})
	first := f.Group().GetVersion()
	if got := f.Group(); got.GetPeers()[0].GetPort() != 8849 || len(got.GetPeers()[0].GetAddress()) != 16 || !strings.HasPrefix(first, "edge@") {
		t.Errorf("%v", got)
	}
	if answer := set(t, d, request(6, strings.Repeat("b", 32))); !answer.GetOlder() {
		t.Error("an older node was accepted")
	}
	set(t, d, request(8, strings.Repeat("a", 32))) // of the same contents
	await(t, d, func(now *pb.AwaitNodeResponse) bool { return now.GetInForce() && now.GetRevision() == 8 })
	if f.Group().GetVersion() != first {
		t.Error("the same node was applied anew")
	}

	// Another agent with the same state, as after a restart, and a forwarder that has lost its own.
	other := dptest.New(t)
	again := nodeOf(t, path, other)
	await(t, again, func(now *pb.AwaitNodeResponse) bool { return now.GetInForce() && now.GetRevision() == 8 })
	if other.Group().GetVersion() != first {
		t.Errorf("%v", other.Group())
	}
	set(t, again, &pb.SetNodeRequest{Revision: 9})
	await(t, again, func(now *pb.AwaitNodeResponse) bool { return now.GetInForce() && now.GetRevision() == 9 })
	if other.Group() != nil {
		t.Errorf("%v", other.Group())
	}
}

func TestPeersAreReported(t *testing.T) {
	f := dptest.New(t)
	d := nodeOf(t, filepath.Join(t.TempDir(), "node.json"), f)
	set(t, d, request(7, strings.Repeat("a", 32)))
	peer := func(state string) func(*pb.AwaitNodeResponse) bool {
		return func(now *pb.AwaitNodeResponse) bool {
			return len(now.GetPeers()) == 1 && now.GetPeers()[0].GetState() == state
		}
	}
	await(t, d, peer("alive"))
	f.SetPeers(func(list *forwarderpb.PeerList) { list.Peers[0].State = forwarderpb.PeerState_PEER_STATE_SILENT })
	await(t, d, peer("silent"))
	f.SetPeers(func(list *forwarderpb.PeerList) { list.Role = forwarderpb.Role_ROLE_MASTER })
	await(t, d, func(now *pb.AwaitNodeResponse) bool { return now.GetRole() == "master" })
}

func TestNodeThatTheForwarderRefuses(t *testing.T) {
	f := dptest.New(t)
	f.RefuseGroup = "remove --node"
	d := nodeOf(t, filepath.Join(t.TempDir(), "node.json"), f)
	set(t, d, request(7, strings.Repeat("a", 32)))
	await(t, d, func(now *pb.AwaitNodeResponse) bool {
		return !now.GetInForce() && strings.Contains(now.GetError(), "remove --node")
	})
	if warnings := d.Node.Warnings(); len(warnings) != 1 || !strings.Contains(warnings[0], "not a node of the group edge: ") {
		t.Error(warnings)
	}
}

func TestUnreadableNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Node{Path: path}).Open(); err == nil || !strings.Contains(err.Error(), "remove it, and the controller sends it again") {
		t.Error(err)
	}
}
