// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What was learned is too little, or too little by now: three times as much would pass, and shares leave 93 % of it. Answers are late
// for 10 s now and then: that does not confirm it.
func TestShortSignsDoNotConfirmACapacity(t *testing.T) {
	for name, test := range map[string]struct {
		next    func(*rand.Rand) int // seconds from one flicker to the next
		maximum int                  // hours until it is followed
	}{
		"each 45 min": {func(*rand.Rand) int { return 45 * 60 }, 2}, "each 10 min": {func(r *rand.Rand) int { return 1 + int(600*r.ExpFloat64()) }, 6},
	} {
		var c Capacity
		now := begin
		fill(&c, &now, 100*mbit)
		fill(&c, &now, 100*mbit)
		if c.Rate() == 0 {
			t.Fatal("not learned")
		}
		c.hold = maxHold // trials have failed for long
		random := rand.New(rand.NewPCG(9, 9))
		held, flicker := 0, test.next(random)
		for second := range 24 * 3600 {
			rate, sign := 250*mbit, 0.0
			if c.Rate() > 0 {
				rate = min(rate, 0.93*c.Rate())
				held = second
			}
			if flicker--; flicker < 10 {
				sign = 2
			}
			if flicker <= 0 {
				flicker = 10 + test.next(random)
			}
			steps(&c, &now, 1, rate*(1+0.03*random.NormFloat64()), sign)
		}
		t.Logf("flickers %s: held back for %v", name, time.Duration(held)*time.Second)
		if held > test.maximum*3600 {
			t.Errorf("flickers %s: held back for %v", name, time.Duration(held)*time.Second)
		}
	}
}

// A candidate of long ago confirms nothing.
func TestCandidatesAgree(t *testing.T) {
	for apart, want := range map[time.Duration]bool{24 * time.Hour: true, 40 * time.Hour: false} {
		var c Capacity
		now := begin
		fill(&c, &now, 100*mbit)
		steps(&c, &now, int(apart.Seconds()), 50*mbit, 0)
		fill(&c, &now, 100*mbit)
		if learned := c.Rate() > 0; learned != want {
			t.Errorf("%v apart: learned %v", apart, c.Rate())
		}
	}
}

// A path with a permanently longer delay becomes the new base: its link does not stay full, and its capacity is probed again.
func TestLongerPathIsNotAFullLinkForever(t *testing.T) {
	for _, learned := range []bool{true, false} {
		c := observed{now: begin}
		after := 12 * 3600
		if learned {
			after = 3600
			for range 2 {
				c.run(300, 70*mbit, 0.0022)
				c.run(60, 100*mbit, 0.02)
				c.run(60, 70*mbit, 0.0022)
			}
		}
		c.run(100, 90*mbit, 0.0022)
		if (c.Rate() > 0) != learned || c.Full() {
			t.Fatalf("learned %v, full %v", c.Rate(), c.Full())
		}
		c.run(after-60, 90*mbit, 0.0072)
		if !c.Full() {
			t.Errorf("learned %v: not full any more before its time", learned)
		}
		c.run(120, 90*mbit, 0.0072)
		if c.Full() {
			t.Errorf("learned %v: full for ever", learned)
		}
		c.run(1800, 90*mbit, 0.0072)
		if c.Full() || learned && c.Rate() < 110*mbit || !learned && c.Rate() > 0 {
			t.Errorf("learned %v: full %v, %v is not tried", learned, c.Full(), c.Rate())
		}
	}
}
