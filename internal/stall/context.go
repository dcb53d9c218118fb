// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"context"
	"sync"
	"time"
)

// patient is a context whose end moves with the stalls.
type patient struct {
	context.Context                  // the parent
	deadline        func() time.Time // nil: only the parent's
	done            chan struct{}
	mu              sync.Mutex
	err             error
}

func (p *patient) Done() <-chan struct{} { return p.done }

func (p *patient) Deadline() (time.Time, bool) {
	at, has := p.Context.Deadline()
	if p.deadline == nil {
		return at, has
	}
	if own := p.deadline(); !has || own.Before(at) {
		return own, true
	}
	return at, true
}

func (p *patient) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *patient) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		close(p.done)
	}
}

// WithTimeout is context.WithTimeout, but time in which this process was stalled does not count. The context
// reports no deadline, which a dialer would take as fixed.
func (w *Watch) WithTimeout(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return w.begin(&patient{Context: parent, done: make(chan struct{})}, limit)
}

// WithDeadline is WithTimeout, and reports a deadline: a request carries it to its server.
func (w *Watch) WithDeadline(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	begun := time.Now()
	deadline := func() time.Time { return begun.Add(limit + w.Late(begun)) }
	return w.begin(&patient{Context: parent, deadline: deadline, done: make(chan struct{})}, limit)
}

func (w *Watch) begin(p *patient, limit time.Duration) (context.Context, context.CancelFunc) {
	parent := p.Context
	stopParent := context.AfterFunc(parent, func() { p.end(parent.Err()) })
	if parent.Err() != nil {
		p.end(parent.Err())
	}
	stop := w.After(limit, func() { p.end(context.DeadlineExceeded) })
	return p, func() {
		stopParent()
		stop()
		p.end(context.Canceled)
	}
}
