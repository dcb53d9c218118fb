// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"steelyard/internal/dpclient/dptest"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	pb "steelyard/internal/gen/nfvpb"

	"connectrpc.com/connect"
)

// A forwarder has more services than one query reads: a request there still sees its first session, and its part is known.
func TestTrafficIsReadAmongManyServices(t *testing.T) {
	l := newLab(t, 0)
	l.tune = quick
	l.addController()
	var created, packets atomic.Uint64
	l.before = func(f *dptest.Forwarder) {
		f.Traffic = func(key *forwarderpb.ServiceKey, _ *forwarderpb.Server) *forwarderpb.Traffic {
			if key.GetVip()[1] != 9 {
				return &forwarderpb.Traffic{SessionsCreated: 5, PacketsIn: 1000}
			}
			return &forwarderpb.Traffic{SessionsCreated: created.Load(), PacketsIn: packets.Add(10)}
		}
		f.Workers = []*forwarderpb.Worker{{RxPackets: 1}}
	}
	f1 := l.addForwarder("f1")
	text := strings.Replace(base, "services: []\n", "services:\n", 1)
	for i := range maxServices + 1 {
		text += fmt.Sprintf("  - { name: own%d, vip: 10.8.%d.%d, port: 80, health: { type: none }, servers: [{ address: 10.1.0.30 }] }\n", i, i/250, i%250+1)
	}
	if _, err := apply(t.Context(), l.controllers[0].admin, "f1", "", text); err != nil {
		t.Fatal(err)
	}
	l.request(balancing("web", 80))
	l.awaitState("web", pb.State_STATE_ROUTING, nil)
	l.confirm("web", 1)
	l.awaitState("web", pb.State_STATE_ROUTED, nil)
	created.Store(1)
	l.awaitState("web", pb.State_STATE_SERVING, nil)
	if !serves(f1, 80) {
		t.Error("the forwarder does not have it")
	}
}

// Services are read in rotation; a service's part is that of the packets since its last reading.
func TestTrafficPartsAreSinceTheLastReading(t *testing.T) {
	m := &meter{}
	of := requested{others: []string{"p.a", "p.b"}}
	list := func(name string, packets, created uint64) *agentpb.ListServicesResponse {
		return &agentpb.ListServicesResponse{Services: []*agentpb.ServiceInfo{{Service: &forwarderpb.Service{Name: name},
			Traffic: &forwarderpb.Traffic{PacketsIn: packets, SessionsCreated: created}}}}
	}
	for i, step := range []struct {
		name              string
		received, packets uint64
		want              map[string]float64
	}{
		{"p.a", 1000, 100, map[string]float64{"p.a": -1}},
		{"p.b", 2000, 100, map[string]float64{"p.a": -1, "p.b": -1}},
		{"p.a", 3000, 700, map[string]float64{"p.a": 0.3, "p.b": -1}},
		{"p.b", 4000, 300, map[string]float64{"p.a": 0.3, "p.b": 0.1}},
		{"p.a", 500, 50, map[string]float64{"p.a": -1, "p.b": 0.1}}, // the forwarder counts from 0 again
	} {
		m.some.received = step.received
		m.load.Services = m.partly(list(step.name, step.packets, 1), of)
		for name, want := range step.want {
			if got := m.load.Services[name].Part; got != want || len(m.load.Services) != len(step.want) {
				t.Errorf("step %d: %s has %v, not %v", i, name, got, want)
			}
		}
	}
	if m.load.Services = m.partly(&agentpb.ListServicesResponse{}, requested{others: []string{"p.b"}}); len(m.load.Services) != 1 || len(m.some.seen) != 1 {
		t.Errorf("what has left is kept: %v", m.load.Services)
	}

	at, names := 0, []string{"a", "b", "c"}
	var turns []string
	for range 3 {
		turns = append(turns, strings.Join(turn(names, &at, 2), ""))
	}
	if want := []string{"ab", "ca", "bc"}; !slices.Equal(turns, want) {
		t.Errorf("%v", turns)
	}
}

// An agent without counters from its forwarder reports no packets.
func TestTrafficWithoutCountersKeepsItsValues(t *testing.T) {
	m := &meter{}
	list := func(a, b uint64) *agentpb.ListServicesResponse {
		response := &agentpb.ListServicesResponse{}
		for name, packets := range map[string]uint64{"p.a": a, "p.b": b} {
			one := &agentpb.ServiceInfo{Service: &forwarderpb.Service{Name: name}}
			if packets > 0 {
				one.Traffic = &forwarderpb.Traffic{PacketsIn: packets, SessionsCreated: packets}
			}
			response.Services = append(response.Services, one)
		}
		return response
	}
	for i, step := range []struct{ a, b, wantA, wantB float64 }{
		{1000, 1000, -1, -1}, {1300, 1100, 0.75, 0.25}, {0, 0, 0.75, 0.25}, {1400, 1400, 0.25, 0.75}, {1500, 0, 1, 0.75}, {1600, 1500, 0.5, 0.5},
	} {
		m.load.Services = m.traffic(list(uint64(step.a), uint64(step.b)))
		if a, b := m.load.Services["p.a"], m.load.Services["p.b"]; a.Part != step.wantA || b.Part != step.wantB || a.Created == 0 || b.Created == 0 {
			t.Errorf("step %d: %v, %v", i, a, b)
		}
	}
	of := requested{others: []string{"p.a", "p.b"}}
	m.some.received = 2000
	m.partly(list(2000, 2000), of)
	m.some.received = 3000
	m.load.Services = m.partly(list(2100, 0), of)
	m.some.received = 4000
	m.load.Services = m.partly(list(0, 2400), of)
	if a, b := m.load.Services["p.a"], m.load.Services["p.b"]; a.Part != 0.1 || b.Part != 0.2 {
		t.Errorf("in turns: %v, %v", a, b)
	}
}

// allAgent answers with all services, whatever the query names.
type allAgent struct {
	agentpbconnect.AgentServiceClient
	names []string
}

func (a allAgent) ListServices(context.Context, *connect.Request[agentpb.ListServicesRequest]) (*connect.Response[agentpb.ListServicesResponse], error) {
	response := &agentpb.ListServicesResponse{}
	for _, name := range a.names {
		response.Services = append(response.Services, &agentpb.ServiceInfo{Service: &forwarderpb.Service{Name: name}, Traffic: &forwarderpb.Traffic{SessionsCreated: 1}})
	}
	return connect.NewResponse(response), nil
}

func TestTrafficThatWasNotAskedFor(t *testing.T) {
	m := &meter{session: &session{agent: allAgent{names: []string{"p.mine", "p.other", "q.own"}}}}
	m.readServices(t.Context(), maxServices+1, requested{others: []string{"p.mine"}})
	if _, found := m.load.Services["p.mine"]; !found || len(m.load.Services) != 1 || len(m.some.seen) != 1 {
		t.Errorf("%v, %v", m.load.Services, m.some.seen)
	}
}

// A service that waits for its first session is reported, however many are busier.
func TestFirstSessionsAreReportedFirst(t *testing.T) {
	services, of := map[string]traffic{}, requested{waiting: []string{"p.idle", "p.slow"}}
	for i := range 3 * maxTraffic {
		services[fmt.Sprintf("p.busy%03d", i)] = traffic{0.1, 100}
	}
	services["p.slow"], services["p.idle"] = traffic{0, 1}, traffic{0, 0}
	got := maxOf(services, of)
	if _, found := got["p.slow"]; !found || len(got) != maxTraffic {
		t.Errorf("%d: %v", len(got), got)
	}
}
