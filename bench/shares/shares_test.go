// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"steelyard/internal/model"
)

// In steady state nothing is lost, and once disturbed, shares carry more with less delay.
func TestSharesBeatTurns(t *testing.T) {
	light := scenario{"light", 4e6, 0.6}
	short := times{disturbAt: 60 * time.Second, measureAt: 200 * time.Second, measureFor: 30 * time.Second}
	steady, disturbed := map[string]result{}, map[string]result{}
	for _, policy := range []string{"rr", "maglev", "capability", "capability, wlc"} {
		steady[policy], disturbed[policy] = simulate(policy, light, 1, short)
		t.Logf("%s: %+v, %+v", policy, steady[policy], disturbed[policy])
	}
	capability, counted := disturbed["capability"], disturbed["capability, wlc"]
	for name, paper := range map[string]struct{ throughput, mean float64 }{"rr": {1.393, 0.456}, "maglev": {1.296, 0.571}} {
		if beside := disturbed[name]; capability.throughput < paper.throughput*beside.throughput || float64(capability.mean) > paper.mean*float64(beside.mean) {
			t.Errorf("capability gains less over %s than in the paper", name)
		}
	}
	if counted.throughput < capability.throughput || counted.mean > capability.mean {
		t.Error("counting sessions for the share is no better than drawing them")
	}
	for _, policy := range []string{"capability", "capability, wlc"} {
		if steady[policy].throughput < 0.99*steady["rr"].throughput || steady[policy].mean > 103*steady["rr"].mean/100 {
			t.Errorf("%s loses in steady state", policy)
		}
	}
}

func TestEventsRunInOrder(t *testing.T) {
	var c clock
	var got []int
	for i, at := range []time.Duration{3, 1, 2, 1} {
		c.after(at, func() { got = append(got, i) })
	}
	q := queue{clock: &c}
	q.take(5, func() { got = append(got, 10) })
	q.take(1, func() { got = append(got, 11) })
	c.run(5)
	c.run(6)
	if len(got) != 6 || got[0] != 1 || got[1] != 3 || got[2] != 2 || got[3] != 0 || got[4] != 10 || got[5] != 11 || q.busy != 6 {
		t.Errorf("%v, busy %v", got, q.busy)
	}
}

func TestFleetConverges(t *testing.T) {
	f := newFleet(20, 50, 5, rand.New(rand.NewPCG(1, 1)))
	turns := func(n int) map[model.ServiceKey]map[netip.AddrPort]float64 {
		for range n {
			f.pass()
			if err := f.loop.Turn(context.Background(), f, f.now); err != nil {
				t.Fatal(err)
			}
		}
		return maps.Clone(f.sent)
	}
	turns(100)
	for address := range f.delay {
		if address.As4()[3]%2 == 0 {
			f.delay[address] += 0.005
		}
	}
	before, soon, late, end := turns(1), turns(20), turns(200), turns(50)
	if behind(before, end) < 0.5 || behind(soon, end) == 0 || behind(late, end) > 0 {
		t.Errorf("behind: %v, %v, %v", behind(before, end), behind(soon, end), behind(late, end))
	}
	set := f.set
	turns(30)
	if all := f.whole(); f.set-set > 6*all || f.answered() == 0 { // two renewals, and what still moves
		t.Errorf("%d bytes in 30 settled turns, of %d for all shares", f.set-set, all)
	}
}

// A turn of one forwarder's loop, with 10 000 services of ten servers.
func BenchmarkTurn(b *testing.B) {
	f := newFleet(10_000, 1000, 10, rand.New(rand.NewPCG(1, 1)))
	for range b.N {
		b.StopTimer()
		f.pass()
		b.StartTimer()
		if err := f.loop.Turn(context.Background(), f, f.now); err != nil {
			b.Fatal(err)
		}
	}
}
