// SPDX-License-Identifier: Apache-2.0

package health

import "time"

// State is the current state of one server.
type State struct {
	Up           bool
	Streak       int // successive checks with the same result as the last one
	LastPassed   bool
	LastError    string // of the last check that failed
	LastCheck    time.Time
	LastDuration time.Duration
	LastConnect  time.Duration // of that: until the connection was established; 0: it was not
	Changed      time.Time     // when it last went up or down

	Undecided      int    // successive inconclusive checks
	UndecidedError string // why the last of them was inconclusive; empty: there is none
}

// machine decides from check results whether a server is up.
type machine struct {
	State
	checked    bool // false: the next check alone decides
	rise, fall int
}

// note records the result of a check, nil if it passed. Returns whether the server went up or down.
func (m *machine) note(err error, at time.Time, duration time.Duration) (flipped bool) {
	passed := err == nil
	m.Undecided, m.UndecidedError = 0, ""
	if passed != m.LastPassed || m.LastCheck.IsZero() {
		m.Streak = 0
	}
	m.Streak++
	m.LastPassed, m.LastCheck, m.LastDuration = passed, at, duration
	if !passed {
		m.LastError = err.Error()
	}
	needed := m.fall
	if passed {
		needed = m.rise
	}
	if m.checked && m.Streak < needed {
		return false
	}
	m.checked = true
	if m.Up == passed {
		return false
	}
	m.Up, m.Changed = passed, at
	return true
}

// undecided records an inconclusive check.
func (m *machine) undecided(why string) {
	m.Undecided++
	m.UndecidedError = why
}
