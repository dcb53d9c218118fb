// SPDX-License-Identifier: Apache-2.0

// Package stall measures when this process did not run: it was stopped, or its CPUs had other work. Time-outs
// that wait for a peer subtract that time, so that a stall of this host is not mistaken for a failure of the
// peer. docs/design/0056-stalls.md.
package stall

import (
	"context"
	"sync"
	"time"
)

const (
	// period is the time between two ticks; a shorter stall is not detected.
	period = 100 * time.Millisecond
	// tolerated is the gap between two ticks from which on it is a stall.
	tolerated = 2 * period
	// remembered bounds the memory: with a stall every second, these are the last four minutes.
	remembered = 256
)

type span struct{ from, until time.Time }

// Watch is a ticker that records its own lateness. The nil Watch, and one that does not run, report no stall.
type Watch struct {
	mu     sync.Mutex
	last   time.Time // of the latest tick; zero: it does not run
	stalls []span    // the oldest first
}

// Run ticks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	w.tick(time.Now())
	for {
		select {
		case <-ticker.C:
			w.tick(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// tick charges the complete gap since the tick before, if it is a stall: the stall may have begun at once.
func (w *Watch) tick(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.last.IsZero() && now.Sub(w.last) > tolerated {
		w.add(w.last, now)
	}
	w.last = now
}

func (w *Watch) add(from, until time.Time) {
	if len(w.stalls) == remembered {
		w.stalls = append(w.stalls[:0], w.stalls[1:]...)
	}
	w.stalls = append(w.stalls, span{from, until})
}

// Note records a stall that was found by other means, or that a test needs.
func (w *Watch) Note(from, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(from, until)
}

// Late returns for how long this process has been stalled since then. A stall that has just ended counts
// before the ticker has seen it: other timers may expire first.
func (w *Watch) Late(since time.Time) time.Duration {
	return w.lateUntil(since, time.Now())
}

func (w *Watch) lateUntil(since, now time.Time) (late time.Duration) {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.stalls {
		late += overlap(s, since)
	}
	if !w.last.IsZero() && now.Sub(w.last) > tolerated {
		late += overlap(span{w.last, now}, since)
	}
	return late
}

func overlap(s span, since time.Time) time.Duration {
	if s.from.Before(since) {
		s.from = since
	}
	return max(0, s.until.Sub(s.from))
}

// Since returns the time that has passed and in which this process ran.
func (w *Watch) Since(at time.Time) time.Duration {
	now := time.Now()
	return max(0, now.Sub(at)-w.lateUntil(at, now))
}

// After calls f in its own goroutine once this process has run for so long. Stop has the same result as that
// of time.Timer: false if f has been called.
func (w *Watch) After(limit time.Duration, f func()) (stop func() bool) {
	t := &timer{watch: w, begun: time.Now(), limit: limit, f: f}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(limit, t.expire)
	return t.stop
}

type timer struct {
	watch *Watch
	begun time.Time
	limit time.Duration
	f     func()
	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// grace lets this process read, after a stall, the data that its peers have sent meanwhile.
const grace = 2 * period

func (t *timer) expire() {
	t.mu.Lock()
	if left := t.limit - t.watch.Since(t.begun); left > 0 && !t.over {
		t.timer.Reset(max(left, grace))
		t.mu.Unlock()
		return
	}
	over := t.over
	t.over = true
	t.mu.Unlock()
	if !over {
		t.f()
	}
}

func (t *timer) stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := t.over
	t.over = true
	t.timer.Stop()
	return !over
}

// process is the watch of this process.
var (
	process Watch
	started sync.Once
)

// Start starts the watch of this process, which never ends. Without it, the functions below know of no stall,
// which is what tests in virtual time need.
func Start() {
	started.Do(func() {
		process.tick(time.Now())
		go process.Run(context.Background())
	})
}

// Process returns the watch of this process.
func Process() *Watch { return &process }

// Late returns for how long this process has been stalled since then.
func Late(since time.Time) time.Duration { return process.Late(since) }

// Since returns the time that has passed and in which this process ran.
func Since(at time.Time) time.Duration { return process.Since(at) }

// After calls f in its own goroutine once this process has run for so long.
func After(limit time.Duration, f func()) (stop func() bool) { return process.After(limit, f) }

// WithTimeout is context.WithTimeout, but stalls of this process do not count.
func WithTimeout(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return process.WithTimeout(parent, limit)
}

// WithDeadline is WithTimeout, and reports a deadline: a request carries it to its server.
func WithDeadline(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return process.WithDeadline(parent, limit)
}
