// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/internal/cluster"
	controllerpb "steelyard/internal/gen/controllerpb"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/nfv"
	"steelyard/internal/placement"

	"connectrpc.com/connect"
)

// portOf is a request for a port of the VIP 10.9.0.80.
func portOf(id string, port uint32) *pb.Balancing {
	b := balancing(id, 80)
	b.Virtual.Vport = port
	return b
}

func servesPort(f *runningAgent, port int) bool {
	return f.Server(fmt.Sprintf("10.9.0.80:%d", port), server) != nil
}

func (l *lab) refuses(u user, b *pb.Balancing, code connect.Code, says ...string) string {
	l.Helper()
	_, err := u.RequestBalancing(l.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: b}))
	if connect.CodeOf(err) != code || slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(fmt.Sprint(err), text) }) {
		l.Errorf("%s: %v", b.GetId(), err)
	}
	return fmt.Sprint(err)
}

// Two requests of a project share a VIP, each with its own port: they share forwarder and route, and each ends independently.
func TestRequestsShareAVIP(t *testing.T) {
	l := workflowLab(t, 1, "f1", "f2")
	l.request(portOf("http", 80))
	first := l.awaitState("http", pb.State_STATE_ROUTING, nil)
	l.confirm("http", 1)
	l.awaitState("http", pb.State_STATE_ROUTED, nil)
	l.request(portOf("https", 443))
	second := l.awaitState("https", pb.State_STATE_ROUTED, nil) // nothing is to be set
	if second.GetForwarder() != first.GetForwarder() || second.GetRoute().GetGeneration() != 1 || !second.GetRoute().GetConfirmed() ||
		!strings.Contains(second.GetWhy(), "the request http serves the VIP at "+first.GetForwarder()) {
		t.Errorf("%v", second)
	}
	from, to := "f1", "f2"
	if first.GetForwarder() == "f2" {
		from, to = to, from
	}
	if !servesPort(l.agents[from], 80) || !servesPort(l.agents[from], 443) || servesPort(l.agents[to], 443) {
		t.Error("wrong services")
	}

	// Both leave a forwarder together, and one confirmation is enough for both.
	l.agents[from].stop()
	for _, id := range []string{"http", "https"} {
		if s := l.awaitState(id, pb.State_STATE_ROUTING, nil); s.GetForwarder() != to || s.GetRoute().GetGeneration() != 2 || s.GetRoute().GetConfirmed() {
			t.Errorf("%v", s)
		}
	}
	l.confirm("https", 2)
	for _, id := range []string{"http", "https"} {
		l.awaitState(id, pb.State_STATE_ROUTED, nil)
	}
	if !servesPort(l.agents[to], 80) || !servesPort(l.agents[to], 443) {
		t.Error("not both have moved")
	}

	// The first one ends: the route stays for the other one, whose end withdraws it.
	l.remove("http")
	if s := l.awaitState("http", pb.State_STATE_REMOVED, nil); s.GetRoute() != nil {
		t.Errorf("%v", s)
	}
	l.until("its port is gone", func() bool { return !servesPort(l.agents[to], 80) })
	if s := l.awaitState("https", pb.State_STATE_ROUTED, nil); !servesPort(l.agents[to], 443) || s.GetRoute().GetWithdraw() {
		t.Errorf("%v", s)
	}
	l.request(portOf("again", 80)) // its port is free
	l.awaitState("again", pb.State_STATE_ROUTED, nil)
	for _, id := range []string{"again", "https"} {
		l.remove(id)
	}
	l.awaitState("again", pb.State_STATE_REMOVED, nil)
	l.confirm("https", l.awaitState("https", pb.State_STATE_WITHDRAWING, nil).GetRoute().GetGeneration())
	l.awaitState("https", pb.State_STATE_REMOVED, nil)
	l.until("the VIP is free", func() bool { return len(l.stored(keyVIPs)) == 0 && !servesPort(l.agents[to], 443) })
}

// A port belongs to one request, and a VIP to one project, whose name other projects do not learn.
func TestSecondRequestForAPortIsRefused(t *testing.T) {
	l := workflowLab(t, 1)
	admin := l.controllers[0].admin
	for _, name := range []string{"nfv", "other"} {
		setProject(l, &controllerpb.Project{Name: name, VipPrefixes: []string{"10.9.0.0/16"}, ServerPrefixes: []string{"10.1.0.0/16"}})
	}
	stranger := l.join(l.controllers[0], &controllerpb.CreateTokenRequest{Name: "op", Role: controllerpb.Role_ROLE_OPERATOR, Projects: []string{"other"}}, nil)
	web := portOf("web", 80)
	web.More = []*pb.VirtualService{{Vport: 443, Protocol: "udp", RealServices: []*pb.RealService{{Dip: "10.1.0.21", Dport: 8443}}}}
	l.request(web)
	l.request(portOf("https", 443)) // of TCP
	quic := portOf("quic", 443)
	quic.Virtual.Protocol = "udp"
	l.refuses(admin, quic, connect.CodeAlreadyExists, "the request web has 10.9.0.80 port udp/443 already", "steelyard nfv delete web")
	l.refuses(admin, portOf("more", 443), connect.CodeAlreadyExists, "the request https has 10.9.0.80 port tcp/443 already")
	grouped := portOf("grouped", 8080)
	grouped.Group = "pair"
	l.refuses(admin, grouped, connect.CodeFailedPrecondition, "the request web has 10.9.0.80 in no group")
	foreign := portOf("foreign", 8080)
	foreign.Project = "other"
	if says := l.refuses(stranger, foreign, connect.CodeAlreadyExists, "10.9.0.80 belongs to another project"); strings.Contains(says, "web") || strings.Contains(says, "nfv") {
		t.Error(says)
	}
	l.refuses(admin, foreign, connect.CodeAlreadyExists, "the request web of the project nfv")
}

// Of concurrent requests for one port one is accepted; concurrent requests for different ports are all accepted.
func TestOneOfConcurrentRequestsForAPortSucceeds(t *testing.T) {
	l := workflowLab(t, 2)
	const many = 8
	for round, ports := range []func(i int) uint32{func(int) uint32 { return 80 }, func(i int) uint32 { return uint32(1000 + i) }} {
		var asking sync.WaitGroup
		errs := make([]error, many)
		for i := range many {
			asking.Go(func() {
				b := portOf(fmt.Sprintf("r%d-%d", round, i), ports(i))
				_, errs[i] = l.controllers[i%2].admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: b}))
			})
		}
		asking.Wait()
		taken := 0
		for _, err := range errs {
			if err == nil {
				taken++
			} else if connect.CodeOf(err) != connect.CodeAlreadyExists {
				t.Error(err)
			}
		}
		if want := []int{1, many}[round]; taken != want {
			t.Errorf("%d, not %d: %v", taken, want, errs)
		}
	}
}

// A record of an older version names no ports: the request has the whole VIP.
func TestVIPRecordOfAnOlderVersionCoversAllPorts(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	l.request(portOf("web", 80))
	l.awaitState("web", pb.State_STATE_ROUTING, nil)
	l.commit(new(cluster.Txn).Put(keyVIPs+"10.9.0.80", []byte(`{"project":"nfv","request":"web","servers":2,"services":1}`), 0))
	l.refuses(l.controllers[0].admin, portOf("same", 80), connect.CodeAlreadyExists, "the request web has 10.9.0.80 port tcp/80 already")
	l.request(portOf("https", 443))
	l.awaitState("https", pb.State_STATE_ROUTING, nil)
	has, _, err := read[holder](t.Context(), l.store, keyVIPs+"10.9.0.80")
	if err != nil || has.Request != "web" || len(has.Ports) != 1 || len(has.More) != 1 || has.usage() != (usage{2, 4}) {
		t.Errorf("%+v, %v", has, err)
	}
}

// Orders to drain belong to the request with their port, and end with it alone.
func TestDrainsEndWithTheirRequestOnASharedVIP(t *testing.T) {
	for _, vip := range []string{"10.9.0.80", "fd00:9::80"} {
		t.Run(vip, func(t *testing.T) { drainsOfSharers(t, vip) })
	}
}

func drainsOfSharers(t *testing.T, vip string) {
	l := workflowLab(t, 1, "f1", "f2")
	admin := l.controllers[0].admin
	ask := func(b *pb.Balancing) {
		b.Virtual.Vip = vip
		l.request(b)
	}
	ask(portOf("http", 80))
	https := portOf("https", 443)
	https.More = []*pb.VirtualService{{Vport: 8443, RealServices: []*pb.RealService{{Dip: "10.1.0.21", Dport: 8080}}}}
	ask(https)
	at := l.awaitState("http", pb.State_STATE_ROUTING, nil).GetForwarder()
	l.awaitState("https", pb.State_STATE_ROUTING, nil)
	l.confirm("http", 1)
	l.awaitState("https", pb.State_STATE_ROUTED, nil)
	for _, name := range []string{"nfv.http", "nfv.https", "nfv.https.tcp-8443"} {
		l.mustOrder(admin, at, "10.1.0.21@"+name, true)
	}
	if got := len(l.stored(keyMoving)); got != 3 {
		t.Errorf("%d orders go with their requests", got)
	}
	l.agents[at].stop()
	to := l.agents[map[string]string{"f1": "f2", "f2": "f1"}[at]]
	l.awaitState("https", pb.State_STATE_ROUTING, nil)
	for _, port := range []string{"80", "443", "8443"} {
		l.awaitServer(to, net.JoinHostPort(vip, port), server, stateDrain)
	}
	l.remove("http")
	l.awaitState("http", pb.State_STATE_REMOVED, nil)
	l.until("its order ends with it", func() bool { return len(l.stored(keyMoving)) == 2 })
	l.awaitServer(to, net.JoinHostPort(vip, "443"), server, stateDrain)
}

// A forwarder refuses one of two requests: the other stays there and is served, and the VIP does not move for the refused one.
func TestRefusedRequestDoesNotMoveTheOther(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	l.request(portOf("web", 80))
	l.awaitState("web", pb.State_STATE_ROUTING, nil)
	l.confirm("web", 1)
	l.awaitState("web", pb.State_STATE_ROUTED, nil)
	l.addReady("f2")
	bad := portOf("bad", 443)
	bad.Settings = "health: { type: none }\naccess: nowhere" // a list that no forwarder has
	l.request(bad)
	s := l.awaitState("bad", pb.State_STATE_NEEDS_FORWARDER, nil)
	for _, want := range []string{"f1: ", "nowhere", "f2: the request web serves the VIP at f1"} {
		if !strings.Contains(s.GetWhy(), want) {
			t.Errorf("no %q in %s", want, s.GetWhy())
		}
	}
	if web := l.awaitState("web", pb.State_STATE_ROUTED, nil); web.GetForwarder() != "f1" || !servesPort(l.agents["f1"], 80) || servesPort(l.agents["f2"], 80) {
		t.Errorf("%v", web)
	}
	l.remove("bad")
	l.awaitState("bad", pb.State_STATE_REMOVED, nil)
	if web := l.awaitState("web", pb.State_STATE_ROUTED, nil); web.GetRoute().GetWithdraw() {
		t.Errorf("%v", web)
	}
}

// Overload moves all requests for a VIP together.
func TestRequestsOfAVIPMoveTogether(t *testing.T) {
	l := newLab(t, 0)
	l.tune = func(o *Options) {
		quick(o)
		o.MeasureEvery = time.Hour // the test writes what was measured
		o.Placement = placement.Options{Sustain: 100 * time.Millisecond, Settle: 100 * time.Millisecond, Rest: time.Hour, New: 0.001}
	}
	l.addController()
	for _, name := range []string{"f1", "f2"} {
		l.addReady(name)
	}
	load := func(name string, busy float64, parts map[string]traffic) {
		l.commit(new(cluster.Txn).Put(keyLoads+name, encode(measured{Busy: busy, Table: 0.01, Link: -1, Services: parts}), 0))
	}
	load("f1", 0.1, nil)
	load("f2", 0.2, nil)
	for id, port := range map[string]uint32{"http": 80, "https": 443} {
		l.request(portOf(id, port))
		if s := l.awaitState(id, pb.State_STATE_ROUTING, nil); s.GetForwarder() != "f1" {
			t.Fatalf("%v", s)
		}
	}
	l.confirm("http", 1)
	for _, id := range []string{"http", "https"} {
		l.awaitState(id, pb.State_STATE_ROUTED, nil)
	}
	// 60 % of the load goes: alone, neither would.
	load("f1", 0.9, map[string]traffic{"nfv.http": {Part: 0.3}, "nfv.https": {Part: 0.3}})
	for _, id := range []string{"http", "https"} {
		if s := l.awaitState(id, pb.State_STATE_ROUTING, nil); s.GetForwarder() != "f2" || s.GetLeaving() != "f1" || s.GetRoute().GetGeneration() != 2 {
			t.Errorf("%v", s)
		}
	}
	got, err := l.controllers[0].admin.GetPlacement(t.Context(), connect.NewRequest(&pb.GetPlacementRequest{}))
	if err != nil || !slices.ContainsFunc(got.Msg.GetForwarders(), func(p *pb.Place) bool { return p.GetForwarder() == "f2" && p.GetServices() == 2 }) {
		t.Errorf("%v, %v", got, err)
	}
}

// A leader dies between any two steps of two requests that share a VIP: the next one continues, and their routes are equal.
func TestRequestsOfAVIPSurviveTheLeadersDeath(t *testing.T) {
	l := leaderless(t)
	l.addReady("f1")
	for deaths := range 8 {
		ids := []string{fmt.Sprintf("a%d", deaths), fmt.Sprintf("b%d", deaths)}
		for i, id := range ids {
			b := balancing(id, 80+deaths)
			b.Virtual.Vport = uint32(80 + i)
			l.request(b)
		}
		driveToRouted(l, l.crew(), ids, deaths)
		driveToRouted(l, l.crew(), ids, 1000)
		var routes []nfv.Route
		for _, id := range ids {
			record, _, err := read[nfv.Record](t.Context(), l.store, keyRequests+id)
			if err != nil || record.State != pb.State_STATE_ROUTED || record.Route == nil {
				t.Fatalf("after %d steps: %+v, %v", deaths, record, err)
			}
			routes = append(routes, *record.Route)
		}
		if routes[0] != routes[1] || routes[0].Generation != 1 {
			t.Errorf("after %d steps: %+v", deaths, routes)
		}
	}
}

// driveToRouted lets a leader do some steps of requests, until all are routed. The caller confirms the route of the first one only.
func driveToRouted(l *lab, led *leader, ids []string, steps int) {
	for done := 0; done < steps; {
		l.show(led)
		routed, moved := 0, false
		for _, id := range ids {
			known := led.picture.requests[id]
			if known.State == pb.State_STATE_ROUTED {
				routed++
			}
			if id == ids[0] && known.State == pb.State_STATE_ROUTING && !known.Route.Confirmed {
				l.confirm(id, known.Route.Generation)
			}
		}
		if routed == len(ids) {
			return
		}
		for _, id := range ids {
			changed, err := led.step(l.Context(), id)
			if err != nil {
				l.Fatal(err)
			}
			if moved = changed; moved {
				break
			}
		}
		if !moved {
			written, err := led.writeFiles(l.Context())
			if err != nil {
				l.Fatal(err)
			}
			moved = written
		}
		if moved {
			done++
			continue
		}
		time.Sleep(2 * time.Millisecond) // lets the agent run; the next pass reads the result
	}
}

// A leader that dies has moved one of two requests that share a VIP: the next leader moves the other to the same forwarder, and no route leads away before.
func TestMoveOfAVIPSurvivesTheLeadersDeath(t *testing.T) {
	l := leaderless(t)
	for _, name := range []string{"f1", "f2", "f3"} {
		l.addReady(name)
	}
	ids := []string{"a", "b"}
	for i, id := range ids {
		l.request(portOf(id, uint32(80+i)))
	}
	first := l.crew()
	driveToRouted(l, first, ids, 1000)
	l.show(first)
	known := first.picture.requests["b"]
	to := map[string]string{"f1": "f2", "f2": "f3", "f3": "f1"}[known.Forwarder]
	next := known.copy()
	next.Move(to, "a test", time.Now())
	if err := first.save(t.Context(), known, next); err != nil {
		t.Fatal(err)
	}
	second := l.crew()
	l.until("both are routed at the other forwarder", func() bool {
		l.show(second)
		a, b := second.picture.requests["a"], second.picture.requests["b"]
		if b.Route.Forwarder == to && a.Forwarder != to {
			t.Fatalf("b's route leads to %s, and a is at %s", to, a.Forwarder)
		}
		for _, r := range []*request{a, b} {
			if r.State == pb.State_STATE_ROUTING && !r.Route.Confirmed {
				l.confirm(r.id, r.Route.Generation)
				return false
			}
		}
		if err := second.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		return a.State == pb.State_STATE_ROUTED && b.State == pb.State_STATE_ROUTED && a.Forwarder == to && *a.Route == *b.Route && a.Leaving == ""
	})
}
