// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"context"
	"sync"
	"time"
)

// patient is a context whose end moves with the stalls. It has no deadline but that of its parent: a dialer
// would take one as fixed.
type patient struct {
	context.Context // the parent
	done            chan struct{}
	mu              sync.Mutex
	err             error
}

func (p *patient) Done() <-chan struct{} { return p.done }

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

// WithTimeout is context.WithTimeout, but time in which this process was stalled does not count.
func (w *Watch) WithTimeout(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	p := &patient{Context: parent, done: make(chan struct{})}
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
