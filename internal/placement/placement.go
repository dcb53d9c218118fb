// SPDX-License-Identifier: Apache-2.0

// Package placement decides which forwarder serves a service, and when a service moves, from the measured load of forwarders. It is pure: state and time
// are inputs, decisions and their reasons are outputs. docs/design/0048-nfv-workflow.md has the rules.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Load is the measured load of a forwarder. Each part is 0 to 1; negative: unknown.
type Load struct {
	Busy  float64   // of the workers' time, the busiest worker's
	Table float64   // fill of the session table
	Link  float64   // use of the busiest port
	At    time.Time // zero: never measured
}

// Forwarder is a candidate.
type Forwarder struct {
	Name string
	Load Load
	Away time.Time // since when it does not serve; zero: it does
	Why  string    // why not
}

// Service is a service that is placed, or waits for a forwarder.
type Service struct {
	Key   string
	Count int       // number of requests that have one forwarder and move together; 0: one
	At    string    // its forwarder; empty: none yet
	Since time.Time // when it was placed there
	Part  float64   // of its forwarder's load, 0 to 1; negative: unknown, assumed to be an equal part
	Group string    // services of a group do not share a forwarder; empty: none
	Fixed bool      // it is already moving
	// Refused is why a forwarder may not have it, by name.
	Refused map[string]string
	// Spare requires that all forwarders' services can be placed after the loss of any one forwarder.
	Spare bool
}

// Options of the decisions. Zero values select the defaults.
type Options struct {
	High    float64       // load from which a forwarder accepts no more services, and services move away; default 0.85
	Low     float64       // maximum load of a forwarder that relieves another one; default 0.6
	Sustain time.Duration // how long the load must exceed High before services move away; default 1 min
	Settle  time.Duration // how long the load of a forwarder is ignored after a move from or to it; default 2 min
	Rest    time.Duration // minimum time between two moves of a service for load; default 10 min
	Dead    time.Duration // how long a forwarder is unreachable before its services move; default 10 s
	Stale   time.Duration // an older load counts as unknown; default 1 min
	New     float64       // assumed load of a new service during Settle, before its load is measured; default 0.02
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
	number(&o.High, 0.85)
	number(&o.Low, 0.6)
	number(&o.New, 0.02)
	duration(&o.Sustain, time.Minute)
	duration(&o.Settle, 2*time.Minute)
	duration(&o.Rest, 10*time.Minute)
	duration(&o.Dead, 10*time.Second)
	duration(&o.Stale, time.Minute)
	return o
}

// Ranked is a forwarder with its rank; the first one is the best.
type Ranked struct {
	Forwarder
	Number   float64 // its load: the highest part, plus the assumed load of new services
	Known    bool    // it was measured, and not too long ago
	Services int
	Text     string // the load in words
}

// unknownLoad is assumed for a forwarder whose load is unknown: it ranks after those with known capacity.
const unknownLoad = 0.5

// Rank orders forwarders by load, those that serve before those that do not.
func (o Options) Rank(now time.Time, forwarders []Forwarder, services []Service) []Ranked {
	o = o.withDefaults()
	list := make([]Ranked, 0, len(forwarders))
	for _, f := range forwarders {
		r := Ranked{Forwarder: f}
		r.Number, r.Text, r.Known = o.number(f.Load, now)
		for _, s := range services {
			if s.At != f.Name {
				continue
			}
			r.Services += max(1, s.Count)
			if now.Sub(s.Since) < o.Settle {
				r.Number += o.New
			}
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Ranked) int {
		if down := boolean(!a.Away.IsZero()) - boolean(!b.Away.IsZero()); down != 0 {
			return down
		}
		return cmp.Or(cmp.Compare(a.Number, b.Number), a.Services-b.Services, strings.Compare(a.Name, b.Name))
	})
	return list
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// number returns a load as one number, and in words.
func (o Options) number(l Load, now time.Time) (float64, string, bool) {
	if l.At.IsZero() {
		return unknownLoad, "load unknown", false
	}
	if age := now.Sub(l.At); age > o.Stale {
		return unknownLoad, fmt.Sprintf("load unknown for %s", age.Round(time.Second)), false
	}
	maximum, parts := -1.0, []string(nil)
	for _, part := range []struct {
		name  string
		value float64
	}{{"workers", l.Busy}, {"table", l.Table}, {"link", l.Link}} {
		if part.value < 0 {
			continue
		}
		maximum = max(maximum, part.value)
		parts = append(parts, fmt.Sprintf("%s %.0f%%", part.name, 100*part.value))
	}
	if l.Busy < 0 { // the other parts alone are weak evidence, and an idle table is none
		return unknownLoad, "load not known yet", false
	}
	return maximum, strings.Join(parts, ", "), true
}

// Choice is the forwarder for a service, or why there is none.
type Choice struct {
	Forwarder string // empty: none fits
	Why       string
}

// Place chooses a forwarder for a service.
func (o Options) Place(now time.Time, s Service, forwarders []Forwarder, services []Service) Choice {
	o = o.withDefaults()
	return o.among(s, o.Rank(now, forwarders, services), services, o.High)
}

// among chooses the first of ranked forwarders that fits and has a load below a limit.
func (o Options) among(s Service, ranked []Ranked, services []Service, limit float64) Choice {
	var chosen *Ranked
	var others []string
	for i := range ranked {
		r := &ranked[i]
		why := o.unfit(s, r, services, limit)
		switch {
		case why != "":
			others = append(others, r.Name+": "+why)
		case chosen == nil:
			chosen = r
		default:
			others = append(others, r.Name+": "+r.Text)
		}
	}
	if chosen == nil {
		if len(ranked) == 0 {
			return Choice{Why: "there is no forwarder"}
		}
		return Choice{Why: "no forwarder fits: " + strings.Join(others, "; ")}
	}
	if s.Spare {
		if why := o.missingSpare(ranked, chosen.Name, true); why != "" {
			return Choice{Why: "N+1 would be violated: " + why}
		}
	}
	why := chosen.Text
	if len(others) > 0 {
		why += "; " + strings.Join(others, "; ")
	}
	return Choice{chosen.Name, why}
}

// unfit returns why a forwarder cannot serve a service.
func (o Options) unfit(s Service, r *Ranked, services []Service, limit float64) string {
	if !r.Away.IsZero() {
		return cmp.Or(r.Why, "does not serve")
	}
	if why := s.Refused[r.Name]; why != "" {
		return why
	}
	if s.Group != "" {
		for _, other := range services {
			if other.Group == s.Group && other.At == r.Name && other.Key != s.Key {
				return fmt.Sprintf("has %s of the group %s", other.Key, s.Group)
			}
		}
	}
	if r.Number >= limit {
		return fmt.Sprintf("too busy (%s)", r.Text)
	}
	return ""
}

// MissingSpare returns why the others could not replace a lost forwarder; empty: they could.
func (o Options) MissingSpare(now time.Time, forwarders []Forwarder, services []Service) string {
	o = o.withDefaults()
	return o.missingSpare(o.Rank(now, forwarders, services), "", len(services) > 0)
}

// missingSpare is MissingSpare with one more service at a forwarder; any: there are services.
func (o Options) missingSpare(ranked []Ranked, to string, any bool) string {
	serving := 0
	for _, r := range ranked {
		serving += boolean(r.Away.IsZero())
	}
	if serving < 2 && any { // no other forwarder could replace it, whatever its load
		return []string{"no forwarder serves", "only one forwarder serves"}[serving]
	}
	number := func(r *Ranked) float64 {
		if r.Name == to {
			return r.Number + o.New
		}
		return r.Number
	}
	for i := range ranked {
		lost := &ranked[i]
		if !lost.Away.IsZero() {
			continue
		}
		room := 0.0
		for j := range ranked {
			if other := &ranked[j]; j != i && other.Away.IsZero() {
				room += max(0, o.High-number(other))
			}
		}
		if need := number(lost); need > room {
			return fmt.Sprintf("without %s, the others lack capacity for %.0f%% of a forwarder", lost.Name, 100*(need-room))
		}
	}
	return ""
}
