// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"
	"testing/synctest"
	"time"
)

// lateAfter checks a number of servers for a minute with limited slots; each check takes the given time.
func lateAfter(t *testing.T, servers, slots int, takes time.Duration) Lateness {
	t.Helper()
	r := &recorder{takes: takes}
	c := r.checker(slots)
	defer c.Close()
	c.Watch(targets(servers, policy, true, true))
	time.Sleep(time.Minute)
	synctest.Wait()
	return c.Lateness()
}

func TestChecksInTimeAreNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if l := lateAfter(t, 100, 100, time.Millisecond); l.Late != 0 || l.Worst != 0 || l.Checks < 100 {
			t.Errorf("%+v", l)
		}
	})
}

func TestMoreChecksThanCanBeMadeAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each takes an eighth of the interval: one slot can check eight servers in time.
		l := lateAfter(t, 32, 1, policy.Interval/8)
		if l.Late*2 < l.Checks || l.Worst < policy.Interval {
			t.Errorf("%+v", l)
		}
	})
}

func TestLatenessIsForgotten(t *testing.T) {
	start := time.Now()
	var l lateness
	l.note(start, 3*time.Second, time.Second, Decided, nil)
	l.note(start, time.Millisecond, time.Second, Decided, nil)
	for _, c := range []struct {
		after time.Duration
		want  Lateness
	}{
		{0, Lateness{Checks: 2, Late: 1, Worst: 3 * time.Second}},
		{latenessWindow, Lateness{Checks: 2, Late: 1, Worst: 3 * time.Second}},
		{2 * latenessWindow, Lateness{}},
	} {
		if got := l.read(start.Add(c.after)); got != c.want {
			t.Errorf("after %s: %+v, want %+v", c.after, got, c.want)
		}
	}
}
