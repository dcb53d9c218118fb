// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/dpclient/dptest"
	controllerpb "steelyard/internal/gen/controllerpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/nfv"
	"steelyard/internal/placement"

	"connectrpc.com/connect"
)

// base is a forwarder's own file, which services depend on.
const base = "version: 1\nlocal_addresses: [10.1.0.200]\nnext_hops: [fd00::11, 10.0.0.11]\nservices: []\n"

// quick shortens the workflow's periods, so that a test waits for events only.
func quick(o *Options) {
	o.WorkflowTick, o.MeasureEvery = 20*time.Millisecond, 20*time.Millisecond
	o.Placement = placement.Options{Dead: 200 * time.Millisecond}
}

// workflowLab has controllers and forwarders with their own files.
func workflowLab(t *testing.T, controllers int, forwarders ...string) *lab {
	l := newLab(t, 0)
	l.tune = quick
	for range controllers {
		l.addController()
	}
	for _, name := range forwarders {
		l.addReady(name)
	}
	return l
}

func (l *lab) addReady(name string) *runningAgent {
	l.Helper()
	f := l.addForwarder(name)
	if _, err := apply(l.Context(), l.controllers[0].admin, name, "", base); err != nil {
		l.Fatal(err)
	}
	return f
}

func balancing(id string, host int) *pb.Balancing {
	return &pb.Balancing{Id: id, Settings: "health: { type: none }", Virtual: &pb.VirtualService{Vip: fmt.Sprintf("10.9.0.%d", host), Vport: 80,
		RealServices: []*pb.RealService{{Dip: "10.1.0.21", Dport: 8080}, {Dip: "10.1.0.22", Dport: 8080, Weight: 3}}}}
}

func (l *lab) request(b *pb.Balancing) *pb.RequestBalancingResponse {
	l.Helper()
	response, err := l.controllers[0].admin.RequestBalancing(l.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: b}))
	if err != nil {
		l.Fatal(err)
	}
	return response.Msg
}

// awaitState waits for a request's state as a management system does: by the stream of events.
func (l *lab) awaitState(id string, state pb.State, is func(*pb.Status) bool) *pb.Status {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 4*time.Minute)
	defer cancel()
	var last *pb.Status
	for ctx.Err() == nil { // a controller that is stopped ends its streams
		for _, c := range l.controllers {
			stream, err := c.admin.WatchBalancings(ctx, connect.NewRequest(&pb.WatchBalancingsRequest{Id: id}))
			if err != nil {
				continue
			}
			for stream.Receive() {
				if last = stream.Msg().GetStatus(); last.GetState() == state && (is == nil || is(last)) {
					stream.Close()
					return last
				}
			}
			stream.Close()
		}
	}
	l.Fatalf("%s is not %s: %v", id, state, last)
	return nil
}

func (l *lab) confirm(id string, generation uint64) {
	l.Helper()
	for _, c := range l.controllers {
		if _, err := c.admin.ConfirmRoute(l.Context(), connect.NewRequest(&pb.ConfirmRouteRequest{Id: id, Generation: generation})); err == nil {
			return
		} else if connect.CodeOf(err) != connect.CodeUnavailable {
			l.Fatal(err)
		}
	}
	l.Fatal("no controller takes the confirmation")
}

func (l *lab) remove(id string) *pb.Status {
	l.Helper()
	response, err := l.controllers[0].admin.DeleteBalancing(l.Context(), connect.NewRequest(&pb.DeleteBalancingRequest{Id: id}))
	if err != nil {
		l.Fatal(err)
	}
	return response.Msg.GetStatus()
}

func serves(f *runningAgent, host int) bool {
	return f.Server(fmt.Sprintf("10.9.0.%d:80", host), "10.1.0.21:8080") != nil
}

func TestWorkflow(t *testing.T) {
	l := newLab(t, 0)
	l.tune = quick
	l.addController()
	admin := l.controllers[0].admin

	// 1, 2: there is no forwarder yet; an event reports it, so that a management system can act.
	if got := l.request(balancing("web", 80)); got.GetExisted() || got.GetStatus().GetState() != pb.State_STATE_ACKNOWLEDGED {
		t.Errorf("%v", got)
	}
	if s := l.awaitState("web", pb.State_STATE_NEEDS_FORWARDER, nil); s.GetWhy() != "there is no forwarder" {
		t.Error(s.GetWhy())
	}
	if got := l.request(balancing("web", 80)); !got.GetExisted() { // a caller that has lost the answer repeats its request
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		b    *pb.Balancing
		want string
	}{{balancing("web", 81), "with other contents"}, {balancing("other", 80), "the request web has 10.9.0.80 port tcp/80 already"}} {
		_, err := admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: c.b}))
		if connect.CodeOf(err) != connect.CodeAlreadyExists || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v", err)
		}
	}
	// 3, 4, 5: one joins, is configured, and confirms; the route is published.
	var created atomic.Uint64
	l.before = func(f *dptest.Forwarder) {
		f.Traffic = func(_ *forwarderpb.ServiceKey, _ *forwarderpb.Server) *forwarderpb.Traffic {
			return &forwarderpb.Traffic{SessionsCreated: created.Load()}
		}
	}
	f1 := l.addReady("f1")
	s := l.awaitState("web", pb.State_STATE_ROUTING, nil)
	if r := s.GetRoute(); r.GetDestination() != "10.9.0.80/32" || r.GetNextHop() != "10.0.0.11" || r.GetForwarder() != "f1" || r.GetGeneration() != 1 {
		t.Errorf("%v", r)
	}
	if !serves(f1, 80) {
		t.Error("the forwarder does not have it")
	}
	if _, err := admin.ConfirmRoute(t.Context(), connect.NewRequest(&pb.ConfirmRouteRequest{Id: "web", Generation: 2})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("%v", err)
	}
	// 6, 7
	l.confirm("web", 1)
	l.awaitState("web", pb.State_STATE_ROUTED, nil)
	created.Store(1)
	l.awaitState("web", pb.State_STATE_SERVING, nil)
	// 8: what the real services get.
	got, err := admin.GetBalancing(t.Context(), connect.NewRequest(&pb.GetBalancingRequest{Id: "web"}))
	if err != nil || len(got.Msg.GetStatus().GetWarnings()) > 0 {
		t.Fatal(err, got.Msg.GetStatus().GetWarnings())
	}
	reals := got.Msg.GetStatus().GetWanted().GetVirtual().GetRealServices()
	if a, b := reals[0], reals[1]; a.GetHealth() != 1 || a.GetReserved().GetTo() != 0.25 || b.GetReserved().GetFrom() != 0.25 || b.GetReserved().GetTo() != 1 || a.GetKey() == b.GetKey() {
		t.Errorf("%v", reals)
	}
	// No other caller may write the project's file.
	if _, err := apply(t.Context(), admin, "f1", "nfv", part(9, 1, 1)); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("%v", err)
	}
	// The end, and its repetition.
	l.remove("web")
	w := l.awaitState("web", pb.State_STATE_WITHDRAWING, nil)
	if !serves(f1, 80) || !w.GetRoute().GetWithdraw() {
		t.Errorf("%v", w)
	}
	l.confirm("web", w.GetRoute().GetGeneration())
	l.awaitState("web", pb.State_STATE_REMOVED, nil)
	l.until("the forwarder is rid of it", func() bool { return !serves(f1, 80) })
	l.remove("web")
	l.request(balancing("again", 80)) // the VIP is free
	l.awaitState("again", pb.State_STATE_ROUTING, nil)
	list, err := admin.ListBalancings(t.Context(), connect.NewRequest(&pb.ListBalancingsRequest{}))
	if err != nil || len(list.Msg.GetBalancings()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// crew returns a leader that a test drives step by step; it dies where the test stops.
func (l *lab) crew() *leader {
	l.Helper()
	s := &Server{store: l.store, id: "hand", now: time.Now, ctx: l.Context(), log: l.log("hand")}
	entry, err := l.store.Get(l.Context(), keyLeader)
	if err != nil {
		l.Fatal(err)
	}
	fence, err := l.store.Commit(l.Context(), new(cluster.Txn).Unchanged(entry).Put(keyLeader, encode(owner{ID: "hand"}), 0))
	if err != nil {
		l.Fatal(err)
	}
	led, _, err := s.newLeader(l.Context(), fence)
	if err != nil {
		l.Fatal(err)
	}
	return led
}

// leaderless returns a controller that does not work on requests, because a dead one leads: see crew().
func leaderless(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, 0)
	l.tune = func(o *Options) { quick(o); o.WorkflowTick = time.Hour }
	if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(keyLeader, encode(owner{ID: "dead"}), 0)); err != nil {
		t.Fatal(err)
	}
	l.addController()
	return l
}

// Each function of a leader commits one transaction for one request. The leader is killed after each of them in turn; another one continues, and
// later steps of the killed one are refused.
func TestRequestSurvivesTheLeadersDeathAtEachStep(t *testing.T) {
	l := leaderless(t)
	f1 := l.addReady("f1")
	const maximum = 10
	for deaths := range maximum {
		id, host := fmt.Sprintf("web%d", deaths), 80+deaths
		l.request(balancing(id, host))
		first := l.crew()
		finished := drive(l, first, id, deaths)
		second := l.crew()
		if drive(l, second, id, 1000) != true {
			t.Fatalf("after %d steps, the next one does not come to the end", deaths)
		}
		record, _, err := read[nfv.Record](t.Context(), l.store, keyRequests+id)
		if err != nil || record.State != pb.State_STATE_REMOVED || serves(f1, host) {
			t.Fatalf("after %d steps: %+v, %v", deaths, record, err)
		}
		if len(record.History) != 7 { // nothing was done twice: acknowledged, configuring, routing, routed, serving, withdrawing, removed
			t.Errorf("after %d steps: %+v", deaths, record.History)
		}
		// The former leader wakes up again.
		known := first.picture.requests[id]
		if err := first.save(t.Context(), known, known.copy()); !errors.Is(err, errNotLeader) {
			t.Errorf("after %d steps: %v", deaths, err)
		}
		if finished != (deaths == maximum-1) {
			t.Errorf("%d steps: the end is %v", deaths, finished)
		}
	}
}

// drive lets a leader do some steps of a request, up to its end. Returns true if the end was reached. The caller's part is done at once.
func drive(l *lab, led *leader, id string, steps int) bool {
	ctx := l.Context()
	for done := 0; done < steps; {
		l.show(led)
		known := led.picture.requests[id]
		switch {
		case known.State == pb.State_STATE_REMOVED:
			if _, err := led.writeFiles(ctx); err != nil {
				l.Fatal(err)
			}
			l.until("it left the forwarder", func() bool { return !serves(l.agents["f1"], hostOf(known)) })
			return true
		case known.State == pb.State_STATE_ROUTING && known.Route.NextHop != "10.0.0.11":
			l.Fatalf("the route has no next hop: %+v", known.Route)
		case known.State == pb.State_STATE_ROUTING && !known.Route.Confirmed, known.State == pb.State_STATE_WITHDRAWING && !known.Route.Confirmed:
			l.confirm(id, known.Route.Generation)
			continue
		case known.State == pb.State_STATE_ROUTED:
			led.picture.loads["f1"] = measured{Services: map[string]traffic{known.names()[0]: {Created: 1}}}
		case known.State == pb.State_STATE_SERVING && !known.Deleted:
			l.remove(id)
			continue
		}
		changed, err := led.step(ctx, id)
		if err == nil && !changed {
			changed, err = led.writeFiles(ctx)
		}
		if err != nil {
			l.Fatal(err)
		}
		if changed {
			done++
			continue
		}
		time.Sleep(2 * time.Millisecond) // lets the agent run; the next pass reads the result
	}
	return false
}

// show updates a leader's picture from the store, as its watch would.
func (l *lab) show(led *leader) {
	for _, kind := range seenKinds {
		entries, _, err := l.store.List(l.Context(), kind)
		if err != nil {
			l.Fatal(err)
		}
		for _, entry := range entries {
			led.see(cluster.Event{Entry: entry})
		}
	}
}

func hostOf(r *request) int {
	var host int
	_, _ = fmt.Sscanf(r.wanted.GetVirtual().GetVip(), "10.9.0.%d", &host)
	return host
}

// The controller that works on requests is killed; another one continues when its lease has expired.
func TestTakeoverOfTheWorkflow(t *testing.T) {
	l := workflowLab(t, 2, "f1")
	l.request(balancing("one", 80))
	l.awaitState("one", pb.State_STATE_ROUTING, nil)
	leads, _, err := read[owner](t.Context(), l.store, keyLeader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range l.controllers {
		if c.url == leads.URL {
			c.kill()
		}
	}
	l.until("another one leads", func() bool {
		now, entry, err := read[owner](t.Context(), l.store, keyLeader)
		return err == nil && entry.Revision != 0 && now.URL != leads.URL
	})
	l.confirm("one", 1)
	l.awaitState("one", pb.State_STATE_ROUTED, nil)
}

func TestRefusedServicesGoElsewhere(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	f1 := l.agents["f1"]
	f1.Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "not here"}, "10.9.0.81")
	// They may be in one file: the valid ones stay.
	for i := range 3 {
		l.request(balancing(fmt.Sprintf("s%d", i), 80+i))
	}
	l.awaitState("s0", pb.State_STATE_ROUTING, nil)
	l.awaitState("s2", pb.State_STATE_ROUTING, nil)
	if s := l.awaitState("s1", pb.State_STATE_NEEDS_FORWARDER, nil); !strings.Contains(s.GetWhy(), "f1: it refuses this") {
		t.Error(s.GetWhy())
	}
	f2 := l.addReady("f2")
	if s := l.awaitState("s1", pb.State_STATE_ROUTING, nil); s.GetForwarder() != "f2" || !strings.Contains(s.GetWhy(), "f1: it refuses this") {
		t.Errorf("%v", s)
	}
	if !serves(f1, 80) || serves(f1, 81) || !serves(f1, 82) || !serves(f2, 81) {
		t.Error("wrong services")
	}
}

// A VIP of a file cannot be requested; others can.
func TestRequestForAVIPInUseIsRefused(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	taken := strings.Replace(base, "services: []", "services:\n  - { name: own, vip: 10.9.0.80, port: 80, health: { type: none }, servers: [{ address: 10.1.0.30 }] }", 1)
	if _, err := apply(t.Context(), l.controllers[0].admin, "f1", "", taken); err != nil {
		t.Fatal(err)
	}
	_, err := l.controllers[0].admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: balancing("a", 80)}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "10.9.0.80 belongs to the project default") {
		t.Error(err)
	}
	l.request(balancing("b", 81))
	l.awaitState("b", pb.State_STATE_ROUTING, nil)
}

func TestServicesLeaveADeadForwarder(t *testing.T) {
	l := workflowLab(t, 1, "f1", "f2")
	at := map[string]string{}
	for i := range 4 {
		id := fmt.Sprintf("s%d", i)
		l.request(balancing(id, 80+i))
		at[id] = l.awaitState(id, pb.State_STATE_ROUTING, nil).GetForwarder()
		l.confirm(id, 1)
		l.awaitState(id, pb.State_STATE_ROUTED, nil)
	}
	count := map[string]int{}
	for _, name := range at {
		count[name]++
	}
	if count["f1"] != 2 || count["f2"] != 2 {
		t.Errorf("not evenly: %v", at)
	}
	f1 := l.agents["f1"]
	f1.stop()
	for id, name := range at {
		if name != "f1" {
			continue
		}
		s := l.awaitState(id, pb.State_STATE_ROUTING, func(s *pb.Status) bool { return s.GetRoute().GetGeneration() == 2 })
		if s.GetForwarder() != "f2" || s.GetLeaving() != "f1" || !strings.Contains(s.GetWhy(), "f1 its agent is not connected") || s.GetRoute().GetForwarder() != "f2" {
			t.Errorf("%v", s)
		}
		l.confirm(id, 2)
		l.awaitState(id, pb.State_STATE_ROUTED, nil)
	}
	for i := range 4 {
		if !serves(l.agents["f2"], 80+i) {
			t.Errorf("s%d is not at f2", i)
		}
	}
	// It restarts, and drops the services that have moved away.
	f1.options.Token = ""
	l.start(f1)
	l.until("f1 is rid of all", func() bool { return !serves(f1, 80) && !serves(f1, 81) && !serves(f1, 82) && !serves(f1, 83) })
}

func TestWhoMayRequest(t *testing.T) {
	l := workflowLab(t, 1)
	c := l.controllers[0]
	setProject(l, &controllerpb.Project{Name: "nfv", VipPrefixes: []string{"10.0.0.0/8"}, ServerPrefixes: []string{"10.1.0.0/16"}})
	operator := l.join(c, &controllerpb.CreateTokenRequest{Name: "ops", Role: controllerpb.Role_ROLE_OPERATOR, Projects: []string{"nfv"}}, nil)
	viewer := l.join(c, &controllerpb.CreateTokenRequest{Name: "view", Role: controllerpb.Role_ROLE_VIEWER}, nil)
	ask := func(u user, b *pb.Balancing) connect.Code {
		_, err := u.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: b}))
		if err == nil {
			return 0
		}
		return connect.CodeOf(err)
	}
	foreign := balancing("foreign", 82)
	foreign.Project = "shop"
	for name, c := range map[string]struct{ got, want connect.Code }{
		"an operator in its project":     {ask(operator, balancing("mine", 80)), 0},
		"an operator in another project": {ask(operator, foreign), connect.CodePermissionDenied},
		"a viewer":                       {ask(viewer, balancing("theirs", 81)), connect.CodePermissionDenied},
		"a project that is not there":    {ask(c.admin, foreign), connect.CodeNotFound},
		"a bad one":                      {ask(c.admin, &pb.Balancing{Id: "bad"}), connect.CodeInvalidArgument},
		"a name that is none":            {ask(c.admin, balancing("a/b", 80)), connect.CodeInvalidArgument},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s", name, c.got)
		}
	}
	if _, err := viewer.DeleteBalancing(t.Context(), connect.NewRequest(&pb.DeleteBalancingRequest{Id: "mine"})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("%v", err)
	}
	if list, err := viewer.ListBalancings(t.Context(), connect.NewRequest(&pb.ListBalancingsRequest{})); err != nil || len(list.Msg.GetBalancings()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// One request has several ports of a VIP, and both protocols: one route, one forwarder, one end.
func TestRequestWithSeveralPortsIsOneUnit(t *testing.T) {
	l := newLab(t, 0)
	l.tune = quick
	l.addController()
	admin := l.controllers[0].admin
	var created atomic.Uint64
	l.before = func(f *dptest.Forwarder) {
		f.Traffic = func(key *forwarderpb.ServiceKey, _ *forwarderpb.Server) *forwarderpb.Traffic {
			if key.GetPort() != 443 {
				return &forwarderpb.Traffic{}
			}
			return &forwarderpb.Traffic{SessionsCreated: created.Load()}
		}
	}
	f1 := l.addReady("f1")
	shop := balancing("shop", 80)
	shop.More = []*pb.VirtualService{
		{Vport: 443, Settings: "scheduler: rr", RealServices: []*pb.RealService{{Dip: "10.1.0.21", Dport: 8443}}},
		{Vip: "10.9.0.80", Vport: 443, Protocol: "udp", RealServices: []*pb.RealService{{Dip: "10.1.0.21", Dport: 8443}}},
	}
	l.request(shop)
	if got := l.request(shop); !got.GetExisted() {
		t.Error("the same request is another one")
	}
	s := l.awaitState("shop", pb.State_STATE_ROUTING, nil)
	if r := s.GetRoute(); r.GetDestination() != "10.9.0.80/32" || r.GetGeneration() != 1 {
		t.Errorf("%v", r)
	}
	if !serves(f1, 80) || f1.Server("10.9.0.80:443", "10.1.0.21:8443") == nil {
		t.Error("the forwarder does not have both")
	}
	l.confirm("shop", 1)
	l.awaitState("shop", pb.State_STATE_ROUTED, nil)
	created.Store(1) // of a further port alone
	l.awaitState("shop", pb.State_STATE_SERVING, nil)
	got, err := admin.GetBalancing(t.Context(), connect.NewRequest(&pb.GetBalancingRequest{Id: "shop"}))
	if err != nil || len(got.Msg.GetStatus().GetWarnings()) > 0 {
		t.Fatal(err, got.Msg.GetStatus().GetWarnings())
	}
	for _, v := range got.Msg.GetStatus().GetWanted().GetMore() {
		if v.GetKey() == "" || v.GetRealServices()[0].GetHealth() != 1 || v.GetRealServices()[0].GetReserved().GetTo() != 1 {
			t.Errorf("%v", v)
		}
	}
	l.remove("shop")
	l.confirm("shop", l.awaitState("shop", pb.State_STATE_WITHDRAWING, nil).GetRoute().GetGeneration())
	l.awaitState("shop", pb.State_STATE_REMOVED, nil)
	l.until("the forwarder drops both", func() bool { return !serves(f1, 80) && f1.Server("10.9.0.80:443", "10.1.0.21:8443") == nil })
	l.request(balancing("other", 80)) // the VIP is free
}

// Each port counts against the quota of services, and all servers count against that of servers.
func TestPortsCountAgainstTheQuota(t *testing.T) {
	l := newLab(t, 1)
	admin := l.controllers[0].admin
	set := func(services, servers uint32) {
		if _, err := admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: &controllerpb.Project{Name: "nfv", MaxServices: services, MaxServers: servers}})); err != nil {
			t.Fatal(err)
		}
	}
	shop := balancing("shop", 80)
	shop.More = []*pb.VirtualService{{Vport: 443, RealServices: []*pb.RealService{{Dip: "10.1.0.21", Dport: 8443}}}}
	for want, quota := range map[string][2]uint32{"its quota is 1: ": {1, 0}, "its quota is 2: ": {2, 2}} {
		set(quota[0], quota[1])
		if _, err := admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: shop})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	set(2, 3)
	l.request(shop)
}
