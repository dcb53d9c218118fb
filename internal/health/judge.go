// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"time"

	"steelyard/internal/model"
)

// Undecided is why a check is inconclusive.
type Undecided uint8

// The reasons.
const (
	Decided     Undecided = iota
	HostFault             // an error of this host: HostError
	HostStalled           // this host did not run meanwhile
)

func (u Undecided) String() string {
	return [...]string{"decided", "host", "stall"}[u]
}

// Bounds of successive checks that stalls make inconclusive: a host that always stalls must still detect dead servers.
const (
	maxStalledTimeouts = 2 // time-outs in which this host did run, over all of these checks
	maxStalled         = 10
)

// judge returns whether a check is conclusive.
func (c *Checker) judge(t *target, policy model.Health, err error, start time.Time, duration time.Duration) Undecided {
	if err == nil {
		return Decided
	}
	if host := (*HostError)(nil); errors.As(err, &host) {
		return HostFault
	}
	// The check's own timer may be the first to run after a stall.
	stalled := max(c.stalls.since(start), duration-policy.Timeout)
	if stalled <= toleratedStall(policy) {
		return Decided
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.stalled++
	t.ran += duration - stalled
	if t.ran >= maxStalledTimeouts*policy.Timeout || t.stalled > maxStalled {
		return Decided
	}
	return HostStalled
}

// repeat schedules the next check of a server after an inconclusive one: at once after a stall, and at the regular interval while this host has a fault.
func (c *Checker) repeat(t *target, why Undecided, err error, duration time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.gone {
		return
	}
	if why == HostStalled {
		t.machine.undecided("this host did not run during the check: " + err.Error())
		t.wait(0)
		return
	}
	t.machine.undecided(err.Error())
	t.wait(max(0, jitter(t.policy)-duration))
}
