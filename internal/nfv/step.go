// SPDX-License-Identifier: Apache-2.0

package nfv

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/placement"
)

// World is the environment of a step.
type World interface {
	Now() time.Time
	// Waited is the time since the record changed last.
	Waited() time.Duration
	// Place chooses a forwarder for the record's service.
	Place() placement.Choice
	// File returns the revision of a forwarder's file that has the service; 0: not written yet. An error means that this forwarder's file cannot have it.
	File(forwarder string) (int64, error)
	// Confirmed reports whether a forwarder has confirmed a revision; an error means that the forwarder refuses it.
	Confirmed(forwarder string, revision int64) (bool, error)
	// Sessions reports whether the service has had sessions at a forwarder.
	Sessions(forwarder string) bool
	// NextHops returns the addresses of a forwarder to which routers may send, of the family of another one; none: it has none. changes: they change while
	// the forwarder serves, because it is a group.
	NextHops(forwarder string, family netip.Addr) (hops []string, changes bool)
	// Company reports whether a refused file had other new services, too.
	Company(forwarder string) bool
	// Sharers returns the other requests of the record's VIP that have not ended.
	Sharers() []Sharer
}

func limit(own uint64, otherwise time.Duration) time.Duration {
	if own == 0 {
		return otherwise
	}
	return time.Duration(own) * time.Second
}

// Step does one step, if one is possible, and reports whether the record has changed.
func (r *Record) Step(w World) (bool, error) {
	wanted, err := r.Balancing()
	if err != nil {
		return false, err
	}
	if r.Deleted && !r.Ended() && r.State != pb.State_STATE_WITHDRAWING {
		r.withdraw(w)
		return true, nil
	}
	if r.isRouted() && r.reroute(w, wanted) {
		return true, nil
	}
	switch r.State {
	case pb.State_STATE_ACKNOWLEDGED, pb.State_STATE_NEEDS_FORWARDER:
		return r.pick(w, wanted), nil
	case pb.State_STATE_CONFIGURING:
		return r.configure(w, wanted), nil
	case pb.State_STATE_ROUTING:
		return r.route(w, wanted), nil
	case pb.State_STATE_ROUTED:
		if w.Sessions(r.Forwarder) {
			r.enter(pb.State_STATE_SERVING, w.Now(), "the first session")
			return true, nil
		}
	case pb.State_STATE_WITHDRAWING:
		late := w.Waited() > limit(wanted.GetWithdrawingLimitS(), WithdrawingLimit)
		if r.Route.Confirmed || late {
			detail := "the route is removed"
			if !r.Route.Confirmed {
				detail = "the removal of the route was not confirmed"
			}
			r.Forwarder, r.Leaving = "", ""
			r.enter(pb.State_STATE_REMOVED, w.Now(), detail)
			return true, nil
		}
	}
	return false, nil
}

// pick is step ③: a forwarder, or the report that one is needed.
func (r *Record) pick(w World, wanted *pb.Balancing) bool {
	choice, lacking := w.Place(), w.Waited()+time.Duration(r.Lacking)*time.Millisecond
	switch {
	case choice.Forwarder != "":
		r.Lacking = lacking.Milliseconds() // the time continues to count if this forwarder refuses, too
		r.Forwarder, r.Why, r.Error, r.Revision, r.Placed = choice.Forwarder, choice.Why, "", 0, w.Now().UnixMilli()
		if r.Leaving == r.Forwarder {
			r.Leaving = ""
		}
		r.enter(pb.State_STATE_CONFIGURING, w.Now(), r.Forwarder+": "+choice.Why)
	case r.State == pb.State_STATE_ACKNOWLEDGED:
		r.Why = choice.Why
		r.enter(pb.State_STATE_NEEDS_FORWARDER, w.Now(), choice.Why)
	case r.Leaving == "" && lacking > limit(wanted.GetNeedsForwarderLimitS(), NeedsForwarderLimit):
		r.Why = choice.Why
		r.fail(w, "no forwarder became available in time: "+choice.Why)
	default:
		return false
	}
	return true
}

// configure is between ③ and ④: the forwarder's file has the service, and the forwarder confirms it.
func (r *Record) configure(w World, wanted *pb.Balancing) bool {
	if r.Revision == 0 {
		revision, err := w.File(r.Forwarder)
		if err != nil {
			return r.refuse(w, err.Error())
		}
		if revision > r.Beyond {
			r.Revision = revision
			return true
		}
		if w.Waited() > limit(wanted.GetConfiguringLimitS(), ConfiguringLimit) {
			return r.refuse(w, "its file could not be written in time")
		}
		return false
	}
	done, err := w.Confirmed(r.Forwarder, r.Revision)
	switch {
	case err != nil && w.Company(r.Forwarder):
		r.Alone, r.Beyond, r.Revision = true, r.Revision, 0 // another new service in the file may be the reason
		r.say(w.Now(), "refused together with others, tried alone")
	case err != nil:
		return r.refuse(w, err.Error())
	case done && isWithdrawing(w.Sharers()):
		return false // the other request's withdrawal would remove this route, too
	case done && !isBehind(w.Sharers()):
		r.handOut(w, wanted, r.Forwarder+" has confirmed")
	case w.Waited() > limit(wanted.GetConfiguringLimitS(), ConfiguringLimit):
		return r.refuse(w, "it did not confirm in time")
	default:
		return false
	}
	return true
}

// nextRoute returns the route to the record's forwarder. changes: see World.NextHops.
func (r *Record) nextRoute(w World, wanted *pb.Balancing) (next Route, changes bool) {
	vip, _ := netip.ParseAddr(wanted.GetVirtual().GetVip()) // a normal request's
	hops, changes := w.NextHops(r.Forwarder, vip)
	next = Route{Destination: netip.PrefixFrom(vip, vip.BitLen()).String(), Forwarder: r.Forwarder}
	if len(hops) > 0 {
		next.NextHop = hops[0]
	}
	if changes {
		next.NextHops = strings.Join(hops, " ")
	}
	return next, changes
}

// handOut is steps ④ and ⑤: confirmed by the forwarder, so the route is handed out.
func (r *Record) handOut(w World, wanted *pb.Balancing, why string) {
	r.Alone, r.Beyond, r.Refused, r.Lacking = false, 0, nil, 0
	next, _ := r.nextRoute(w, wanted)
	shared, of, last := r.sharedRoute(w.Sharers(), next)
	if shared != nil {
		r.Route = shared
		r.enter(pb.State_STATE_ROUTING, w.Now(), fmt.Sprintf("%s; route %d is that of the request %s", why, shared.Generation, of))
		return
	}
	next.Generation = last + 1
	r.Route = &next
	r.enter(pb.State_STATE_ROUTING, w.Now(), fmt.Sprintf("%s; route %d: %s via %s", why, next.Generation, next.Destination,
		cmp.Or(strings.Join(next.hops(), ", "), "the VIP itself")))
}

// reroute hands out another route if the nodes that serve have changed. While none serves, the route stays.
func (r *Record) reroute(w World, wanted *pb.Balancing) bool {
	next, changes := r.nextRoute(w, wanted)
	if !changes || next.NextHops == "" || r.Route.Forwarder != r.Forwarder || r.Route.leadsTo(next) {
		return false
	}
	r.handOut(w, wanted, "other nodes of "+r.Forwarder+" serve")
	return true
}

// route is between ⑤ and ⑥: the caller confirms the route.
func (r *Record) route(w World, wanted *pb.Balancing) bool {
	switch {
	case r.Route.Confirmed || r.isConfirmedFor(w.Sharers()):
		r.Route.Confirmed = true
		detail := "the route is set"
		if r.Leaving != "" {
			detail += "; the service leaves " + r.Leaving
		}
		r.Leaving = ""
		r.enter(pb.State_STATE_ROUTED, w.Now(), detail)
	case w.Waited() <= limit(wanted.GetRoutingLimitS(), RoutingLimit):
		return false
	case r.Route.Generation > 1: // the service has been serving, and may still, by its old route
		r.say(w.Now(), fmt.Sprintf("route %d is not set yet", r.Route.Generation))
	default:
		r.fail(w, "the route was not confirmed in time")
	}
	return true
}

// refuse excludes a forwarder, so that another one is selected.
func (r *Record) refuse(w World, why string) bool {
	if r.Refused == nil {
		r.Refused = map[string]Refusal{}
	}
	r.Refused[r.Forwarder] = Refusal{why, w.Now().UnixMilli()}
	detail := r.Forwarder + ": " + why
	r.Forwarder, r.Revision, r.Alone, r.Beyond = "", 0, false, 0
	r.enter(pb.State_STATE_ACKNOWLEDGED, w.Now(), detail)
	return true
}

// Refusals returns the excluded forwarders, with reasons.
func (r *Record) Refusals(now time.Time) map[string]string {
	list := map[string]string{}
	for name, refusal := range r.Refused {
		// A refusal from the future is by a clock that is ahead of this one: it would last for as long as the clocks differ.
		if age := now.Sub(time.UnixMilli(refusal.At)); 0 <= age && age < RefusedLife {
			list[name] = refusal.Why
		}
	}
	return list
}

// Movable reports whether the service can be sent to another forwarder.
func (r *Record) Movable() bool {
	switch r.State {
	case pb.State_STATE_ROUTING, pb.State_STATE_ROUTED, pb.State_STATE_SERVING:
		return !r.Deleted
	}
	return false
}

// Follows reports whether the service leaves a forwarder when another request of its VIP does.
func (r *Record) Follows(forwarder string) bool {
	return r.Forwarder == forwarder && !r.Deleted && (r.Movable() || r.State == pb.State_STATE_CONFIGURING)
}

// Move moves the service to another forwarder; empty: to the next available one. The old forwarder keeps it until the new route is set.
func (r *Record) Move(to, why string, now time.Time) {
	if r.Leaving == "" && r.State != pb.State_STATE_CONFIGURING { // otherwise the forwarder never had it
		r.Leaving = r.Forwarder
	}
	if r.Leaving == to { // back to where its route still leads
		r.Leaving = ""
	}
	r.Forwarder, r.Revision, r.Why, r.Alone, r.Beyond = to, 0, why, false, 0
	if to == "" {
		r.enter(pb.State_STATE_NEEDS_FORWARDER, now, why)
		return
	}
	r.Placed = now.UnixMilli()
	r.enter(pb.State_STATE_CONFIGURING, now, "to "+to+": "+why)
}

// withdraw begins the end of a request.
func (r *Record) withdraw(w World) {
	if r.Route == nil || r.Route.Withdraw {
		r.Forwarder, r.Leaving = "", ""
		r.enter(pb.State_STATE_REMOVED, w.Now(), "deleted before it had a route")
		return
	}
	if successor := successorOf(w.Sharers()); successor != "" {
		r.Forwarder, r.Leaving, r.Route = "", "", nil
		r.enter(pb.State_STATE_REMOVED, w.Now(), "deleted; the route stays: the request "+successor+" has the VIP")
		return
	}
	if r.State == pb.State_STATE_CONFIGURING && r.Leaving != "" { // it was moving to a forwarder that has not confirmed it
		r.Forwarder = ""
	}
	r.unroute()
	r.enter(pb.State_STATE_WITHDRAWING, w.Now(), "deleted; the route is to be removed")
}

func (r *Record) unroute() {
	next := *r.Route
	next.Generation++
	next.Withdraw, next.Confirmed = true, false
	r.Route = &next
}

func (r *Record) fail(w World, why string) {
	r.Error, r.Forwarder, r.Leaving = why, "", ""
	switch {
	case r.Route == nil:
	case successorOf(w.Sharers()) != "":
		r.Route = nil // the other request's
	default:
		r.unroute()
	}
	r.enter(pb.State_STATE_FAILED, w.Now(), why)
}

// Delete notes that the request is to end, and reports whether that is new.
func (r *Record) Delete(now time.Time) bool {
	if r.Deleted || r.State == pb.State_STATE_REMOVED {
		return false
	}
	if r.Deleted = true; r.State == pb.State_STATE_FAILED {
		r.enter(pb.State_STATE_REMOVED, now, "deleted after it had failed")
	}
	return true
}

// Forgotten reports whether the record has been kept for long enough after its end.
func (r *Record) Forgotten(now time.Time) bool {
	return r.Ended() && now.Sub(time.UnixMilli(r.Changed)) > RemovedLife
}
