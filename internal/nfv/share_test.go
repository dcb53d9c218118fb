// SPDX-License-Identifier: Apache-2.0

package nfv

import (
	"testing"

	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/placement"
)

// pair is two requests of one VIP at f1; the first one is routed.
func pair(t *testing.T) (a, b *Record, wa, wb *world) {
	t.Helper()
	a, wa = newRecord(t)
	b, wb = newRecord(t)
	wa.sharers, wb.sharers = []Sharer{{Record: b, ID: "b"}}, []Sharer{{Record: a, ID: "a"}}
	for _, w := range []*world{wa, wb} {
		w.choice, w.file, w.confirmed = placement.Choice{Forwarder: "f1"}, 7, true
	}
	step(t, a, wa)
	expect(t, a, pb.State_STATE_ROUTING)
	a.Route.Confirmed = true
	step(t, a, wa)
	expect(t, a, pb.State_STATE_ROUTED)
	return a, b, wa, wb
}

// The route of a VIP is set once, whichever of its requests is confirmed.
func TestSharedRoute(t *testing.T) {
	a, b, wa, wb := pair(t)
	step(t, b, wb)
	if expect(t, b, pb.State_STATE_ROUTED); *b.Route != *a.Route || b.Route.Generation != 1 {
		t.Errorf("%+v, %+v", a.Route, b.Route)
	}
	for _, r := range []*Record{a, b} {
		r.Move("f2", "f1 is busy", wa.now)
	}
	wb.confirmed = false
	wa.sharers[0].Behind = true // f2 has not confirmed the other one
	step(t, a, wa)
	expect(t, a, pb.State_STATE_CONFIGURING)
	wb.confirmed, wa.sharers[0].Behind = true, false
	step(t, a, wa)
	step(t, b, wb)
	if expect(t, b, pb.State_STATE_ROUTING); *b.Route != *a.Route || b.Route.Generation != 2 || b.Route.Confirmed || b.Route.Forwarder != "f2" {
		t.Errorf("%+v, %+v", a.Route, b.Route)
	}
	b.Route.Confirmed = true
	step(t, b, wb)
	step(t, a, wa)
	expect(t, a, pb.State_STATE_ROUTED)
	expect(t, b, pb.State_STATE_ROUTED)
	if a.On("f1") || b.On("f1") || !a.Route.Confirmed {
		t.Errorf("%+v, %+v", a, b)
	}
}

// A confirmation of an older route does not count: the caller may have set another one since.
func TestOldConfirmationsAreNotShared(t *testing.T) {
	a, b, wa, wb := pair(t)
	step(t, b, wb)
	for _, to := range []string{"f2", "f1"} { // a gets a route by f2, which the caller may set; b is not there yet; both go back
		a.Move(to, "", wa.now)
		b.Move(to, "", wa.now)
		step(t, a, wa)
		expect(t, a, pb.State_STATE_ROUTING)
	}
	if a.Route.Generation != 3 || a.Route.Confirmed || a.Route.Forwarder != "f1" {
		t.Errorf("%+v", a.Route)
	}
	step(t, b, wb)
	if expect(t, b, pb.State_STATE_ROUTING); *b.Route != *a.Route {
		t.Errorf("%+v, %+v", a.Route, b.Route)
	}
}

// The route stays until the last request of the VIP ends, however they end.
func TestLastRequestOfAVIPWithdrawsTheRoute(t *testing.T) {
	a, b, wa, wb := pair(t)
	step(t, b, wb)
	a.Delete(wa.now)
	b.Delete(wb.now)
	step(t, a, wa)
	if expect(t, a, pb.State_STATE_REMOVED); a.Route != nil {
		t.Errorf("%+v", a.Route)
	}
	wb.sharers = nil
	step(t, b, wb)
	if expect(t, b, pb.State_STATE_WITHDRAWING); !b.Route.Withdraw || b.Route.Generation != 2 {
		t.Errorf("%+v", b.Route)
	}
}

// While a route is being removed, a new request of the VIP waits: its own would be removed too.
func TestNewRequestWaitsForAWithdrawal(t *testing.T) {
	a, b, wa, wb := pair(t)
	a.Delete(wa.now)
	step(t, a, wa) // b has no route yet
	expect(t, a, pb.State_STATE_WITHDRAWING)
	step(t, b, wb)
	wb.waited = 2 * ConfiguringLimit
	step(t, b, wb)
	if expect(t, b, pb.State_STATE_CONFIGURING); b.Forwarder != "f1" {
		t.Errorf("%+v", b)
	}
	a.Route.Confirmed = true
	step(t, a, wa)
	expect(t, a, pb.State_STATE_REMOVED)
	wb.sharers = nil
	step(t, b, wb)
	if expect(t, b, pb.State_STATE_ROUTING); b.Route.Withdraw || b.Route.Confirmed {
		t.Errorf("%+v", b.Route)
	}
}

// A request whose route is not set fails, and leaves the route to the other one.
func TestFailedRequestKeepsASharedRoute(t *testing.T) {
	a, wa := newRecord(t)
	b, wb := newRecord(t)
	wa.sharers, wb.sharers = []Sharer{{Record: b, ID: "b"}}, []Sharer{{Record: a, ID: "a"}}
	for _, w := range []*world{wa, wb} {
		w.choice, w.file, w.confirmed = placement.Choice{Forwarder: "f1"}, 7, true
	}
	step(t, a, wa)
	step(t, b, wb)
	wa.waited = 2 * RoutingLimit
	step(t, a, wa)
	if expect(t, a, pb.State_STATE_FAILED); a.Route != nil || b.Route.Withdraw {
		t.Errorf("%+v, %+v", a.Route, b.Route)
	}
	wb.sharers, wb.waited = nil, 2*RoutingLimit
	step(t, b, wb)
	if expect(t, b, pb.State_STATE_FAILED); !b.Route.Withdraw {
		t.Errorf("%+v", b.Route)
	}
}

// One that is still being configured goes along, and leaves nothing behind.
func TestMoveWhileConfiguring(t *testing.T) {
	_, b, _, wb := pair(t)
	wb.confirmed = false
	step(t, b, wb)
	if expect(t, b, pb.State_STATE_CONFIGURING); !b.Follows("f1") || b.Follows("f2") || b.Movable() {
		t.Errorf("%+v", b)
	}
	if b.Move("f2", "f1 is dead", wb.now); b.On("f1") || !b.On("f2") || b.Settled("f2") {
		t.Errorf("%+v", b)
	}
}
