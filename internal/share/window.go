// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"time"
)

// windowPart is half of the window.
const windowPart = 5 * time.Minute

// window is the least or the most of a value over the last 5 to 10 minutes.
type window struct {
	now, before float64 // of the current half, and of the previous one
	since       time.Time
}

// take adds a value; pick is min or max.
func (w *window) take(at time.Time, value float64, pick func(a, b float64) float64) {
	switch age := at.Sub(w.since); {
	case w.since.IsZero() || age >= 2*windowPart:
		*w = window{value, value, at}
	case age >= windowPart:
		*w = window{value, w.now, at}
	}
	w.now = pick(w.now, value)
}

// of returns the extreme; 0: nothing was added for too long.
func (w *window) of(at time.Time, pick func(a, b float64) float64) float64 {
	if w.since.IsZero() || at.Sub(w.since) >= 2*windowPart {
		return 0
	}
	return pick(w.now, w.before)
}

// Excess tracks a measure that grows when a link is full, relative to its base, the minimum of the last minutes.
type Excess struct {
	value smoothed
	base  window
}

// Take adds a measurement, and returns its excess: 1 is half the base, and floor at least. While the link counts as full, the base does not age, so that a
// standing queue does not become part of the base.
func (e *Excess) Take(m Measure, smooth time.Duration, floor float64, full bool) float64 {
	before := e.value.at
	e.value.take(m, smooth, math.MaxFloat64)
	if e.value.at.IsZero() {
		return 0
	}
	if full && !before.IsZero() {
		e.base.since = e.base.since.Add(e.value.at.Sub(before))
	}
	e.base.take(e.value.at, e.value.value, math.Min)
	base := e.base.of(e.value.at, math.Min)
	return (e.value.value - base) / max(floor, base/2)
}

// Again resets the base to the next measurement.
func (e *Excess) Again() { e.base = window{} }
