// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Planner decides when services move. It tracks since when forwarders have been busy: a new planner waits longer, not shorter. Not safe for concurrent use.
type Planner struct {
	options Options
	busy    map[string]time.Time // since when a forwarder is above High
	seen    map[string]time.Time // when a forwarder was last measured
	moved   map[string]time.Time // when a service last left or came to a forwarder for its load
	rested  map[string]time.Time // when a service last moved for load
}

// New returns a planner.
func New(options Options) *Planner {
	return &Planner{options.withDefaults(), map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}}
}

// Options returns the planner's options, with defaults.
func (p *Planner) Options() Options { return p.options }

// Move is a service that moves to another forwarder.
type Move struct {
	Key, From, To string // To empty: it must leave, but no forwarder has capacity
	Why           string
}

// Moves returns which services move now: all of a forwarder that is dead, and one of a forwarder that has been too busy for long.
func (p *Planner) Moves(now time.Time, forwarders []Forwarder, services []Service) []Move {
	p.note(now, forwarders)
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b Service) int { return strings.Compare(a.Key, b.Key) })
	var moves []Move
	for _, f := range forwarders {
		if !f.Away.IsZero() && now.Sub(f.Away) >= p.options.Dead {
			moves = append(moves, p.leaveDead(now, f, forwarders, services)...)
		}
	}
	for _, f := range forwarders {
		if _, _, measured := p.options.number(f.Load, now); !measured {
			continue
		}
		if since, ok := p.busy[f.Name]; ok && f.Away.IsZero() && now.Sub(since) >= p.options.Sustain && p.settled(now, f.Name) {
			if move, ok := p.relieve(now, f, forwarders, services); ok {
				moves = append(moves, move)
			}
		}
	}
	return moves
}

// note tracks since when forwarders are busy. A forwarder without a measurement keeps its state.
func (p *Planner) note(now time.Time, forwarders []Forwarder) {
	known := map[string]bool{}
	for _, f := range forwarders {
		known[f.Name] = true
		number, _, measured := p.options.number(f.Load, now)
		switch {
		case measured && number < p.options.High:
			delete(p.busy, f.Name)
		case measured && (p.busy[f.Name].IsZero() || now.Sub(p.seen[f.Name]) > p.options.Stale): // its state meanwhile is unknown
			p.busy[f.Name] = now
		}
		if measured {
			p.seen[f.Name] = now
		}
	}
	for name := range p.seen { // all busy ones are among them
		if !known[name] {
			delete(p.busy, name)
			delete(p.seen, name)
		}
	}
	for name, at := range p.moved {
		if now.Sub(at) >= p.options.Settle {
			delete(p.moved, name)
		}
	}
	for key, at := range p.rested {
		if now.Sub(at) >= p.options.Rest {
			delete(p.rested, key)
		}
	}
}

func (p *Planner) settled(now time.Time, name string) bool {
	at, ok := p.moved[name]
	return !ok || now.Sub(at) >= p.options.Settle
}

func (p *Planner) leaveDead(now time.Time, f Forwarder, forwarders []Forwarder, services []Service) []Move {
	var moves []Move
	for i := range services {
		s := &services[i]
		if s.At != f.Name || s.Fixed {
			continue
		}
		choice := p.options.Place(now, *s, forwarders, services)
		why := fmt.Sprintf("%s %s", f.Name, cmp.Or(f.Why, "does not serve"))
		moves = append(moves, Move{s.Key, f.Name, choice.Forwarder, why + "; " + choice.Why})
		if choice.Forwarder != "" {
			s.At, s.Since = choice.Forwarder, now // the next decision counts it there
		}
	}
	return moves
}

// relieve selects the service whose move relieves a busy forwarder most, without making another one busy.
func (p *Planner) relieve(now time.Time, f Forwarder, forwarders []Forwarder, services []Service) (Move, bool) {
	ranked := p.options.Rank(now, forwarders, services)
	at := slices.IndexFunc(ranked, func(r Ranked) bool { return r.Name == f.Name })
	own, _, _ := p.options.number(f.Load, now)
	calm := slices.DeleteFunc(slices.Clone(ranked), func(r Ranked) bool { return r.Name == f.Name || !r.Known || !p.settled(now, r.Name) })
	var best *Service
	var to Choice
	maximum := 0.0
	for i := range services {
		s := &services[i]
		if s.At != f.Name || s.Fixed || now.Sub(s.Since) < p.options.Settle {
			continue
		}
		if _, rests := p.rested[s.Key]; rests {
			continue
		}
		part := s.Part
		if part < 0 {
			part = 1 / float64(max(1, ranked[at].Services))
		}
		cost := own * part
		// It must fit at its destination, and change something: moving a service that is the whole load would only move the overload.
		choice := p.options.among(*s, calm, services, min(p.options.Low, p.options.High-cost))
		if choice.Forwarder != "" && cost > maximum {
			best, to, maximum = s, choice, cost
		}
	}
	if best == nil {
		return Move{}, false
	}
	p.moved[f.Name], p.moved[to.Forwarder], p.rested[best.Key] = now, now, now
	why := fmt.Sprintf("%s was too busy for %s (%s)", f.Name, now.Sub(p.busy[f.Name]).Round(time.Second), ranked[at].Text)
	best.At, best.Since = to.Forwarder, now
	return Move{best.Key, f.Name, to.Forwarder, why + "; " + to.Why}, true
}
