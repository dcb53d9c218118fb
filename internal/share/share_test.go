// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

var begin = time.Unix(1_000_000, 0)

// even returns servers that are alike and measured now.
func even(n int, now time.Time) []Server {
	servers := make([]Server, n)
	for i := range servers {
		servers[i] = Server{
			Key: fmt.Sprintf("s%d", i), Weight: 1, Up: true,
			Delay: At(now, 0.0022), Loss: At(now, 0), Link: At(now, 0.3), CPU: At(now, 0.3), Latency: At(now, 0.01),
		}
	}
	return servers
}

// undamped is a balancer whose first step shows the equations' own result.
func undamped(o Options) *Balancer {
	o.Settle, o.Smooth = time.Nanosecond, time.Nanosecond
	return New(o)
}

// settled returns what a balancer says once it has had its time.
func settled(b *Balancer, servers func(now time.Time) []Server) Result {
	var result Result
	for i := range 3 {
		now := begin.Add(time.Duration(i) * time.Second)
		result = b.Step(now, servers(now))
	}
	return result
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s: %.12f, want %.12f", what, got, want)
	}
}

// checkRanges verifies what holds for all results: ranges are side by side and fill [0,1).
func checkRanges(t *testing.T, r Result) {
	t.Helper()
	at := 0.0
	for _, s := range r.Shares {
		if s.From != at && s.Share > 0 {
			t.Fatalf("%s begins at %v, its neighbour ends at %v", s.Key, s.From, at)
		}
		if s.Share < 0 || s.To < s.From || math.IsNaN(s.Share) {
			t.Fatalf("%+v", s)
		}
		at = max(at, s.To)
	}
	if len(r.Shares) > 0 && r.Warning != "no server is up" && at != 1 {
		t.Fatalf("ranges end at %v", at)
	}
}

func TestEquationsByHand(t *testing.T) {
	b := undamped(Options{Minimum: 1e-12})
	r := settled(b, func(now time.Time) []Server {
		s := even(3, now)
		s[0].Delay, s[1].Delay, s[2].Delay = At(now, 0.001), At(now, 0.002), At(now, 0.004)
		s[0].Link, s[1].Link, s[2].Link = At(now, 0.5), At(now, 0), At(now, 0)
		s[0].CPU, s[1].CPU, s[2].CPU = At(now, 0.2), At(now, 0.5), At(now, 0.8)
		return s
	})
	// (5): 500, 500, 250: mean 1250/3. (6): 0.8, 0.5, 0.2: mean 0.5.
	for i, want := range []struct{ phi, eta float64 }{{0.2, 0.6}, {0.2, 0}, {-0.4, -0.6}} {
		near(t, "φ", r.Shares[i].Phi, want.phi)
		near(t, "η", r.Shares[i].Eta, want.eta)
		near(t, "λ", r.Shares[i].Share, (1+(want.phi+want.eta)/2)/3)
	}
	checkRanges(t, r)
}

func TestGammaChoosesWhatCounts(t *testing.T) {
	for _, test := range []struct{ gamma, want float64 }{{1, 0.5}, {-1, 0.25}, {0.5, 0.375}} {
		r := settled(undamped(Options{Gamma: test.gamma, Minimum: 1e-12}), func(now time.Time) []Server {
			s := even(2, now)
			s[0].CPU, s[1].CPU = At(now, 0.8), At(now, 0.4)
			return s
		})
		near(t, fmt.Sprintf("γ %v", test.gamma), r.Shares[0].Share, test.want)
	}
}

func TestWeightsCount(t *testing.T) {
	r := settled(undamped(Options{}), func(now time.Time) []Server {
		s := even(3, now)
		s[0].Weight, s[1].Weight, s[2].Weight = 1, 2, 5
		return s
	})
	for i, want := range []float64{0.125, 0.25, 0.625} {
		near(t, "share", r.Shares[i].Share, want)
	}
}

func TestOverloadedAreSetAside(t *testing.T) {
	for name, spoil := range map[string]func(*Server, time.Time){
		"link": func(s *Server, now time.Time) { s.Link = At(now, 0.99) },
		"cpu":  func(s *Server, now time.Time) { s.CPU = At(now, 0.97) },
		"loss": func(s *Server, now time.Time) { s.Loss = At(now, 0.2) },
	} {
		r := settled(undamped(Options{Minimum: 0.05}), func(now time.Time) []Server {
			s := even(5, now)
			spoil(&s[2], now)
			return s
		})
		if got := r.Shares[2]; got.State != SetAside || !strings.Contains(got.Reason, name) {
			t.Errorf("%s: %+v", name, got)
		}
		near(t, name+": a share to show that it recovered", r.Shares[2].Share, 0.01)
		near(t, name+": the others", r.Shares[0].Share, 0.99/4)
		checkRanges(t, r)
	}
}

func TestShareFallsBeforeOverload(t *testing.T) {
	previous := 1.0
	for cpu := 0.80; cpu < 0.96; cpu += 0.01 {
		r := settled(undamped(Options{}), func(now time.Time) []Server {
			s := even(10, now)
			s[0].CPU = At(now, cpu)
			return s
		})
		got := r.Shares[0]
		if got.Share >= previous || previous-got.Share > 0.012 && previous < 1 {
			t.Errorf("cpu %.2f: share %v after %v: not a little less", cpu, got.Share, previous)
		}
		if near := cpu > 0.855 && cpu < 0.945; math.Abs(cpu-0.85) > 0.001 && near != strings.HasPrefix(got.Reason, "near overload: cpu") {
			t.Errorf("cpu %.2f: %q", cpu, got.Reason)
		}
		previous = got.Share
	}
	near(t, "at last", previous, 0.05*0.1)
}

func TestAllOverloadedShareByWeight(t *testing.T) {
	r := settled(undamped(Options{}), func(now time.Time) []Server {
		s := even(3, now)
		for i := range s {
			s[i].CPU = At(now, 1)
		}
		s[0].Weight = 2
		return s
	})
	near(t, "share", r.Shares[0].Share, 0.5)
	if !strings.Contains(r.Warning, "overloaded") {
		t.Errorf("warning %q", r.Warning)
	}
	one := settled(undamped(Options{}), func(now time.Time) []Server {
		s := even(10, now)
		for i := range s[1:] {
			s[i].CPU = At(now, 1)
		}
		return s
	})
	if got := one.Shares[9].Share; got > 0.6 || one.Warning == "" {
		t.Errorf("one of ten has room, and gets %v, warning %q", got, one.Warning)
	}
}

func TestMissingDataDegradesVisibly(t *testing.T) {
	r := settled(undamped(Options{}), func(now time.Time) []Server {
		s := even(4, now)
		s[0].CPU = Measure{}
		s[1].CPU, s[1].Delay, s[1].Link, s[1].Loss = Measure{}, Measure{}, Measure{}, Measure{}
		s[3].CPU = At(now, 0.6)
		return s
	})
	for i, want := range []struct {
		state  State
		reason string
	}{{Partly, "no cpu"}, {Blind, "no delay, no cpu"}, {Measured, ""}, {Measured, ""}} {
		if got := r.Shares[i]; got.State != want.state || got.Reason != want.reason {
			t.Errorf("%d: %v %q, want %v %q", i, got.State, got.Reason, want.state, want.reason)
		}
	}
	near(t, "who is not measured counts as the mean", r.Shares[1].Share, 0.25)
	if r.Shares[3].Share >= r.Shares[2].Share {
		t.Error("the measured ones do not differ")
	}
	nothing := settled(undamped(Options{}), func(time.Time) []Server {
		return []Server{{Key: "a", Weight: 3, Up: true}, {Key: "b", Weight: 1, Up: true}}
	})
	near(t, "nothing measured at all", nothing.Shares[0].Share, 0.75)
}

func TestOldDataFadesToTheWeight(t *testing.T) {
	b := undamped(Options{})
	measured := begin
	previous := 1.0
	for age := time.Duration(0); age <= 70*time.Second; age += 5 * time.Second {
		now := begin.Add(age)
		s := even(2, measured)
		s[0].CPU = At(measured, 0.2)
		s[1].CPU = At(measured, 0.8)
		r := b.Step(now, s)
		switch got := r.Shares[0]; {
		case age == 0:
		case age <= 15*time.Second && got.State != Measured:
			t.Errorf("after %v: %v", age, got.State)
		case age > 15*time.Second && age < time.Minute && (got.State != Partly || !strings.Contains(got.Reason, "s old")):
			t.Errorf("after %v: %v %q", age, got.State, got.Reason)
		case age >= time.Minute && (got.State != Blind || math.Abs(got.Share-0.5) > 0.02):
			t.Errorf("after %v: %+v", age, got)
		}
		if age >= 5*time.Second && r.Shares[0].Share > previous+1e-9 {
			t.Errorf("after %v the share grew to %v", age, r.Shares[0].Share)
		}
		if age > 0 {
			previous = r.Shares[0].Share
		}
	}
}

// Whatever is measured of a server that looks worse counts while it is new, and not at all once it is a minute old. What a
// share is based on says so, where the measure is one that it needs.
func TestEachSourceFades(t *testing.T) {
	for name, one := range map[string]struct {
		policy Policy
		worse  func(s *Server, at time.Time)
		reason string
	}{
		"delay":   {Capability, func(s *Server, at time.Time) { s.Delay = At(at, 0.01) }, "delay 40 s old"},
		"loss":    {Capability, func(s *Server, at time.Time) { s.Loss = At(at, 0.04) }, ""},
		"link":    {Capability, func(s *Server, at time.Time) { s.Link = At(at, 0.9) }, ""},
		"cpu":     {Capability, func(s *Server, at time.Time) { s.CPU = At(at, 0.9) }, "cpu 40 s old"},
		"latency": {LeastLatency, func(s *Server, at time.Time) { s.Latency = At(at, 0.05) }, "latency 40 s old"},
	} {
		b := undamped(Options{Policy: one.policy})
		at := func(age time.Duration) Share {
			s := even(2, begin.Add(age))
			for i := range s {
				s[i].Latency, s[i].Link = At(begin.Add(age), 0.002), At(begin.Add(age), 0)
			}
			one.worse(&s[0], begin)
			return b.Step(begin.Add(age), s).Shares[0]
		}
		var fresh, old, gone Share
		for age := time.Duration(0); age <= 5*time.Minute; age += time.Second {
			now := at(age)
			switch age {
			case 10 * time.Second:
				fresh = now
			case 40 * time.Second:
				old = now
			}
			gone = now
		}
		if fresh.Share > 0.45 {
			t.Errorf("%s: it does not count: %+v", name, fresh)
		}
		if !strings.Contains(old.Reason, one.reason) || one.reason != "" && old.State != Partly {
			t.Errorf("%s, 40 s old: %v, %q", name, old.State, old.Reason)
		}
		if math.Abs(gone.Share-0.5) > 0.03 || strings.Contains(gone.Reason, "overload") {
			t.Errorf("%s, five minutes old: %+v", name, gone)
		}
	}
}

func TestOutGetsNothing(t *testing.T) {
	r := settled(undamped(Options{}), func(now time.Time) []Server {
		s := even(4, now)
		s[0].Up = false
		s[2].Weight = 0
		return s
	})
	for i, want := range []float64{0, 0.5, 0, 0.5} {
		near(t, "share", r.Shares[i].Share, want)
	}
	checkRanges(t, r)
	none := settled(undamped(Options{}), func(now time.Time) []Server {
		s := even(1, now)
		s[0].Up = false
		return s
	})
	if none.Warning == "" || Draw(none.Shares, 0.3) != -1 {
		t.Errorf("%+v", none)
	}
}

func TestSlowStart(t *testing.T) {
	b := New(Options{})
	previous := 0.0
	for i := range 200 {
		now := begin.Add(time.Duration(i) * time.Second)
		s := even(2, now)
		s[1].Up = i >= 100
		r := b.Step(now, s)
		got := r.Shares[1]
		switch {
		case i < 100 && got.Share != 0:
			t.Fatalf("%d: down with share %v", i, got.Share)
		case i >= 100 && got.Share < previous-1e-9:
			t.Fatalf("%d: fell from %v to %v", i, previous, got.Share)
		case i == 102 && (got.Share > 0.15 || !got.Starting):
			t.Fatalf("it began with %v", got.Share)
		}
		previous = got.Share
	}
	if math.Abs(previous-0.5) > 0.011 {
		t.Errorf("it ends with %v", previous)
	}
	first := New(Options{}).Step(begin, even(2, begin))
	near(t, "who was there from the beginning does not start slowly", first.Shares[0].Share, 0.5)
}

func TestNonsenseIsNotTaken(t *testing.T) {
	b := undamped(Options{})
	for i, value := range []float64{math.NaN(), math.Inf(1), -1, math.Inf(-1)} {
		now := begin.Add(time.Duration(i) * time.Second)
		s := even(3, now)
		s[0].CPU, s[0].Delay, s[0].Link = At(now, value), At(now, value), At(now, value)
		r := b.Step(now, s)
		checkRanges(t, r)
		if r.Shares[0].State != Blind {
			t.Errorf("%v: %v", value, r.Shares[0].State)
		}
	}
	// A clock that goes back moves nothing, and later measures count again.
	r := b.Step(begin.Add(-time.Hour), even(3, begin.Add(-time.Hour)))
	checkRanges(t, r)
}

func TestDrawFollowsTheRanges(t *testing.T) {
	shares := []Share{{Share: 0.2}, {Share: 0}, {Share: 0.8}, {Share: 0}}
	ranges(shares)
	for number, want := range map[float64]int{0: 0, 0.1999: 0, 0.2: 2, 0.999999999: 2, 1: 2} {
		if got := Draw(shares, number); got != want {
			t.Errorf("%v: %d, want %d", number, got, want)
		}
	}
	many := make([]Share, 1000)
	for i := range many {
		many[i].Share = 1.0 / 1000
	}
	ranges(many)
	if many[999].To != 1 || Draw(many, math.Nextafter(1, 0)) != 999 {
		t.Errorf("the last ends at %v", many[999].To)
	}
}

func TestOnlyWhatMattersIsPublished(t *testing.T) {
	b := New(Options{})
	changes := 0
	for i := range 300 {
		now := begin.Add(time.Duration(i) * time.Second)
		s := even(4, now)
		s[0].CPU = At(now, 0.3+0.01*math.Sin(float64(i)))
		if b.Step(now, s).Changed {
			changes++
		}
	}
	if changes != 1 {
		t.Errorf("%d changes for 1 %% of CPU", changes)
	}
	now := begin.Add(301 * time.Second)
	if !b.Step(now, even(3, now)).Changed {
		t.Error("a server is gone, and nothing has changed")
	}
}
