// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"steelyard/internal/cluster"
	controllerpb "steelyard/internal/gen/controllerpb"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/placement"

	"connectrpc.com/connect"
)

// Loads that the forwarders' controllers have written decide the placement of services, and describe shows them.
func TestPlacementFollowsLoad(t *testing.T) {
	l := newLab(t, 0)
	l.tune = func(o *Options) {
		quick(o)
		o.MeasureEvery = time.Hour // the test writes what was measured
		o.SpareSettle = 50 * time.Millisecond
		o.Placement = placement.Options{Sustain: 100 * time.Millisecond, Settle: 100 * time.Millisecond, Rest: time.Hour, New: 0.001}
	}
	l.addController()
	for _, name := range []string{"f1", "f2", "f3"} {
		l.addReady(name)
	}
	load := func(name string, busy float64, parts map[string]traffic) {
		t.Helper()
		if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(keyLoads+name, encode(measured{Busy: busy, Table: 0.01, Link: -1, Services: parts}), 0)); err != nil {
			t.Fatal(err)
		}
	}
	load("f1", 0.3, nil)
	load("f2", 0.1, nil)
	load("f3", 0.2, nil)
	one, two := balancing("one", 80), balancing("two", 81)
	one.Group, two.Group = "pair", "pair"
	l.request(one)
	s := l.awaitState("one", pb.State_STATE_ROUTING, nil)
	if s.GetForwarder() != "f2" || !strings.Contains(s.GetWhy(), "workers 10%, table 1%; f3: workers 20%") {
		t.Errorf("%v", s)
	}
	l.request(two)
	if s := l.awaitState("two", pb.State_STATE_ROUTING, nil); s.GetForwarder() != "f3" || !strings.Contains(s.GetWhy(), "f2: has one of the group nfv.pair") {
		t.Errorf("%v", s)
	}
	l.confirm("one", 1)
	l.awaitState("one", pb.State_STATE_ROUTED, nil)
	load("f2", 0.95, map[string]traffic{"nfv.one": {Part: 0.4}})
	if s := l.awaitState("one", pb.State_STATE_ROUTING, func(s *pb.Status) bool { return s.GetRoute().GetGeneration() == 2 }); s.GetForwarder() != "f1" || s.GetLeaving() != "f2" ||
		!strings.Contains(s.GetWhy(), "f2 was too busy") || !serves(l.agents["f2"], 80) {
		t.Errorf("%v", s)
	}
	got, err := l.controllers[0].admin.GetPlacement(t.Context(), connect.NewRequest(&pb.GetPlacementRequest{}))
	if err != nil || got.Msg.GetForwarders()[0].GetForwarder() != "f3" || got.Msg.GetForwarders()[2].GetWorkers() != 0.95 || got.Msg.GetLeader() == "" {
		t.Errorf("%v, %v", got, err)
	}
	events := l.events()
	spare := balancing("spare", 90)
	spare.Spare = true
	load("f1", 0.7, nil)
	load("f3", 0.7, nil)
	events("spare-missing", "the others lack capacity for")
	if got, err := l.controllers[0].admin.GetPlacement(t.Context(), connect.NewRequest(&pb.GetPlacementRequest{})); err != nil || got.Msg.GetMissingSpare() == "" {
		t.Errorf("%v, %v", got, err)
	}
	l.request(spare)
	if s := l.awaitState("spare", pb.State_STATE_NEEDS_FORWARDER, nil); !strings.Contains(s.GetWhy(), "N+1 would be violated") {
		t.Errorf("%v", s)
	}
	// Capacity returns: an event reports it, and the request is placed.
	for _, name := range []string{"f1", "f2", "f3"} {
		load(name, 0.1, nil)
	}
	events("spare", "")
	l.awaitState("spare", pb.State_STATE_ROUTING, nil)
}

// events watches the controller from now on, and returns what waits for an event.
func (l *lab) events() func(what, detail string) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 4*time.Minute)
	stream, err := l.controllers[0].admin.Watch(ctx, connect.NewRequest(&controllerpb.WatchRequest{}))
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { cancel(); stream.Close() })
	if !stream.Receive() { // says from where
		l.Fatal(stream.Err())
	}
	return func(what, detail string) {
		l.Helper()
		for stream.Receive() {
			if e := stream.Msg(); e.GetWhat() == what && strings.Contains(e.GetDetail(), detail) {
				return
			}
		}
		l.Fatalf("no %s: %v", what, stream.Err())
	}
}
