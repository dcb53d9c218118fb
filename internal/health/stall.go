// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"steelyard/internal/model"
)

// A stall is a time in which this host, or this process, did not run: other programs or the hypervisor had the processors, or
// the process was stopped. Answers of servers wait then, and time-outs pass.

const (
	// stallTick is the period of the clock that notices stalls of this process.
	stallTick = 50 * time.Millisecond
	// stealEvery is the period of readings of stolen time.
	stealEvery = time.Second
	// keptStalls and keptSteals bound what is remembered: more than the longest time-out needs.
	keptStalls = 256
	keptSteals = 64
)

// stalls knows when this host did not run in the last minute.
type stalls struct {
	mu     sync.Mutex
	last   time.Time // the clock's last tick; zero: it does not run
	late   []span    // ticks that came late
	steals []steal
	read   func() []time.Duration // stolen time of each processor since the boot; tests replace it
}

type span struct{ from, to time.Time }

// steal is a reading of the time that the hypervisor did not run each processor.
type steal struct {
	at  time.Time
	cpu []time.Duration
}

// run ticks until ctx ends.
func (s *stalls) run(ctx context.Context) {
	ticker := time.NewTimer(stallTick)
	defer ticker.Stop()
	s.tick(time.Now())
	for {
		select {
		case <-ticker.C:
			s.tick(time.Now())
			ticker.Reset(stallTick)
		case <-ctx.Done():
			return
		}
	}
}

// tick notes that the process runs. A tick that is late by more than a period is a stall.
func (s *stalls) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && now.Sub(s.last) > 2*stallTick {
		s.late = keep(s.late, span{s.last.Add(stallTick), now}, keptStalls)
	}
	s.last = now
	if n := len(s.steals); n == 0 || now.Sub(s.steals[n-1].at) >= stealEvery {
		s.steals = keep(s.steals, steal{now, s.read()}, keptSteals)
	}
}

// keep appends to a list and drops its first elements if there are too many.
func keep[T any](list []T, one T, most int) []T {
	if len(list) >= most {
		list = slices.Delete(list, 0, len(list)-most+1)
	}
	return append(list, one)
}

// within returns for how long this host did not run between two times. Its clock may itself wait for a processor now.
func (s *stalls) within(from, to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum time.Duration
	overlap := func(one span) {
		if one.from.Before(from) {
			one.from = from
		}
		if one.to.After(to) {
			one.to = to
		}
		sum += max(0, one.to.Sub(one.from))
	}
	for _, one := range s.late {
		overlap(one)
	}
	if !s.last.IsZero() && to.Sub(s.last) > 2*stallTick {
		overlap(span{s.last.Add(stallTick), to})
	}
	return min(max(sum, s.stolen(from)), max(0, to.Sub(from)))
}

// stolen returns the most time that one processor has lost to the hypervisor since the last reading before a time.
func (s *stalls) stolen(from time.Time) time.Duration {
	at := -1
	for i := range s.steals {
		if s.steals[i].at.Before(from) {
			at = i
		}
	}
	if at < 0 {
		return 0
	}
	var most time.Duration
	for cpu, now := range s.read() {
		if before := s.steals[at].cpu; cpu < len(before) {
			most = max(most, now-before[cpu])
		}
	}
	return most
}

// readSteal reads the stolen time of each processor. /proc/stat counts in hundredths of a second (USER_HZ).
func readSteal() []time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	var all []time.Duration
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) < 9 || !bytes.HasPrefix(fields[0], []byte("cpu")) {
			break // the processors come first
		}
		if len(fields[0]) == len("cpu") {
			continue // the sum
		}
		ticks, _ := strconv.ParseInt(string(fields[8]), 10, 64)
		all = append(all, time.Duration(ticks)*10*time.Millisecond)
	}
	return all
}

// toleratedStall is the part of a check's time-out in which this host need not run.
func toleratedStall(policy model.Health) time.Duration {
	return max(policy.Timeout/10, 5*time.Millisecond)
}

// CPUPressure returns the share of the last 10 s in which a program of this host waited for a processor, as the kernel's
// pressure stall information has it, or "".
func CPUPressure() string {
	data, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return ""
	}
	_, rest, found := bytes.Cut(data, []byte("avg10="))
	value, _, _ := bytes.Cut(rest, []byte(" "))
	if !found {
		return ""
	}
	return string(value) + " %"
}
