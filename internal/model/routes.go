// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// RouteKind is the role of an announced address.
type RouteKind uint8

// The kinds of announced addresses.
const (
	RouteVIP   RouteKind = 1
	RouteLocal RouteKind = 2
	RoutePool  RouteKind = 3
)

// RouteKinds lists all kinds.
var RouteKinds = []RouteKind{RouteVIP, RouteLocal, RoutePool}

// String returns the word of the configuration file.
func (k RouteKind) String() string {
	words := [...]string{"", "vips", "local_addresses", "snat_pools"}
	if k == 0 || int(k) >= len(words) {
		return fmt.Sprintf("kind-%d", uint8(k))
	}
	return words[k]
}

// Routes configures the announcement of addresses to routers.
type Routes struct {
	Announce      []RouteKind   // empty: none
	WithdrawAfter time.Duration // how long a forwarder may not answer
	Kernel        KernelRoutes
}

// KernelRoutes are routes in a table of this host, for its routing daemon.
type KernelRoutes struct {
	Table  uint32 // 0: none
	Metric uint32
}

// Enabled reports whether addresses are announced.
func (r *Routes) Enabled() bool { return len(r.Announce) > 0 }

// words returns nil if nothing is announced.
func (r *Routes) words() []setting {
	if !r.Enabled() {
		return nil
	}
	var kinds []string
	for _, kind := range r.Announce {
		kinds = append(kinds, kind.String())
	}
	return []setting{{"announce", strings.Join(kinds, " ")}, {"withdraw_after", cmp.Or(durationText(r.WithdrawAfter), "0s")}}
}

// words returns nil if there are no kernel routes.
func (k KernelRoutes) words() []setting {
	if k.Table == 0 {
		return nil
	}
	return []setting{{"table", numberText(k.Table)}, {"metric", numberText(k.Metric)}}
}
