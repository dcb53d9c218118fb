// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/internal/cluster"
	agentpb "steelyard/internal/gen/agentpb"
	controllerpb "steelyard/internal/gen/controllerpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/nfv"

	"connectrpc.com/connect"
)

// half lets a leader die while a forwarder is being configured. The forwarder's answer arrives, and then the next leader does a pass.
func half(t *testing.T, refuse bool) (*runningAgent, nfv.Record) {
	t.Helper()
	l := leaderless(t)
	f1 := l.addReady("f1")
	if refuse {
		f1.Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "not here"}, "10.9.0.80")
	}
	l.request(balancing("web", 80))
	first := l.crew()
	for first.picture.requests["web"].Revision == 0 {
		if _, err := first.step(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		if _, err := first.writeFiles(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	revision := first.picture.requests["web"].Revision
	l.until("confirmed, or rolled back", func() bool {
		now, _, err := read[status](t.Context(), l.store, keyStatus+"f1")
		return err == nil && (now.Applied > revision || !refuse && now.Applied == revision)
	})
	if err := l.crew().pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	record, _, err := read[nfv.Record](t.Context(), l.store, keyRequests+"web")
	if err != nil {
		t.Fatal(err)
	}
	return f1, record
}

func TestANewLeaderHandsOutTheNextHop(t *testing.T) {
	if _, r := half(t, false); r.State != pb.State_STATE_ROUTING || r.Route.NextHop != "10.0.0.11" {
		t.Errorf("%+v, %+v", r, r.Route)
	}
}

// The forwarder is at a higher revision than the request's, but no longer has the service.
func TestNewLeaderDoesNotRouteARolledBackService(t *testing.T) {
	if f1, r := half(t, true); r.State != pb.State_STATE_NEEDS_FORWARDER || r.Route != nil || serves(f1, 80) {
		t.Errorf("%+v, %+v", r, r.Route)
	}
}

// An earlier confirmation of the forwarder does not confirm what a new leader writes again.
func TestRewrittenFileNeedsANewConfirmation(t *testing.T) {
	r := &request{Record: &nfv.Record{Revision: 7}, id: "web", wanted: &pb.Balancing{Project: "nfv"}}
	l := &leader{Server: &Server{}, picture: &picture{status: map[string]status{"f1": {Applied: 8, InForwarder: true}}}, fresh: map[int64]int{},
		files: map[fileKey]*partFile{{"f1", "nfv"}: {has: map[string]int64{"web": 9}}}}
	if done, err := (&world{l, r}).Confirmed("f1", 7); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	l.picture.status["f1"] = status{Applied: 9, InForwarder: true}
	if done, err := (&world{l, r}).Confirmed("f1", 7); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

// The refusal of a file reaches all its new services, even if it is confirmed again, or refused for another change, before the leader's next pass. The
// events of a roll-back arrive in any order.
func TestLeaderMissesNoRefusal(t *testing.T) {
	config := cluster.Event{Entry: cluster.Entry{Key: keyConfigs + "f1/nfv", Revision: 10}}
	refused := cluster.Event{Entry: cluster.Entry{Key: keyRefusals + "f1/nfv", Value: encode(refusal{Since: 8, Revision: 9, Error: "not here"}), Revision: 10}}
	confirmed := cluster.Event{Entry: cluster.Entry{Key: keyRefusals + "f1/nfv", Revision: 12}, Deleted: true}
	for _, events := range [][]cluster.Event{{config, refused, confirmed}, {refused, config, confirmed}} {
		for _, fresh := range []int{1, 2} {
			l := leaderless(t).crew()
			l.files[fileKey{"f1", "nfv"}] = &partFile{own: 9, has: map[string]int64{"old": 5, "web": 9}}
			l.fresh[9] = fresh
			for id, state := range map[string]pb.State{"old": pb.State_STATE_ROUTED, "web": pb.State_STATE_CONFIGURING} {
				l.picture.requests[id] = &request{Record: &nfv.Record{State: state, Forwarder: "f1", Revision: 7}, id: id, wanted: &pb.Balancing{Project: "nfv"}}
			}
			for _, event := range events {
				l.see(event)
			}
			world := &world{l, l.picture.requests["web"]}
			if done, err := world.Confirmed("f1", 7); done || err == nil || !strings.Contains(err.Error(), "not here") {
				t.Errorf("%v, %v", done, err)
			}
			if world.Company("f1") != (fresh > 1) {
				t.Errorf("%d new services in the file, and it is tried alone: %t", fresh, fresh == 1)
			}
			if f := l.files[fileKey{"f1", "nfv"}]; f.own != 10 || len(f.has) != 0 || f.retry.IsZero() {
				t.Errorf("%+v", f)
			}
			if len(l.refusals) != 1 {
				t.Errorf("a service that was confirmed before is refused: %v", l.refusals)
			}
		}
	}
}

// The leader's own key is left over, because the answer to its creation or removal was lost. Its lease is alive.
func TestLeaderReplacesItsLeftOverKey(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	var now owner
	var entry cluster.Entry
	l.until("a controller leads", func() bool {
		var err error
		now, entry, err = read[owner](t.Context(), l.store, keyLeader)
		return err == nil && entry.Revision != 0
	})
	// The same owner, at a revision that its process does not know.
	l.commit(new(cluster.Txn).Unchanged(entry).Put(keyLeader, encode(now), 0))
	l.request(balancing("web", 80))
	l.awaitState("web", pb.State_STATE_ROUTING, nil)
}

// A settled file that a forwarder refuses is not written again at once.
func TestRefusedFileIsNotRewrittenAtOnce(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	for i, id := range []string{"a", "b"} {
		l.request(balancing(id, 80+i))
		l.awaitState(id, pb.State_STATE_ROUTING, nil)
		l.confirm(id, 1)
		l.awaitState(id, pb.State_STATE_ROUTED, nil)
	}
	l.agents["f1"].Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "not any more"})
	l.remove("b")
	s := l.awaitState("b", pb.State_STATE_WITHDRAWING, nil)
	l.confirm("b", s.GetRoute().GetGeneration())
	begun := time.Now()
	rolledBack := func() int {
		list, _, err := l.store.List(t.Context(), keyAudit)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, entry := range list {
			var one audit
			if decodeRecord(entry, &one) == nil && one.What == "roll back" {
				count++
			}
		}
		return count
	}
	l.until("it is rolled back", func() bool { return rolledBack() > 0 })
	time.Sleep(time.Second) // many rounds of before
	if n, maximum := rolledBack(), 1+int(time.Since(begun)/retryFile); n > maximum {
		t.Errorf("rolled back %d times in %s", n, time.Since(begun))
	}
}

// A failed write of a file is tried again, unless its forwarder was removed.
func TestFailedFilesAreTriedAgain(t *testing.T) {
	l := leaderless(t)
	l.addReady("f1")
	l.request(balancing("web", 80))
	led := l.crew()
	if _, err := led.step(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	key := fileKey{"f1", "nfv"}
	text, err := textOf([]*request{led.picture.requests["web"]})
	if err != nil {
		t.Fatal(err)
	}
	led.files[fileKey{"gone", "nfv"}] = &partFile{text: []byte("before")}
	for _, c := range []struct {
		retry time.Duration
		want  bool
	}{{time.Hour, false}, {-time.Second, true}} {
		led.files[key] = &partFile{text: text, retry: time.Now().Add(c.retry)}
		if written, err := led.writeFiles(t.Context()); err != nil || written != c.want {
			t.Errorf("%s: %v, %v", c.retry, written, err)
		}
	}
	if led.files[fileKey{"gone", "nfv"}] != nil {
		t.Error("the file of a forwarder that is gone is kept")
	}
}

// A watch of requests has the bounds of other watches: it answers at once, and ends with the caller's membership.
func TestWatchOfRequestsEndsWithMembership(t *testing.T) {
	l := workflowLab(t, 1)
	viewer := l.join(l.controllers[0], &controllerpb.CreateTokenRequest{Name: "eve", Role: controllerpb.Role_ROLE_VIEWER}, nil)
	stream, err := viewer.WatchBalancings(t.Context(), connect.NewRequest(&pb.WatchBalancingsRequest{})) // returns with the headers
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := l.controllers[0].admin.RemoveMember(t.Context(), connect.NewRequest(&controllerpb.RemoveMemberRequest{Name: "eve"})); err != nil {
		t.Fatal(err)
	}
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("%v, %v", stream.Msg(), stream.Err())
	}
}

func TestRequestsAreBounded(t *testing.T) {
	l := workflowLab(t, 1)
	admin := l.controllers[0].admin
	ask := func(b *pb.Balancing) error {
		_, err := admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: b}))
		return err
	}
	large := balancing("large", 79)
	large.Predecessors = []string{strings.Repeat("x", maxRequest)}
	if err := ask(large); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "at most 1024") {
		t.Errorf("%.200v", err)
	}
	if _, err := admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: &controllerpb.Project{Name: "nfv", MaxServices: 2}})); err != nil {
		t.Fatal(err)
	}
	for i, want := range []connect.Code{0, 0, connect.CodeResourceExhausted} {
		if err := ask(balancing(fmt.Sprintf("s%d", i), 80+i)); (err != nil || want != 0) && connect.CodeOf(err) != want {
			t.Errorf("%d: %v", i, err)
		}
	}
	l.remove("s0")
	l.awaitState("s0", pb.State_STATE_REMOVED, nil)
	if err := ask(balancing("s2", 82)); err != nil {
		t.Error(err)
	}
	// Servers count as well, from the first request on: each of these has two.
	if _, err := admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: &controllerpb.Project{Name: "shop", MaxServers: 3}})); err != nil {
		t.Fatal(err)
	}
	shop := func(host, servers int) error {
		b := balancing(fmt.Sprintf("shop%d", host), host)
		b.Project = "shop"
		for i := len(b.Virtual.RealServices); i < servers; i++ {
			b.Virtual.RealServices = append(b.Virtual.RealServices, &pb.RealService{Dip: fmt.Sprintf("10.1.1.%d", i), Dport: 8080})
		}
		return ask(b)
	}
	for i, c := range []struct {
		servers int
		want    connect.Code
	}{{4, connect.CodeResourceExhausted}, {2, 0}, {2, connect.CodeResourceExhausted}} {
		if err := shop(90+i, c.servers); (err != nil || c.want != 0) && connect.CodeOf(err) != c.want {
			t.Errorf("%d servers: %v", c.servers, err)
		}
	}
}

// Of concurrent requests, no more are accepted than the quota allows.
func TestQuotasBoundConcurrentRequests(t *testing.T) {
	l := workflowLab(t, 1)
	admin := l.controllers[0].admin
	if _, err := admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: &controllerpb.Project{Name: "nfv", MaxServices: 141}})); err != nil {
		t.Fatal(err)
	}
	l.request(balancing("first", 80))
	var taken atomic.Int32
	var asking sync.WaitGroup
	for i := range 160 { // far more than a transaction is tried
		asking.Go(func() {
			_, err := admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: balancing(fmt.Sprintf("s%d", i), 81+i)}))
			switch {
			case err == nil:
				taken.Add(1)
			case connect.CodeOf(err) != connect.CodeResourceExhausted:
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if n := taken.Load(); n != 140 {
		t.Errorf("%d requests were taken", n)
	}
}

func TestRemovalTakesTheLoad(t *testing.T) {
	l := newLab(t, 1)
	txn := new(cluster.Txn).Put(keyMembers+"f1", encode(member{Role: controllerpb.Role_ROLE_FORWARDER}), 0).Put(keyLoads+"f1", encode(measured{Busy: 0.5}), 0)
	l.commit(txn)
	if _, err := l.controllers[0].admin.RemoveMember(t.Context(), connect.NewRequest(&controllerpb.RemoveMemberRequest{Name: "f1"})); err != nil {
		t.Fatal(err)
	}
	if entry, err := l.store.Get(t.Context(), keyLoads+"f1"); err != nil || entry.Revision != 0 {
		t.Errorf("%+v, %v", entry, err)
	}
}

// A project with open requests cannot be removed, so no files can appear under its name; created anew, it accepts files.
func TestProjectWithOpenRequestsIsNotRemoved(t *testing.T) {
	l := workflowLab(t, 1)
	admin := l.controllers[0].admin
	found := func() {
		t.Helper()
		if _, err := admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: &controllerpb.Project{Name: "shop"}})); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() error {
		_, err := admin.RemoveProject(t.Context(), connect.NewRequest(&controllerpb.RemoveProjectRequest{Name: "shop"}))
		return err
	}
	found()
	b := balancing("web", 80)
	b.Project = "shop"
	l.request(b) // there is no forwarder, so it has no services yet
	if err := remove(); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "1 requests") {
		t.Errorf("%v", err)
	}
	l.remove("web")
	l.awaitState("web", pb.State_STATE_REMOVED, nil)
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	found()
	l.addReady("f1")
	if _, err := apply(t.Context(), admin, "f1", "shop", part(9, 1, 1)); err != nil {
		t.Error(err)
	}
}

// Quotas and forwarders of a project change; its services still belong to the workflow, and can still be removed.
func TestProjectOfRequestsStaysWithTheWorkflow(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	admin := l.controllers[0].admin
	change := func(p *controllerpb.Project) {
		t.Helper()
		p.Name = "nfv"
		if _, err := admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: p})); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range []string{"a", "b"} {
		l.request(balancing(id, 80+i))
		l.awaitState(id, pb.State_STATE_ROUTING, nil)
	}
	change(&controllerpb.Project{MaxServices: 1, MaxServers: 2})
	applyFile := func(u user, forwarder, file string) error {
		request := connect.NewRequest(&agentpb.ApplyConfigRequest{Yaml: []byte(part(9, 1, 1)), File: file})
		on(forwarder)(request)
		request.Header().Set(ProjectHeader, "nfv")
		_, err := u.ApplyConfig(t.Context(), request)
		return err
	}
	diff := connect.NewRequest(&agentpb.DiffConfigRequest{Yaml: []byte(part(9, 1, 1)), File: workflowFile})
	on("f1")(diff)
	diff.Header().Set(ProjectHeader, "nfv")
	_, differs := admin.DiffConfig(t.Context(), diff)
	for what, err := range map[string]error{
		"a file by hand": applyFile(admin, "f1", "test.yaml"), "by the name of the workflow's": applyFile(admin, "f1", workflowFile),
		"to many": applyFile(admin, AllForwarders, workflowFile), "compared": differs,
	} {
		if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "those of requests") {
			t.Errorf("%s: %v", what, err)
		}
	}
	end := func(id string) {
		t.Helper()
		l.remove(id)
		l.confirm(id, l.awaitState(id, pb.State_STATE_WITHDRAWING, nil).GetRoute().GetGeneration())
		l.awaitState(id, pb.State_STATE_REMOVED, nil)
	}
	end("a")
	f1 := l.agents["f1"]
	l.until("a is gone, and b is there", func() bool { return !serves(f1, 80) && serves(f1, 81) })

	l.addReady("f2")
	change(&controllerpb.Project{Forwarders: []string{"f2"}})
	l.request(balancing("c", 82))
	if r := l.awaitState("c", pb.State_STATE_ROUTING, nil); r.GetForwarder() != "f2" {
		t.Errorf("%v", r)
	}
	if !serves(f1, 81) {
		t.Error("b has left")
	}
	end("b")
	l.until("b is gone", func() bool { return !serves(f1, 81) })
}

// Services of a project at its quota still move: a request that is at two forwarders counts once.
func TestMovesWithinAQuota(t *testing.T) {
	l := workflowLab(t, 1, "f1", "f2")
	if _, err := l.controllers[0].admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{
		Project: &controllerpb.Project{Name: "nfv", MaxServices: 1, MaxServers: 2}})); err != nil {
		t.Fatal(err)
	}
	l.request(balancing("web", 80))
	from := l.awaitState("web", pb.State_STATE_ROUTING, nil).GetForwarder()
	l.confirm("web", 1)
	l.awaitState("web", pb.State_STATE_ROUTED, nil)
	l.agents[from].stop()
	s := l.awaitState("web", pb.State_STATE_ROUTING, func(s *pb.Status) bool { return s.GetRoute().GetGeneration() == 2 })
	if s.GetForwarder() == from || s.GetLeaving() != from || !serves(l.agents[s.GetForwarder()], 80) {
		t.Errorf("%v", s)
	}
}
