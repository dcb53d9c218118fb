// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var begin = time.Unix(1_000_000, 0)

func busy(name string, load float64) Forwarder {
	return Forwarder{Name: name, Load: Load{Busy: load, Table: load / 2, Link: -1, At: begin}}
}

func away(name string, since time.Time) Forwarder {
	return Forwarder{Name: name, Away: since, Why: "is not connected"}
}

func TestPlace(t *testing.T) {
	old := begin.Add(-time.Hour)
	grouped := []Service{{Key: "a", At: "f1", Since: old, Group: "g"}, {Key: "b", At: "f2", Since: old}}
	for name, c := range map[string]struct {
		forwarders []Forwarder
		service    Service
		services   []Service
		want, why  string
	}{
		"the least busy":   {forwarders: []Forwarder{busy("f1", 0.5), busy("f2", 0.2), busy("f3", 0.3)}, want: "f2", why: "workers 20%, table 10%; f3: workers 30%"},
		"not one away":     {forwarders: []Forwarder{busy("f1", 0.5), away("f2", begin)}, want: "f1", why: "f2: is not connected"},
		"anti-affinity":    {forwarders: []Forwarder{busy("f1", 0.1), busy("f2", 0.5)}, services: grouped, service: Service{Group: "g"}, want: "f2", why: "f1: has a of the group g"},
		"refused":          {forwarders: []Forwarder{busy("f1", 0.1), busy("f2", 0.5)}, service: Service{Refused: map[string]string{"f1": "it refuses this"}}, want: "f2", why: "f1: it refuses this"},
		"too busy":         {forwarders: []Forwarder{busy("f1", 0.9), busy("f2", 0.86)}, why: "no forwarder fits: f2: too busy"},
		"none":             {why: "there is no forwarder"},
		"not known":        {forwarders: []Forwarder{busy("f1", 0.7), {Name: "f2"}}, want: "f2", why: "load unknown"},
		"busy not known":   {forwarders: []Forwarder{busy("f1", 0.4), {Name: "f2", Load: Load{Busy: -1, Link: -1, At: begin}}}, want: "f1", why: "load not known yet"},
		"known and calm":   {forwarders: []Forwarder{busy("f1", 0.4), {Name: "f2"}}, want: "f1"},
		"old":              {forwarders: []Forwarder{busy("f1", 0.4), {Name: "f2", Load: Load{At: begin.Add(-2 * time.Minute)}}}, want: "f1", why: "load unknown for 2m0s"},
		"new ones count":   {forwarders: []Forwarder{busy("f1", 0.10), busy("f2", 0.11)}, services: []Service{{Key: "a", At: "f1", Since: begin}}, want: "f2"},
		"evenly":           {forwarders: []Forwarder{busy("f1", 0), busy("f2", 0)}, services: []Service{{Key: "a", At: "f1", Since: old}}, want: "f2"},
		"N+1 holds":        {forwarders: []Forwarder{busy("f1", 0.3), busy("f2", 0.3)}, service: Service{Spare: true}, want: "f1"},
		"N+1 does not":     {forwarders: []Forwarder{busy("f1", 0.5), busy("f2", 0.4)}, service: Service{Spare: true}, why: "N+1 would be violated: without f2"},
		"N+1 of one alone": {forwarders: []Forwarder{busy("f1", 0.1)}, service: Service{Spare: true}, why: "N+1 would be violated: only one forwarder serves"},
	} {
		t.Run(name, func(t *testing.T) {
			c.service.Key = "new"
			got := Options{}.Place(begin, c.service, c.forwarders, c.services)
			if got.Forwarder != c.want || !strings.Contains(got.Why, c.why) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// world answers to decisions: forwarders carry the sum of their services' demands.
type world struct {
	*testing.T
	planner    *Planner
	names      []string
	demand     []func(at time.Duration) float64 // of each service, as a part of a forwarder
	services   []Service
	dead       map[string]time.Duration // since when
	noise      float64
	late       time.Duration // age of measurements
	history    []map[string]float64
	moves      []Move
	moveTimes  []time.Duration
	random     uint64
	unplaced   int
	maxPerStep int
}

const tick = 5 * time.Second

func newWorld(t *testing.T, forwarders int, places ...int) *world {
	w := &world{T: t, planner: New(Options{}), dead: map[string]time.Duration{}, random: 16}
	for i := range forwarders {
		w.names = append(w.names, fmt.Sprintf("f%d", i+1))
	}
	for i, at := range places {
		w.services = append(w.services, Service{Key: fmt.Sprintf("s%02d", i+1), At: w.names[at], Since: begin.Add(-time.Hour), Part: -1})
		w.demand = append(w.demand, func(time.Duration) float64 { return 0.2 })
	}
	return w
}

// draw returns a number of -1 to 1.
func (w *world) draw() float64 {
	w.random = w.random*6364136223846793005 + 1442695040888963407
	return float64(int64(w.random)) / (1 << 63)
}

func (w *world) run(length time.Duration) {
	smooth := map[string]float64{}
	for at := time.Duration(0); at < length; at += tick {
		real := map[string]float64{}
		for i, s := range w.services {
			real[s.At] += w.demand[i](at)
		}
		for _, name := range w.names {
			measured := min(1, real[name]*(1+w.noise*w.draw()))
			smooth[name] += (measured - smooth[name]) * 0.5
		}
		sample := map[string]float64{}
		for name, value := range smooth {
			sample[name] = value
		}
		w.history = append(w.history, sample)
		seen := w.history[max(0, len(w.history)-1-int(w.late/tick))]
		var forwarders []Forwarder
		for _, name := range w.names {
			f := Forwarder{Name: name, Load: Load{Busy: seen[name], Table: -1, Link: -1, At: begin.Add(at)}}
			if since, ok := w.dead[name]; ok && since <= at {
				f.Away, f.Why = begin.Add(since), "is not connected"
			}
			forwarders = append(forwarders, f)
		}
		for i := range w.services { // parts are measured as well
			if sum := real[w.services[i].At]; sum > 0 {
				w.services[i].Part = w.demand[i](at) / sum
			}
		}
		moves := w.planner.Moves(begin.Add(at), forwarders, w.services)
		w.maxPerStep = max(w.maxPerStep, len(moves))
		for _, m := range moves {
			w.apply(m, at)
		}
	}
}

func (w *world) apply(m Move, at time.Duration) {
	if m.To == "" {
		w.unplaced++
		return
	}
	for i := range w.services {
		if s := &w.services[i]; s.Key == m.Key {
			if s.At != m.From {
				w.Errorf("%s is at %s, and moves from %s", m.Key, s.At, m.From)
			}
			s.At, s.Since = m.To, begin.Add(at)
		}
	}
	w.moves, w.moveTimes = append(w.moves, m), append(w.moveTimes, at)
}

func (w *world) loads() map[string]float64 {
	sum := map[string]float64{}
	for i, s := range w.services {
		sum[s.At] += w.demand[i](24 * time.Hour)
	}
	return sum
}

func TestNoMovesWithoutNeed(t *testing.T) {
	w := newWorld(t, 3, 0, 0, 0, 1, 1, 2)
	w.noise, w.late = 0.2, 10*time.Second // 0.6, 0.4 and 0.2: uneven, but no forwarder is overloaded
	w.run(2 * time.Hour)
	if len(w.moves) > 0 {
		t.Errorf("%+v", w.moves)
	}
}

func TestAStepIsRelieved(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * time.Second, 30 * time.Second} {
		w := newWorld(t, 3, 0, 0, 0, 0, 1, 2)
		w.noise, w.late = 0.1, late
		for i := range 4 {
			w.demand[i] = func(at time.Duration) float64 {
				if at < 10*time.Minute {
					return 0.15
				}
				return 0.3 // f1 would need 1.2
			}
		}
		w.run(2 * time.Hour)
		for name, load := range w.loads() {
			if load >= 0.85 {
				t.Errorf("late by %s: %s has %.2f after %+v", late, name, load, w.moves)
			}
		}
		if len(w.moves) == 0 || len(w.moves) > 2 {
			t.Errorf("late by %s: %+v", late, w.moves)
		}
		if w.moveTimes[0] < 10*time.Minute+w.planner.options.Sustain {
			t.Errorf("after %s", w.moveTimes[0])
		}
	}
}

// A load that comes and goes is not carried around.
func TestServicesDoNotMoveBackAndForth(t *testing.T) {
	for _, period := range []time.Duration{time.Minute, 4 * time.Minute, 20 * time.Minute, time.Hour} {
		w := newWorld(t, 3, 0, 0, 1, 1, 2, 2)
		w.noise, w.late = 0.2, 10*time.Second
		for i := range w.demand {
			w.demand[i] = func(at time.Duration) float64 {
				if i/2 == int(at/period)%3 { // each pair is busy in its turn
					return 0.48
				}
				return 0.2
			}
		}
		w.run(6 * time.Hour)
		count := map[string]int{}
		for _, m := range w.moves {
			count[m.Key]++
		}
		for key, n := range count {
			if maximum := max(2, int(time.Hour*6/max(period, time.Hour))-3); n > maximum { // one that lasts an hour is no swing
				t.Errorf("period %s: %s moved %d times: %+v", period, key, n, w.moves)
			}
		}
		if period == time.Minute && len(w.moves) > 0 {
			t.Errorf("shorter than the sustained load: %+v", w.moves)
		}
	}
}

// If all forwarders are busy, no move helps.
func TestNoMovesWhenAllAreBusy(t *testing.T) {
	w := newWorld(t, 3, 0, 0, 0, 1, 1, 1, 2, 2, 2)
	for i := range w.demand {
		w.demand[i] = func(time.Duration) float64 { return 0.32 }
	}
	w.noise = 0.1
	w.run(2 * time.Hour)
	if len(w.moves) > 0 {
		t.Errorf("%+v", w.moves)
	}
}

// A service that is a forwarder's whole load would only carry it to another one.
func TestTheOnlyServiceStays(t *testing.T) {
	w := newWorld(t, 3, 0)
	w.demand[0] = func(time.Duration) float64 { return 0.95 }
	w.run(time.Hour)
	if len(w.moves) > 0 {
		t.Errorf("%+v", w.moves)
	}
}

func TestDeathMovesAllAndNothingElse(t *testing.T) {
	w := newWorld(t, 4, 0, 0, 1, 1, 2, 3)
	w.services[0].Group, w.services[2].Group = "g", "g"
	w.dead["f1"] = 10 * time.Minute
	w.run(time.Hour)
	if len(w.moves) != 2 || w.maxPerStep != 2 || w.moveTimes[0] != 10*time.Minute+w.planner.options.Dead {
		t.Errorf("%v %+v", w.moveTimes, w.moves)
	}
	for _, m := range w.moves {
		if m.From != "f1" || m.Key == "s01" && m.To == "f2" || !strings.Contains(m.Why, "f1 is not connected") {
			t.Errorf("%+v", m)
		}
	}
	if w.moves[0].To == w.moves[1].To {
		t.Errorf("both went to one: %+v", w.moves)
	}
}

func TestDeathWithoutRoom(t *testing.T) {
	w := newWorld(t, 2, 0, 1, 1, 1, 1, 1)
	w.dead["f1"] = 0
	w.run(time.Minute)
	if len(w.moves) > 0 || w.unplaced == 0 {
		t.Errorf("%+v", w.moves)
	}
}

// A break of measurements moves nothing, and does not count as relief either.
func TestMissingMeasurements(t *testing.T) {
	p := New(Options{})
	services := []Service{{Key: "a", At: "f1", Since: begin.Add(-time.Hour), Part: 0.3}, {Key: "b", At: "f1", Since: begin.Add(-time.Hour), Part: 0.3}}
	at := func(after time.Duration, load float64, measured time.Duration) []Move {
		f1, f2 := busy("f1", load), busy("f2", 0.1)
		f1.Load.At, f2.Load.At = begin.Add(measured), begin.Add(after)
		return p.Moves(begin.Add(after), []Forwarder{f1, f2}, services)
	}
	at(0, 0.95, 0)
	for after := 5 * time.Second; after < time.Minute; after += 5 * time.Second {
		if moves := at(after, 0.95, 0); len(moves) > 0 {
			t.Fatalf("%s: %+v", after, moves)
		}
	}
	if moves := at(70*time.Second, 0.95, 70*time.Second); len(moves) != 1 || moves[0].To != "f2" {
		t.Errorf("%+v", moves)
	}
}

// What was measured long ago says nothing, and what was busy before a break may have been idle meanwhile.
func TestOldMeasurementsMoveNothing(t *testing.T) {
	p := New(Options{})
	services := []Service{{Key: "a", At: "f1", Since: begin.Add(-time.Hour), Part: 0.3}, {Key: "b", At: "f1", Since: begin.Add(-time.Hour), Part: 0.3}}
	at := func(after, measured time.Duration) []Move {
		f1, f2 := busy("f1", 0.95), busy("f2", 0.1)
		f1.Load.At, f2.Load.At = begin.Add(measured), begin.Add(after)
		return p.Moves(begin.Add(after), []Forwarder{f1, f2}, services)
	}
	at(0, -30*time.Second)
	for after := 5 * time.Second; after < 10*time.Minute; after += 5 * time.Second {
		if moves := at(after, -30*time.Second); len(moves) > 0 {
			t.Fatalf("%s: %+v", after, moves)
		}
	}
	for after := 10 * time.Minute; after < 11*time.Minute; after += 5 * time.Second {
		if moves := at(after, after); len(moves) > 0 {
			t.Fatalf("%s: %+v", after, moves)
		}
	}
	if moves := at(11*time.Minute, 11*time.Minute); len(moves) != 1 {
		t.Errorf("%+v", moves)
	}
}

func TestMissingSpareOfTooFew(t *testing.T) {
	services := []Service{{Key: "a", At: "f1", Since: begin.Add(-time.Hour)}}
	idle := busy("f1", 0)
	for name, c := range map[string]struct {
		forwarders []Forwarder
		services   []Service
		missing    bool
	}{
		"one, idle":       {[]Forwarder{idle}, services, true},
		"all dead":        {[]Forwarder{away("f1", begin), away("f2", begin)}, services, true},
		"one without any": {[]Forwarder{idle}, nil, false},
		"two":             {[]Forwarder{idle, busy("f2", 0)}, services, false},
	} {
		if why := (Options{}).MissingSpare(begin, c.forwarders, c.services); (why != "") != c.missing {
			t.Errorf("%s: %q", name, why)
		}
	}
}
