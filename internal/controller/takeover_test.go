// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/internal/agent"
	"steelyard/internal/cluster"
	agentpb "steelyard/internal/gen/agentpb"
	pb "steelyard/internal/gen/controllerpb"
	joining "steelyard/internal/member"

	"connectrpc.com/connect"
)

// sides returns the controller that owns the forwarder, and another one.
func (l *lab) sides(name string) (has, other *runningController) {
	l.Helper()
	url := l.owner(name)
	for _, c := range l.controllers {
		if c.url == url {
			has = c
		} else {
			other = c
		}
	}
	if has == nil || other == nil {
		l.Fatalf("the owner is %q", url)
	}
	return has, other
}

func TestTakeover(t *testing.T) {
	l := newLab(t, 2)
	f := l.addForwarder("f1")
	has, other := l.sides("f1")

	// Any controller accepts orders for any forwarder, and reads from it.
	if _, err := apply(t.Context(), other.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	services := connect.NewRequest(&agentpb.ListServicesRequest{})
	on("f1")(services)
	if got, err := other.admin.ListServices(t.Context(), services); err != nil || len(got.Msg.GetServices()) != 1 {
		t.Errorf("relayed: %v, %v", got, err)
	}
	drain := connect.NewRequest(&agentpb.SetDrainRequest{Server: "10.1.0.21", Drain: true})
	on("f1")(drain)
	if _, err := other.admin.SetDrain(t.Context(), drain); err != nil {
		t.Errorf("relayed: %v", err)
	}
	commits := len(f.Commits())
	has.kill()
	// The agent reconnects by itself, so no controller waits for the dead one's lease to expire.
	l.until("the other one takes over", func() bool { return l.owner("f1") == other.url })
	if now := len(f.Commits()); now != commits {
		t.Errorf("the takeover changed the forwarder: %v", f.Commits()[commits:])
	}
	if _, err := apply(t.Context(), other.admin, "f1", "", file(20)); err != nil {
		t.Error(err)
	}
	if got := f.Server(vip, server).GetWeight(); got != 20 {
		t.Errorf("weight %d", got)
	}
}

func TestAgentWithoutController(t *testing.T) {
	l := newLab(t, 1)
	f := l.addForwarder("f1")
	c := l.controllers[0]
	if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	c.stop()
	f.stop()
	// The forwarder has lost its state too: the agent alone restores it.
	f.Stop()
	f.Forget()
	f.Start()
	f.options.Token = "" // used
	l.start(f)
	l.until("the forwarder has it again", func() bool { return f.Server(vip, server).GetWeight() == 10 })
	// The agent must learn of a controller that restarts at another address; at the same address it reconnects.
	data, err := os.ReadFile(filepath.Join(f.options.State, agent.DesiredFile))
	if err != nil || !strings.HasPrefix(string(data), "# From a controller") {
		t.Errorf("%.60s, %v", data, err)
	}
}

// An agent that was started with the URL of one controller learns those of the others, and uses them when it starts while the first one is down.
func TestAgentKeepsLearnedControllers(t *testing.T) {
	l := newLab(t, 1)
	f := l.addForwarder("f1")
	first := l.controllers[0]
	other := l.addController()
	if _, err := apply(t.Context(), first.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.options.Token = ""
	first.stop()
	l.start(f)
	l.until("the agent finds the other one", func() bool { return l.owner("f1") == other.url })
}

// A former owner of a forwarder that does not know of its loss yet cannot write about it.
func TestFenceRejectsWritesOfAFormerOwner(t *testing.T) {
	l := newLab(t, 1)
	l.addForwarder("f1")
	c := l.controllers[0]
	if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	before := l.list(c.admin)["f1"]
	old := &Server{store: l.store, id: "old", now: time.Now}
	err := old.note(t.Context(), &session{forwarder: "f1", fence: 1}, status{Applied: 1, Error: "stale"})
	if !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a stale status was written: %v", err)
	}
	old.leaveAs(t, "f1", 1)
	if after := l.list(c.admin)["f1"]; after.GetError() != "" || after.GetController() != before.GetController() {
		t.Errorf("%v", after)
	}
}

// leaveAs does what the end of a former owner's session does.
func (s *Server) leaveAs(t *testing.T, forwarder string, fence int64) {
	s.ctx, s.sessions = t.Context(), map[string]*session{}
	s.leave(&session{forwarder: forwarder, fence: fence})
}

func TestOlderIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "desired.yaml")
	var installed []string
	make := func() *joining.Desired {
		return &joining.Desired{Path: path, Know: func([]string) {}, Install: func(_ context.Context, r *agentpb.ApplyConfigRequest) (*agentpb.ApplyConfigResponse, error) {
			if len(r.GetYaml()) > 0 {
				installed = append(installed, string(r.GetYaml()))
				return &agentpb.ApplyConfigResponse{}, os.WriteFile(path, r.GetYaml(), 0o600)
			}
			return &agentpb.ApplyConfigResponse{}, nil
		}}
	}
	d := make()
	for i, step := range []struct {
		revision int64
		text     string
		want     pb.SetDesiredResponse_Outcome
		now      int64
		again    bool // by an agent that has started anew
	}{
		{7, "a", pb.SetDesiredResponse_OUTCOME_APPLIED, 7, false},
		{7, "a", pb.SetDesiredResponse_OUTCOME_APPLIED, 7, false},
		{6, "b", pb.SetDesiredResponse_OUTCOME_OLDER, 7, false},
		{6, "b", pb.SetDesiredResponse_OUTCOME_OLDER, 7, true},
		{9, "c", pb.SetDesiredResponse_OUTCOME_APPLIED, 9, true},
		{8, "d", pb.SetDesiredResponse_OUTCOME_OLDER, 9, false},
	} {
		if step.again {
			d = make()
		}
		got, err := d.SetDesired(t.Context(), connect.NewRequest(&pb.SetDesiredRequest{Revision: step.revision, YamlGzip: packed(step.text)}))
		if err != nil || got.Msg.GetOutcome() != step.want || got.Msg.GetRevision() != step.now {
			t.Errorf("step %d: %v, %v", i, got, err)
		}
	}
	if len(installed) != 2 {
		t.Errorf("installed: %q", installed)
	}
	// A manual edit is undone by the same revision; without a revision in the file, the agent does not guess.
	if err := os.WriteFile(path, []byte(strings.Replace(installed[1], "\nc", "\nedited", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SetDesired(t.Context(), connect.NewRequest(&pb.SetDesiredRequest{Revision: 9, YamlGzip: packed("c")})); err != nil || len(installed) != 3 {
		t.Errorf("%v, %q", err, installed)
	}
	if err := os.WriteFile(path, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SetDesired(t.Context(), connect.NewRequest(&pb.SetDesiredRequest{Revision: 10, YamlGzip: packed("e")})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("%v", err)
	}
}

// gate is a TCP proxy in front of an etcd. Closing it cuts the network.
type gate struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]bool
}

func newGate(t *testing.T, endpoint string) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: listener, to: strings.TrimPrefix(endpoint, "unix://"), conns: map[net.Conn]bool{}}
	t.Cleanup(func() { listener.Close(); g.set(true) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go g.carry(conn)
		}
	}()
	return g
}

func (g *gate) carry(conn net.Conn) {
	defer conn.Close()
	network, address := "unix", g.to
	if rest, ok := strings.CutPrefix(g.to, "tcp://"); ok {
		network, address = "tcp", rest
	}
	to, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer to.Close()
	g.mu.Lock()
	open := !g.closed
	g.conns[conn], g.conns[to] = true, true
	g.mu.Unlock()
	if open {
		go func() { _, _ = io.Copy(to, conn); to.Close() }()
		_, _ = io.Copy(conn, to)
	}
	g.mu.Lock()
	delete(g.conns, conn)
	delete(g.conns, to)
	g.mu.Unlock()
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	if closed {
		for conn := range g.conns {
			conn.Close()
		}
	}
}

// A history of applies through random controllers, while controllers are cut off from etcd, agents and forwarders are replaced, and
// clocks differ. The forwarder must have the last confirmed configuration, and never an earlier one again.
func TestConfirmedChangesSurviveFaults(t *testing.T) {
	l := newLab(t, 1)
	gates := map[*runningController]*gate{}
	for _, skew := range []time.Duration{-8 * day, 0, 8 * day} {
		g := newGate(t, l.store.Endpoints()[0])
		c := l.addControllerAt("http://"+g.listener.Addr().String(), skew)
		gates[c] = g
	}
	f := l.addForwarder("f1")
	random := rand.New(rand.NewPCG(16, 4))

	// The observed weights, in the order of the forwarder's commits.
	var weights []uint32
	gather := func() {
		weights = weights[:0]
		for _, commit := range f.Commits() {
			for _, change := range commit {
				if s := change.GetPutServer(); s != nil {
					weights = append(weights, s.GetServer().GetWeight())
				}
				if s := change.GetPutService(); s != nil {
					weights = append(weights, 0) // a service made anew; its servers follow
				}
			}
		}
	}
	const steps = 16
	confirmed, count := 0, 0
	for i := 1; i <= steps; i++ {
		c := l.controllers[random.IntN(len(l.controllers))]
		for other, g := range gates { // at most one is cut off, and heals at the next step
			g.set(random.IntN(6) == 0 && other != c)
		}
		if random.IntN(8) == 0 {
			f.stop()
			f.options.Token = ""
			l.start(f)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)

		response, err := apply(ctx, c.admin, "f1", "", file(i))
		cancel()
		if err == nil && response.GetRevision() > 0 && len(response.GetWarnings()) == 0 {
			confirmed = i
			count++
			gather()
			if got := f.Server(vip, server).GetWeight(); got != uint32(i) {
				t.Fatalf("step %d is confirmed, and the forwarder has %d", i, got)
			}
		}
	}
	for _, g := range gates {
		g.set(false)
	}
	if count < steps/3 {
		t.Fatalf("only %d of %d were confirmed", count, steps)
	}
	// Healed, the last one that was accepted is in force everywhere.
	l.until("all agree", func() bool {
		got := l.list(l.controllers[0].admin)["f1"]
		return got.GetInForwarder() && got.GetAppliedRevision() == got.GetDesiredRevision()
	})
	desired, err := l.store.Get(t.Context(), keyDesired+"f1")
	if err != nil {
		t.Fatal(err)
	}
	text, err := l.store.Load(t.Context(), desired.Value)
	if err != nil || !strings.Contains(string(text.Text), fmt.Sprintf("weight: %d }", f.Server(vip, server).GetWeight())) {
		t.Errorf("the forwarder has %d, desired is\n%s", f.Server(vip, server).GetWeight(), text.Text)
	}
	gather()
	last := uint32(0)
	for _, weight := range weights {
		if weight != 0 && weight < last {
			t.Fatalf("the forwarder went back: %v", weights)
		}
		last = max(last, weight)
	}
	if int(last) < confirmed {
		t.Errorf("the forwarder has %d, and %d was confirmed", last, confirmed)
	}
	audit, err := l.controllers[0].admin.ListAudit(t.Context(), connect.NewRequest(&pb.ListAuditRequest{Limit: 1000}))
	if err != nil {
		t.Fatal(err)
	}
	if audit.Msg.GetRecords()[0].GetRevision() == 0 {
		t.Error("no revision")
	}
}
