// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"steelyard/internal/model"
)

const (
	// lookEvery is the time between two assessments.
	lookEvery = 200 * time.Millisecond
	// maxPatience bounds the wait for the forwarder in one assessment.
	maxPatience = 400 * time.Millisecond
	// minPatience is the wait in the last assessment before a withdrawal.
	minPatience = 50 * time.Millisecond
)

// Options of a Manager.
type Options struct {
	Config  func() *model.Config // the running configuration; nil: none
	Drained func() bool          // this node is drained
	// Assess assesses this host; it waits for the forwarder no longer than patience.
	Assess func(ctx context.Context, patience time.Duration) Assessment
	Log    *slog.Logger
}

// Manager keeps the announced routes equal to what this host can serve.
type Manager struct {
	options Options
	looks   chan chan struct{}
	kernel  kernel
	speaker speaker
	last    *Assessment // of a forwarder that answered; nil: none so far
	silent  time.Time   // since when the forwarder does not answer; zero: it does

	mu        sync.Mutex
	states    []State
	err       error // of the announcements
	withdrawn uint64
}

// New returns a manager that does nothing until Run.
func New(options Options) *Manager {
	return &Manager{options: options, looks: make(chan chan struct{}), speaker: speaker{log: options.Log}}
}

// Run works until ctx ends. Kernel routes stay: the forwarder serves without an agent.
func (m *Manager) Run(ctx context.Context) {
	defer m.speaker.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			m.look(ctx)
		case done := <-m.looks:
			m.look(ctx)
			close(done)
		case <-ctx.Done():
			return
		}
		timer.Reset(m.pause())
	}
}

// Sync looks at once, and returns when the routes agree with what it finds.
func (m *Manager) Sync(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case m.looks <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause returns the time until the next look.
func (m *Manager) pause() time.Duration {
	if config := m.options.Config(); config != nil && !m.silent.IsZero() {
		return max(0, min(lookEvery, time.Until(m.silent.Add(config.Routes.WithdrawAfter-minPatience))))
	}
	return lookEvery
}

// look assesses this host, and announces and withdraws routes.
func (m *Manager) look(ctx context.Context) {
	config := m.options.Config()
	switch {
	case config != nil:
	case m.options.Drained():
		config = &model.Config{}
	default: // none has been valid since this start: the forwarder keeps the last one, and the routes of an earlier agent stay
		return
	}
	var states []State
	if config.Routes.Enabled() {
		assessment, ok := m.assess(ctx, config.Routes.WithdrawAfter)
		if !ok || ctx.Err() != nil {
			return
		}
		states = decide(config, assessment)
	}
	routes := announced(states)
	m.note(states, errors.Join(m.kernel.set(config.Routes.Kernel, routes), m.speaker.set(config.Routes.BGP, routes)))
}

// assess returns false while nothing is to be changed: the forwarder may be restarting, and before its first answer the routes of an earlier agent stay.
func (m *Manager) assess(ctx context.Context, withdrawAfter time.Duration) (Assessment, bool) {
	if m.options.Drained() {
		return Assessment{Fault: "this node is drained"}, true
	}
	patience, start := maxPatience, time.Now()
	if !m.silent.IsZero() {
		patience = max(minPatience, min(patience, time.Until(m.silent.Add(withdrawAfter))))
	}
	now := m.options.Assess(ctx, patience)
	if now.Pending {
		return now, false
	}
	if !now.Silent {
		m.silent, m.last = time.Time{}, &now
		return now, true
	}
	if m.silent.IsZero() {
		m.silent = start
	}
	if time.Since(m.silent) >= withdrawAfter {
		m.last = &now
	}
	if m.last == nil {
		return Assessment{}, false
	}
	return *m.last, true
}

// note records and logs the decisions.
func (m *Manager) note(states []State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	before := make(map[netip.Prefix]*State, len(m.states))
	for i := range m.states {
		before[m.states[i].Prefix] = &m.states[i]
	}
	for i := range states {
		state := &states[i]
		was := before[state.Prefix]
		if was != nil && was.Announced() == state.Announced() {
			state.Since = was.Since
			continue
		}
		state.Since = now
		if state.Announced() {
			m.options.Log.Info("route is announced", "prefix", state.Prefix, "kind", state.Kind)
		} else if was != nil {
			m.withdrawn++
			m.options.Log.Warn("route is withdrawn", "prefix", state.Prefix, "kind", state.Kind, "reason", state.Reason)
		}
	}
	if err != nil && (m.err == nil || m.err.Error() != err.Error()) {
		m.options.Log.Error("routes are not announced as decided", "error", err)
	}
	m.states, m.err = states, err
}

// Status is the state of all routes.
type Status struct {
	States    []State
	Withdrawn uint64 // withdrawals since the start
	Err       error  // why routes are not announced as decided
	Neighbors []Neighbor
}

// Status returns the state of all routes.
func (m *Manager) Status() Status {
	neighbors := m.speaker.states()
	m.mu.Lock()
	defer m.mu.Unlock()
	return Status{slices.Clone(m.states), m.withdrawn, m.err, neighbors}
}

// Warnings returns what does not work.
func (m *Manager) Warnings() []string {
	var warnings []string
	status := m.Status()
	if status.Err != nil {
		warnings = append(warnings, status.Err.Error())
	}
	for i := range status.Neighbors {
		if n := &status.Neighbors[i]; !n.Established() {
			warnings = append(warnings, fmt.Sprintf("no BGP session with %s (state %s%s)", n.Address, n.State, after(", ", n.Error)))
		}
	}
	return warnings
}

// KernelText describes where kernel routes are; empty: nowhere.
func KernelText(config *model.Config) string {
	if config == nil || config.Routes.Kernel.Table == 0 {
		return ""
	}
	kernel := config.Routes.Kernel
	return fmt.Sprintf("table %d, metric %d, protocol %d", kernel.Table, kernel.Metric, Protocol)
}

// after returns a text with a prefix, if there is a text.
func after(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
