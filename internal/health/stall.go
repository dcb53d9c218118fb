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
	"steelyard/internal/stall"
)

// A stall is a time in which this host, or this process, did not run: other programs or the hypervisor had the processors, or
// the process was stopped. Answers of servers wait then, and time-outs pass.

const (
	// stealEvery is the period of readings of stolen time.
	stealEvery = time.Second
	// keptSteals bounds the history: more than the longest timeout needs.
	keptSteals = 64
)

// stalls measures for how long this host did not run.
type stalls struct {
	process *stall.Watch
	read    func() []time.Duration // stolen time of each processor since the boot; tests replace it

	mu     sync.Mutex
	steals []steal
}

// steal is a reading of the time that the hypervisor did not run each processor.
type steal struct {
	at  time.Time
	cpu []time.Duration
}

// run reads stolen time until ctx ends.
func (s *stalls) run(ctx context.Context) {
	ticker := time.NewTicker(stealEvery)
	defer ticker.Stop()
	for {
		s.noteSteal(time.Now())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *stalls) noteSteal(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steals) == keptSteals {
		s.steals = slices.Delete(s.steals, 0, 1)
	}
	s.steals = append(s.steals, steal{now, s.read()})
}

// since returns for how long this host did not run since a time, at most all of it.
func (s *stalls) since(from time.Time) time.Duration {
	return min(max(s.process.Late(from), s.stolen(from)), time.Since(from))
}

// stolen returns the most time that one processor has lost to the hypervisor since the last reading before a time.
func (s *stalls) stolen(from time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := -1
	for i := range s.steals {
		if s.steals[i].at.Before(from) {
			at = i
		}
	}
	if at < 0 {
		return 0
	}
	var maximum time.Duration
	for cpu, now := range s.read() {
		if before := s.steals[at].cpu; cpu < len(before) {
			maximum = max(maximum, now-before[cpu])
		}
	}
	return maximum
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
