// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/share"
)

// carries passes seconds in which each server sends so many bits, answers SYNs after so long, and loses so many of 200 segments.
func (l *lab) carries(seconds int, bits float64, delay time.Duration, lost uint64) {
	l.Helper()
	for range seconds {
		delays := make([]time.Duration, len(l.config.Services[0].Servers))
		for i := range delays {
			s := l.of(i)
			s.Traffic.BytesOut += uint64(bits / 8)
			s.Delay.Segments += 200
			s.Delay.SegmentsLost += lost
			delays[i] = delay
		}
		l.turns(1, 10, delays...)
	}
}

func (l *lab) link(i int) (Link, bool) {
	state, _ := l.loop.State(l.config.Services[0].Key)
	link, ok := state.Links[l.ref(i)]
	return link, ok
}

// What a link of two servers carries while they are late, and no more once it carries less, is its capacity.
func TestCapacityIsLearned(t *testing.T) {
	for name, full := range map[string]func(l *lab){
		"by delay": func(l *lab) { l.carries(60, 50e6, 20*time.Millisecond, 0) },
		"by loss":  func(l *lab) { l.carries(60, 50e6, 2*time.Millisecond, 8) },
	} {
		l := newLab(t, 2)
		service := &l.config.Services[0]
		service.Feedback.Learn = true
		service.Servers[0].Link, service.Servers[1].Link = "left", "left"
		if _, ok := l.link(0); ok {
			t.Error("a link before the first turn")
		}
		for range 2 {
			l.carries(60, 35e6, 2*time.Millisecond, 0)
			if got, _ := l.link(0); got.Capacity != 0 || !got.Learns || got.Full || got.Name != "left" {
				t.Errorf("%s, before: %+v", name, got)
			}
			full(l)
			if got, _ := l.link(0); !got.Full {
				t.Errorf("%s: it does not look full", name)
			}
			l.carries(60, 40e6, 2*time.Millisecond, 0)
		}
		for i := range 2 {
			got, ok := l.link(i)
			if !ok || got.Capacity < 97e6 || got.Capacity > 103e6 || got.Carries < 79e6 || got.Carries > 81e6 {
				t.Errorf("%s: %+v", name, got)
			}
		}
		l.carries(30, 48e6, 2*time.Millisecond, 0)
		if got := l.share(0); !strings.Contains(got.Reason, "link 9") {
			t.Errorf("%s, nearly full: %+v", name, got)
		}
	}
}

// A queue makes all servers behind a link late; one that is late alone is slow itself.
func TestSlowServerDoesNotMakeItsLinkFull(t *testing.T) {
	l := newLab(t, 2)
	service := &l.config.Services[0]
	service.Feedback.Learn = true
	service.Servers[0].Link, service.Servers[1].Link = "left", "left"
	rate := func(seconds int, bytes uint64, slow time.Duration) {
		for range seconds {
			l.of(0).Traffic.BytesOut += bytes
			l.turns(1, 10, slow, time.Millisecond)
		}
	}
	for range 4 {
		rate(60, 7_000_000, time.Millisecond)
		rate(60, 10_000_000, 20*time.Millisecond)
		if got, _ := l.link(0); got.Full {
			t.Fatalf("%+v", got)
		}
		rate(60, 7_000_000, time.Millisecond)
	}
	if got, _ := l.link(0); got.Capacity != 0 {
		t.Errorf("%+v", got)
	}
}

// Signs with another cause disappear at once, even if no client connects at that moment.
func TestSignsFromAFormerBaseAreIgnored(t *testing.T) {
	l := newLab(t, 1)
	l.config.Services[0].Feedback.Learn = true
	full := func() bool {
		got, _ := l.link(0)
		return got.Full
	}
	l.carries(60, 50e6, 2*time.Millisecond, 0)
	l.carries(60, 50e6, 20*time.Millisecond, 0)
	if !full() {
		t.Fatal("it does not look full")
	}
	for range 120 {
		if l.carries(1, 20e6, 20*time.Millisecond, 0); !full() {
			break
		}
	}
	for i := range 8 {
		if full() {
			t.Fatalf("full after %d s", i)
		}
		l.of(0).Traffic.BytesOut += 20e6 / 8
		l.turns(1, 0)
	}
}

// A configured capacity is shown as such, and is not learned. A learned capacity without users is dropped.
func TestLinksOfConfiguredCapacity(t *testing.T) {
	l := newLab(t, 2)
	l.carries(5, 10e6, time.Millisecond, 0)
	if _, ok := l.link(0); ok {
		t.Error("a link whose use does not count")
	}
	configure := func(change func(*model.Feedback)) {
		l.config = &model.Config{Services: append([]model.Service(nil), l.config.Services...)}
		change(&l.config.Services[0].Feedback)
	}
	configure(func(f *model.Feedback) { f.Capacity = 100_000_000 })
	l.carries(60, 50e6, 20*time.Millisecond, 0)
	if got, _ := l.link(0); got != (Link{Name: "10.1.0.1", Carries: got.Carries, Capacity: 1e8}) || got.Carries < 49e6 {
		t.Errorf("%+v", got)
	}
	configure(func(f *model.Feedback) { f.Capacity, f.Learn = 0, true })
	for range 2 {
		l.carries(60, 35e6, 2*time.Millisecond, 0)
		l.carries(60, 50e6, 20*time.Millisecond, 0)
		l.carries(60, 40e6, 2*time.Millisecond, 0)
	}
	learned, _ := l.link(0)
	configure(func(f *model.Feedback) { f.Gamma = 0.4 }) // the service begins anew, its links do not
	l.carries(5, 40e6, 2*time.Millisecond, 0)
	if got, _ := l.link(0); learned.Capacity == 0 || got.Capacity != learned.Capacity {
		t.Errorf("%+v, before %+v", got, learned)
	}
	configure(func(f *model.Feedback) { f.Learn = false })
	l.carries(5, 40e6, 2*time.Millisecond, 0)
	configure(func(f *model.Feedback) { f.Learn = true })
	l.carries(5, 40e6, 2*time.Millisecond, 0)
	if got, _ := l.link(0); got.Capacity != 0 {
		t.Errorf("it is still %+v", got)
	}
	l.config = &model.Config{}
	l.turns(2, 0)
	if len(l.loop.links) != 0 {
		t.Errorf("%d links without users", len(l.loop.links))
	}
}

// A server whose link's capacity is not learned yet is neither better nor worse for that.
func TestLinksThatAreNotLearnedCountAsTheMean(t *testing.T) {
	l := newLab(t, 3)
	l.config.Services[0].Feedback.Learn = true
	turn := func(seconds int, bytes uint64, delay time.Duration) {
		for range seconds {
			l.of(0).Traffic.BytesOut += bytes
			l.of(1).Traffic.BytesOut += bytes
			l.turns(1, 10, delay, time.Millisecond, time.Millisecond)
		}
	}
	for range 2 {
		turn(60, 7_000_000, time.Millisecond)
		turn(60, 10_000_000, 20*time.Millisecond)
		turn(60, 8_000_000, time.Millisecond)
	}
	turn(300, 7_000_000, time.Millisecond)
	if got, _ := l.link(0); got.Capacity == 0 {
		t.Fatal("not learned")
	}
	for i := range 3 {
		if got := l.share(i); got.Share < 0.32 || got.Share > 0.35 || got.State == share.SetAside {
			t.Errorf("%d: %+v", i, got)
		}
	}
}
