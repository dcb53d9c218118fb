// SPDX-License-Identifier: Apache-2.0

// Package health checks servers. Each server has a timer, and a goroutine only while its check runs; a
// limit bounds the simultaneous checks.
package health

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/stall"
	"steelyard/internal/store"
)

// Server is a probe's information about a server.
type Server struct {
	Ref    model.ServerRef
	Mark   uint32 // for checks on the VIP; 0: checks use the server's own address
	Marked uint64 // version of the store since which it has that mark
}

// Probe checks a server once; nil means that it passed.
type Probe func(ctx context.Context, policy model.Health, server Server) error

// ErrNotYet means that a server cannot be checked yet; it is no evidence about the server's state.
var ErrNotYet = errors.New("not yet")

// notYetPause is the delay before the next attempt for a server that could not be checked yet.
const notYetPause = 100 * time.Millisecond

// Options of a Checker.
type Options struct {
	Probe Probe
	// Report is called for a server that went up or down, with the epoch of its store.Target.
	Report func(ref model.ServerRef, epoch uint64, state State)
	Limit  int // simultaneous checks
	// Observe is called for every finished check.
	Observe func(Observation)
	// Stalls reports when this process did not run; nil: stall.Process().
	Stalls *stall.Watch
}

// Observation describes one check.
type Observation struct {
	Duration time.Duration
	Passed   bool
	Behind   time.Duration // how much later than due it began
	Late     bool          // by more than the tolerance

	Undecided Undecided // why it is inconclusive
	Err       error     // of a check that failed
}

// startSpread is the average delay between the first checks of new servers: 20 000 of them start over two
// seconds.
const startSpread = 100 * time.Microsecond

// Checker is safe for use by several goroutines.
type Checker struct {
	options Options
	slots   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	late    lateness
	stalls  stalls

	mu      sync.Mutex
	targets map[model.ServerRef]*target
}

// target is a server that is checked. The checker's mutex guards its fields.
type target struct {
	ref     model.ServerRef
	epoch   uint64
	policy  model.Health
	server  Server
	machine machine
	timer   *time.Timer
	due     time.Time // when the next check should begin
	gone    bool

	stalled int           // successive checks that a stall made inconclusive
	ran     time.Duration // in which this host ran during these
}

// wait starts the target's next check after a delay.
func (t *target) wait(delay time.Duration) {
	t.due = time.Now().Add(delay)
	t.timer.Reset(delay)
}

// New returns a checker that has no targets yet; Close ends it.
func New(options Options) *Checker {
	ctx, cancel := context.WithCancel(context.Background())
	if options.Stalls == nil {
		options.Stalls = stall.Process()
	}
	c := &Checker{
		options: options, slots: make(chan struct{}, options.Limit), ctx: ctx, cancel: cancel,
		targets: map[model.ServerRef]*target{}, stalls: stalls{process: options.Stalls, read: readSteal},
	}
	c.running.Go(func() { c.stalls.run(ctx) })
	return c
}

// Watch replaces the servers to be checked. Those that remain keep their state and schedule.
func (c *Checker) Watch(targets []store.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	next := make(map[model.ServerRef]*target, len(targets))
	var fresh []*target
	for _, wanted := range targets {
		t := c.targets[wanted.Ref]
		if t == nil || t.epoch != wanted.Epoch {
			t = &target{ref: wanted.Ref, epoch: wanted.Epoch, machine: machine{State: State{Up: wanted.Up}, checked: wanted.Checked}}
			fresh = append(fresh, t)
		} else if t.policy.Interval != wanted.Policy.Interval && t.timer.Stop() {
			t.wait(spread(wanted.Policy.Interval))
		}
		t.policy = wanted.Policy
		t.server = Server{Ref: wanted.Ref, Mark: wanted.Mark, Marked: wanted.Marked}
		t.machine.rise, t.machine.fall = wanted.Policy.Rise, wanted.Policy.Fall
		next[wanted.Ref] = t
	}
	for ref, t := range c.targets {
		if next[ref] != t {
			t.gone = true
			t.timer.Stop()
		}
	}
	c.targets = next
	for _, t := range fresh {
		delay := spread(min(startSpread*time.Duration(len(fresh)), t.policy.Interval))
		t.due = time.Now().Add(delay)
		t.timer = time.AfterFunc(delay, func() { c.check(t) })
	}
}

// Close stops all checks and waits for the running ones.
func (c *Checker) Close() {
	c.mu.Lock()
	c.cancel()
	for _, t := range c.targets {
		t.gone = true
		t.timer.Stop()
	}
	c.mu.Unlock()
	c.running.Wait()
}

// State returns the state of a server; false if it is not checked.
func (c *Checker) State(ref model.ServerRef) (State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.targets[ref]
	if t == nil {
		return State{}, false
	}
	return t.machine.State, true
}

// check runs on its own goroutine, started by the target's timer.
func (c *Checker) check(t *target) {
	c.mu.Lock()
	if t.gone {
		c.mu.Unlock()
		return
	}
	c.running.Add(1)
	policy, server, due := t.policy, t.server, t.due
	c.mu.Unlock()
	defer c.running.Done()

	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, policy.Timeout)
	connect := &connection{}
	err := c.options.Probe(context.WithValue(ctx, connectionKey{}, connect), policy, server)
	cancel()
	<-c.slots
	duration := time.Since(start)
	if c.ctx.Err() != nil {
		return
	}
	if errors.Is(err, ErrNotYet) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !t.gone {
			t.wait(notYetPause)
		}
		return
	}
	behind := max(0, start.Sub(due))
	why := c.judge(t, policy, err, start, duration)
	late := c.late.note(start, behind, tolerance(policy), why, err)
	c.options.Observe(Observation{Duration: duration, Passed: err == nil, Behind: behind, Late: late, Undecided: why, Err: err})
	if why != Decided {
		c.repeat(t, why, err, duration)
		return
	}
	c.finish(t, err, start, duration, connect.took())
}

func (c *Checker) finish(t *target, err error, start time.Time, duration, connect time.Duration) {
	c.mu.Lock()
	if t.gone {
		c.mu.Unlock()
		return
	}
	t.stalled, t.ran = 0, 0
	flipped := t.machine.note(err, start, duration)
	t.machine.LastConnect = connect
	state := t.machine.State
	c.mu.Unlock()

	// Report without the lock, as the store calls Watch under its own lock. The order is still right, as
	// the next check of this target starts only below. If the target was removed meanwhile and the server
	// came back as another target, the store sees it by the epoch.
	if flipped {
		c.options.Report(t.ref, t.epoch, state)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.gone {
		t.due = start.Add(jitter(t.policy))
		t.timer.Reset(max(0, time.Until(t.due)))
	}
}

// Lateness returns how punctual checks were in the last minute or less.
func (c *Checker) Lateness() Lateness {
	return c.late.read(time.Now())
}

func spread(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// jitter returns the interval, changed at random by up to the policy's percentage.
func jitter(policy model.Health) time.Duration {
	width := policy.Interval * time.Duration(policy.Jitter) / 100
	return policy.Interval - width + spread(2*width)
}
