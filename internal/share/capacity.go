// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"time"
)

// Capacity learns a link's capacity from the rates at which it appeared full. Why these rules are as they are:
// docs/design/0043-shares.md, "A learned capacity".
//
//	             a sign                      the rate falls, and the signs go
//	not full ─────────────▶ full: its peak ─────────────────────────────────▶ candidate; two that agree: learned
//	                             │ the rate falls, and the signs stay; or they do for hours
//	                             └───────────────▶ it was not full: signs begin anew
type Capacity struct {
	rate smoothed  // bits/s
	seen time.Time // when signs were last measured

	full  bool
	began time.Time // since when it is full
	tried bool      // the sign appeared while probing above the sure capacity
	peak  float64   // peak rate while full; decays slowly to the current rate
	left  time.Time // since when it carries far less, and signs stay; zero: not so
	clean window    // the most that it carried without a sign

	first   float64 // a candidate that waits for another one; 0: none
	firstAt time.Time
	sure    float64 // as confirmed; 0: not learned
	learned float64 // from sure upwards, while it is tried whether more passes
	at      time.Time
	hold    time.Duration // from at on nothing is tried
	above   time.Time     // since when it carries more than was learned, without a sign; zero: it does not
}

const (
	capacitySmooth = 5 * time.Second
	minCapacity    = 1e6 // bits/s: signs on a nearly idle link are ignored
	signGone       = 0.5 // of a sign
	signLost       = time.Minute

	fell       = 0.9 // of the peak: the signs went with the rate
	farLess    = 0.7 // of the peak: they did not
	farLessFor = 30 * time.Second
	aboveClean = 1.02           // a candidate is above all that has passed without a sign
	firstMax   = 36 * time.Hour // for two crests of one load a day

	fullLearned = time.Hour      // a link of known capacity is not full for longer: its signs have another cause
	fullMax     = 12 * time.Hour // a link of unknown capacity may be full during a whole daily peak

	peakDecay  = 10 * time.Minute
	minHold    = 5 * time.Minute
	maxHold    = time.Hour
	inUse      = 0.8              // of the learned capacity: only above this use, probe for more
	growth     = 10 * time.Minute // time constant of trying: 10 % a minute
	growthMost = 1.5              // of the sure capacity; without a sign up to there it was wrong
	wrong      = 1.1              // of the learned capacity: this rate passed without a sign
	wrongFor   = 10 * time.Second
)

// agree reports whether two candidates mean the same capacity.
func agree(a, b float64) bool { return math.Abs(a-b) <= 0.2*max(a, b) }

// Rate is the learned capacity, bits/s; 0: none.
func (c *Capacity) Rate() float64 { return c.learned }

// Carries returns the link's smoothed rate, bits/s.
func (c *Capacity) Carries() float64 { return c.rate.value }

// Full reports whether the link looks full.
func (c *Capacity) Full() bool { return c.full }

// Step processes the link's rate, and how full it appears: 1 is a sign, and below a half it is gone. seen: signs were measured since the last step.
// Returns true if the signs have another cause, so that their bases must be reset.
func (c *Capacity) Step(now time.Time, rate, sign float64, seen bool) (again bool) {
	elapsed := 0.0
	if !c.rate.at.IsZero() {
		elapsed = max(0, now.Sub(c.rate.at).Seconds())
	}
	c.rate.take(At(now, rate), capacitySmooth, math.MaxFloat64)
	if !seen {
		c.full = c.full && now.Sub(c.seen) < signLost
		return false
	}
	c.seen = now
	switch {
	case !c.full && sign >= 1:
		c.full, c.began, c.tried, c.peak, c.left = true, now, c.learned > c.sure, c.rate.value, time.Time{}
		c.learned = c.sure // the probe went too far
	case c.full && sign < signGone:
		c.full = false
		c.ended(now)
	}
	if c.full {
		return c.stays(now, elapsed)
	}
	c.passes(now, elapsed)
	return false
}

// stays is a step of a link that looks full.
func (c *Capacity) stays(now time.Time, elapsed float64) (again bool) {
	r := c.rate.value
	c.peak = max(r, c.peak-(c.peak-r)*elapsed/peakDecay.Seconds())
	if r > farLess*c.peak {
		c.left = time.Time{}
	} else if c.left.IsZero() {
		c.left = now
	}
	maximum := fullMax
	if c.sure > 0 {
		maximum = fullLearned
	}
	if (c.left.IsZero() || now.Sub(c.left) < farLessFor) && now.Sub(c.began) < maximum {
		return false
	}
	c.full = false
	return true
}

// ended evaluates signs that have gone.
func (c *Capacity) ended(now time.Time) {
	evident := c.peak >= minCapacity && c.rate.value <= fell*c.peak && c.peak >= aboveClean*c.clean.of(now, math.Max)
	// Below the sure capacity, delays of another cause appear at any rate: they confirm nothing.
	known := c.sure > 0 && agree(c.peak, c.sure) && (evident || c.tried)
	if now.Sub(c.firstAt) >= firstMax {
		c.first = 0
	}
	if known {
		c.hold = min(2*c.hold, maxHold)
	}
	switch {
	case known && c.peak > c.sure:
		c.sure += (c.peak - c.sure) / 2
	case evident && c.first > 0 && agree(c.peak, c.first):
		c.sure, c.first = (c.first+c.peak)/2, 0
		if !known {
			c.hold = minHold
		}
	case evident:
		c.first, c.firstAt = c.peak, now
		if !known {
			return
		}
	case !known:
		return
	}
	c.learned, c.at = c.sure, now
}

// passes is a step of a link without signs.
func (c *Capacity) passes(now time.Time, elapsed float64) {
	r := c.rate.value
	c.clean.take(now, r, math.Max)
	if c.learned == 0 {
		return
	}
	if r <= wrong*c.learned {
		c.above = time.Time{}
	} else if c.above.IsZero() {
		c.above = now
	}
	if now.Sub(c.at) >= c.hold && r >= inUse*c.learned {
		c.learned *= 1 + elapsed/growth.Seconds()
	}
	if c.learned > growthMost*c.sure || !c.above.IsZero() && now.Sub(c.above) >= wrongFor {
		c.first, c.sure, c.learned, c.above = 0, 0, 0, time.Time{}
	}
}
