// SPDX-License-Identifier: Apache-2.0

package nfv

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"steelyard/internal/config"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/model"
	"steelyard/internal/placement"
)

// world is one that a test makes up.
type world struct {
	now       time.Time
	waited    time.Duration
	choice    placement.Choice
	file      int64
	fileError error
	confirmed bool
	refusal   error
	sessions  bool
	company   bool
	sharers   []Sharer
	nodes     []string // next hops of a group; nil: a single forwarder
}

func (w *world) Now() time.Time                        { return w.now }
func (w *world) Waited() time.Duration                 { return w.waited }
func (w *world) Place() placement.Choice               { return w.choice }
func (w *world) File(string) (int64, error)            { return w.file, w.fileError }
func (w *world) Confirmed(string, int64) (bool, error) { return w.confirmed, w.refusal }
func (w *world) Sessions(string) bool                  { return w.sessions }
func (w *world) NextHops(_ string, _ netip.Addr) ([]string, bool) {
	if w.nodes != nil {
		return w.nodes, true
	}
	return []string{"10.1.0.200"}, false
}
func (w *world) Company(string) bool { return w.company }
func (w *world) Sharers() []Sharer   { return w.sharers }

func wanted() *pb.Balancing {
	return &pb.Balancing{Id: "web", Virtual: &pb.VirtualService{Vip: "10.9.0.80", Vport: 80, RealServices: []*pb.RealService{{Dip: "10.1.0.21", Dport: 8080}}},
		Settings: "scheduler: rr\nhealth: { type: none }", RoutingLimitS: 5, Predecessors: []string{"fw1"}}
}

func newRecord(t *testing.T) (*Record, *world) {
	t.Helper()
	b, err := Normal(wanted())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{now: time.Unix(1_000_000, 0)}
	r, err := NewRecord(b, w.now)
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// step makes steps until nothing changes. Between them the record is written and read, as a controller that takes over reads it.
func step(t *testing.T, r *Record, w *world) {
	t.Helper()
	for range 10 {
		changed, err := r.Step(w)
		if err != nil {
			t.Fatal(err)
		}
		if !changed {
			return
		}
		w.waited = 0
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		*r = Record{}
		if err := json.Unmarshal(data, r); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("it does not come to rest: %+v", r)
}

func expect(t *testing.T, r *Record, state pb.State) {
	t.Helper()
	if r.State != state {
		t.Fatalf("state %s, not %s: %+v", r.State, state, r)
	}
}

func TestFromRequestToEnd(t *testing.T) {
	r, w := newRecord(t)
	w.choice = placement.Choice{Forwarder: "f1", Why: "workers 3%"}
	step(t, r, w)
	expect(t, r, pb.State_STATE_CONFIGURING)
	w.file = 7
	step(t, r, w)
	if expect(t, r, pb.State_STATE_CONFIGURING); r.Revision != 7 {
		t.Errorf("revision %d", r.Revision)
	}
	w.confirmed = true
	step(t, r, w)
	expect(t, r, pb.State_STATE_ROUTING)
	if want := (Route{Generation: 1, Destination: "10.9.0.80/32", NextHop: "10.1.0.200", Forwarder: "f1"}); *r.Route != want {
		t.Errorf("%+v", r.Route)
	}
	status, err := r.Status(9)
	if err != nil || status.GetRoute().GetPredecessors()[0] != "fw1" || status.GetWanted().GetVirtual().GetKey() == "" {
		t.Errorf("%v, %v", status, err)
	}
	r.Route.Confirmed = true
	step(t, r, w)
	expect(t, r, pb.State_STATE_ROUTED)
	w.sessions = true
	step(t, r, w)
	expect(t, r, pb.State_STATE_SERVING)

	r.Move("f2", "f1 is not connected", w.now)
	w.confirmed = false
	step(t, r, w)
	if expect(t, r, pb.State_STATE_CONFIGURING); r.Leaving != "f1" || !r.On("f1") || !r.On("f2") || !r.Settled("f1") || r.Settled("f2") {
		t.Errorf("%+v", r)
	}
	w.confirmed = true
	step(t, r, w)
	if expect(t, r, pb.State_STATE_ROUTING); r.Route.Generation != 2 || r.Route.Forwarder != "f2" || r.Route.Confirmed || !r.On("f1") {
		t.Errorf("%+v, %+v", r, r.Route)
	}
	w.waited = time.Minute // an unconfirmed move does not end the service
	step(t, r, w)
	expect(t, r, pb.State_STATE_ROUTING)
	r.Route.Confirmed = true
	step(t, r, w)
	if expect(t, r, pb.State_STATE_SERVING); r.On("f1") {
		t.Errorf("%+v", r)
	}

	if !r.Delete(w.now) || r.Delete(w.now) {
		t.Error("deleting again is nothing new")
	}
	step(t, r, w)
	if expect(t, r, pb.State_STATE_WITHDRAWING); !r.Route.Withdraw || r.Route.Generation != 3 || !r.On("f2") {
		t.Errorf("%+v", r.Route)
	}
	r.Route.Confirmed = true
	step(t, r, w)
	if expect(t, r, pb.State_STATE_REMOVED); r.On("f2") || r.Forgotten(w.now) || !r.Forgotten(w.now.Add(RemovedLife+time.Second)) {
		t.Errorf("%+v", r)
	}
}

// At a group, the route follows the nodes that serve.
func TestRouteOfAGroup(t *testing.T) {
	r, w := newRecord(t)
	w.choice, w.file, w.confirmed, w.nodes = placement.Choice{Forwarder: "group/edge"}, 7, true, []string{"10.9.0.1", "10.9.0.2"}
	for r.State != pb.State_STATE_ROUTING {
		step(t, r, w)
	}
	status, err := r.Status(9)
	if err != nil || strings.Join(status.GetRoute().GetNextHops(), " ") != "10.9.0.1 10.9.0.2" || status.GetRoute().GetNextHop() != "10.9.0.1" || r.Route.Generation != 1 {
		t.Errorf("%v, %v", status, err)
	}
	w.nodes = []string{"10.9.0.2"} // one dies before the route is set
	step(t, r, w)
	if expect(t, r, pb.State_STATE_ROUTING); r.Route.Generation != 2 || r.Route.NextHops != "10.9.0.2" {
		t.Errorf("%+v", r.Route)
	}
	r.Route.Confirmed, w.sessions = true, true
	for r.State != pb.State_STATE_SERVING {
		step(t, r, w)
	}
	for _, one := range []struct {
		nodes      []string
		state      pb.State
		generation uint64
	}{
		{[]string{}, pb.State_STATE_SERVING, 2}, // none serves: no better route is known
		{[]string{"10.9.0.2"}, pb.State_STATE_SERVING, 2},
		{[]string{"10.9.0.1", "10.9.0.2"}, pb.State_STATE_ROUTING, 3},
	} {
		w.nodes = one.nodes
		step(t, r, w)
		if expect(t, r, one.state); r.Route.Generation != one.generation || !r.On("group/edge") {
			t.Errorf("%+v", r.Route)
		}
	}
	w.waited = time.Hour // it is not confirmed: the service goes on
	step(t, r, w)
	expect(t, r, pb.State_STATE_ROUTING)
}

func TestNeedsForwarder(t *testing.T) {
	r, w := newRecord(t)
	w.choice.Why = "there is no forwarder"
	step(t, r, w)
	expect(t, r, pb.State_STATE_NEEDS_FORWARDER)
	w.waited = NeedsForwarderLimit
	step(t, r, w)
	expect(t, r, pb.State_STATE_NEEDS_FORWARDER)
	late := *r
	w.waited = NeedsForwarderLimit + time.Second
	step(t, &late, w)
	if expect(t, &late, pb.State_STATE_FAILED); !strings.Contains(late.Error, "there is no forwarder") {
		t.Error(late.Error)
	}
	w.choice = placement.Choice{Forwarder: "f1"}
	step(t, r, w)
	expect(t, r, pb.State_STATE_CONFIGURING)
	// A service that has been serving does not fail.
	r.Route = &Route{Generation: 1, Confirmed: true}
	r.State = pb.State_STATE_SERVING
	r.Move("", "f1 is dead, no forwarder has capacity", w.now)
	w.choice, w.waited = placement.Choice{Why: "no"}, 2*NeedsForwarderLimit
	step(t, r, w)
	if expect(t, r, pb.State_STATE_NEEDS_FORWARDER); !r.On("f1") {
		t.Errorf("%+v", r)
	}
	w.choice, w.file = placement.Choice{Forwarder: "f1"}, 0 // it came back
	step(t, r, w)
	if expect(t, r, pb.State_STATE_CONFIGURING); r.Leaving != "" {
		t.Errorf("%+v", r)
	}
}

func TestRefusals(t *testing.T) {
	begin := func() (*Record, *world) {
		r, w := newRecord(t)
		w.choice, w.file = placement.Choice{Forwarder: "f1"}, 7
		step(t, r, w)
		w.choice = placement.Choice{Why: "no other"}
		return r, w
	}
	r, w := begin()
	w.refusal = errors.New("it refuses this")
	step(t, r, w)
	if expect(t, r, pb.State_STATE_NEEDS_FORWARDER); r.Refusals(w.now)["f1"] != "it refuses this" || len(r.Refusals(w.now.Add(RefusedLife))) != 0 {
		t.Errorf("%+v", r)
	}
	r, w = begin()
	w.waited = ConfiguringLimit + time.Second
	step(t, r, w)
	if expect(t, r, pb.State_STATE_NEEDS_FORWARDER); !strings.Contains(r.Refusals(w.now)["f1"], "in time") {
		t.Errorf("%+v", r)
	}
	r, w = begin()
	w.refusal, w.company = errors.New("it refuses this"), true
	if changed, err := r.Step(w); err != nil || !changed || !r.Alone || r.Revision != 0 || r.State != pb.State_STATE_CONFIGURING {
		t.Errorf("%+v, %v", r, err)
	}
	w.company = false
	if changed, err := r.Step(w); err != nil || changed || r.Revision != 0 { // the file that was refused has not been written anew
		t.Errorf("%+v, %v", r, err)
	}
	w.file, w.company = w.file+1, true // which it was not in alone, either
	for range 2 {
		if changed, err := r.Step(w); err != nil || !changed || r.State != pb.State_STATE_CONFIGURING {
			t.Errorf("%+v, %v", r, err)
		}
	}
	w.file, w.company = w.file+1, false
	step(t, r, w)
	expect(t, r, pb.State_STATE_NEEDS_FORWARDER)
	r, w = begin()
	r.Revision, w.fileError = 0, errors.New("the VIP is taken")
	step(t, r, w)
	if expect(t, r, pb.State_STATE_NEEDS_FORWARDER); r.Refusals(w.now)["f1"] != "the VIP is taken" {
		t.Errorf("%+v", r)
	}
	r, w = begin()
	w.confirmed = true
	step(t, r, w)
	w.waited = 6 * time.Second // the request's own limit is 5
	step(t, r, w)
	if expect(t, r, pb.State_STATE_FAILED); !r.Route.Withdraw || r.On("f1") {
		t.Errorf("%+v", r)
	}
	if !r.Delete(w.now) || r.State != pb.State_STATE_REMOVED {
		t.Errorf("%+v", r)
	}
}

func TestDeleteBeforeTheRoute(t *testing.T) {
	r, w := newRecord(t)
	w.choice = placement.Choice{Forwarder: "f1"}
	step(t, r, w)
	r.Delete(w.now)
	step(t, r, w)
	if expect(t, r, pb.State_STATE_REMOVED); r.On("f1") {
		t.Errorf("%+v", r)
	}
}

// Where it was going has not confirmed it, and may refuse it for good.
func TestDeleteDuringAMoveEndsTheRequest(t *testing.T) {
	r, w := newRecord(t)
	r.Forwarder, r.State, r.Route = "f1", pb.State_STATE_SERVING, &Route{Generation: 1, Confirmed: true}
	r.Move("f2", "f1 is not connected", w.now)
	r.Delete(w.now)
	step(t, r, w)
	if expect(t, r, pb.State_STATE_WITHDRAWING); r.On("f2") || !r.On("f1") {
		t.Errorf("%+v", r)
	}
}

// A service that all forwarders refuse comes to an end, though they are asked again and again.
func TestRequestRefusedByAllForwardersWaits(t *testing.T) {
	r, w := newRecord(t)
	w.file, w.refusal = 7, errors.New("it refuses this")
	for begun := w.now; r.State != pb.State_STATE_FAILED; w.now = w.now.Add(RefusedLife + time.Second) {
		if w.now.Sub(begun) > NeedsForwarderLimit+5*time.Minute {
			t.Fatalf("%+v", r)
		}
		if w.choice = (placement.Choice{Forwarder: "f1"}); r.State == pb.State_STATE_NEEDS_FORWARDER {
			w.waited = RefusedLife + time.Second
		}
		if _, err := r.Step(w); err != nil { // picked
			t.Fatal(err)
		}
		w.waited, w.choice = 0, placement.Choice{Why: "f1: it refuses this"}
		step(t, r, w)
	}
	if r.Forgotten(w.now) || !r.Forgotten(w.now.Add(RemovedLife+2*RefusedLife)) {
		t.Error("a failed request is not kept for as long as others")
	}
}

func TestHistoryIsBounded(t *testing.T) {
	r, w := newRecord(t)
	for range 100 {
		r.say(w.now, "again")
	}
	if len(r.History) != maxHistory {
		t.Error(len(r.History))
	}
}

func TestNormal(t *testing.T) {
	b, err := Normal(wanted())
	if err != nil || Check(b) != nil {
		t.Fatal(err, Check(b))
	}
	v := b.GetVirtual()
	if b.GetProject() != "nfv" || v.GetProtocol() != "tcp" || v.GetRealServices()[0].GetWeight() != 1 || v.GetKey() != Key("tcp", netip.MustParseAddr("10.9.0.80"), 80) ||
		v.GetKey() == Key("udp", netip.MustParseAddr("10.9.0.80"), 80) || len(v.GetKey()) != 16 {
		t.Errorf("%v", b)
	}
	again, err := Normal(b)
	if err != nil || again.String() != b.String() {
		t.Errorf("%v, %v", again, err)
	}
	text, err := Text([]*pb.Balancing{b})
	want := "# Written by the workflow of NFV.\nversion: 1\nservices:\n  - name: web\n    vip: 10.9.0.80\n    port: 80\n    protocol: tcp\n    scheduler: rr\n" +
		"    health: {type: none}\n    servers:\n      - address: 10.1.0.21\n        port: 8080\n        weight: 1\n"
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	for why, spoil := range map[string]func(*pb.Balancing){
		"virtual service is missing": func(b *pb.Balancing) { b.Virtual = nil },
		"is no protocol":             func(b *pb.Balancing) { b.Virtual.Protocol = "sctp" },
		"is not an address":          func(b *pb.Balancing) { b.Virtual.Vip = "vip" },
		"is not a port":              func(b *pb.Balancing) { b.Virtual.Vport = 65536 },
		"real service 1":             func(b *pb.Balancing) { b.Virtual.RealServices[0].Dport = 0 },
		"field of the request":       func(b *pb.Balancing) { b.Settings = "vip: 10.0.0.1" },
		"not YAML":                   func(b *pb.Balancing) { b.Settings = "a: [" },
		"keys with values":           func(b *pb.Balancing) { b.Settings = "- a" },
		"more than":                  func(b *pb.Balancing) { b.Settings = "a: " + strings.Repeat("x", maxSettings) },
		"settings of 10.1.0.21":      func(b *pb.Balancing) { b.Virtual.RealServices[0].Settings = "weight: 7" },
		"unknown key":                func(b *pb.Balancing) { b.Settings = "colour: red" },
		"loopback":                   func(b *pb.Balancing) { b.Virtual.RealServices[0].Dip = "127.0.0.1" },
		"unknown anchor":             func(b *pb.Balancing) { b.Settings = "health: *a" },
	} {
		bad := wanted()
		spoil(bad)
		b, err := Normal(bad)
		if err == nil {
			err = Check(b)
		}
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
	listed := wanted()
	listed.Settings = "access: staff" // a list that the forwarder's own file has
	if b, err = Normal(listed); err != nil || Check(b) != nil {
		t.Error(err, Check(b))
	}
}

// A request's settings are those of its service at the forwarder.
func TestSettingsReachTheService(t *testing.T) {
	asked := wanted()
	asked.Settings, asked.Virtual.RealServices[0].Dport = "mode: dr\nwhen_unavailable: icmp", 80
	b, err := Normal(asked)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Text([]*pb.Balancing{b})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := config.Parse("web", text)
	if err != nil || parsed.Services[0].Policy.Unavailable != model.UnavailableICMP {
		t.Errorf("%s, %v", text, err)
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("scheduler: rr\nhealth: { type: none }", "max_sessions: 5")
	f.Add("a: &x [*x]", "<<: {weight: 1}")
	f.Add("? [a]\n: b", "a: !!binary x")
	f.Fuzz(func(t *testing.T, service, server string) {
		b := wanted()
		b.Settings, b.Virtual.RealServices[0].Settings = service, server
		b, err := Normal(b)
		if err == nil {
			err = Check(b)
		}
		if err != nil {
			return
		}
		text, err := Text([]*pb.Balancing{b})
		if err != nil || strings.Count(string(text), "10.9.0.80") < 1 {
			t.Errorf("%s, %v", text, err)
		}
	})
}

func TestServicesOfARequest(t *testing.T) {
	of := func(more ...*pb.VirtualService) *pb.Balancing {
		return &pb.Balancing{Id: "shop", Virtual: &pb.VirtualService{Vip: "10.9.0.80", Vport: 80}, More: more}
	}
	b, err := Normal(of(&pb.VirtualService{Vport: 443, Settings: "scheduler: rr"}, &pb.VirtualService{Vport: 80, Protocol: "udp"}))
	if err != nil {
		t.Fatal(err)
	}
	if names := strings.Join(ServiceNames(b), " "); names != "shop shop.tcp-443 shop.udp-80" || b.More[0].Vip != "10.9.0.80" || b.More[1].Key == b.Virtual.Key {
		t.Errorf("%s: %v", names, b)
	}
	text, err := Text([]*pb.Balancing{b})
	if err != nil || strings.Count(string(text), "scheduler: rr") != 1 || !strings.Contains(string(text), "name: shop.udp-80") {
		t.Errorf("%v:\n%s", err, text)
	}
	for want, bad := range map[string]*pb.Balancing{
		"one VIP":              of(&pb.VirtualService{Vip: "10.9.0.81", Vport: 443}),
		"listed twice":         of(&pb.VirtualService{Vport: 80}),
		"0 is not a port":      of(&pb.VirtualService{}),
		"no protocol":          of(&pb.VirtualService{Vport: 1, Protocol: "sctp"}),
		"at most 64":           of(make([]*pb.VirtualService, 64)...),
		"settings of shop.tcp": of(&pb.VirtualService{Vport: 1, Settings: "port: 3"}),
	} {
		if _, err := Normal(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
