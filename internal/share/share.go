// SPDX-License-Identifier: Apache-2.0

// Package share computes each real server's share of a service's new sessions, from the measured capability of links and servers. It is pure:
// measurements and the time are inputs, shares are outputs. The
// equations, and why they are these, are in docs/design/0043-shares.md.
package share

import (
	"fmt"
	"time"
)

// Measure is one measured value. The zero value was never measured.
type Measure struct {
	Value float64
	At    time.Time // when it was measured, by this process's clock
}

// At returns a measure.
func At(at time.Time, value float64) Measure { return Measure{value, at} }

// Server is a real server from the view of one forwarder.
type Server struct {
	Key    string
	Weight float64 // as configured; the share without any measurement follows it alone; 0: gets nothing
	Up     bool    // false: gets nothing
	Why    string  // it is not up; empty: down
	Held   float64 // its previous share, for a new balancer; 0: unknown

	Delay   Measure // of the link, seconds
	Loss    Measure // of the link, 0 to 1
	Link    Measure // use of the link's capacity, 0 to 1
	CPU     Measure // use of the server's processors, 0 to 1
	Latency Measure // from a request to its answer, seconds; the least-latency policy alone uses it
}

// Policy selects what shares follow.
type Policy int

// The policies.
const (
	Capability   Policy = iota // free capacity of links and servers: equations (5) to (10)
	LeastLatency               // the least mean response time
)

// Options of a balancer. Zero values select the defaults.
type Options struct {
	Policy Policy
	Gamma  float64 // γ: how much of the offset is the network's; default 0.5; negative: 0, the servers' load alone

	Busy      float64       // use of a link or a server from which its share falls; default 0.85
	Overload  float64       // use at which it is set aside; default 0.95
	MaxLoss   float64       // loss at which a link is set aside; from half of it the share falls; default 0.05
	Smooth    time.Duration // time constant of measurements; default 5 s
	Settle    time.Duration // time constant of shares; default 30 s; at least four times Smooth and the feedback's delay together
	Fresh     time.Duration // age up to which a measure counts fully; default 15 s
	Stale     time.Duration // age from which it does not count; default 60 s
	SlowStart time.Duration // time in which a server's share grows to its own; default 30 s; negative: none
	Minimum   float64       // least share of a candidate, and the share of one set aside, of the even share; default 0.05
	Deadband  float64       // changes below this, of the even share, are not published; default 0.02
}

func (o Options) withDefaults() Options {
	number := func(value *float64, otherwise float64) {
		if *value == 0 {
			*value = otherwise
		}
	}
	duration := func(value *time.Duration, otherwise time.Duration) {
		if *value == 0 {
			*value = otherwise
		}
	}
	number(&o.Gamma, 0.5)
	o.Gamma = min(max(o.Gamma, 0), 1)
	number(&o.Overload, 0.95)
	number(&o.Busy, 0.85)
	number(&o.MaxLoss, 0.05)
	number(&o.Minimum, 0.05)
	number(&o.Deadband, 0.02)
	duration(&o.Smooth, 5*time.Second)
	duration(&o.Settle, 30*time.Second)
	duration(&o.Fresh, 15*time.Second)
	duration(&o.Stale, time.Minute)
	duration(&o.SlowStart, 30*time.Second)
	return o
}

// State is the basis of a server's share.
type State int

// The states, from the best informed one down.
const (
	Measured State = iota // all measurements of the policy
	Partly                // some measurements are missing or old; the others count
	Blind                 // no measurement: the weight only
	SetAside              // reduced: the server or its link is overloaded
	Out                   // down, or of weight 0
)

func (s State) String() string {
	switch s {
	case Measured:
		return "measured"
	case Partly:
		return "partly"
	case Blind:
		return "blind"
	case SetAside:
		return "set-aside"
	case Out:
		return "out"
	}
	return fmt.Sprintf("state-%d", int(s))
}

// Share is a server's part of the new sessions: those whose random number in [0,1) is in [From,To).
type Share struct {
	Key      string
	Share    float64 // To − From
	From, To float64
	State    State
	Reason   string  // which measurement is missing or old, or what delays its share
	Phi      float64 // φ: offset of its network capability from the mean; 0: as the mean, or unknown
	Eta      float64 // η: likewise, of its compute capability
	Target   float64 // the share to which it moves
	Starting bool    // slow start reduces it
}

// Result is the result of one step.
type Result struct {
	Shares  []Share // in the order of the servers
	Changed bool    // against the last step: publish them
	Warning string  // about all servers: what degrades the shares
}

// Draw returns the index of the server that gets a session, for a number of [0,1); -1: there is none.
func Draw(shares []Share, number float64) int {
	last := -1
	for i, s := range shares {
		if s.To > s.From {
			if number < s.To {
				return i
			}
			last = i
		}
	}
	return last
}
