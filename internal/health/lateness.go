// SPDX-License-Identifier: Apache-2.0

package health

import (
	"sync"
	"time"

	"steelyard/internal/model"
)

// Lateness describes the delays of recent checks.
type Lateness struct {
	Checks uint64 // checks that began
	Late   uint64 // of those, checks that began later than the tolerance allows
	Worst  time.Duration

	HostFault   uint64 // checks that an error of this host made inconclusive
	HostStalled uint64 // likewise, a stall of this host
	HostError   error  // the last one
}

// latenessWindow is one window of Lateness, which covers one to two of them.
const latenessWindow = 30 * time.Second

// tolerance is the accepted delay of a check: a tenth of its interval, which equals the default jitter and
// covers the time that a busy machine takes to start anything.
func tolerance(policy model.Health) time.Duration {
	return max(policy.Interval/10, 100*time.Millisecond)
}

// lateness counts in two windows: the present one and the previous one.
type lateness struct {
	mu          sync.Mutex
	since       time.Time
	now, before Lateness
}

func (l *lateness) turn(at time.Time) {
	switch age := at.Sub(l.since); {
	case age < latenessWindow:
	case age < 2*latenessWindow:
		l.before, l.now, l.since = l.now, Lateness{}, l.since.Add(latenessWindow)
	default:
		l.before, l.now, l.since = Lateness{}, Lateness{}, at
	}
}

func (l *lateness) note(at time.Time, by time.Duration, tolerated time.Duration, why Undecided, err error) (late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	l.now.Checks++
	switch why {
	case HostFault:
		l.now.HostFault++
		l.now.HostError = err
	case HostStalled:
		l.now.HostStalled++
	}
	l.now.Worst = max(l.now.Worst, by)
	if late = by > tolerated; late {
		l.now.Late++
	}
	return late
}

func (l *lateness) read(at time.Time) Lateness {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	sum := Lateness{
		Checks: l.before.Checks + l.now.Checks, Late: l.before.Late + l.now.Late, Worst: max(l.before.Worst, l.now.Worst),
		HostFault: l.before.HostFault + l.now.HostFault, HostStalled: l.before.HostStalled + l.now.HostStalled, HostError: l.now.HostError,
	}
	if sum.HostError == nil {
		sum.HostError = l.before.HostError
	}
	return sum
}
