// SPDX-License-Identifier: Apache-2.0

// Package routes announces VIPs, local and pool addresses to routers while this host can serve them.
// docs/design/0070-routes.md has the reasons.
package routes

import (
	"net/netip"
	"time"

	"steelyard/internal/model"
)

// Route is an address that routers are to send here.
type Route struct {
	Prefix netip.Prefix
	Kind   model.RouteKind
	Remote bool // another node is its home: routers prefer that one
}

// Assessment is the state of this host, as far as routes depend on it.
type Assessment struct {
	Silent  bool                      // the forwarder does not answer
	Pending bool                      // the agent has not read the forwarder's servers yet
	Fault   string                    // why this host cannot serve; empty: it can
	Lacking map[model.ServiceKey]bool // services without a healthy server
}

// State is an address and the decision about it.
type State struct {
	Route
	Reason string    // why it is not announced; empty: it is
	Since  time.Time // of the last change
}

// Announced reports whether the address is announced.
func (s *State) Announced() bool { return s.Reason == "" }

// decide returns the state of each address that the configuration announces, in the file's order.
func decide(config *model.Config, assessment Assessment) []State {
	var states []State
	at := map[netip.Addr]int{}
	add := func(address netip.Addr, kind model.RouteKind, remote bool, reason string) {
		if assessment.Fault != "" {
			reason = assessment.Fault
		}
		if i, known := at[address]; known { // one service with a healthy server suffices
			if reason == "" {
				states[i].Reason = ""
			}
			return
		}
		at[address] = len(states)
		states = append(states, State{Route: Route{netip.PrefixFrom(address, address.BitLen()), kind, remote}, Reason: reason})
	}
	for _, kind := range config.Routes.Announce {
		switch kind {
		case model.RouteVIP:
			for i := range config.Services {
				reason := ""
				if assessment.Lacking[config.Services[i].Key] {
					reason = "no server of its services is healthy"
				}
				add(config.Services[i].Key.VIP, kind, false, reason)
			}
		case model.RouteLocal:
			for _, address := range config.LocalAddresses {
				add(address, kind, false, "")
			}
			for _, address := range config.PeerLocals {
				add(address, kind, true, "")
			}
		case model.RoutePool:
			for i := range config.SNAT {
				for _, address := range config.SNAT[i].Pool {
					add(address, kind, false, "")
				}
			}
		}
	}
	return states
}

// announced returns the routes of the addresses that are announced.
func announced(states []State) []Route {
	var routes []Route
	for i := range states {
		if states[i].Announced() {
			routes = append(routes, states[i].Route)
		}
	}
	return routes
}
