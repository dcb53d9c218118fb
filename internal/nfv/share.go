// SPDX-License-Identifier: Apache-2.0

package nfv

import (
	"cmp"
	"slices"
	"strings"

	pb "steelyard/internal/gen/nfvpb"
)

// Requests for one VIP share its route, and so its forwarder: docs/design/0048-nfv-workflow.md. Each has a copy of the route; copies of one generation are
// the same route, and one confirmation applies to all of them.

// Sharer is another request of a record's VIP that has not ended.
type Sharer struct {
	*Record
	ID string
	// Behind: the route leads to the request's current forwarder, but the record's next forwarder does not serve the request yet.
	Behind bool
}

// hasRoute reports whether a route leads to the service, or will when the caller has set it.
func (r *Record) hasRoute() bool { return r.Route != nil && !r.Route.Withdraw }

// isRouted reports whether the record's route leads to its forwarder.
func (r *Record) isRouted() bool {
	switch r.State {
	case pb.State_STATE_ROUTING, pb.State_STATE_ROUTED, pb.State_STATE_SERVING:
		return r.hasRoute()
	}
	return false
}

// isWithdrawing reports whether a route of the VIP is about to be removed.
func isWithdrawing(sharers []Sharer) bool {
	return slices.ContainsFunc(sharers, func(s Sharer) bool { return s.State == pb.State_STATE_WITHDRAWING })
}

func isBehind(sharers []Sharer) bool {
	return slices.ContainsFunc(sharers, func(s Sharer) bool { return s.Behind })
}

// successorOf returns the ID of a request for which the VIP's route stays; empty: there is none.
func successorOf(sharers []Sharer) string {
	for _, s := range sharers {
		if s.hasRoute() {
			return s.ID
		}
	}
	return ""
}

// sharedRoute returns the route of another request, and its ID, if it equals the next route; nil: there is none. last is the highest generation of the
// VIP.
func (r *Record) sharedRoute(sharers []Sharer, next Route) (shared *Route, id string, last uint64) {
	if r.Route != nil {
		last = r.Route.Generation
	}
	for _, s := range sharers {
		if s.hasRoute() {
			last = max(last, s.Route.Generation)
		}
	}
	for _, s := range sharers {
		if s.isRouted() && s.Route.Generation == last && s.Route.leadsTo(next) {
			route := *s.Route
			return &route, s.ID, last
		}
	}
	return nil, "", last
}

// hops returns all next hops.
func (r Route) hops() []string {
	return strings.Fields(cmp.Or(r.NextHops, r.NextHop))
}

// leadsTo reports whether two routes are set alike.
func (r Route) leadsTo(other Route) bool {
	return r.Destination == other.Destination && r.NextHop == other.NextHop && r.NextHops == other.NextHops && r.Forwarder == other.Forwarder
}

// isConfirmedFor reports whether the caller has confirmed the route for another request of the VIP.
func (r *Record) isConfirmedFor(sharers []Sharer) bool {
	return slices.ContainsFunc(sharers, func(s Sharer) bool {
		return s.isRouted() && s.Route.Confirmed && s.Route.Generation == r.Route.Generation && s.Route.leadsTo(*r.Route)
	})
}
