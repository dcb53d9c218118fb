// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"steelyard/internal/cluster"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/nfv"
)

// half has a leader die while a forwarder is being configured. The forwarder's answer comes, and then the next leader makes a pass.
func half(t *testing.T, refuse bool) (*runningAgent, nfv.Record) {
	t.Helper()
	l := newLab(t, 0)
	l.tune = func(o *Options) { quick(o); o.WorkflowTick = time.Hour }
	if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(keyLeader, encode(owner{"nobody", ""}), 0)); err != nil { // controllers do not lead
		t.Fatal(err)
	}
	l.addController()
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
	l.until("confirmed, or taken back", func() bool {
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

// The forwarder is at a higher revision than the request's, which does not have the service any more.
func TestANewLeaderDoesNotRouteWhatWasTakenBack(t *testing.T) {
	if f1, r := half(t, true); r.State != pb.State_STATE_NEEDS_FORWARDER || r.Route != nil || serves(f1, 80) {
		t.Errorf("%+v, %+v", r, r.Route)
	}
}

// What a new leader writes anew is not confirmed by what the forwarder confirmed before.
func TestWrittenAnewIsNotConfirmedYet(t *testing.T) {
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

// The leader's own key is left: the end of a lead, or the answer to its beginning, was lost. Its lease lives on.
func TestALeaderTakesOverItsOwnKey(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	var now owner
	var entry cluster.Entry
	l.until("a controller leads", func() bool {
		var err error
		now, entry, err = read[owner](t.Context(), l.store, keyLeader)
		return err == nil && entry.Revision != 0
	})
	// The same owner, at a revision that its process does not know.
	if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Unchanged(entry).Put(keyLeader, encode(now), 0)); err != nil {
		t.Fatal(err)
	}
	l.request(balancing("web", 80))
	l.awaitState("web", pb.State_STATE_ROUTING, nil)
}
