// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"context"
	"net/netip"
	"time"
)

// validity is the state of a network's sessions.
type validity uint8

const (
	unknown     validity = iota // not looked up yet: the network is not named
	unvalidated                 // no client of it has a validated session
	validated                   // one has, or had during the attack: its addresses are no forged ones, and clients'
)

const (
	lookPeriod  = time.Second
	looksAtOnce = 8                // networks looked up in a period
	lookAgain   = 15 * time.Second // of an unvalidated network: a client may have connected since
	lookTimeout = time.Minute      // of a large session table
	maxLooked   = 4096             // networks that are remembered
)

// looked is an answer of the forwarder.
type looked struct {
	is validity
	at time.Time
}

// lookUp keeps looking up the sessions of networks that would be named, until ctx ends. It has a connection of its own: a search of a large
// table takes seconds.
func (s *Sampler) lookUp(ctx context.Context) {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		due := s.attacks.due(time.Now())
		s.mu.Unlock()
		if len(due) > 0 {
			s.lookUpThese(ctx, due)
		}
	}
}

func (s *Sampler) lookUpThese(ctx context.Context, due []netip.Prefix) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	forwarder, err := s.options.Dial(ctx)
	if err != nil {
		return // the agent's status shows the reason
	}
	defer forwarder.Close()
	for _, network := range due {
		has, err := forwarder.HasValidated(ctx, network)
		if err != nil {
			return
		}
		is := unvalidated
		if has {
			is = validated
		}
		s.mu.Lock()
		s.attacks.looked[network] = looked{is, time.Now()}
		s.mu.Unlock()
	}
}

// has returns the state of a network's sessions.
func (a *attacks) has(network netip.Prefix) validity { return a.looked[network].is }

// due returns networks whose sessions must be looked up: those that would be named. It drops networks that no listed attack needs.
func (a *attacks) due(now time.Time) []netip.Prefix {
	var due []netip.Prefix
	needed := map[netip.Prefix]looked{}
	for id, counts := range a.of {
		for _, source := range counts.frequent() {
			known := a.looked[source.Network]
			if len(needed) < maxLooked && known.is != unknown {
				needed[source.Network] = known
			}
			_, counting := a.underWay[id]
			again := counting && known.is == unvalidated && now.Sub(known.at) >= lookAgain
			if (known.is == unknown || again) && len(due) < looksAtOnce {
				due = append(due, source.Network)
			}
		}
	}
	a.looked = needed
	return due
}
