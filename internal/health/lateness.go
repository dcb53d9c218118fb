// SPDX-License-Identifier: Apache-2.0

package health

import (
	"sync"
	"time"

	"steelyard/internal/model"
)

// Lateness is how far checks kept to their times of late.
type Lateness struct {
	Checks uint64 // that began
	Late   uint64 // of those, the ones that began later than they should by more than is tolerated
	Worst  time.Duration
}

// latenessWindow is what Lateness looks back on: one to two of these.
const latenessWindow = 30 * time.Second

// tolerance is how much later than it should a check may begin: a tenth of its interval, as much as the
// jitter that it has unless told otherwise, and what a busy machine takes to start anything.
func tolerance(policy model.Health) time.Duration {
	return max(policy.Interval/10, 100*time.Millisecond)
}

// lateness counts in two windows: the one that is filled, and the one before.
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

func (l *lateness) note(at time.Time, by time.Duration, tolerated time.Duration) (late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	l.now.Checks++
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
	return Lateness{l.before.Checks + l.now.Checks, l.before.Late + l.now.Late, max(l.before.Worst, l.now.Worst)}
}
