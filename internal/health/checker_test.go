// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/store"
)

// The tests run in synctest's bubbles, where time passes only while all goroutines wait.

func targets(n int, policy model.Health, up, checked bool) []store.Target {
	list := make([]store.Target, n)
	for i := range list {
		address := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		list[i] = store.Target{Ref: model.ServerRef{Address: netip.AddrPortFrom(address, 80)}, Policy: policy, Up: up, Checked: checked}
	}
	return list
}

// recorder simulates servers that are all healthy or all faulty.
type recorder struct {
	mu       sync.Mutex
	ill      bool
	takes    time.Duration
	checks   map[model.ServerRef]int
	starts   []time.Time
	current  int
	maximum  int
	flips    map[bool]int
	observed int
}

func (r *recorder) checker(limit int) *Checker {
	r.checks, r.flips = map[model.ServerRef]int{}, map[bool]int{}
	return New(Options{Limit: limit, Probe: r.probe,
		Report: func(_ model.ServerRef, _ uint64, state State) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.flips[state.Up]++
		},
		Observe: func(Observation) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.observed++
		}})
}

func (r *recorder) probe(ctx context.Context, _ model.Health, server Server) error {
	ref := server.Ref
	r.mu.Lock()
	r.checks[ref]++
	r.starts = append(r.starts, time.Now())
	r.current++
	r.maximum = max(r.maximum, r.current)
	ill, takes := r.ill, r.takes
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.current--
	}()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if ill {
		return errors.New("ill")
	}
	return nil
}

func (r *recorder) count(ref model.ServerRef) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checks[ref]
}

func (r *recorder) setIll(ill bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ill = ill
}

var policy = model.Health{Type: model.HealthTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}

func TestTwentyThousandServersWithoutABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const servers, limit = 20000, 100
		r := &recorder{takes: time.Millisecond}
		c := r.checker(limit)
		defer c.Close()
		c.Watch(targets(servers, policy, true, true))
		time.Sleep(policy.Interval + time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.checks) != servers {
			t.Errorf("%d of %d were checked", len(r.checks), servers)
		}
		if r.maximum > limit {
			t.Errorf("%d checks at once, at most %d are allowed", r.maximum, limit)
		}
		for start := 0; start+servers/4 < servers; start += servers / 4 {
			if width := r.starts[start+servers/4].Sub(r.starts[start]); width < policy.Interval/8 {
				t.Errorf("a quarter of the first checks began within %s", width)
			}
		}
	})
}

func TestServersFallAndRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		c := r.checker(10)
		defer c.Close()
		list := targets(3, policy, true, true)
		c.Watch(list)
		expect := func(after time.Duration, down, up int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.flips[false] != down || r.flips[true] != up {
				t.Errorf("%d went down, %d up; want %d and %d", r.flips[false], r.flips[true], down, up)
			}
		}
		expect(10*time.Second, 0, 0)
		r.setIll(true)
		expect(3*policy.Interval, 3, 0)
		if state, ok := c.State(list[0].Ref); !ok || state.Up || state.LastError != "ill" {
			t.Errorf("%+v, %v", state, ok)
		}
		r.setIll(false)
		expect(2*policy.Interval, 3, 3)
		c.Watch(list[:1])
		if _, ok := c.State(list[1].Ref); ok {
			t.Error("what is no longer watched has a state")
		}
		r.setIll(true)
		expect(4*policy.Interval, 4, 3)
	})
}

func TestServersThatStayKeepStateAndRhythm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{ill: true}
		c := r.checker(10)
		defer c.Close()
		list := targets(1, policy, true, true)
		c.Watch(list)
		time.Sleep(policy.Interval + policy.Interval/2) // one or two failures
		for range 5 {
			c.Watch(targets(1, policy, true, true))
		}
		time.Sleep(2 * policy.Interval)
		synctest.Wait()
		if state, _ := c.State(list[0].Ref); state.Up || r.count(list[0].Ref) > 4 {
			t.Errorf("%+v after %d checks", state, r.count(list[0].Ref))
		}
		hasty := policy
		hasty.Interval = 100 * time.Millisecond
		c.Watch(targets(1, hasty, true, true))
		before := r.count(list[0].Ref)
		time.Sleep(time.Second)
		synctest.Wait()
		if made := r.count(list[0].Ref) - before; made < 9 {
			t.Errorf("%d checks in a second of 100 ms intervals", made)
		}
	})
}

func TestSlowChecksTimeOutAndDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{takes: time.Hour}
		c := r.checker(10)
		defer c.Close()
		slow := policy
		slow.Interval = slow.Timeout / 4
		list := targets(1, slow, true, true)
		c.Watch(list)
		time.Sleep(10 * slow.Timeout)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.maximum != 1 || r.flips[false] != 1 || r.observed < 9 {
			t.Errorf("%d at once, %d flips, %d ended", r.maximum, r.flips[false], r.observed)
		}
	})
}

func TestCloseEndsChecksUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{takes: time.Hour}
		c := r.checker(1)
		slow := policy
		slow.Timeout = time.Minute
		c.Watch(targets(5, slow, true, true))
		time.Sleep(policy.Interval)
		c.Close()
		c.Watch(targets(5, policy, true, true))
		time.Sleep(time.Hour)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.starts) != 1 || r.flips[false] != 0 {
			t.Errorf("%d began, %d flips", len(r.starts), r.flips[false])
		}
	})
}

func TestASuccessorStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{ill: true}
		c := r.checker(10)
		defer c.Close()
		list := targets(1, policy, true, true)
		c.Watch(list)
		time.Sleep(4 * policy.Interval)
		synctest.Wait()
		list[0].Epoch++
		r.setIll(false)
		c.Watch(list)
		time.Sleep(4 * policy.Interval)
		synctest.Wait()
		if state, _ := c.State(list[0].Ref); !state.Up || !state.Changed.IsZero() || r.flips[true] != 0 {
			t.Errorf("%+v: it inherited what its predecessor was", state)
		}
	})
}

func TestJitterStaysInItsBounds(t *testing.T) {
	p := policy
	p.Jitter = 10
	low, high := p.Interval, p.Interval
	for range 10000 {
		d := jitter(p)
		low, high = min(low, d), max(high, d)
	}
	if low < p.Interval*9/10 || high > p.Interval*11/10 || high-low < p.Interval/10 {
		t.Errorf("from %s to %s", low, high)
	}
}

// A server that cannot be checked yet does not change its state, and is checked again soon.
func TestErrNotYetIsInconclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ready atomic.Bool
		var asked atomic.Uint32
		flips := make(chan bool, 9)
		c := New(Options{Limit: 1,
			Probe: func(_ context.Context, _ model.Health, server Server) error {
				asked.Store(server.Mark)
				if !ready.Load() {
					return ErrNotYet
				}
				return nil
			},
			Report:  func(_ model.ServerRef, _ uint64, state State) { flips <- state.Up },
			Observe: func(Observation) {},
		})
		defer c.Close()
		list := targets(1, policy, false, false)
		list[0].Mark = 7
		c.Watch(list)
		time.Sleep(time.Minute)
		if state, _ := c.State(list[0].Ref); !state.LastCheck.IsZero() || len(flips) != 0 || asked.Load() != 7 {
			t.Errorf("%+v, mark %d", state, asked.Load())
		}
		ready.Store(true)
		time.Sleep(policy.Interval)
		if len(flips) != 1 || !<-flips {
			t.Error("it was not checked in the end")
		}
	})
}
